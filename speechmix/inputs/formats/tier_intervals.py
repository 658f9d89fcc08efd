"""Labelled intervals of a tier as units, and the names of tiers.

In: the intervals of one tier of a TextGrid, an ELAN document or a JSON file. Out: `Word`s.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence

from ..audio.frame_grid import Seconds
from ..words.non_units import is_non_unit, warn_left_out
from ..words.praat_symbols import decode_praat_symbols
from ..words.timed_words import Word
from ..words.unit_tiers import PHONE


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
