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

The attribution of written words to their sources by one measure, with its unit.

Attribute written words to single encoder frames.

In: a `Writing` of a clip. Out: the same with frames as sources, of which measures are asked like of
any others; `FrameParts`, [choices, frames]. The LRP attribution of a word is the sum of its frames, of
gradients and Chefer's relevances their mean, so words are read off the frames and nothing is
computed twice. Where a measure takes a word as a whole (Value Zeroing, ALTI-Logit, DecompX) or
rolls maps out (attention), frames are an answer of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import InputError, SpeechmixError
from ...inputs.clips.clip import Clip
from ...inputs.words.spans import Span, frame_spans
from ...interventions.decision import Source
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
from .choices import Choice, Readings, possible_sources, reading_positions
from .generated_tokens import PADDING_SIDE, SourceUnit
from .removals import make_removals, score_by_removal

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.audio.frame_grid import FrameGrid
    from ...inputs.sentences.sentence import Sentence
    from ...mixing.maps.map_set import Maps
    from .fills import Fills
    from .generated_tokens import Writing

_WORD_FROM_FRAMES: dict[str, Callable[..., np.ndarray]] = {"sum": np.sum, "mean": np.mean}


@dataclass(frozen=True, eq=False)
class FrameParts:
    """Attribution of the frames of a recording.

    Parameters
    ----------
    values : ndarray [C, F]
        Of the same unit as the attribution of the words.
    rest : ndarray [C] or None
        Of parts of a logit: what is left for no frame, and for no word of the text that was written
        before.
    """

    values: np.ndarray
    rest: np.ndarray | None = None


def has_frames(writing: Writing) -> bool:
    """Whether the sound has frames that are units: one position at one time."""
    is_sound = any(source.side == "sound" for source in writing.sources)
    return is_sound and _clip_grid(writing).bands == 1


def _clip_grid(writing: Writing) -> FrameGrid:
    clip: Any = writing.decision.item
    return writing.model.grid(len(clip.audio(writing.model.sample_rate)))


def split_into_frames(writing: Writing) -> Writing:
    """The same writing, with the frames of its sound as sources in place of the words; those behind
    its end are left out."""
    clip: Any = writing.decision.item
    grid = _clip_grid(writing)
    if grid.bands > 1:
        raise InputError(
            f"{clip.name}: {writing.model.name} has several positions at one time, so that its "
            "frames are no units of an explanation: leave frames out"
        )
    last = max(position for source in writing.sources for position in _list_positions(source))
    padding = [span for span in writing.spans or () if span.kind == PADDING_SIDE]
    stop = padding[0].start if padding else grid.n_frames
    spans = [
        span
        for frame, span in enumerate(frame_spans(grid)[:stop])
        if (span.onset or 0.0) < clip.duration or frame <= last
    ]
    frame_units = [_make_frame_unit(frame, span) for frame, span in enumerate(spans)]
    others = [source for source in writing.sources if source.side != "sound"]
    return replace(writing, sources=(*frame_units, *others), spans=(*spans, *padding))


def _make_frame_unit(frame: int, span: Span) -> SourceUnit:
    return SourceUnit(
        "sound", Source(frame, span.label, tuple(span.positions)), span.onset, span.offset
    )


def _list_positions(source: SourceUnit) -> Sequence[int]:
    return source.source.positions if source.side == "sound" else ()


def frame_times(writing: Writing) -> np.ndarray:
    """Beginning and end of each frame, [F, 2]."""
    frame_units = [
        source for source in split_into_frames(writing).sources if source.side == "sound"
    ]
    return np.array([(source.onset, source.offset) for source in frame_units], dtype=float)


def sum_frames(measure: str, writing: Writing, values: np.ndarray) -> np.ndarray:
    """Values [C, S] of the sources, words of the sound made of their frames.

    Parameters
    ----------
    measure : str
        One that declares `word_from_frames`.
    writing : Writing
        With words.
    values : ndarray [C, F + text]
        Of its frames, and of the sources that are text.
    """
    texts = iter(
        range(
            values.shape[1] - sum(source.side != "sound" for source in writing.sources),
            values.shape[1],
        )
    )
    make = _WORD_FROM_FRAMES[measure_facts(measure).word_from_frames]
    columns = [
        make(values[:, list(_list_positions(source))], axis=1)
        if source.side == "sound"
        else values[:, next(texts)]
        for source in writing.sources
    ]
    return np.stack(columns, axis=1)


def measures_with_frames(frames: bool | str | Sequence[str] | None) -> tuple[str, ...]:
    """The measures that an option `frames` names."""
    if frames is None or isinstance(frames, bool):
        return ()
    return (frames,) if isinstance(frames, str) else tuple(frames)


def frame_request(
    frames: bool | str | Sequence[str] | None, item: Clip | Sentence
) -> Callable[[str], bool | None]:
    """Whether frames are asked of a measure; None: if they cost nothing.

    Raises
    ------
    InputError
        If the option cannot be: a text has no frames, and what takes words away says nothing of
        them.
    """
    if frames and not isinstance(item, Clip):
        raise InputError(f"{item.name!r} is a text, which has no frames: leave frames out")
    if frames is None or isinstance(frames, bool):
        return lambda measure: frames
    names = measures_with_frames(frames)
    for name in names:
        if measure_facts(name).scope == "removal":
            raise InputError(
                f"{name} takes words away, and says nothing of frames: name other measures, or "
                "frames=True"
            )
    return lambda measure: measure in names


LOG_PROBABILITY, LOGIT, SHARE, SIZE = "log-probability", "logit", "share", "size"


@dataclass(frozen=True, eq=False)
class Attribution:
    """How much each source contributes to each explained word, by one measure.

    Parameters
    ----------
    measure : str
    values : ndarray [C, S]
        NaN where a source comes after the explained word, or the measure does not reach it.
    of : {"log-probability", "logit", "share", "size"}
        What the values are parts of. Shares and sizes have no sign.
    totals : ndarray [C] or None
        Sum of the values and `rest`; None for a measure that does not add up.
    errors : ndarray [C, S] or None
        Standard errors of sampled values.
    by_frame : FrameParts or None
        Attributions of the frames of the recording, if requested.
    """

    measure: str
    values: np.ndarray
    of: str
    totals: np.ndarray | None = None
    errors: np.ndarray | None = None
    by_frame: FrameParts | None = None

    @property
    def unit(self) -> str:
        """Unit of the values: nats for a log-probability, else what they are parts of."""
        return "nats" if self.of == LOG_PROBABILITY else self.of

    @property
    def rest(self) -> np.ndarray | None:
        """Part of the totals that no source has [C]: biases, feed-forwards, silence, the prefix."""
        return None if self.totals is None else self.totals - np.nansum(self.values, axis=1)


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
