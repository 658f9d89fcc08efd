"""Tiers of a file below its words: which one holds the phones, which one the syllables.

In: the interval tiers of a TextGrid, an ELAN document or a JSON file, by name. Out: `Word`s by unit,
pauses and noise left out, phones in IPA whatever alphabet the file has.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

from ...errors import InputError
from ..words.phone_labels import convert_to_ipa
from ..words.timed_words import Word
from ..words.unit_tiers import PHONE, SYLLABLE, TIER_UNITS, Tiers
from .textgrid_text import Intervals
from .tier_intervals import bare_tier_name, units_of_intervals

# Names of tiers: Praat and MFA users', WebMAUS's, and a few languages'.
_TIER_NAMES = {
    PHONE: frozenset("phones phone phonemes phoneme phonèmes phonème phon mau".split()),
    SYLLABLE: frozenset("syllables syllable syll syllabes syllabe silben silbe mas".split()),
}


def unit_tiers_of_file(
    intervals: Intervals,
    *,
    word_tier: str,
    names: Mapping[str, str] | None,
    where: str,
    alphabet: str | None = None,
) -> dict[str, tuple[Word, ...]]:
    """Return the tiers of a file by unit.

    In a file of several speakers the word tier "Anne - words" goes with "Anne - phones". `names`
    says which tiers to take (unit -> name, in any case); by default those whose names say what they
    are. InputError, which calls the file `where`, if a named tier is not there, is there twice, has
    no labelled interval, or has phones in no known alphabet. Without `names` such phones are left
    out with a warning.

    Examples
    --------
    >>> unit_tiers_of_file({"words": [], "phones": [("l", 0.0, 0.1)]}, word_tier="words", names=None, where="a")
    {'phone': (Word(text='l', start=0.0, end=0.1, score=None),)}
    """
    tiers: dict[str, tuple[Word, ...]] = {}
    if names is None:
        for unit in TIER_UNITS:
            matches = _named_alike(list(intervals), unit, word_tier)
            if len(matches) > 1:
                warnings.warn(
                    f"{where}: {len(matches)} tiers of {unit}s, {matches}: none is read; name one with "
                    f"tiers={{{unit!r}: {matches[0]!r}}}",
                    stacklevel=2,
                )
            elif matches:
                labelled = _read_units(intervals, matches[0], unit, where)
                labelled_in_ipa = usable_units_in_ipa(
                    labelled, unit, alphabet=alphabet, where=where
                )
                tiers |= {unit: labelled_in_ipa} if labelled_in_ipa else {}
        return tiers
    for unit, name in names.items():
        matches = [other for other in intervals if other == name] or [
            other for other in intervals if bare_tier_name(other) == bare_tier_name(name)
        ]
        if len(matches) != 1:
            raise InputError(
                f"{where}: expected a tier {name!r} with the {unit}s, found {len(matches)} among the "
                f"interval tiers {list(intervals)}: name one of these"
            )
        labelled = _read_units(intervals, matches[0], unit, where)
        tiers[unit] = units_in_ipa(labelled, unit, alphabet=alphabet, where=where)
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
    bare_name = bare_tier_name(name).rsplit(" - ", 1)[-1].strip()
    return next((unit for unit, names in _TIER_NAMES.items() if bare_name in names), None)


def _named_alike(names: list[str], unit: str, word_tier: str) -> list[str]:
    """Tiers that are called like this unit; of the words' speaker, if there are several."""
    matches = [name for name in names if unit_of_tier_name(name) == unit]
    speaker = word_tier.rsplit(" - ", 1)[0]
    of_speaker = [name for name in matches if name.rsplit(" - ", 1)[0] == speaker]
    return of_speaker or matches


def units_in_ipa(
    units: Sequence[Word], unit: str, *, alphabet: str | None, where: str
) -> tuple[Word, ...]:
    """Units of a tier, phones in IPA: see `speechmix.inputs.words.phone_labels.convert_to_ipa`."""
    return convert_to_ipa(units, alphabet=alphabet, where=where) if unit == PHONE else tuple(units)


def usable_units_in_ipa(
    units: Sequence[Word], unit: str, *, alphabet: str | None, where: str
) -> tuple[Word, ...]:
    """Units of a tier that nobody requested by name; none, with a warning, if they are phones in no
    known alphabet."""
    try:
        return units_in_ipa(units, unit, alphabet=alphabet, where=where)
    except InputError as error:
        warnings.warn(f"the {unit}s are left out: {error}", stacklevel=2)
        return ()


def _read_units(intervals: Intervals, name: str, unit: str, where: str) -> list[Word]:
    return units_of_intervals(intervals[name], unit, where=f"{where}, tier {name!r}")
