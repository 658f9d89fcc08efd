"""Merge and format sorted, disjoint ranges of positions or seconds.

In: (start, end) pairs in any order. Out: the same ranges in the one form that every unit of several
pieces has, so that equal units are equal whatever way they were written down.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, TypeVar

from ...errors import InputError

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
