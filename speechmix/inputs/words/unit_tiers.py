"""Tiers of units below the word: the phones and syllables of a clip.

In: labelled intervals by unit, and the clip's words. Out: the same, checked: each tier is in time
order without overlaps, and each phone lies in one word and in one syllable. A syllable may reach
over a word's boundary, as in French *les amis* [le.za.mi].

Phones and syllables as cue or target: ``"phone:m"``, ``"phone:m:2"``, ``"syllable:le"``.

In: a request, and the tiers of a clip. Out: which intervals are meant, and which units of a map they
are. A label is that of the tier (IPA, without stress marks) or the one that the file has for it.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ...errors import InputError
from ..audio.frame_grid import Seconds
from .cue_and_target import describe_word
from .spans import Span
from .timed_words import Word
from .word_checks import ROUNDING_TOLERANCE, WordLike, check_words, keep_units

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
    out with a warning (`speechmix.inputs.words.word_checks`).

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


_REQUEST = re.compile(rf"({'|'.join(TIER_UNITS)}):(?!\d+$)(.+)")
_STRESS_MARKS = str.maketrans("", "", "ˈˌ")
_SIZES = ("frame", *TIER_UNITS)  # kinds of units of the sound, from small to large


class UnitRole(NamedTuple):
    """Phones or syllables that are cue or target.

    Parameters
    ----------
    unit : str
        "phone" or "syllable".
    indices : tuple of int
        In the tier, ascending.
    intervals : tuple of Word
    words : tuple of int or None
        Index of the word that each is in.
    request : str or list of str
        What finds the same again: "phone:m:2".
    """

    unit: str
    indices: tuple[int, ...]
    intervals: tuple[Word, ...]
    words: tuple[int | None, ...]
    request: str | list[str]

    @property
    def text(self) -> str:
        """Its labels, separated by spaces."""
        return " ".join(interval.text for interval in self.intervals)


def requested_unit(request: object) -> str | None:
    """Unit of a request for phones or syllables; None for words, and for ``"phone:2"``, the second
    word *phone*.

    Examples
    --------
    >>> requested_unit("phone:m:2"), requested_unit(["syllable:le"]), requested_unit("les:2")
    ('phone', 'syllable', None)
    """
    if isinstance(request, (list, tuple)):
        return next((unit for entry in request if (unit := requested_unit(entry))), None)
    match = _REQUEST.fullmatch(request.strip()) if isinstance(request, str) else None
    return match[1] if match else None


def word_requests(requests: Mapping[str, object]) -> dict[str, object]:
    """The requests for words alone: None for a role that is a phone or a syllable."""
    return {role: None if requested_unit(r) else r for role, r in requests.items()}


def find_unit_role(
    tiers: Tiers,
    words: Sequence[Word] | None,
    request: object,
    *,
    role: str,
    where: str = "clip",
) -> UnitRole | None:
    """Find the phones or syllables that are meant; None for words, or while there is no such tier.

    Parameters
    ----------
    tiers : mapping of str to tuple of Word
    words : sequence of Word, optional
    request : str, or for a cue a list of str
        ``"phone:m"``, with ``":2"`` for the second one. Several: a list, or labels that follow each
        other, ``"phone:m a"``.
    role, where : str
        "cue" or "target", and what to call the clip in an error.

    Raises
    ------
    InputError
        If no interval has the label, several have it, or a target is several intervals.

    Examples
    --------
    >>> tiers = {"phone": (Word("m", 0, 0.1), Word("a", 0.1, 0.2), Word("m", 0.2, 0.3))}
    >>> find_unit_role(tiers, None, "phone:m:2", role="target").indices
    (2,)
    """
    unit = requested_unit(request)
    if unit is None or unit not in tiers:
        return None
    entries = request if isinstance(request, (list, tuple)) else [request]
    indices: list[int] = []
    for entry in entries:
        match = _REQUEST.fullmatch(entry.strip()) if isinstance(entry, str) else None
        if match is None or match[1] != unit:
            raise InputError(
                f"{where}: {role} {request!r} mixes units, expected only {unit}s: '{unit}:LABEL'"
            )
        indices += _find_intervals(tiers[unit], match[2].strip(), f"{where}: {role} {entry!r}")
    indices.sort()
    if len(set(indices)) < len(indices) or (role == "target" and len(indices) > 1):
        raise InputError(
            f"{where}: expected {'one ' + unit if role == 'target' else f'each {unit} once'} as "
            f"{role}, found {request!r}"
        )
    return make_unit_role(tiers, words, unit, indices)


def make_unit_role(
    tiers: Tiers, words: Sequence[Word] | None, unit: str, indices: Sequence[int]
) -> UnitRole:
    """Role of intervals by their indices in the tier."""
    tier = tiers[unit]
    intervals = tuple(tier[index] for index in indices)
    labels = [_normalize_label(interval.text) for interval in tier]
    requests = [
        f"{unit}:{labels[index]}:{labels[: index + 1].count(labels[index])}" for index in indices
    ]
    return UnitRole(
        unit,
        tuple(indices),
        intervals,
        tuple(unit_owners(intervals, words or ())),
        requests[0] if len(requests) == 1 else requests,
    )


def role_units(spans: Sequence[Span], role: UnitRole) -> list[int] | None:
    """Indices of the units of a map that a role is: in the sound those whose middle lies in it, in a
    text the tokens of its word; None if the units are larger, so that none can be it."""
    kinds = {span.kind for span in spans if span.onset is not None}
    if not kinds & {*_SIZES, "word"}:
        owners = set(role.words) - {None}
        return [index for index, span in enumerate(spans) if span.word in owners]
    smaller_kinds = _SIZES[: _SIZES.index(role.unit) + 1]
    if not kinds & set(smaller_kinds):
        return None
    return [
        index
        for index, span in enumerate(spans)
        if span.kind in smaller_kinds
        and span.onset is not None
        and span.offset is not None
        and any(part.start <= (span.onset + span.offset) / 2 < part.end for part in role.intervals)
    ]


def _find_intervals(tier: Sequence[Word], text: str, where: str) -> list[int]:
    """Indices of one label with or without its occurrence, or of labels that follow each other."""
    numbered = re.fullmatch(r"(.+):([0-9]{1,9})", text)
    readings = [(text, "")] + ([(numbered[1], numbered[2])] if numbered else [])
    for label, occurrence in readings:
        starts = _find_labels(tier, label.split())
        if occurrence and 1 <= int(occurrence) <= len(starts):
            starts = starts[int(occurrence) - 1 : int(occurrence)]
        if len(starts) == 1:
            return list(range(starts[0], starts[0] + len(label.split())))
        if starts:
            times = ", ".join(f"{tier[start].start:.2f} s" for start in starts)
            raise InputError(
                f"{where} occurs {len(starts)} times, at {times}: choose one with "
                f"':1' to ':{len(starts)}' behind it"
            )
    labels = " ".join(interval.text for interval in tier[:60])
    raise InputError(f"{where} is not in the tier, whose labels are: {labels}")


def _find_labels(tier: Sequence[Word], labels: Sequence[str]) -> list[int]:
    """Indices at which these labels begin, one after the other."""
    return [
        start
        for start in range(len(tier) - len(labels) + 1)
        if all(
            label == tier[start + step].source_label
            or _normalize_label(label) == _normalize_label(tier[start + step].text)
            for step, label in enumerate(labels)
        )
    ]


def _normalize_label(label: str) -> str:
    return unicodedata.normalize("NFC", label.translate(_STRESS_MARKS)) or label
