"""Attribute a model's output to its inputs.

In: a model, an item, a measure of one number, and numbers, each a list of objectives that are added
up. Out: values of each side's units: parts of a logit where the measure takes one apart
(ALTI-Logit, DecompX, LRP), else sizes at the states that enter the first layer of each stack
(gradients).

maps_and_logits(): maps of layers, and contributions to logits, from one forward pass.

In: a `Model` with its head, and one item. Out: what `mix` and `logit_contributions` give for it,
each of which would run the model, and read the same attention weights, by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch

from ...adapters.capture.device_copy import inputs_to_device
from ...adapters.capture.layer_run import Block
from ...adapters.model import Model
from ...errors import InputError
from ...files.timing import phase
from ...inputs.words.spans import Span
from ...mixing.maps.logit_contributions import LogitContributions
from ...mixing.maps.map_files import map_folders
from ...mixing.maps.map_set import Maps
from ...mixing.maps.measure_registry import measure_facts
from ...mixing.maps.mixing_map import MixingMap
from ...mixing.measures.measure import BlockReader, Units
from ...mixing.measures.measure_functions import find_measure
from ...mixing.measures.token_objectives import Objective
from ...mixing.passes.batches import resolve_state_dtype
from ...mixing.passes.forward_pass import compute_maps, mix_objectives
from ...mixing.passes.item_view import Item, View
from ...mixing.passes.request import MixRequest, ObjectiveOption
from .logit_contributions import (
    check_splits_logits,
    contributions_provenance,
    label_contributions,
    logit_contributions,
    logit_objective,
)


def maps_and_logits(
    model: Model,
    item: Item,
    measures: Sequence[str],
    logit_measure: str,
    objectives: Sequence[ObjectiveOption],
    **options: Any,
) -> tuple[Maps, list[LogitContributions]]:
    """Maps of measures of single layers, in all stacks, and contributions to each objective.

    Parameters
    ----------
    model : Model
    item : Clip, Sentence, str or dict of tensors
        As in `mix`.
    measures : sequence of str
        Of the maps.
    logit_measure : str
        Of the contributions; one that has a `block_reader`.
    objectives : sequence
        Each as in `logit_contributions`.
    **options
        Further ones of both.

    Raises
    ------
    InputError, ModelError
        As both.
    """
    configured_measure = find_measure(logit_measure)
    if configured_measure.block_reader is None:
        raise InputError(f"{logit_measure} needs a pass of its own: speechmix.logit_contributions")
    make_reader = partial(configured_measure.block_reader, **configured_measure.values)
    check_splits_logits(model, logit_measure)
    request = MixRequest.of({**options, "measures": list(measures), "stacks": list(model.stacks)})
    dtype = resolve_state_dtype(model, request)
    started_readers: list[tuple[View, list[Objective], BlockReader]] = []

    def make_observer(
        view: View, units: Mapping[str, Units], dtype: torch.dtype
    ) -> Callable[[Block], None]:
        resolved_objectives = [
            logit_objective(option, model, view, logit_measure) for option in objectives
        ]
        inputs = inputs_to_device(view.prepared.inputs, model.device, dtype)
        with phase(logit_measure):
            reader = make_reader(model, view, request, inputs, resolved_objectives, units)
            started_readers.append((view, resolved_objectives, reader))

        def on_block(block: Block) -> None:
            with phase(logit_measure):
                started_readers[0][2].on_block(block)

        return on_block

    [maps] = compute_maps(
        model, [item], map_folders(None, [item]), request, dtype, "auto", make_observer
    )
    view, resolved_objectives, reader = started_readers[0]
    provenance = contributions_provenance(model, view, request, dtype, configured_measure)
    return maps, label_contributions(
        model, view, logit_measure, reader.values(), resolved_objectives, provenance, dtype
    )


# By side ("encoder", "decoder"): its units [K], and their values [N, K] for each number.
SideColumns = Mapping[str, tuple[Sequence[Span], np.ndarray]]


class InputAttributions(NamedTuple):
    """Values of units by side, and of numbers that are taken apart the numbers themselves [N]."""

    columns: SideColumns
    totals: np.ndarray | None


def input_attributions(
    model: Model,
    item: Item,
    measure: str,
    numbers: Sequence[Sequence[ObjectiveOption]],
    **options: Any,
) -> InputAttributions:
    """What each unit that enters a model counts for each number.

    Parameters
    ----------
    model : Model
        With its head.
    item : Clip, Sentence or dict of tensors
    measure : str
        Of scope "logit" ("alti_logit", "lrp", ...), or of one number ("gradient_input", "chefer",
        ...).
    numbers : sequence of sequence of objectives [N]
        As of `mix`; the values of one number's objectives are added up.
    **options
        units, spans of `mix`.

    Raises
    ------
    InputError
        If the measure explains no number, or is not defined for the model or the objectives.
    """
    facts = measure_facts(measure)
    if facts.scope == "logit":
        return _logit_attributions(model, item, measure, numbers, **options)
    if not facts.objective:
        raise InputError(
            f"{measure} explains no number of the output: its maps are put together layer by layer"
        )
    if not facts.gives_maps:
        raise InputError(
            f"{measure} removes sources from the input: speechmix.explain(model, item, "
            f"measures={measure!r})"
        )
    return _gradient_attributions(model, item, measure, numbers, **options)


def check_reaches_audio(model: Model, measure: str) -> None:
    """Raise for an audio language model's maps and parts, which end where sound enters its decoder.

    What they say of the decoder's positions is where the sound was, not what is still known there:
    an encoder may have taken a word to all of them.

    Raises
    ------
    InputError
    """
    if not measure_facts(measure).reaches_audio:
        model.refuse_audio_tokens(
            f"{measure} of {model.name} ends where its sound enters the decoder, behind the "
            "projector, and would name "
            "places and not words of the sound; ask occlusion, shapley or gradient_input, or each "
            "stack for itself "
            "(speechmix.mix, speechmix.logit_contributions)"
        )


def sum_at_positions(
    columns: SideColumns, locations: Sequence[tuple[str, Sequence[int]]]
) -> np.ndarray:
    """Values [N, S] at some places, added up where a place has several units.

    Parameters
    ----------
    columns : dict of side to (spans [K], ndarray [N, K])
    locations : sequence of (side, positions) [S]

    Returns
    -------
    ndarray [N, S]
        NaN for a place that no unit reaches into, or of a side that is not there.
    """
    output_count = len(next(iter(columns.values()))[1])
    values = np.full((output_count, len(locations)), np.nan)
    columns_by_side = {side: _columns_by_position(spans) for side, (spans, _) in columns.items()}
    for index, (side, positions) in enumerate(locations):
        side_columns = columns_by_side.get(side, {})
        columns_at_positions = sorted(
            {column for position in positions for column in side_columns.get(position, ())}
        )
        if columns_at_positions:
            values[:, index] = columns[side][1][:, columns_at_positions].sum(axis=1)
    return values


def _columns_by_position(spans: Sequence[Span]) -> dict[int, list[int]]:
    """The columns that hold each position."""
    columns = dict[int, list[int]]()
    for column, span in enumerate(spans):
        for position in span.positions:
            columns.setdefault(position, []).append(column)
    return columns


def split_composed_map(composed_map: MixingMap) -> SideColumns:
    """The last row block of a composed map by side: what the encoder is given, and what the decoder
    is fed."""
    scores, encoder_count = (
        composed_map.mean_heads().scores[-1],
        len(composed_map.sources) - len(composed_map.targets),
    )
    return {
        "encoder": (composed_map.sources[:encoder_count], scores[:, :encoder_count]),
        "decoder": (composed_map.sources[encoder_count:], scores[:, encoder_count:]),
    }


def maps_and_attributions(
    model: Model,
    item: Item,
    measures: Sequence[str],
    logit_measure: str,
    numbers: Sequence[Sequence[ObjectiveOption]],
    **options: Any,
) -> tuple[Maps, InputAttributions]:
    """Maps of measures of single layers, and contributions to each number, from one forward
    pass.

    Parameters
    ----------
    model, item, numbers, **options
        As for `input_attributions`.
    measures : sequence of str
        Of the maps.
    logit_measure : str
        Of the contributions; one that has a `block_reader`.
    """
    objectives, objective_counts = _unique_objectives(numbers)
    maps, contributions = maps_and_logits(
        model, item, measures, logit_measure, objectives, **options
    )
    return maps, _sum_objectives(contributions, objective_counts)


def _unique_objectives(
    numbers: Sequence[Sequence[ObjectiveOption]],
) -> tuple[list[ObjectiveOption], np.ndarray]:
    """All objectives, each once [P]; and how often each is part of a number, [N, P]."""
    unique_objectives: list[ObjectiveOption] = []
    for objective in (objective for number in numbers for objective in number):
        if objective not in unique_objectives:
            unique_objectives.append(objective)
    return unique_objectives, np.array(
        [
            [number.count(unique_objective) for unique_objective in unique_objectives]
            for number in map(list, numbers)
        ]
    )


def _logit_attributions(
    model: Model,
    item: Item,
    measure: str,
    numbers: Sequence[Sequence[ObjectiveOption]],
    **options: Any,
) -> InputAttributions:
    objectives, objective_counts = _unique_objectives(numbers)
    contributions = logit_contributions(
        model, item, objective=objectives, measure=measure, **options
    )
    return _sum_objectives(
        contributions if isinstance(contributions, list) else [contributions], objective_counts
    )


def _sum_objectives(
    contributions: Sequence[LogitContributions], objective_counts: np.ndarray
) -> InputAttributions:
    """Parts of each number, [N], from those of objectives, [P], and how often each of these is in a
    number, [N, P]."""
    columns = {
        side: (
            contributions[0].sources[side],
            objective_counts
            @ np.stack([contribution.total(side) for contribution in contributions]),
        )
        for side in contributions[0].sides
    }
    return InputAttributions(
        columns, objective_counts @ np.array([contribution.logit for contribution in contributions])
    )


def _gradient_attributions(
    model: Model,
    item: Item,
    measure: str,
    numbers: Sequence[Sequence[ObjectiveOption]],
    **options: Any,
) -> InputAttributions:
    objectives, objective_counts = _unique_objectives(numbers)
    stacks: list[str] = [stack for stack in ("encoder", "decoder") if stack in model.stacks]
    maps = mix_objectives(model, item, objectives, measure, stacks=stacks, layers=0, **options)
    columns: SideColumns = {
        stack: (
            maps[0][measure, stack].sources,
            objective_counts
            @ np.stack(
                [
                    objective_maps[measure, stack].mean_heads().scores[0, 0]
                    for objective_maps in maps
                ]
            ),
        )
        for stack in stacks
    }
    return InputAttributions(columns, None)
