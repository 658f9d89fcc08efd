"""Praat TextGrids: which tier holds the words, and its labelled intervals as words; and words as a
TextGrid.

In: a path of a TextGrid (long or short form, UTF-8 or UTF-16; Praat, the Montreal Forced Aligner,
WebMAUS, ELAN). Out: `Word`s. The parsing is done here, the writing by praatio.

Parse the text of a Praat TextGrid.

In: the text, in the long or the short form. Out: its interval tiers by name. As Praat does it: texts
in quotation marks, numbers and flags that stand free are the values, in a fixed order; everything else
(names, numbers in brackets, comments) is there for people. So a label may look like the format.

Labelled intervals of a tier as units, and the names of tiers.

In: the intervals of one tier of a TextGrid, an ELAN document or a JSON file. Out: `Word`s.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path

from ...errors import InputError
from ...files.text_files import read_text
from ..audio.frame_grid import Seconds
from ..words.cue_and_target import number_repeated
from ..words.multipart_words import split_into_pieces
from ..words.phone_labels import decode_praat_symbols
from ..words.timed_words import Word
from ..words.unit_tiers import PHONE
from ..words.word_checks import WORD, check_words, is_non_unit, warn_left_out

Intervals = dict[str, list[tuple[str, Seconds, Seconds]]]

_VALUE = re.compile(
    r"""
    "(?P<text>(?:[^"]|"")*)"
    | <(?P<flag>\w+)>
    | \[[^]["\n]*\]                                                  # the number of an item
    | !.*                                                            # a comment
    | (?P<number>[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)(?=\s|$)
    | [^\s"\[<!=]+ | .
    """,
    re.VERBOSE,
)
# A label on a line of its own, in which praatio and others leave quotation marks as they are.
_LABEL_LINE = re.compile(r"^([ \t]*(?:text|mark|name) = \")(.*)(\"[ \t\r]*)$", re.MULTILINE)
_SAVE_AS_TEXT = "open it in Praat, select the TextGrid and choose Save as text file"


def parse_textgrid(text: str, *, where: str) -> Intervals:
    """Interval tiers by name, each a list of (label, start, end) in seconds.

    Tiers of one name are told apart by numbers: "words (1)", "words (2)". InputError if it is
    another object of Praat or none, ends too early, or has a time that is negative or no number.

    Examples
    --------
    >>> text = 'File type = "ooTextFile" Object class = "TextGrid" 0 1 <exists> 1 "IntervalTier" "mots" 0 1 1 0 1 "oui"'
    >>> parse_textgrid(text, where="a.TextGrid")
    {'mots': [('oui', 0.0, 1.0)]}
    """
    values = _Values(_LABEL_LINE.sub(_double_quotes, text), where)
    file_type = values.read_text()
    if "chronological" in file_type:
        raise InputError(f"{where}: is a chronological TextGrid: {_SAVE_AS_TEXT}")
    object_class = values.read_text()
    if not file_type.startswith("ooTextFile") or object_class != "TextGrid":
        raise InputError(
            f"{where}: expected a TextGrid, found Praat's {object_class[:40]!r}, which may hold one: "
            f"{_SAVE_AS_TEXT}"
            if file_type.startswith("ooTextFile")
            else f"{where}: not a readable TextGrid (it does not begin as one): {_SAVE_AS_TEXT}"
        )
    values.read_number(), values.read_number()
    tiers = []
    for _ in range(values.read_count() if values.read_flag() == "exists" else 0):
        tier_class, name = values.read_text(), values.read_text()
        values.read_number(), values.read_number()
        entries = []
        for _ in range(values.read_count()):
            start = values.read_number()
            end = values.read_number() if tier_class == "IntervalTier" else start
            entries.append((values.read_text(), start, end))
        if tier_class == "IntervalTier":
            tiers.append((name, entries))
    return dict(
        zip(
            number_repeated([name for name, _ in tiers], fold=str),
            (e for _, e in tiers),
            strict=True,
        )
    )


def _double_quotes(line: re.Match[str]) -> str:
    return line[1] + re.sub('(?<!")"(?!")', '""', line[2]) + line[3]


class _Values:
    """Values of a file of Praat, one after the other, each of the kind that comes next."""

    def __init__(self, text: str, where: str):
        self._text, self._where = text, where
        self._matches: Iterator[re.Match[str]] = _VALUE.finditer(text)

    def read_text(self) -> str:
        return self._next("text").replace('""', '"')

    def read_flag(self) -> str:
        return self._next("flag")

    def read_number(self) -> float:
        return float(self._next("number"))

    def read_count(self) -> int:
        """How many items follow: more than there are characters is a damaged number."""
        count = self.read_number()
        if not 0 <= count <= len(self._text):
            raise self._error(f"{count:g} items", len(self._text))
        return int(count)

    def _next(self, kind: str) -> str:
        for match in self._matches:
            if match.lastgroup == kind:
                return match[kind]
            if match.lastgroup is not None:
                raise self._error(f"{match[0][:30]!r}, expected a {kind}", match.start())
        raise self._error(f"its end, expected a {kind}", len(self._text))

    def _error(self, what: str, position: int) -> InputError:
        line = self._text.count("\n", 0, position) + 1
        return InputError(
            f"{self._where}: not a readable TextGrid (found {what} in line {line}): {_SAVE_AS_TEXT}"
        )


def units_of_intervals(
    intervals: Sequence[tuple[str, Seconds, Seconds]], unit: str, *, where: str
) -> list[Word]:
    r"""Units of a tier: what is labelled, but for pauses and noise, about which there is a warning.

    Backslash symbols of Praat in words and syllables become the letters they stand for; those in
    phones are a matter of their alphabet (`speechmix.inputs.words.phone_labels`).

    Examples
    --------
    >>> units_of_intervals([("", 0.0, 0.1), (r"\e't\e'", 0.1, 0.4)], "word", where="a.TextGrid")
    [Word(text='été', start=0.1, end=0.4, score=None)]
    """
    units = [Word(label.strip(), float(start), float(end)) for label, start, end in intervals]
    indices = [index for index, word in enumerate(units) if not is_non_unit(word.text, unit)]
    warn_left_out(units, indices, unit, where=where)
    units = [units[index] for index in indices]
    return units if unit == PHONE else [_decode_symbols(word, where) for word in units]


def bare_tier_name(name: str) -> str:
    """Name of a tier without its number among those of one name, in small letters.

    Examples
    --------
    >>> bare_tier_name("Words (2)")
    'words'
    """
    return re.sub(r" \(\d+\)$", "", name).strip().casefold()


def _decode_symbols(word: Word, where: str) -> Word:
    text = decode_praat_symbols(word.text)
    if "\\" in text:
        warnings.warn(
            f"{where}: {word.text!r} has a backslash that is no symbol of Praat: it stays as it is",
            stacklevel=3,
        )
    return Word(text, word.start, word.end)


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
