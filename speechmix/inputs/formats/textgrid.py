"""Praat TextGrids: which tier holds the words, and its labelled intervals as words; and words as a
TextGrid.

In: a path of a TextGrid (long or short form, UTF-8 or UTF-16; Praat, the Montreal Forced Aligner,
WebMAUS, ELAN). Out: `Word`s. praatio does the parsing and the writing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path

from ...errors import InputError
from ...files.text_files import read_text
from ..audio.frame_grid import Seconds
from ..words.multipart_words import split_into_pieces
from ..words.timed_words import Word
from ..words.word_checks import check_words

# What aligners write into a word tier where nobody speaks. "spn" and "<unk>" are speech and stay.
SILENCE_LABELS = frozenset({"", "sp", "sil", "<sil>", "<eps>", "<p:>", "<p>"})
# Names of word tiers: Praat and MFA users', WebMAUS's, and a few languages'.
WORD_TIERS = frozenset(
    {
        "words",
        "word",
        "mots",
        "mot",
        "wörter",
        "wort",
        "palabras",
        "palabra",
        "parole",
        "parola",
        "ort-mau",
    }
)
# Praat has no intervals of no length; a word of no length becomes this long, where there is room.
_MIN_INTERVAL_SECONDS: Seconds = 0.001


Intervals = dict[str, list[tuple[str, Seconds, Seconds]]]


def read_textgrid(path: str | PathLike[str], *, tier: str | None = None) -> list[Word]:
    """Labelled intervals of the word tier, times as they are in the file.

    Parameters
    ----------
    path : path of a .TextGrid file
    tier : str, optional
        Its name. Default: see `tier_words`.

    Raises
    ------
    InputError
        If it is no TextGrid, the tier is not there or not certain, or has no labelled interval.
    """
    return tier_words(read_textgrid_tiers(path), tier=tier, where=str(path))


def read_textgrid_tiers(path: str | PathLike[str]) -> Intervals:
    """Interval tiers by name, each a list of (label, start, end) with times as in the file.

    Raises
    ------
    InputError
        If it is no TextGrid.
    """
    from praatio.utilities import errors, textgrid_io

    path = Path(path)
    text = _write_decimal_numbers(read_text(path), path)
    try:
        # A last line without its end would cost praatio the last interval of a short-form file.
        tiers = textgrid_io.parseTextgridStr(text + "\n", includeEmptyIntervals=True)["tiers"]
        intervals: Intervals = {}
        for section in tiers:
            if section["class"] == "IntervalTier":
                name = (
                    section["name"]
                    if section["name"] not in intervals
                    else f"{section['name']} ({len(intervals) + 1})"
                )
                intervals[name] = [
                    (label, float(start), float(end)) for start, end, label in section["entries"]
                ]
    # praatio checks little: what it raises on a damaged file depends on where the damage is.
    except (
        errors.PraatioException,
        ValueError,
        IndexError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        OverflowError,
    ) as error:
        raise InputError(
            f"{path}: not a readable TextGrid ({type(error).__name__}: {str(error)[:200]}): open "
            "it in Praat and save it again"
        ) from error
    return intervals


def tier_words(
    tiers: Mapping[str, Sequence[tuple[str, Seconds, Seconds]]], *, tier: str | None, where: str
) -> list[Word]:
    """Choose the word tier and leave out its silences.

    Parameters
    ----------
    tiers : mapping of name -> (label, start, end)
        Interval tiers only.
    tier : str, optional
        Which one; capitals do not matter. Default: the one called words, word, mots, ... or
        "speaker - words", else the only one.
    where : str
        What to call the file in an error.

    Raises
    ------
    InputError
        If the tier is not there, several could be meant, or it has no labelled interval.

    Examples
    --------
    >>> tiers = {"phones": [("l", 0.0, 0.1)], "Anne - words": [("les", 0.0, 0.2), ("sp", 0.2, 0.4)]}
    >>> tier_words(tiers, tier=None, where="a.TextGrid")
    [Word(text='les', start=0.0, end=0.2, score=None)]
    """
    name = choose_word_tier(list(tiers), tier, where)
    words = [
        Word(label.strip(), float(start), float(end))
        for label, start, end in tiers[name]
        if label.strip().lower() not in SILENCE_LABELS
    ]
    if not words:
        raise InputError(f"{where}: expected words in tier {name!r}, found no labelled interval")
    return words


def choose_word_tier(names: list[str], tier: str | None, where: str) -> str:
    """Name of the tier with the words: see `tier_words`."""
    if not names:
        raise InputError(f"{where}: expected an interval tier with the words, found none")
    if tier is not None:
        matches = [name for name in names if name == tier] or [
            name for name in names if _is_same_name(name, tier)
        ]
    else:
        matches = [name for name in names if _is_word_tier(name)] or (
            names if len(names) == 1 else []
        )
    if len(matches) != 1:
        expected = (
            f"interval tier {tier!r}"
            if tier is not None
            else "one interval tier that is clearly the words'"
        )
        raise InputError(
            f"{where}: expected {expected}, found {len(matches)} among the tiers {names}: name one "
            "with tier="
        )
    return matches[0]


def _is_same_name(name: str, other: str) -> bool:
    return name.strip().casefold() == other.strip().casefold()


def _is_word_tier(name: str) -> bool:
    return name.rsplit(" - ", 1)[-1].strip().casefold() in WORD_TIERS


def _write_decimal_numbers(text: str, path: Path) -> str:
    """Write 5.6e-17 (Praat does) as a plain number, and refuse negative times: praatio reads
    neither."""
    if re.search(r"^\s*(?:xmin|xmax)\s*=\s*-[\d.]*[1-9]", text, flags=re.MULTILINE):
        raise InputError(
            f"{path}: has negative times, expected seconds from the audio's start: shift its times"
        )
    return re.sub(
        r"^(\s*(?:xmin|xmax|number)\s*=\s*)-?([\d.]+[eE][+-]?\d+)\s*$",
        lambda match: f"{match[1]}{float(match[2]):.18f}",
        text,
        flags=re.MULTILINE,
    )


def write_textgrid(
    path: str | PathLike[str], words: Sequence[Word], duration: Seconds, *, tier: str = "words"
) -> None:
    """Write words as a long-form UTF-8 TextGrid that Praat opens: `write_tiers` with one tier."""
    write_tiers(path, {tier: words}, duration)


def write_tiers(
    path: str | PathLike[str], tiers: Mapping[str, Sequence[Word]], duration: Seconds
) -> None:
    """Write tiers of labelled intervals as a long-form UTF-8 TextGrid that Praat opens.

    An interval of no length becomes 1 ms long, because Praat has no empty ones. A word in pieces is
    an interval for each.

    Parameters
    ----------
    path : path to write; an existing file is replaced
    tiers : mapping of str to sequence of Word
        Words, or other labelled intervals, by the tier's name, in time order.
    duration : float
        Seconds of audio.

    Raises
    ------
    InputError
        If the intervals of a tier cannot be right, or one of no length has no room to become 1 ms
        long.
    """
    from praatio import textgrid

    grid = textgrid.Textgrid(0.0, duration)
    for tier, words in tiers.items():
        words = split_into_pieces(check_words(words, duration=duration, where=str(path)))
        limits = [*(word.start for word in words[1:]), duration]
        entries = []
        for word, limit in zip(words, limits, strict=True):
            end = (
                word.end
                if word.end > word.start
                else min(word.start + _MIN_INTERVAL_SECONDS, limit)
            )
            if end <= word.start:
                raise InputError(
                    f"{path}: word {word.text!r} at {word.start:.3f} s has no length and no room "
                    "for one"
                )
            entries.append((word.start, end, word.text))
        grid.addTier(textgrid.IntervalTier(tier, entries, 0.0, duration))
    # Keep short intervals: by default praatio merges them into their neighbours.
    grid.save(
        str(path), format="long_textgrid", includeBlankSpaces=True, minimumIntervalLength=None
    )
