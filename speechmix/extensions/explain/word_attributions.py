"""Attribution of each written word to its sources, by measures of the whole model.

In: a `Writing`, its choices and their readings. Out: an `Attribution` for each measure, [choices,
sources]. Measures of one layer (Value Zeroing, attention, ...) are rolled out, or composed over
encoder, cross-attention and decoder, layers weighted by mixing strength
(`maps.composition.compose`); those of one number (gradients) are taken where sources enter the
model, of a word's tokens one by one where they must be read at one position; ALTI-Logit and DecompX
are sums over a logit's parts.

Sum the columns of maps by source, and find the rows of written words.

In: scores by the units of a model's stacks. Out: values by source, and which row is that of a
position.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import InputError, SpeechmixError
from ...interventions.runner import InterventionCache
from ...mixing.maps.composition import roll_out
from ...mixing.maps.measure_registry import measure_facts
from ...mixing.measures.measure_functions import find_measure
from ...mixing.passes.mix import mix_one
from ..logit_decompositions.input_attribution import (
    SideColumns,
    check_reaches_audio,
    input_attributions,
    maps_and_attributions,
    split_composed_map,
    sum_at_positions,
)
from ..logit_decompositions.logit_contributions import check_splits_logits
from .attribution import (
    LOG_PROBABILITY,
    LOGIT,
    SHARE,
    SIZE,
    Attribution,
    FrameParts,
    has_frames,
    split_into_frames,
    sum_frames,
)
from .choices import Choice, Readings, possible_sources, reading_positions
from .removal_measures import score_by_removal
from .removals import make_removals

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.words.spans import Span
    from ...mixing.maps.map_set import Maps
    from .fills import Fills
    from .generated_tokens import Writing


def sum_by_source(writing: Writing, columns: SideColumns) -> np.ndarray:
    """Columns [R, K] of each stack's units as values [R, S] of the sources, added up where a source
    has several.

    Parameters
    ----------
    writing : Writing
    columns : dict of stack to (spans, ndarray [R, K])

    Returns
    -------
    ndarray [R, S]
        NaN for a source in a stack that is not there.
    """
    # The text before is no column of a transducer's encoder.
    is_only = len(columns) == 1 and not writing.model.capabilities.is_transducer
    only = next(iter(columns)) if is_only else None
    stacks = [unit.stack if only is None else only for unit in writing.sources]
    stack_positions = [
        (stack, unit.positions_in(stack))
        for stack, unit in zip(stacks, writing.sources, strict=True)
    ]
    return sum_at_positions(columns, stack_positions)


def find_row(targets: Sequence[Span], position: int) -> int:
    """The row that holds a position; the nearest where none does (a letter heard in silence)."""

    def distance(row: int) -> int:
        return min(
            max(start - position, position - stop + 1, 0) for start, stop in targets[row].ranges
        )

    return min(range(len(targets)), key=distance)


DEFAULT_MEASURES = ("occlusion", "gradient_input", "alti_logit", "decompx")
Logit = tuple[int, ...]  # position, token, and a foil's token; or labels


def defined_measures(writing: Writing) -> tuple[str, ...]:
    """The measures by default: those that tell written words apart (`specificity`), are cheap and
    defined for the model.

    Maps that are composed without weights are nearly the same for every word. Weighted by mixing
    strength they tell words apart, mostly by the word's own sound. So none of them is a default.
    Gradients are none for a recogniser with a decoder: each word takes a backward pass of the whole window.
    """
    by_cross_attention = writing.model.capabilities.decoding == "cross-attention"
    slow = {"gradient_input"} if by_cross_attention and writing.model.hears else set()
    return tuple(
        name for name in DEFAULT_MEASURES if name not in slow and _is_defined(name, writing.model)
    )


def _is_defined(measure: str, model: Model) -> bool:
    with suppress(InputError):
        check_reaches_audio(model, measure)
        if measure_facts(measure).scope == "logit":
            check_splits_logits(model, measure)
        return True
    return False


def compute_attribution(
    measure: str,
    writing: Writing,
    choices: Sequence[Choice],
    readings: Readings,
    fills: Fills,
    *,
    samples: int | None = None,
    seed: int = 0,
    frames: bool | None = None,
) -> Attribution:
    """Attribution of one measure; of frames of the sound, too, if that is asked for (None: if words
    are made of them).

    Raises
    ------
    InputError
        If there is no such measure, or it is not defined for the model.
    """
    facts = measure_facts(measure)
    if facts.scope == "removal":
        attribution = _attribute_by_removal(
            measure, writing, readings, fills, samples=samples, seed=seed
        )
        return _mask_impossible_sources(attribution, writing, choices)
    check_reaches_audio(writing.model, measure)
    if frames is None:
        frames = bool(facts.word_from_frames) and has_frames(writing)
    if not frames:
        return _mask_impossible_sources(
            _attribute_by_kind(measure, writing, choices), writing, choices
        )
    in_parts = split_into_frames(writing)
    of_frames = _mask_impossible_sources(
        _attribute_by_kind(measure, in_parts, choices), in_parts, choices
    )
    count = sum(source.side == "sound" for source in in_parts.sources)
    by_frame = FrameParts(of_frames.values[:, :count], of_frames.rest)
    if facts.word_from_frames:
        attribution = replace(of_frames, values=sum_frames(measure, writing, of_frames.values))
    else:
        attribution = _mask_impossible_sources(
            _attribute_by_kind(measure, writing, choices), writing, choices
        )
    return replace(attribution, by_frame=by_frame)


def attribute_in_one_pass(
    measures: Sequence[str], writing: Writing, choices: Sequence[Choice]
) -> dict[str, Attribution]:
    """Attributions of the measures that can share one forward pass, if there are several: those of
    layers, and one that reads contributions from their blocks.

    Where one of them fails none is there, and `compute_attribution` says which.
    """
    of_layers = [name for name in measures if measure_facts(name).is_layerwise]
    of_logits = [name for name in measures if find_measure(name).block_reader][:1]
    if not of_layers or len(of_layers + of_logits) < 2 or writing.model.converses:
        return {}
    try:
        attributions = dict[str, Attribution]()
        for name in of_logits:
            numbers = [_choice_logits(writing, choice) for choice in choices]
            maps, logit_terms = maps_and_attributions(
                writing.model, writing.inputs, of_layers, name, numbers, spans=_list_spans(writing)
            )
            attributions[name] = Attribution(
                name, sum_by_source(writing, logit_terms.columns), LOGIT, logit_terms.totals
            )
        if not of_logits:
            maps = _compute_maps(writing, of_layers)
        attributions |= {name: _roll_out_rows(name, writing, choices, maps) for name in of_layers}
    except SpeechmixError:
        return {}
    return {
        name: _mask_impossible_sources(attribution, writing, choices)
        for name, attribution in attributions.items()
    }


def _attribute_by_kind(measure: str, writing: Writing, choices: Sequence[Choice]) -> Attribution:
    facts = measure_facts(measure)
    if facts.is_layerwise:
        return _attribute_by_layers(measure, writing, choices)
    return (_attribute_logits if facts.scope == "logit" else _attribute_by_gradient)(
        measure, writing, choices
    )


def _mask_impossible_sources(
    attribution: Attribution, writing: Writing, choices: Sequence[Choice]
) -> Attribution:
    """Set the attribution of sources behind the explained word to NaN."""
    return replace(
        attribution, values=np.where(possible_sources(writing, choices), attribution.values, np.nan)
    )


def _attribute_by_removal(
    measure: str,
    writing: Writing,
    readings: Readings,
    fills: Fills,
    *,
    samples: int | None,
    seed: int,
) -> Attribution:
    """A game for each side: all its sources are players, and what is read of all words are its
    margins.

    Sources are replaced by the first fill of their side alone: each fill more would be all sets
    once more.
    """
    values = np.full((readings.of_choices.shape[1], len(writing.sources)), np.nan)
    errors: np.ndarray | None = np.zeros_like(values)
    runs = InterventionCache(writing.decision, readings.read)
    first = [next(iter(of_side), None) for of_side in (fills.sound, fills.text, fills.prompt)]
    for side in dict.fromkeys(source.side for source in writing.sources if fills.of_source(source)):
        players = [index for index, source in enumerate(writing.sources) if source.side == side]

        def margins(sets: np.ndarray, players: Sequence[int] = players) -> np.ndarray:
            absent = (itertools.compress(players, ~row) for row in sets)
            removed = [make_removals(writing, of_set, first) for of_set in absent]
            values: np.ndarray = runs.read(removed) @ readings.of_choices
            return values

        scores = score_by_removal(measure, len(players), margins, samples=samples, seed=seed)
        values[:, players] = scores.values.T
        if scores.errors is None:
            errors = None
        elif errors is not None:
            errors[:, players] = scores.errors.T
    return Attribution(measure, values, LOG_PROBABILITY, errors=errors)


def _attribute_logits(measure: str, writing: Writing, choices: Sequence[Choice]) -> Attribution:
    """Parts of the logits of all tokens of a word, added up."""
    numbers = [_choice_logits(writing, choice) for choice in choices]
    columns, totals = input_attributions(
        writing.model, writing.inputs, measure, numbers, spans=_list_spans(writing)
    )
    return Attribution(measure, sum_by_source(writing, columns), LOGIT, totals)


def _choice_logits(writing: Writing, choice: Choice) -> list[Logit]:
    """Which logits explain a choice, as objectives: each token's, or one less its foil's; of a
    classifier those of labels."""
    if writing.model.has_label_head:
        label = writing.tokens[choice.tokens[0]].id
        return [(label,) if choice.contrast is None else (label, choice.contrast.foil)]
    if choice.contrast is not None:
        return [(choice.contrast.position, choice.contrast.id, choice.contrast.foil)]
    return [
        (writing.tokens[token_index].position, writing.tokens[token_index].id)
        for token_index in choice.tokens
    ]


def _attribute_by_gradient(
    measure: str, writing: Writing, choices: Sequence[Choice]
) -> Attribution:
    """Measures of one number, taken at the states that enter the first layer of each stack."""
    at_once = not measure_facts(measure).at_one_position
    numbers = [
        [_choice_reader(writing, choice)] if at_once else _choice_logits(writing, choice)
        for choice in choices
    ]
    columns, _ = input_attributions(
        writing.model, writing.inputs, measure, numbers, spans=_list_spans(writing)
    )
    return Attribution(measure, sum_by_source(writing, columns), SIZE)


def _choice_reader(writing: Writing, choice: Choice) -> Callable[[Any], Any]:
    """What is read of a choice, as a function of the output of one run."""
    readings = Readings.of(writing, [choice])
    rows = np.flatnonzero(readings.of_choices[:, 0]).tolist()
    return lambda output: readings.read(output)[0, rows].sum()


def _attribute_by_layers(measure: str, writing: Writing, choices: Sequence[Choice]) -> Attribution:
    """A measure of one layer, by a pass of its own."""
    return _roll_out_rows(measure, writing, choices, _compute_maps(writing, [measure]))


def _compute_maps(writing: Writing, measures: Sequence[str]) -> Maps:
    stacks = tuple(writing.model.stacks)
    return mix_one(
        writing.model, writing.inputs, measures=measures, stacks=stacks, spans=_list_spans(writing)
    )


def _roll_out_rows(
    measure: str, writing: Writing, choices: Sequence[Choice], maps: Maps
) -> Attribution:
    """Measures of one layer, rolled out or composed; the mean of the rows that a word is read
    from."""
    model = writing.model
    if "cross" in model.stacks:
        combined_map = maps.composed(measure)
        columns = split_composed_map(combined_map)
    else:
        (stack,) = model.stacks
        combined_map = roll_out(maps[measure, stack])
        columns = {stack: (combined_map.sources, combined_map.mean_heads().scores[-1])}
    shares = sum_by_source(writing, columns)
    rows = [
        [
            find_row(combined_map.targets, writing.encoder_position(position))
            for position in reading_positions(writing, choice)
        ]
        for choice in choices
    ]
    return Attribution(
        measure,
        np.stack([shares[row_indices].mean(axis=0) for row_indices in rows]).astype(float),
        SHARE,
    )


def _list_spans(writing: Writing) -> list[Span] | None:
    return None if writing.spans is None else list(writing.spans)
