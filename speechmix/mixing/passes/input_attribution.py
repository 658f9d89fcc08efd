"""From the input to the output: what each unit that enters a model counts for a number, by measures
that go all the way.

In: a model, an item, a measure of one number, and numbers, each a list of objectives that are added
up. Out: values of each side's units: parts of a logit where the measure takes one apart
(ALTI-Logit, DecompX, LRP), else sizes at the states that enter the first layer of each stack
(gradients).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ...adapters.model import Model
from ...errors import InputError
from ...inputs.words.spans import Span
from ..maps.logit_contributions import LogitContributions
from ..maps.map_set import Maps
from ..maps.measure_registry import measure_facts
from ..maps.mixing_map import MixingMap
from .logit_contributions import logit_contributions
from .maps_and_logits import maps_and_logits
from .multiple_objectives import maps_of_each
from .request import ObjectiveOption
from .views import Item

# By side ("encoder", "decoder"): its units [K], and their values [N, K] for each number.
Columns = Mapping[str, tuple[Sequence[Span], np.ndarray]]


class InputAttributions(NamedTuple):
    """Values of units by side, and of numbers that are taken apart the numbers themselves [N]."""

    columns: Columns
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
        return _parts(model, item, measure, numbers, **options)
    if not facts.objective:
        raise InputError(
            f"{measure} explains no number of the output: its maps are put together layer by layer"
        )
    if not facts.gives_maps:
        raise InputError(
            f"{measure} removes sources from the input: speechmix.explain(model, item, "
            f"measures={measure!r})"
        )
    return _gradients(model, item, measure, numbers, **options)


def check_reaches_the_sound(model: Model, measure: str) -> None:
    """Raise for an audio language model's maps and parts, which end where sound enters its decoder.

    What they say of the decoder's positions is where the sound was, not what is still known there:
    an encoder may have taken a word to all of them.

    Raises
    ------
    InputError
    """
    if not measure_facts(measure).reaches_the_sound:
        model.refuse_audio_tokens(
            f"{measure} of {model.name} ends where its sound enters the decoder, behind the "
            "projector, and would name "
            "places and not words of the sound; ask occlusion, shapley or gradient_input, or each "
            "stack for itself "
            "(speechmix.mix, speechmix.logit_contributions)"
        )


def values_at(columns: Columns, places: Sequence[tuple[str, Sequence[int]]]) -> np.ndarray:
    """Values [N, S] at some places, added up where a place has several units.

    Parameters
    ----------
    columns : dict of side to (spans [K], ndarray [N, K])
    places : sequence of (side, positions) [S]

    Returns
    -------
    ndarray [N, S]
        NaN for a place that no unit reaches into, or of a side that is not there.
    """
    count = len(next(iter(columns.values()))[1])
    values = np.full((count, len(places)), np.nan)
    columns_of = {side: _columns_at(spans) for side, (spans, _) in columns.items()}
    for index, (side, positions) in enumerate(places):
        of_side = columns_of.get(side, {})
        held = sorted({column for position in positions for column in of_side.get(position, ())})
        if held:
            values[:, index] = columns[side][1][:, held].sum(axis=1)
    return values


def _columns_at(spans: Sequence[Span]) -> dict[int, list[int]]:
    """The columns that hold each position."""
    columns = dict[int, list[int]]()
    for column, span in enumerate(spans):
        for position in span.positions:
            columns.setdefault(position, []).append(column)
    return columns


def columns_of_composed(whole: MixingMap) -> Columns:
    """The last row block of a composed map by side: what the encoder is given, and what the decoder
    is fed."""
    scores, split = whole.mean_heads().scores[-1], len(whole.sources) - len(whole.targets)
    return {
        "encoder": (whole.sources[:split], scores[:, :split]),
        "decoder": (whole.sources[split:], scores[:, split:]),
    }


def maps_and_parts(
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
    asked, members = _asked_once(numbers)
    maps, parts = maps_and_logits(model, item, measures, logit_measure, asked, **options)
    return maps, _summed(parts, members)


def _asked_once(
    numbers: Sequence[Sequence[ObjectiveOption]],
) -> tuple[list[ObjectiveOption], np.ndarray]:
    """All objectives, each once [P]; and how often each is part of a number, [N, P]."""
    asked: list[ObjectiveOption] = []
    for objective in (objective for number in numbers for objective in number):
        if objective not in asked:
            asked.append(objective)
    return asked, np.array([[number.count(one) for one in asked] for number in map(list, numbers)])


def _parts(
    model: Model,
    item: Item,
    measure: str,
    numbers: Sequence[Sequence[ObjectiveOption]],
    **options: Any,
) -> InputAttributions:
    asked, members = _asked_once(numbers)
    parts = logit_contributions(model, item, objective=asked, measure=measure, **options)
    return _summed(parts if isinstance(parts, list) else [parts], members)


def _summed(parts: Sequence[LogitContributions], members: np.ndarray) -> InputAttributions:
    """Parts of each number, [N], from those of objectives, [P], and how often each of these is in a
    number, [N, P]."""
    columns = {
        side: (parts[0].sources[side], members @ np.stack([part.total(side) for part in parts]))
        for side in parts[0].sides
    }
    return InputAttributions(columns, members @ np.array([part.logit for part in parts]))


def _gradients(
    model: Model,
    item: Item,
    measure: str,
    numbers: Sequence[Sequence[ObjectiveOption]],
    **options: Any,
) -> InputAttributions:
    asked, members = _asked_once(numbers)
    stacks: list[str] = [stack for stack in ("encoder", "decoder") if stack in model.stacks]
    maps = maps_of_each(model, item, asked, measure, stacks=stacks, layers=0, **options)
    columns: Columns = {
        stack: (
            maps[0][measure, stack].sources,
            members
            @ np.stack([of_one[measure, stack].mean_heads().scores[0, 0] for of_one in maps]),
        )
        for stack in stacks
    }
    return InputAttributions(columns, None)
