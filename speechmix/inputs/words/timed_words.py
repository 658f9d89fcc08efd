"""A word of a clip: what it is and where it is in the audio, in one piece or in several. Times are
seconds.

Merge and format sorted, disjoint ranges of positions or seconds.

In: (start, end) pairs in any order. Out: the same ranges in the one form that every unit of several
pieces has, so that equal units are equal whatever way they were written down.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from ...errors import InputError
from ..audio.frame_grid import Seconds

Number = TypeVar("Number", int, float)


def merge_ranges(
    ranges: Iterable[tuple[Number, Number]], *, where: str, tolerance: float = 0
) -> tuple[tuple[Number, Number], ...]:
    """Return half-open ranges in ascending order, with those that touch put together.

    Ranges that overlap, or lie apart, by at most `tolerance` touch. InputError for no range, one
    that is empty or no pair of numbers, and for two that overlap; it calls the unit `where`.

    Examples
    --------
    >>> merge_ranges([(7, 9), (2, 4), (4, 5)], where="a word")
    ((2, 5), (7, 9))
    """
    try:
        sorted_ranges = sorted((start, end) for start, end in ranges)
        empty_ranges = [edges for edges in sorted_ranges if not edges[0] < edges[1]]
    except (TypeError, ValueError):
        raise InputError(
            f"{where}: expected pieces as (start, end) pairs of numbers, found {ranges!r}"
        ) from None
    if not sorted_ranges or empty_ranges:
        problem = f"the empty {_format_range(empty_ranges[0])}" if empty_ranges else "none"
        raise InputError(
            f"{where}: expected pieces (start, end) with start < end, found {problem}: leave empty "
            "ones out"
        )
    merged_ranges = [sorted_ranges[0]]
    for start, end in sorted_ranges[1:]:
        previous = merged_ranges[-1]
        if start < previous[1] - tolerance:
            raise InputError(
                f"{where}: its pieces {_format_range(previous)} and {_format_range((start, end))} overlap: each "
                "position is in one piece"
            )
        if start <= previous[1] + tolerance:
            merged_ranges[-1] = (previous[0], max(previous[1], end))
        else:
            merged_ranges.append((start, end))
    return tuple(merged_ranges)


def _format_range(edges: tuple[float, float]) -> str:
    return f"[{edges[0]:g}, {edges[1]:g})"


def store_pieces(
    unit: object, pieces: tuple[tuple[float, float], ...], edges: tuple[float, float], where: str
) -> None:
    """Set the pieces of a frozen unit in one form: none where they are one range.

    InputError if they do not reach from edge to edge.
    """
    if pieces and (pieces[0][0], pieces[-1][1]) != edges:
        raise InputError(
            f"{where}: its pieces reach from {pieces[0][0]:g} to {pieces[-1][1]:g}, but it is said "
            f"to be from {edges[0]:g} to "
            f"{edges[1]:g}: let it begin with the first piece and end with the last"
        )
    object.__setattr__(unit, "pieces", pieces if len(pieces) > 1 else ())


def format_unit(unit: Any) -> str:
    """As dataclasses are shown; pieces only where there are some."""
    values = {field.name: getattr(unit, field.name) for field in fields(unit)}
    field_texts = [
        f"{name}={value!r}"
        for name, value in values.items()
        if name not in ("pieces", "times", "source_label") or value
    ]
    return f"{type(unit).__name__}({', '.join(field_texts)})"


# Pieces of a word that are apart, or over each other, by no more than this touch: times are rounded
# to milliseconds.
TOUCH_TOLERANCE: Seconds = 0.001


@dataclass(frozen=True)
class Word:
    """A word and where it is in the audio: from its start to its end, or in several pieces between
    them.

    Parameters
    ----------
    text : str
    start, end : float
        Seconds.
    score : float, optional
        How sure the aligner is, 0 to 1; None if it was not asked or the times were measured by
        hand.
    pieces : sequence of (float, float), optional
        Where the word is, if not all the way from start to end: with a hesitation cut out, or with
        other words between its parts (*ne ... pas*). In any order; the first begins at `start`, the
        last ends at `end`.
    source_label : str
        The label that a file has for it, if `text` is that label in IPA ("AH0" for ə); else "".

    Raises
    ------
    InputError
        For pieces that overlap or are empty, or that do not reach from start to end.

    Examples
    --------
    >>> Word("livres", 0.3, 0.9, pieces=[(0.62, 0.9), (0.3, 0.5)]).intervals
    ((0.3, 0.5), (0.62, 0.9))
    """

    text: str
    start: Seconds
    end: Seconds
    score: float | None = None
    pieces: tuple[tuple[Seconds, Seconds], ...] = ()
    source_label: str = ""

    def __post_init__(self) -> None:
        if self.pieces != ():
            where = f"word {self.text!r}"
            pieces = (
                merge_ranges(self.pieces, where=where, tolerance=TOUCH_TOLERANCE)
                if self.pieces
                else ()
            )
            store_pieces(self, pieces, (self.start, self.end), where)

    @classmethod
    def from_pieces(
        cls, text: str, pieces: Iterable[tuple[Seconds, Seconds]], score: float | None = None
    ) -> Word:
        """Word that is where its pieces are, in seconds.

        Examples
        --------
        >>> Word.from_pieces("livres", [(0.3, 0.5), (0.62, 0.9)])
        Word(text='livres', start=0.3, end=0.9, score=None, pieces=((0.3, 0.5), (0.62, 0.9)))
        """
        merged_pieces = merge_ranges(pieces, where=f"word {text!r}", tolerance=TOUCH_TOLERANCE)
        return cls(text, merged_pieces[0][0], merged_pieces[-1][1], score, merged_pieces)

    @property
    def intervals(self) -> tuple[tuple[Seconds, Seconds], ...]:
        """Where the word is in the audio: its pieces, or the one stretch from start to end."""
        return self.pieces or ((self.start, self.end),)

    @property
    def seconds(self) -> Seconds:
        """How long the word is, without what lies between its pieces."""
        return sum(end - start for start, end in self.intervals)

    def shift(self, seconds: Seconds) -> Word:
        """The word so much later, or earlier."""
        pieces = tuple((start + seconds, end + seconds) for start, end in self.pieces)
        start, end = self.start + seconds, self.end + seconds
        return Word(self.text, start, end, self.score, pieces, self.source_label)

    def to_list(self) -> list[object]:
        """[text, start, end], with None, pieces and the source label behind them where there are
        some, as files keep it and as `Clip` takes it."""
        if not (self.pieces or self.source_label):
            return [self.text, self.start, self.end]
        label = [self.source_label] if self.source_label else []
        return [self.text, self.start, self.end, None, [*map(list, self.pieces)], *label]

    def __repr__(self) -> str:
        return format_unit(self)
