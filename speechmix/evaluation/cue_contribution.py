"""Cue contribution: the share of the cue in building the target, layer by layer.

    contribution[l] = mean over target rows of the sum over cue columns of S[l, row, column],   rows of S summing to one

The published protocol (Mohebbi et al. 2023): silence and padding are left out and rows normalised
over what remains; with a map per head, each head's rows are normalised first and heads averaged
after. In a decoder the target rows are the positions that *predict* the target's tokens, the cue
columns those that *hold* the cue's (of all its words: determiner and noun for the verb).

What a word gets because it is long: the baseline that word-level Value Zeroing needs.

Zeroing a whole word changes the target by an amount that grows with the word's frames, and cosine
distance grows with the square of the change; attention and attention norm are means per frame and
do not grow. So a word of n_j frames that is no different from others is expected to get

    share_j = n_j^b / sum_k n_k^b        b = 2: Value Zeroing, cosine;  1: euclidean, manhattan;  0: means over a word's frames

In random models b was measured as 1.9 to 2.0 for Value Zeroing; `length_exponent` measures it on
maps at hand. Where every unit is one token (decoders), all three are the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeGuard, cast

import numpy as np

from ..errors import InputError
from ..inputs.words.cue_and_target import (
    Cue,
    CueRequest,
    TextWord,
    WordRequest,
    cue_words,
    find_cue,
    find_word,
)
from ..inputs.words.spans import Span, written_label
from ..inputs.words.timed_words import Word
from ..inputs.words.unit_tiers import find_unit_role, requested_unit, role_units
from ..mixing.maps.measure_registry import find_facts
from ..mixing.maps.mixing_map import MixingMap

if TYPE_CHECKING:
    from ..mixing.maps.mixing_map import MixingMap


# Rows of a map that a contribution is of, as consoles, tables and figures name them.
ROW_NAMES = {"target": "target rows", "deciding": "deciding row"}


def choose_row_kind(mixing_map: MixingMap) -> str:
    """Return "deciding" if the map has the deciding row of a decoder, else "target"."""
    has_row = deciding_row(mixing_map.without("silence", "padding")) is not None
    return "deciding" if has_row else "target"


def deciding_row(mixing_map: MixingMap) -> int | None:
    """Return the index of the row that predicts the deciding token; None if the map has none.

    In the encoder of a transducer it is the unit that the emitting frame is in.
    """
    if mixing_map.stack == "encoder":
        frame = mixing_map.provenance.get("deciding_frame")
        rows = enumerate(mixing_map.targets)
        return next((row for row, span in rows if frame in span.positions), None)
    position = mixing_map.provenance.get("deciding_position")
    return next(
        (row for row, span in enumerate(mixing_map.targets) if span.start == position), None
    )


def cue_contribution(
    mixing_map: MixingMap,
    *,
    cue: CueRequest | None,
    target: WordRequest | None,
    rows: str = "target",
    drop: tuple[str, ...] = ("silence", "padding"),
) -> np.ndarray:
    """Compute the share of the cue in the target, per layer.

    Parameters
    ----------
    mixing_map : MixingMap
        Raw or normalised.
    cue : int, str, (str, int), or a sequence of these
        Index into the clip's words, as `clip.cue` gives it, or the word ("les", "les:2") as `Clip`
        takes it; of a cue of several words all of them, whose columns are summed. ``"phone:m:2"``:
        a phone or syllable (`speechmix.inputs.words.unit_tiers`), in a decoder the tokens of its
        word. For a map of prepared inputs, where spans were given directly, indices into those spans.
    target : int, str or (str, int)
        Likewise, one word.
    rows : {"target", "deciding"}
        Mean over all rows of the target (the published protocol), or, in a decoder and in the
        encoder of a transducer, the one row that predicts the deciding token: the first in which
        the target and its foil (`clip.foil`) differ. Spelled letter by letter, a noun's number is
        decided in its last letter alone, and the mean over its letters dilutes it.
    drop : tuple of str
        Kinds of units left out before rows are normalised.

    Returns
    -------
    ndarray [L]
        Between 0 and 1.

    Raises
    ------
    InputError
        If cue (any of its words) or target has no unit in the map, occurs in it more than once, or
        is missing.

    Examples
    --------
    >>> from speechmix import MixingMap, Span
    >>> units = (Span(0, 5, "les", word=0), Span(5, 20, "livres", word=1))
    >>> one_layer = MixingMap(np.array([[[3.0, 1.0], [1.0, 3.0]]]), units, units, "value_zeroing", "encoder", (0,))
    >>> cue_contribution(one_layer, cue=0, target=1)
    array([0.25])
    >>> cue_contribution(one_layer, cue="les", target="livres")
    array([0.25])

    The noun's determiner and the noun, for the verb:

    >>> units = (Span(0, 2, "le", word=0), Span(2, 9, "club", word=1), Span(9, 20, "gagne", word=2))
    >>> one_layer = MixingMap(np.array([[[1.0, 0, 0], [0, 1.0, 0], [1.0, 2.0, 5.0]]]), units, units, "alti", "encoder", (0,))
    >>> cue_contribution(one_layer, cue=(0, 1), target=2)
    array([0.375])
    """
    units_map = mixing_map.without(*drop)
    target_rows = _select_target_rows(units_map, target, rows, mixing_map)
    columns = cue_columns(units_map, cue, mixing_map)
    cue_scores: np.ndarray = units_map.normalized().scores[..., target_rows, :][..., columns]
    shares: np.ndarray = cue_scores.sum(axis=-1).mean(axis=-1)
    return shares.mean(axis=1) if units_map.has_heads else shares


def cue_columns(
    units_map: MixingMap, cue: CueRequest | None, whole_map: MixingMap | None = None
) -> list[int]:
    """Return the columns of a cue; `whole_map` is the map before units were left out.

    It raises what `cue_contribution` raises.
    """
    whole_map = whole_map or units_map
    if requested_unit(cue):
        return _find_role_units(units_map.sources, cue, "cue", whole_map)
    if _is_spelled(cue):
        cue = _find_word_indices(cue, units_map.sources, "cue", whole_map)
    cue_indices = cue_words(cast("Cue | None", cue)) or (None,)
    return [
        column
        for word in cue_indices
        for column in _find_units(units_map.sources, word, "cue", whole_map)
    ]


def _find_role_units(
    spans: Sequence[Span], request: object, role: str, mixing_map: MixingMap
) -> list[int]:
    """Indices of the units that a phone or syllable is."""
    provenance, unit = mixing_map.provenance, requested_unit(request)
    tiers = {
        name: tuple(Word(*interval) for interval in tier)
        for name, tier in (provenance.get("tiers") or {}).items()
    }
    words = [Word(*word) for word in provenance.get("words") or ()]
    unit_role = find_unit_role(tiers, words, request, role=role, where="this map")
    if unit_role is None:
        raise InputError(f"{role} {request!r}: the clip of this map has no {unit}s")
    unit_indices = role_units(spans, unit_role)
    if not unit_indices:
        reason = (
            f"its units are larger: compute it with units={unit!r}"
            if unit_indices is None
            else f"no unit of this {mixing_map.stack} map is it"
        )
        raise InputError(f"{role} {request!r}: {reason}")
    return unit_indices


def target_strength(
    mixing_map: MixingMap,
    *,
    target: WordRequest | None,
    rows: str = "target",
    drop: tuple[str, ...] = ("silence", "padding"),
) -> np.ndarray:
    """Return the mean mixing strength [L] of the rows that `cue_contribution` takes.

    It is NaN where the map has no mixing strengths. Errors are those of `cue_contribution`.

    Examples
    --------
    >>> from speechmix import MixingMap, Span
    >>> units, strength = (Span(0, 5, "les", word=0), Span(5, 20, "livres", word=1)), np.array([[0.1, 0.3]])
    >>> one_layer = MixingMap(np.ones((1, 2, 2)), units, units, "attention", "encoder", (0,), {}, strength)
    >>> target_strength(one_layer, target=1)
    array([0.3])
    """
    units_map = mixing_map.without(*drop)
    if units_map.mixing_strength is None:
        return np.full(len(units_map.layers), np.nan)
    target_rows = _select_target_rows(units_map, target, rows, mixing_map)
    means: np.ndarray = units_map.mixing_strength[:, target_rows].mean(axis=-1)
    return means


def _select_target_rows(
    units_map: MixingMap, target: WordRequest | None, rows: str, whole_map: MixingMap
) -> list[int]:
    """Select the rows of the target, or its deciding row, in a map without the dropped units."""
    if rows not in ROW_NAMES:
        raise InputError(f"rows must be 'target' or 'deciding', found {rows!r}")
    if rows == "target" and requested_unit(target):
        return _find_role_units(units_map.targets, target, "target", whole_map)
    if _is_spelled(target) and not requested_unit(target):
        target = cue_words(_find_word_indices(target, units_map.targets, "target", whole_map))[0]
    return (
        [_require_deciding_row(units_map)]
        if rows == "deciding"
        else _find_units(units_map.targets, cast("int | None", target), "target", whole_map)
    )


def _is_spelled(request: CueRequest | None) -> TypeGuard[CueRequest]:
    """Whether a request names a word by its letters, not only by its index."""
    return isinstance(request, str) or (
        isinstance(request, Sequence) and any(map(_is_spelled, request))
    )


def _require_deciding_row(mixing_map: MixingMap) -> int:
    row = deciding_row(mixing_map)
    if row is None:
        raise InputError(
            "rows='deciding' needs a decoder or cross-attention map with the deciding row of a clip "
            "with a foil (the target's other spelling), or that of a transducer's encoder with a "
            f"word at the emitting frame; found {mixing_map!r}"
        )
    return row


def _find_units(
    spans: Sequence[Span], word: int | None, role: str, mixing_map: MixingMap
) -> list[int]:
    if word is None:
        raise InputError(f"{role} is not given: name the word ({role}='livres'), or give its index")
    unit_indices = [i for i, span in enumerate(spans) if span.word == word]
    if not unit_indices:
        side = "targets" if role == "target" else "sources"
        labels = " ".join(f"{span.label}[{span.word}]" for span in spans if span.word is not None)
        reason = (
            " A decoder has a word only if the word is in its text."
            if mixing_map.stack != "encoder"
            else ""
        )
        raise InputError(
            f"word {word} ({role}) is not among the {side} of this {mixing_map.stack} map, which "
            f"are: {labels or 'no words'}.{reason}"
        )
    return unit_indices


def _find_word_indices(
    request: CueRequest, spans: Sequence[Span], role: str, mixing_map: MixingMap
) -> Cue:
    """Find the index of the word with a spelling, or the indices of several words."""
    where = f"words of this {mixing_map.stack} map"
    words = _list_words(spans, mixing_map)
    if not words:
        raise InputError(
            f"{where}: there are none, so give the index of the {role}, not {request!r}"
        )
    if role == "target":
        return find_word(words, cast("WordRequest", request), role=role, where=where)
    return find_cue(words, request, where=where)


def _list_words(spans: Sequence[Span], mixing_map: MixingMap) -> Sequence[Word | TextWord]:
    """List the words of a clip, from the provenance; else join the tokens of each word."""
    if mixing_map.provenance.get("words"):
        return [Word(text, start, end) for text, start, end, *_ in mixing_map.provenance["words"]]
    spellings: dict[int, str] = {}
    for span in spans:
        if span.word is not None:
            spellings[span.word] = spellings.get(span.word, "") + written_label(span.label)
    words: list[TextWord] = []
    for index in range(max(spellings, default=-1) + 1):
        # Without a tokenizer's sign for the beginning of a word.
        text = re.sub(r"^[\s\u2581\u0120]+", "", spellings.get(index, "(not in the map)")) or "?"
        start = words[-1].stop + 1 if words else 0
        words.append(TextWord(text, start, start + len(text)))
    return words


def length_matched_share(mixing_map: MixingMap, *, cue: CueRequest) -> float:
    """Return the expected share of words of the cue's length.

    It is NaN for a measure without a known exponent. Silence and padding are left out, as in
    `cue_contribution`, whose cues it takes. The shares of several words, which are removed one by
    one, are summed.
    """
    facts = find_facts(mixing_map.measure)
    exponents = facts.length_exponent if facts else {}
    exponent = exponents.get(
        "", exponents.get(mixing_map.provenance.get("distance", "cosine"), np.nan)
    )
    units_map = mixing_map.without("silence", "padding")
    weights = np.array([float(len(source)) for source in units_map.sources]) ** exponent
    return float(weights[cue_columns(units_map, cue, mixing_map)].sum() / weights.sum())


def length_exponent(maps: Iterable[MixingMap]) -> float:
    """Fit the slope of log share against log frames, within rows, without the target; NaN if
    nothing varies.

    Parameters
    ----------
    maps : iterable of MixingMap
        Of one measure; several clips, all layers. Those of random twins show what length alone
        does.
    """
    log_lengths, log_shares = [], []
    for mixing_map in maps:
        words = mixing_map.without("silence", "padding").mean_heads().normalized()
        frames = np.log([max(len(source), 1) for source in words.sources])
        for row, target in enumerate(words.targets):
            other_columns = [
                j
                for j, source in enumerate(words.sources)
                if target.word is None or source.word != target.word
            ]
            if len(other_columns) < 2:
                continue
            for layer in words.scores[:, row, other_columns].astype(float):
                if (layer > 0).all() and np.isfinite(layer).all():
                    log_lengths.append(frames[other_columns] - frames[other_columns].mean())
                    log_shares.append(np.log(layer) - np.log(layer).mean())
    if not log_lengths or np.ptp(np.concatenate(log_lengths)) < 1e-9:
        return float("nan")
    covariances = np.cov(np.concatenate(log_lengths), np.concatenate(log_shares), bias=True)
    return float(covariances[0, 1] / covariances[0, 0])
