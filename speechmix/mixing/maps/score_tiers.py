"""Export a map's row as time tiers for Praat or ELAN, or as a table.

In: the maps of one clip, its words, a target. Out: labelled intervals by tier, words, phones and
syllables first; a tier for each map and layer holds shares in percent, those of
`speechmix.cue_contribution`.

Write labelled intervals by tier as a file: TextGrid for Praat, .eaf for ELAN, or a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ...errors import InputError
from ...files.text_files import write_csv
from ...files.whole_files import whole_file
from ...inputs.formats.elan import write_elan
from ...inputs.formats.textgrid import write_tiers
from ...inputs.words.cue_and_target import Cue, cue_words
from ...inputs.words.spans import Span
from ...inputs.words.timed_words import Word
from ...inputs.words.unit_tiers import TIER_UNITS, UnitRole, role_units

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from .mixing_map import MixingMap


TIER_SUFFIXES = (".textgrid", ".eaf", ".csv")


def write_tier_file(
    path: Path,
    tiers: Mapping[str, Sequence[Word]],
    duration: float,
    *,
    audio: str | Path | None = None,
) -> None:
    """Write tiers in the format that the file's ending names: .TextGrid, .eaf or .csv, else an
    InputError."""
    extension = path.suffix.lower()
    if extension not in TIER_SUFFIXES:
        raise InputError(
            f"{path}: expected a file ending in .TextGrid (Praat), .eaf (ELAN) or .csv, found "
            f"{path.suffix!r}"
        )
    if extension == ".csv":
        rows = [
            {"tier": tier, "start": start, "end": end, "label": interval.text}
            for tier, intervals in tiers.items()
            for interval in intervals
            for start, end in interval.intervals
        ]
        write_csv(pd.DataFrame(rows), path)
        return
    with whole_file(path) as temporary_path:
        if extension == ".eaf":
            write_elan(temporary_path, tiers, duration, audio=audio)
        else:
            write_tiers(temporary_path, tiers, duration)


Layers = str | int | Sequence[int]  # "all", "best", or which
Target = int | UnitRole  # index of a word, or a phone or syllable


def write_score_tiers(
    path: str | Path,
    maps: Mapping[tuple[str, str], MixingMap],
    clip: Clip,
    *,
    target: int | None = None,
    layers: Layers = "all",
) -> Path:
    """Write a clip's words and the shares of its maps as tiers: .TextGrid for Praat, .eaf for ELAN,
    .csv with the columns tier, start, end, label.

    Parameters
    ----------
    path : path ending in .TextGrid, .eaf or .csv; an existing file is replaced
    maps : mapping of (measure, stack) to MixingMap
        Of the clip.
    clip : Clip
        With words.
    target : int, optional
        Index of the word that receives; by default the clip's target, also a phone or syllable.
    layers : "all", "best", int or sequence of int
        A tier for each layer, for the one in which the cue gives most, or for these, counted from
        0.

    Returns
    -------
    Path

    Raises
    ------
    InputError
        For another ending, a clip without words, no target, a layer that none of the maps has, or
        maps that say nothing of it.
    """
    path = Path(path)
    if not clip.words:
        raise InputError(
            f"clip {clip.name!r} has no word times: align it first, speechmix.align(clip)"
        )
    default_target = clip.unit_roles.get("target", clip.target)
    requested_target = default_target if target is None else target
    if requested_target is None:
        raise InputError(
            f"clip {clip.name!r} has no target: say which word receives, target=0 for "
            f"{clip.words[0].text!r}"
        )
    tiers = score_tiers(
        maps,
        clip.words,
        target=requested_target,
        cue=clip.cue,
        layers=layers,
        duration=clip.duration,
    )
    write_tier_file(path, tiers, clip.duration, audio=clip.path)
    return path


def score_tiers(
    maps: Mapping[tuple[str, str], MixingMap],
    words: Sequence[Word],
    *,
    target: Target,
    duration: float,
    cue: Cue | None = None,
    layers: Layers = "all",
) -> dict[str, list[Word]]:
    """Words, and for each map and layer their shares in the target.

    Parameters
    ----------
    maps : mapping of (measure, stack) to MixingMap
        Of words, phones, syllables or frames. Tokens of a decoder are shown where their word is.
        Maps without the target are passed over.
    words : sequence of Word
    target : int or UnitRole
        A word, or a phone or syllable of `Clip.unit_roles`.
    duration : float
        Seconds of audio: frames behind it (padding) are left out.
    cue : int or sequence of int, optional
        For layers="best".
    layers : "all", "best", int or sequence of int
        Each in at least one of the maps.

    Returns
    -------
    dict of str to list of Word
        "words", "phones" where a map has them, then for instance "value_zeroing encoder 3: livres",
        whose labels are percentages ("12.5").

    Raises
    ------
    InputError
        For a target that is no word, a layer that none of the maps has, "best" without a cue, or if
        there is nothing to show.

    Examples
    --------
    >>> from speechmix import MixingMap, Span
    >>> words = [Word("les", 0.0, 0.1), Word("livres", 0.1, 0.5)]
    >>> units = (Span(0, 5, "les", word=0), Span(5, 20, "livres", word=1))
    >>> m = MixingMap(np.array([[[3.0, 1.0], [1.0, 3.0]]]), units, units, "value_zeroing", "encoder", (0,))
    >>> tiers = score_tiers({("value_zeroing", "encoder"): m}, words, target=1, duration=0.5)
    >>> {name: [interval.text for interval in tier] for name, tier in tiers.items()}
    {'words': ['les', 'livres'], 'value_zeroing encoder 0: livres': ['25.0', '75.0']}
    """
    if not isinstance(target, UnitRole) and not 0 <= target < len(words):
        raise InputError(f"target={target} is no word: there are {len(words)}, counted from 0")
    if layers == "best" and cue is None:
        raise InputError(
            "layers='best' is the layer in which the cue gives most, and there is no cue: name "
            "layers"
        )
    requested_layers = resolve_map_layers(layers, maps.values()) if maps else "all"
    label = target.text if isinstance(target, UnitRole) else words[target].text
    tiers = {"words": list(words), **_unit_tiers(maps.values())}
    label_tier_count = len(tiers)
    for mixing_map in maps.values():
        intervals, shares, word_indices = _word_shares(mixing_map, words, target, duration)
        best_layer = _best_layer(mixing_map, shares, word_indices, cue)
        for layer, row in zip(mixing_map.layers, shares, strict=True) if intervals else ():
            is_best = requested_layers == "best" and layer == best_layer
            if (
                requested_layers == "all"
                or is_best
                or (not isinstance(requested_layers, str) and layer in requested_layers)
            ):
                tiers[f"{mixing_map.measure} {mixing_map.stack} {layer}: {label}"] = [
                    Word.from_pieces(text, times) if len(times) > 1 else Word(text, *times[0])
                    for times, text in zip(
                        intervals, [f"{100 * share:.1f}" for share in row], strict=True
                    )
                ]
    if len(tiers) == label_tier_count:
        raise InputError(
            f"no tier of what {label!r} is made of: none of the maps "
            f"({', '.join(map(str, maps)) or 'none'}) has "
            f"it as a target, in layers {layers!r}"
        )
    return tiers


def resolve_map_layers(layers: Layers, maps: Iterable[MixingMap]) -> str | tuple[int, ...]:
    """Return the requested layers, each of which at least one of the maps has.

    A layer that none has, no layer, or another word than "all" and "best" is an InputError.
    """
    available_layers = sorted({layer for mixing_map in maps for layer in mixing_map.layers})
    layer_list = ", ".join(map(str, available_layers))
    if isinstance(layers, str) and layers in ("all", "best"):
        return layers
    requested_layers = (
        () if isinstance(layers, str) else (layers,) if isinstance(layers, int) else tuple(layers)
    )
    if not requested_layers:
        raise InputError(
            f'expected layers="all", "best" or some of {layer_list}, counted from 0; found {layers!r}'
        )
    if missing_layers := [layer for layer in requested_layers if layer not in available_layers]:
        raise InputError(
            f"no layer {', '.join(map(repr, missing_layers))}: the maps have {layer_list}, counted from 0"
        )
    return requested_layers


def _unit_tiers(maps: Iterable[MixingMap]) -> dict[str, list[Word]]:
    """Phones and syllables that are units of maps, by the name of their tier."""
    return {
        f"{unit}s": [
            Word(span.label, span.onset or 0.0, span.offset or 0.0)
            for span in mixing_map.sources
            if span.kind == unit
        ]
        for unit in TIER_UNITS
        for mixing_map in maps
        if any(span.kind == unit for span in mixing_map.sources)
    }


def _target_rows(spans: Sequence[Span], words: Sequence[Word], target: Target) -> list[int]:
    if isinstance(target, UnitRole):
        return role_units(spans, target) or []
    return [index for index, span in enumerate(spans) if _word_index(span, words) == target]


def _word_shares(
    mixing_map: MixingMap, words: Sequence[Word], target: Target, duration: float
) -> tuple[list[Sequence[tuple[float, float]]], np.ndarray, list[int | None]]:
    """Times of the sources (all pieces), their shares in the target [L, sources], and of which
    words; none without its rows."""
    units = mixing_map.without("silence", "padding")
    rows = _target_rows(units.targets, words, target)
    shares = (
        units.normalized().mean_heads().scores[:, rows].mean(axis=1)
        if rows
        else np.zeros((len(units.layers), 0))
    )
    word_indices = [_word_index(span, words) for span in units.sources] if rows else []
    if rows and all(span.kind in ("frame", *TIER_UNITS) for span in units.sources):
        times = [(span.onset or 0.0, min(span.offset or 0.0, duration)) for span in units.sources]
        audible_columns = [column for column, (start, end) in enumerate(times) if start < end]
        return (
            [[times[column]] for column in audible_columns],
            shares[:, audible_columns],
            [word_indices[column] for column in audible_columns],
        )
    columns_by_word = {
        word: [column for column, index in enumerate(word_indices) if index == word]
        for word in range(len(words))
    }
    covered_words = [word for word, columns in columns_by_word.items() if columns]
    summed_shares = [shares[:, columns_by_word[word]].sum(axis=1) for word in covered_words]
    word_shares = np.stack(summed_shares, axis=1) if covered_words else shares[:, :0]
    return [words[word].intervals for word in covered_words], word_shares, list(covered_words)


def _word_index(span: Span, words: Sequence[Word]) -> int | None:
    """Return the word that a unit is of: as it says, or of a frame the one that its middle lies
    in."""
    if span.kind != "frame":
        return span.word
    middle = ((span.onset or 0.0) + (span.offset or 0.0)) / 2
    return next(
        (
            index
            for index, word in enumerate(words)
            if any(start <= middle < end for start, end in word.intervals)
        ),
        None,
    )


def _best_layer(
    mixing_map: MixingMap, shares: np.ndarray, word_indices: Sequence[int | None], cue: Cue | None
) -> int | None:
    columns = [column for column, word in enumerate(word_indices) if word in cue_words(cue)]
    cue_shares = shares[:, columns].sum(axis=1)
    return (
        mixing_map.layers[int(cue_shares.argmax())] if cue_shares.any() else None
    )  # a cue that comes later gives nothing
