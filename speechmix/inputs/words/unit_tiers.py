"""Tiers of units below the word: the phones and syllables of a clip.

In: labelled intervals by unit, and the clip's words. Out: the same, checked: each tier is in time
order without overlaps, and each phone lies in one word and in one syllable. A syllable may reach
over a word's boundary, as in French *les amis* [le.za.mi].
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence

from ...errors import InputError
from ..audio.frame_grid import Seconds
from .non_units import keep_units
from .timed_words import Word
from .word_checks import ROUNDING_TOLERANCE, WordLike, check_words
from .word_lookup import describe_word

PHONE, SYLLABLE = "phone", "syllable"
TIER_UNITS = (PHONE, SYLLABLE)

Tiers = Mapping[str, tuple[Word, ...]]


def check_tiers(
    tiers: Mapping[str, Iterable[WordLike]],
    words: Sequence[Word] | None,
    *,
    duration: Seconds | None = None,
    where: str = "tiers",
) -> dict[str, tuple[Word, ...]]:
    """Return tiers as tuples of `Word`, or say what cannot be right.

    What is no phone or syllable (a pause, noise, a mark of another language) or has no length is left
    out with a warning (`speechmix.inputs.words.non_units`).

    Parameters
    ----------
    tiers : mapping of "phone" and "syllable" to iterable of Word or (text, start, end)
        Seconds.
    words : sequence of Word, optional
        What the phones must nest in; None if the words are not known.
    duration : float, optional
        Seconds of audio.
    where : str
        What to call the clip or file in an error.

    Raises
    ------
    InputError
        For another unit, for intervals that `check_words` refuses, and for a phone that crosses the
        boundary of a word or of a syllable by more than 1 ms.

    Examples
    --------
    >>> words = [Word("ma", 0.1, 0.4)]
    >>> check_tiers({"phone": [("m", 0.1, 0.2), ("a", 0.2, 0.4)]}, words)["phone"][0]
    Word(text='m', start=0.1, end=0.2, score=None)
    """
    unknown_units = sorted(set(map(str, tiers)) - set(TIER_UNITS))
    if unknown_units:
        raise InputError(
            f"{where}: expected tiers of the units {', '.join(TIER_UNITS)}, found "
            f"{', '.join(unknown_units)}; words are not a tier: give words="
        )
    checked = {
        unit: tuple(
            keep_units(
                check_words(
                    tiers[unit], duration=duration, where=f"{where}, tier {unit!r}", unit=unit
                ),
                unit,
                where=where,
            )
        )
        for unit in TIER_UNITS
        if unit in tiers
    }
    for larger_unit, larger in (("word", words), (SYLLABLE, checked.get(SYLLABLE))):
        crossing = _find_crossing(checked.get(PHONE, ()), larger or ())
        if crossing is not None:
            index, larger_index = crossing
            raise InputError(
                f"{where}: {describe_word(checked[PHONE][index], index, PHONE)} crosses a boundary of "
                f"{describe_word((larger or ())[larger_index], larger_index, larger_unit)}, expected "
                f"each phone in one {larger_unit}: correct one of the times, or leave the tier out"
            )
    return checked


def tiers_to_json(tiers: Tiers) -> dict[str, list[list[object]]]:
    """Tiers as JSON has them, each interval as `Word.to_list` writes it."""
    return {unit: [interval.to_list() for interval in tier] for unit, tier in tiers.items()}


def unit_owners(units: Sequence[Word], words: Sequence[Word]) -> list[int | None]:
    """Index of the word that each unit's midpoint lies in; None between words.

    Examples
    --------
    >>> unit_owners([Word("m", 0.1, 0.2), Word("h", 0.5, 0.6)], [Word("ma", 0.1, 0.4)])
    [0, None]
    """
    intervals = _sorted_intervals(words)
    starts = [start for start, _, _ in intervals]
    owners: list[int | None] = []
    for unit in units:
        middle = (unit.start + unit.end) / 2
        index = bisect_right(starts, middle) - 1
        is_inside = index >= 0 and middle <= intervals[index][1]
        owners.append(intervals[index][2] if is_inside else None)
    return owners


def _find_crossing(phones: Sequence[Word], larger: Sequence[Word]) -> tuple[int, int] | None:
    """The first phone that is partly in a larger unit, and that unit; None if there is none."""
    intervals = _sorted_intervals(larger)
    ends = [end for _, end, _ in intervals]
    for index, phone in enumerate(phones):
        next_index = bisect_right(ends, phone.start + ROUNDING_TOLERANCE)
        if next_index == len(intervals):
            continue
        start, end, owner = intervals[next_index]
        overlaps = start < phone.end - ROUNDING_TOLERANCE
        if overlaps and (
            phone.start < start - ROUNDING_TOLERANCE or phone.end > end + ROUNDING_TOLERANCE
        ):
            return index, owner
    return None


def _sorted_intervals(words: Sequence[Word]) -> list[tuple[Seconds, Seconds, int]]:
    return sorted((*edges, index) for index, word in enumerate(words) for edges in word.intervals)
