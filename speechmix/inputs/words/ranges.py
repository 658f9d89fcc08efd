"""Ranges of one unit, of positions or of seconds: in order, none empty, none over another; those
that touch are one.

In: (start, end) pairs in any order. Out: the same ranges in the one form that every unit of several
pieces has, so that equal units are equal whatever way they were written down.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from typing import Any, TypeVar

from ...errors import InputError

Number = TypeVar("Number", int, float)


def united(
    ranges: Iterable[tuple[Number, Number]], *, where: str, noise: float = 0
) -> tuple[tuple[Number, Number], ...]:
    """Return ranges in ascending order, with those that touch put together.

    Parameters
    ----------
    ranges : iterable of (start, end)
        Half-open, at least one.
    where : str
        What to call the unit in an error.
    noise : float
        Ranges that lie over each other, or apart, by at most this much touch.

    Raises
    ------
    InputError
        For no range, one that is empty or no pair of numbers, and for two that lie over each other.

    Examples
    --------
    >>> united([(7, 9), (2, 4), (4, 5)], where="a word")
    ((2, 5), (7, 9))
    """
    try:
        ordered = sorted((start, end) for start, end in ranges)
        empty = [edges for edges in ordered if not edges[0] < edges[1]]
    except (TypeError, ValueError):
        raise InputError(
            f"{where}: expected pieces as (start, end) pairs of numbers, found {ranges!r}"
        ) from None
    if not ordered or empty:
        shown = f"the empty {_shown(empty[0])}" if empty else "none"
        raise InputError(
            f"{where}: expected pieces (start, end) with start < end, found {shown}: leave empty "
            "ones out"
        )
    pieces = [ordered[0]]
    for start, end in ordered[1:]:
        before = pieces[-1]
        if start < before[1] - noise:
            raise InputError(
                f"{where}: its pieces {_shown(before)} and {_shown((start, end))} overlap: each "
                "position is in one piece"
            )
        if start <= before[1] + noise:
            pieces[-1] = (before[0], max(before[1], end))
        else:
            pieces.append((start, end))
    return tuple(pieces)


def _shown(edges: tuple[float, float]) -> str:
    return f"[{edges[0]:g}, {edges[1]:g})"


def store_pieces(
    unit: object, pieces: tuple[tuple[float, float], ...], edges: tuple[float, float], where: str
) -> None:
    """Keep the pieces of a frozen unit in their one form: none where they are one range.

    Raises
    ------
    InputError
        If they do not reach from edge to edge.
    """
    if pieces and (pieces[0][0], pieces[-1][1]) != edges:
        raise InputError(
            f"{where}: its pieces reach from {pieces[0][0]:g} to {pieces[-1][1]:g}, but it is said "
            f"to be from {edges[0]:g} to "
            f"{edges[1]:g}: let it begin with the first piece and end with the last"
        )
    object.__setattr__(unit, "pieces", pieces if len(pieces) > 1 else ())


def unit_repr(unit: Any) -> str:
    """As dataclasses are shown; pieces only where there are some."""
    values = {field.name: getattr(unit, field.name) for field in fields(unit)}
    shown = [
        f"{name}={value!r}"
        for name, value in values.items()
        if name not in ("pieces", "times") or value
    ]
    return f"{type(unit).__name__}({', '.join(shown)})"
