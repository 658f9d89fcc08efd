"""Tiers of a file below its words: which one holds the phones, which one the syllables.

In: the interval tiers of a TextGrid, an ELAN document or a JSON file, by name. Out: `Word`s by unit,
silences left out, labels in IPA where the file has ARPABET or SAMPA.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ...errors import InputError
from ..audio.frame_grid import Seconds
from ..words.phone_labels import convert_to_ipa
from ..words.timed_words import Word
from ..words.unit_tiers import PHONE, SYLLABLE, TIER_UNITS, Tiers
from .textgrid import SILENCE_LABELS, Intervals

# Names of tiers: Praat and MFA users', WebMAUS's, and a few languages'.
_TIER_NAMES = {
    PHONE: frozenset("phones phone phonemes phoneme phonèmes phonème phon mau".split()),
    SYLLABLE: frozenset("syllables syllable syll syllabes syllabe silben silbe mas".split()),
}


def unit_tiers_of_file(
    intervals: Intervals, *, word_tier: str, names: Mapping[str, str] | None, where: str
) -> dict[str, tuple[Word, ...]]:
    """Tiers of a file by unit.

    Parameters
    ----------
    intervals : mapping of name to (label, start, end)
    word_tier : str
        Name of the words' tier: in a file of several speakers ("Anne - words"), "Anne - phones"
        belongs to it.
    names : mapping of unit to str, optional
        Which tiers to take; capitals do not matter. Default: those whose names say what they are.
    where : str
        What to call the file in an error.

    Raises
    ------
    InputError
        If a tier of `names` is not there, is there twice, or has no labelled interval.

    Examples
    --------
    >>> unit_tiers_of_file({"words": [], "phones": [("l", 0.0, 0.1)]}, word_tier="words", names=None, where="a")
    {'phone': (Word(text='l', start=0.0, end=0.1, score=None),)}
    """
    if names is None:
        return {
            unit: _in_ipa(unit, labelled, where)
            for unit in TIER_UNITS
            if len(matches := _named_alike(list(intervals), unit, word_tier)) == 1
            and (labelled := _labelled_intervals(intervals[matches[0]]))
        }
    tiers = {}
    for unit, name in names.items():
        matches = [other for other in intervals if other == name] or [
            other for other in intervals if other.strip().casefold() == name.strip().casefold()
        ]
        if len(matches) != 1:
            raise InputError(
                f"{where}: expected a tier {name!r} with the {unit}s, found {len(matches)} among the "
                f"interval tiers {list(intervals)}: name one of these"
            )
        tiers[unit] = _in_ipa(unit, _labelled_intervals(intervals[matches[0]]), where)
        if not tiers[unit]:
            raise InputError(
                f"{where}: expected {unit}s in tier {name!r}, found no labelled interval"
            )
    return tiers


def file_tier_names(words: Sequence[Word] | None, tiers: Tiers) -> dict[str, Sequence[Word]]:
    """Words, phones and syllables by the names that tiers have in files ("words", "phones")."""
    named = {f"{unit}s": tier for unit, tier in tiers.items()}
    return {"words": words or (), **named}


def unit_of_tier_name(name: str) -> str | None:
    """Unit that a tier's name says it holds ("Anne - phones"); None for words and other names."""
    bare_name = name.rsplit(" - ", 1)[-1].strip().casefold()
    return next((unit for unit, names in _TIER_NAMES.items() if bare_name in names), None)


def _named_alike(names: list[str], unit: str, word_tier: str) -> list[str]:
    """Tiers that are called like this unit; of the words' speaker, if there are several."""
    matches = [name for name in names if unit_of_tier_name(name) == unit]
    speaker = word_tier.rsplit(" - ", 1)[0]
    of_speaker = [name for name in matches if name.rsplit(" - ", 1)[0] == speaker]
    return of_speaker or matches


def _in_ipa(unit: str, intervals: tuple[Word, ...], where: str) -> tuple[Word, ...]:
    return convert_to_ipa(intervals, where=where) if unit == PHONE else intervals


def _labelled_intervals(intervals: Sequence[tuple[str, Seconds, Seconds]]) -> tuple[Word, ...]:
    return tuple(
        Word(label.strip(), start, end)
        for label, start, end in intervals
        if label.strip().lower() not in SILENCE_LABELS
    )
