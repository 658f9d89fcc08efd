"""Praat TextGrids: which tier holds the words, and its labelled intervals as words; and words as a
TextGrid.

In: a path of a TextGrid (long or short form, UTF-8 or UTF-16; Praat, the Montreal Forced Aligner,
WebMAUS, ELAN). Out: `Word`s. `textgrid_text` does the parsing, praatio the writing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path

from ...errors import InputError
from ...files.text_files import read_text
from ..audio.frame_grid import Seconds
from ..words.multipart_words import split_into_pieces
from ..words.non_units import WORD
from ..words.timed_words import Word
from ..words.word_checks import check_words
from .textgrid_text import Intervals, parse_textgrid
from .tier_intervals import bare_tier_name, units_of_intervals

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


def read_textgrid(path: str | PathLike[str], *, tier: str | None = None) -> list[Word]:
    """Return the labelled intervals of the word tier, times as they are in the file.

    `tier_words` chooses the tier if none is named. InputError if it is no TextGrid, the tier is not
    there or not certain, or has no labelled interval.
    """
    return tier_words(read_textgrid_tiers(path), tier=tier, where=str(path))


def read_textgrid_tiers(path: str | PathLike[str]) -> Intervals:
    """Interval tiers by name, each a list of (label, start, end) with times as in the file.

    InputError if it is no TextGrid.
    """
    path = Path(path)
    _refuse_binary_file(path)
    intervals = parse_textgrid(read_text(path), where=str(path))
    if any(start < 0 for entries in intervals.values() for _, start, _ in entries):
        raise InputError(
            f"{path}: has negative times, expected seconds from the audio's start: shift its times"
        )
    return intervals


def _refuse_binary_file(path: Path) -> None:
    if not path.is_file():  # `read_text` says what is wrong
        return
    with path.open("rb") as file:
        is_binary = file.read(12) == b"ooBinaryFile"
    if is_binary:
        raise InputError(
            f"{path}: is a binary file of Praat: open it in Praat, select the TextGrid and choose Save "
            "as text file"
        )


def tier_words(
    tiers: Mapping[str, Sequence[tuple[str, Seconds, Seconds]]], *, tier: str | None, where: str
) -> list[Word]:
    """Return the words of the word tier, without its pauses.

    Without a name the tier is the one called words, word, mots, ... or "speaker - words", else the
    only one; capitals do not matter. InputError if it is not there, several could be meant, or it
    has no labelled interval.

    Examples
    --------
    >>> tiers = {"phones": [("l", 0.0, 0.1)], "Anne - words": [("les", 0.0, 0.2), ("sp", 0.2, 0.4)]}
    >>> tier_words(tiers, tier=None, where="a.TextGrid")
    [Word(text='les', start=0.0, end=0.2, score=None)]
    """
    name = choose_word_tier(list(tiers), tier, where)
    words = units_of_intervals(tiers[name], WORD, where=f"{where}, tier {name!r}")
    if not words:
        raise InputError(f"{where}: expected words in tier {name!r}, found no labelled interval")
    return words


def choose_word_tier(names: list[str], tier: str | None, where: str) -> str:
    """Name of the tier with the words: see `tier_words`."""
    if not names:
        raise InputError(f"{where}: expected an interval tier with the words, found none")
    if tier is not None:
        matches = [name for name in names if name == tier] or [
            name for name in names if bare_tier_name(name) == bare_tier_name(tier)
        ]
    else:
        matches = [name for name in names if _is_word_tier(name)] or (
            names if len(names) == 1 else []
        )
    if len(matches) != 1:
        expected = (
            f"interval tier {tier!r}"
            if tier is not None
            else "one interval tier whose name says that it holds the words"
        )
        raise InputError(
            f"{where}: expected {expected}, found {len(matches)} among the tiers {names}: name one "
            "with tier= (--tier on the command line)"
        )
    return matches[0]


def _is_word_tier(name: str) -> bool:
    return bare_tier_name(name).rsplit(" - ", 1)[-1].strip() in WORD_TIERS


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
