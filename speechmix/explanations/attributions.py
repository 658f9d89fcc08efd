"""What is claimed: how much each source counts for each written word, by measures of the whole
model.

In: a `Writing`, its choices and their readings. Out: a `Claim` for each measure, [choices,
sources]. Measures of one layer (Value Zeroing, attention, ...) are rolled out, or composed over
encoder, cross-attention and decoder, layers weighted by mixing strength
(`maps.composition.compose`); those of one number (gradients) are taken where sources enter the
model, of a word's tokens one by one where they must be read at one position; ALTI-Logit and DecompX
are sums over a logit's parts.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import InputError, SpeechmixError
from ..interventions.removal_measures import score_by_removal
from ..interventions.runner import InterventionCache
from ..mixing.maps.composition import roll_out
from ..mixing.maps.measure_registry import measure_facts
from ..mixing.measures.registry import measure_named
from ..mixing.passes.input_attribution import (
    check_reaches_audio,
    input_attributions,
    maps_and_attributions,
    split_composed_map,
)
from ..mixing.passes.logit_contributions import check_splits_logits
from ..mixing.passes.mix import mix_one
from .choices import Choice, Readings, positions_of, possible_sources
from .frame_attributions import FrameParts, in_frames, made_of_frames
from .removals import removals_of
from .source_units import by_source, row_at

if TYPE_CHECKING:
    from ..adapters.model import Model
    from ..inputs.words.spans import Span
    from ..mixing.maps.map_set import Maps
    from .fills import Fills
    from .generated_tokens import Writing

LOG_PROBABILITY, LOGIT, SHARE, SIZE = "log-probability", "logit", "share", "size"
DEFAULT_MEASURES = ("occlusion", "gradient_input", "alti_logit", "decompx")
Logit = tuple[int, ...]  # position, token, and a foil's token


@dataclass(frozen=True, eq=False)
class Claim:
    """What a measure says of the sources.

    Parameters
    ----------
    measure : str
    values : ndarray [C, S]
        NaN where a source stands behind what is explained, or the measure does not reach it.
    of : {"log-probability", "logit", "share", "size"}
        What the values are parts of; a share and a size know no sign.
    totals : ndarray [C] or None
        What values and `rest` add up to, where they do.
    errors : ndarray [C, S] or None
        Standard errors of sampled values.
    by_frame : FrameParts or None
        The same of each frame of the sound, where that was asked for.
    """

    measure: str
    values: np.ndarray
    of: str
    totals: np.ndarray | None = None
    errors: np.ndarray | None = None
    by_frame: FrameParts | None = None

    @property
    def unit(self) -> str:
        """What its numbers are counted in: nats of a log-probability, else what they are parts
        of."""
        return "nats" if self.of == LOG_PROBABILITY else self.of

    @property
    def rest(self) -> np.ndarray | None:
        """What is left for nobody: biases, feed-forwards, silence, the prefix; [C]."""
        return None if self.totals is None else self.totals - np.nansum(self.values, axis=1)


def defined_measures(writing: Writing) -> tuple[str, ...]:
    """The measures by default: those that tell written words apart (`specificity`), are cheap and
    defined for the model.

    Maps that are composed without weights are nearly the same for every word. Weighted by mixing
    strength they tell words apart, mostly by the word's own sound. So none of them is a default.
    """
    return tuple(name for name in DEFAULT_MEASURES if _is_defined(name, writing.model))


def _is_defined(measure: str, model: Model) -> bool:
    with suppress(InputError):
        check_reaches_audio(model, measure)
        if measure_facts(measure).scope == "logit":
            check_splits_logits(model, measure)
        return True
    return False


def claim_of(
    measure: str,
    writing: Writing,
    choices: Sequence[Choice],
    readings: Readings,
    fills: Fills,
    *,
    samples: int | None = None,
    seed: int = 0,
    frames: bool | None = None,
) -> Claim:
    """What one measure claims; of frames of the sound, too, if that is asked for (None: if words
    are made of them).

    Raises
    ------
    InputError
        If there is no such measure, or it is not defined for the model.
    """
    facts = measure_facts(measure)
    if facts.scope == "removal":
        claim = _removal(measure, writing, readings, fills, samples=samples, seed=seed)
        return _of_possible(claim, writing, choices)
    check_reaches_audio(writing.model, measure)
    if frames is None:
        frames = bool(facts.word_from_frames) and any(
            source.side == "sound" for source in writing.sources
        )
    if not frames:
        return _of_possible(_claimed(measure, writing, choices), writing, choices)
    in_parts = in_frames(writing)
    of_frames = _of_possible(_claimed(measure, in_parts, choices), in_parts, choices)
    count = sum(source.side == "sound" for source in in_parts.sources)
    by_frame = FrameParts(of_frames.values[:, :count], of_frames.rest)
    if facts.word_from_frames:
        claim = replace(of_frames, values=made_of_frames(measure, writing, of_frames.values))
    else:
        claim = _of_possible(_claimed(measure, writing, choices), writing, choices)
    return replace(claim, by_frame=by_frame)


def claims_from_one_pass(
    measures: Sequence[str], writing: Writing, choices: Sequence[Choice]
) -> dict[str, Claim]:
    """What those measures claim that can share one forward pass, if there are several: those of
    layers, and one that reads contributions from their blocks.

    Where one of them fails none is there, and `claim_of` says which.
    """
    of_layers = [name for name in measures if measure_facts(name).is_layerwise]
    of_logits = [name for name in measures if measure_named(name).block_reader][:1]
    if not of_layers or len(of_layers + of_logits) < 2 or writing.model.converses:
        return {}
    try:
        claims = dict[str, Claim]()
        for name in of_logits:
            numbers = [_choice_logits(writing, choice) for choice in choices]
            maps, parts = maps_and_attributions(
                writing.model, writing.inputs, of_layers, name, numbers, spans=_spans(writing)
            )
            claims[name] = Claim(name, by_source(writing, parts.columns), LOGIT, parts.totals)
        if not of_logits:
            maps = _maps(writing, of_layers)
        claims |= {name: _rolled_out(name, writing, choices, maps) for name in of_layers}
    except SpeechmixError:
        return {}
    return {name: _of_possible(claim, writing, choices) for name, claim in claims.items()}


def _claimed(measure: str, writing: Writing, choices: Sequence[Choice]) -> Claim:
    facts = measure_facts(measure)
    if facts.is_layerwise:
        return _of_layers(measure, writing, choices)
    return (_to_logit if facts.scope == "logit" else _gradient)(measure, writing, choices)


def _of_possible(claim: Claim, writing: Writing, choices: Sequence[Choice]) -> Claim:
    """Nothing is claimed of what stands behind what is explained."""
    return replace(claim, values=np.where(possible_sources(writing, choices), claim.values, np.nan))


def _removal(
    measure: str,
    writing: Writing,
    readings: Readings,
    fills: Fills,
    *,
    samples: int | None,
    seed: int,
) -> Claim:
    """A game for each side: all its sources are players, and what is read of all words are its
    margins.

    Sources are replaced by the first fill of their side alone: each fill more would be all sets
    once more.
    """
    values = np.full((readings.of_choices.shape[1], len(writing.sources)), np.nan)
    errors: np.ndarray | None = np.zeros_like(values)
    runs = InterventionCache(writing.decision, readings.read)
    first = [next(iter(of_side), None) for of_side in (fills.sound, fills.text)]
    for side in dict.fromkeys(source.side for source in writing.sources if fills.of_source(source)):
        players = [index for index, source in enumerate(writing.sources) if source.side == side]

        def margins(sets: np.ndarray, players: Sequence[int] = players) -> np.ndarray:
            absent = (itertools.compress(players, ~row) for row in sets)
            removed = [removals_of(writing, of_set, first) for of_set in absent]
            values: np.ndarray = runs.read(removed) @ readings.of_choices
            return values

        scores = score_by_removal(measure, len(players), margins, samples=samples, seed=seed)
        values[:, players] = scores.values.T
        if scores.errors is None:
            errors = None
        elif errors is not None:
            errors[:, players] = scores.errors.T
    return Claim(measure, values, LOG_PROBABILITY, errors=errors)


def _to_logit(measure: str, writing: Writing, choices: Sequence[Choice]) -> Claim:
    """Parts of the logits of all tokens of a word, added up."""
    numbers = [_choice_logits(writing, choice) for choice in choices]
    columns, totals = input_attributions(
        writing.model, writing.inputs, measure, numbers, spans=_spans(writing)
    )
    return Claim(measure, by_source(writing, columns), LOGIT, totals)


def _choice_logits(writing: Writing, choice: Choice) -> list[Logit]:
    """Which logits explain a choice, as objectives: each token's, or one less its foil's."""
    if choice.contrast is not None:
        return [(choice.contrast.position, choice.contrast.id, choice.contrast.foil)]
    return [(writing.tokens[place].position, writing.tokens[place].id) for place in choice.tokens]


def _gradient(measure: str, writing: Writing, choices: Sequence[Choice]) -> Claim:
    """Measures of one number, taken at the states that enter the first layer of each stack."""
    at_once = not measure_facts(measure).at_one_position
    numbers = [
        [_number_of(writing, choice)] if at_once else _choice_logits(writing, choice)
        for choice in choices
    ]
    columns, _ = input_attributions(
        writing.model, writing.inputs, measure, numbers, spans=_spans(writing)
    )
    return Claim(measure, by_source(writing, columns), SIZE)


def _number_of(writing: Writing, choice: Choice) -> Callable[[Any], Any]:
    """What is read of a choice, as a function of the output of one run."""
    readings = Readings.of(writing, [choice])
    rows = np.flatnonzero(readings.of_choices[:, 0]).tolist()
    return lambda output: readings.read(output)[0, rows].sum()


def _of_layers(measure: str, writing: Writing, choices: Sequence[Choice]) -> Claim:
    """A measure of one layer, by a pass of its own."""
    return _rolled_out(measure, writing, choices, _maps(writing, [measure]))


def _maps(writing: Writing, measures: Sequence[str]) -> Maps:
    stacks = tuple(writing.model.stacks)
    return mix_one(
        writing.model, writing.inputs, measures=measures, stacks=stacks, spans=_spans(writing)
    )


def _rolled_out(measure: str, writing: Writing, choices: Sequence[Choice], maps: Maps) -> Claim:
    """Measures of one layer, rolled out or composed; the mean of the rows that a word is read
    from."""
    model = writing.model
    if "cross" in model.stacks:
        whole = maps.composed(measure)
        columns = split_composed_map(whole)
    else:
        (stack,) = model.stacks
        whole = roll_out(maps[measure, stack])
        columns = {stack: (whole.sources, whole.mean_heads().scores[-1])}
    shares = by_source(writing, columns)
    rows = [
        [row_at(whole.targets, position) for position in positions_of(writing, choice)]
        for choice in choices
    ]
    return Claim(
        measure, np.stack([shares[places].mean(axis=0) for places in rows]).astype(float), SHARE
    )


def _spans(writing: Writing) -> list[Span] | None:
    return None if writing.spans is None else list(writing.spans)
