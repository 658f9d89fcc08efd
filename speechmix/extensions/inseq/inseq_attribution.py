"""Convert mixing maps to Inseq's score layout and back.

Inseq (Sarti et al. 2023, Inseq: An Interpretability Toolkit for Sequence Generation Models) keeps
of a text

    source_attributions   what the source gives to each generated token: the cross map, or the encoder's part of a composed one
    target_attributions   what the tokens before it give to it: the decoder map
    sequence_scores       the encoder map beside them

with the axis order turned round: `scores[layer, head, target, source]` is `attributions[source,
target, layer, head]`. Nothing is normalised, here or there, until it is asked for.

Generation steps of Inseq: shift between decoder rows and predicted tokens.

In: rows and sources of a decoder map. Out: the tokens in their order, which of them are generated,
and the map's scores laid out over them: [token, step, layer, (head)], not a number (NaN) from the
generated token itself on, which gives nothing yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ...errors import InputError
from ...files.json_files import Json, JsonObject
from ...inputs.words.spans import Span
from ...mixing.maps.composition import encoder_source_count
from ...mixing.maps.mixing_map import MixingMap
from ...mixing.maps.score_map import same_units

_NEXT_TOKEN = "<next>"  # what the last position of a text predicts


@dataclass(frozen=True)
class GenerationSteps:
    """Generated tokens among those of the decoder: which of them each row predicts and each source
    holds.

    Parameters
    ----------
    tokens : list of Span [T]
        By what they are called; their positions do not count.
    token_indices : list of int
        Of each source among the tokens.
    start, stop : int
        The tokens that the rows predict.
    """

    tokens: list[Span]
    token_indices: list[int]
    start: int
    stop: int

    @classmethod
    def from_decoder_map(cls, rows: Sequence[Span], sources: Sequence[Span]) -> GenerationSteps:
        """Steps of a decoder map, by its units.

        Raises
        ------
        InputError
            If its rows do not follow each other.
        """
        source_by_position = {source.start: source for source in sources}
        is_named_by_input = all(
            source_by_position.get(row.start) == row for row in rows
        )  # rows of a text are called by what they hold
        if is_named_by_input:
            predicted_tokens = {
                row.start + 1: source_by_position.get(
                    row.start + 1, Span(0, 1, _NEXT_TOKEN, "special")
                )
                for row in rows
            }
        else:
            predicted_tokens = {row.start + 1: row for row in rows}
        tokens = {**predicted_tokens, **source_by_position}
        index_by_position = {
            position: token_index for token_index, position in enumerate(sorted(tokens))
        }
        steps = [index_by_position[row.start + 1] for row in rows]
        if not steps or steps != list(range(steps[0], steps[0] + len(steps))):
            raise InputError(
                "Inseq has generation steps that follow each other: give a decoder map with all "
                "rows from the first to the "
                f"last in between, found rows at {[row.start for row in rows][:12]}"
            )
        ordered_tokens = [tokens[position] for position in sorted(tokens)]
        return cls(
            ordered_tokens,
            [index_by_position[source.start] for source in sources],
            steps[0],
            steps[-1] + 1,
        )

    @classmethod
    def without_tokens(cls, rows: Sequence[Span]) -> GenerationSteps:
        """Steps of rows before which no decoder map tells the tokens."""
        return cls(list(rows), [], 0, len(rows))

    def expand_scores(self, scores: np.ndarray) -> np.ndarray:
        """Scores [sources, G, ...] in the order of all tokens up to the last generated one, not a
        number where none is."""
        late_sources = [
            i for i, token_index in enumerate(self.token_indices) if token_index >= self.stop
        ]
        if np.any(scores[late_sources]):
            raise InputError(
                "a decoder map for Inseq should be causal: a row has scores behind the token it "
                "predicts"
            )
        expanded = np.full((self.stop, *scores.shape[1:]), np.nan, scores.dtype)
        for source, token_index in enumerate(self.token_indices):
            if token_index < self.stop:
                expanded[token_index] = scores[source]
        for step in range(self.stop - self.start):
            future_scores = expanded[self.start + step :, step]
            future_scores[future_scores == 0] = np.nan
        return expanded

    def collect_scores(self, expanded: np.ndarray) -> np.ndarray:
        """The scores [sources, G, ...] of what `expand_scores` made."""
        scores = np.zeros((len(self.token_indices), *expanded.shape[1:]), expanded.dtype)
        for source, token_index in enumerate(self.token_indices):
            if token_index < self.stop:
                scores[source] = np.nan_to_num(expanded[token_index], nan=0.0)
        return scores


ENCODER_SCORES = "encoder_self_scores"
START_OF_WORD = "▁"  # as sentencepiece marks it, by which Inseq's sub-word aggregator goes


@dataclass(frozen=True)
class InseqAttribution:
    """One text as Inseq has it; scores may be missing.

    Parameters
    ----------
    source, target : list of str [S], [T]
    from_source : ndarray [S, G, L, (H)] or [S, G], optional
    from_target : ndarray [stop, G, L, (H)] or [stop, G], optional
    within_source : ndarray [S, S, L, (H)], optional
    start, stop : int
        The G generated tokens are target[start:stop].
    has_layers : bool
        Whether the axes behind the second are layers and heads.
    """

    source: list[str]
    target: list[str]
    from_source: np.ndarray | None = None
    from_target: np.ndarray | None = None
    within_source: np.ndarray | None = None
    start: int = 0
    stop: int = 0
    has_layers: bool = True
    info: JsonObject = field(default_factory=dict)

    @property
    def n_axes(self) -> int:
        """Axes behind the two of tokens."""
        scores = self.from_target if self.from_source is None else self.from_source
        return 0 if scores is None else scores.ndim - 2


def attribution_from_maps(maps: Sequence[MixingMap]) -> InseqAttribution:
    """One attribution of the maps of one measure: of a cross and a decoder map with the encoder's,
    or of one alone.

    Raises
    ------
    InputError
        If the maps do not go together, or a decoder map's rows do not follow each other.
    """
    by_stack = {mixing_map.stack: mixing_map for mixing_map in maps}
    _check_compatible_maps(maps, by_stack)
    first = by_stack.get("cross") or by_stack.get("decoder") or maps[0]
    if "composed" in by_stack:
        source, target = _split_composed(first)
        stack_maps = {"cross": source, **({} if target is None else {"decoder": target})}
    elif set(by_stack) == {"encoder"} or (
        set(by_stack) == {"decoder"} and any(len(unit) > 1 for unit in first.sources)
    ):
        stack_maps = {"cross": first}  # units that give to each other, not one after the other
    else:
        stack_maps = by_stack
    cross, decoder, encoder = (stack_maps.get(stack) for stack in ("cross", "decoder", "encoder"))
    steps = (
        GenerationSteps.from_decoder_map(decoder.targets, decoder.sources)
        if decoder
        else GenerationSteps.without_tokens(first.targets)
    )
    if cross and decoder and not same_units(cross.targets, decoder.targets):
        raise InputError(
            f"cross and decoder map should have the same rows, found {cross!r} and {decoder!r}"
        )
    sources = cross.sources if cross else ()
    return InseqAttribution(
        source=_mark_word_starts(sources),
        target=_mark_word_starts(steps.tokens),
        from_source=_to_inseq_axes(cross.scores) if cross else None,
        from_target=steps.expand_scores(_to_inseq_axes(decoder.scores)) if decoder else None,
        within_source=_to_inseq_axes(encoder.scores) if encoder and cross else None,
        start=steps.start,
        stop=steps.stop,
        info={
            "measure": first.measure,
            "model": first.provenance.get("model"),
            "clip": first.provenance.get("clip"),
        },
    )


def scores_from_attribution(
    attribution: InseqAttribution, labels: Mapping[str, Mapping[str, Json]]
) -> dict[str, np.ndarray] | None:
    """Scores [L, (H), W_t, W_s] by stack of an attribution made by `attribution_from_maps`; None if it is
    not of these labels.

    Parameters
    ----------
    labels : dict of stack to dict
        What makes each `MixingMap` but its scores.
    """
    shapes = {
        stack: (len(facts["layers"]), len(facts["targets"]), len(facts["sources"]))
        for stack, facts in labels.items()
    }
    try:
        empty_maps = [
            MixingMap(
                np.broadcast_to(np.float32(0), _scores_shape(shapes[stack], stack, attribution)),
                **facts,
            )
            for stack, facts in labels.items()
        ]
        expected = attribution_from_maps(empty_maps)
    except (InputError, ValueError):
        return None
    content = (
        attribution.source,
        attribution.target,
        attribution.start,
        attribution.stop,
        _score_shapes(attribution),
    )
    if content != (
        expected.source,
        expected.target,
        expected.start,
        expected.stop,
        _score_shapes(expected),
    ):
        return None
    return {mixing_map.stack: _map_scores(mixing_map, attribution) for mixing_map in empty_maps}


def _map_scores(mixing_map: MixingMap, attribution: InseqAttribution) -> np.ndarray:
    """Scores of the map with these labels, wherever `attribution_from_maps` has put them."""
    decoder_part = (
        mixing_map
        if mixing_map.stack == "decoder" and attribution.from_target is not None
        else None
    )
    if mixing_map.stack == "composed":
        decoder_part = _split_composed(mixing_map)[1]
    score_arrays = [
        attribution.within_source
        if mixing_map.stack == "encoder" and attribution.within_source is not None
        else None
    ]
    if mixing_map.stack != "decoder" or decoder_part is None:
        score_arrays = [attribution.from_source if score_arrays[0] is None else score_arrays[0]]
    if decoder_part is not None and attribution.from_target is not None:
        score_arrays.append(
            GenerationSteps.from_decoder_map(
                decoder_part.targets, decoder_part.sources
            ).collect_scores(attribution.from_target)
        )
    return np.concatenate(
        [from_inseq_axes(score_array) for score_array in score_arrays if score_array is not None],
        axis=-1,
    )


def _split_composed(mixing_map: MixingMap) -> tuple[MixingMap, MixingMap | None]:
    """The encoder's units and the decoder's own tokens of a composed map, if it has these."""
    encoder_count = encoder_source_count(mixing_map)
    if encoder_count is None or encoder_count == len(mixing_map.sources):
        return mixing_map, None
    source_slices = (slice(None, encoder_count), slice(encoder_count, None))
    encoder_part, decoder_part = (
        replace(mixing_map, scores=mixing_map.scores[..., s], sources=mixing_map.sources[s])
        for s in source_slices
    )
    return encoder_part, decoder_part


def _check_compatible_maps(maps: Sequence[MixingMap], by_stack: Mapping[str, MixingMap]) -> None:
    if (
        not maps
        or len(by_stack) < len(maps)
        or len({mixing_map.measure for mixing_map in maps}) > 1
    ):
        raise InputError(
            f"expected maps of one measure, one for each stack; found {list(maps)!r:.300}"
        )
    if "composed" in by_stack and len(maps) > 1:
        raise InputError("a composed map holds encoder, cross-attention and decoder: give it alone")
    if set(by_stack) == {"encoder", "decoder"}:
        raise InputError(
            "encoder and decoder map go together through cross-attention: give its map too, or one "
            "alone"
        )
    cross, decoder = by_stack.get("cross"), by_stack.get("decoder")
    if (
        cross
        and decoder
        and (cross.layers, cross.scores.shape[:-2]) != (decoder.layers, decoder.scores.shape[:-2])
    ):
        raise InputError(
            f"cross and decoder map should have the same layers and heads, found {cross!r} and "
            f"{decoder!r}"
        )


def _mark_word_starts(units: Sequence[Span]) -> list[str]:
    """Labels; the first token of each word is marked, so that Inseq's aggregator finds the
    words."""
    words = [unit.word if unit.kind == "token" else None for unit in units]
    is_word_start = [
        word is not None and word != previous_word
        for word, previous_word in zip(words, [None, *words], strict=False)
    ]
    return [
        f"{START_OF_WORD if starts_word else ''}{unit.label}"
        for unit, starts_word in zip(units, is_word_start, strict=True)
    ]


def _to_inseq_axes(scores: np.ndarray) -> np.ndarray:
    """[L, (H), W_t, W_s] -> [W_s, W_t, L, (H)]."""
    return np.ascontiguousarray(np.moveaxis(scores, (-1, -2), (0, 1)))


def from_inseq_axes(scores: np.ndarray) -> np.ndarray:
    """[W_s, W_t, L, (H)] -> [L, (H), W_t, W_s]."""
    return np.ascontiguousarray(np.moveaxis(scores, (0, 1), (-1, -2)))


def _scores_shape(
    shape: tuple[int, ...], stack: str, attribution: InseqAttribution
) -> tuple[int, ...]:
    scores = attribution.within_source if stack == "encoder" else attribution.from_source
    scores = next(
        (
            array
            for array in (scores, attribution.from_source, attribution.from_target)
            if array is not None
        ),
        None,
    )
    heads = () if scores is None else scores.shape[3:]
    return (shape[0], *heads, *shape[1:])


def _score_shapes(attribution: InseqAttribution) -> list[tuple[int, ...] | None]:
    scores = (attribution.from_source, attribution.from_target, attribution.within_source)
    return [None if array is None else array.shape for array in scores]
