"""Rows and columns of maps as what they are of: written words, and the sources of a `Writing`.

In: scores by the units of a model's stacks. Out: values by source, and which row is that of a position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from ..inputs.spans import Span
    from .written import Writing


def by_source(writing: Writing, columns: Mapping[str, tuple[Sequence[Span], np.ndarray]]) -> np.ndarray:
    """Columns [R, K] of each stack's units as values [R, S] of the sources, added up where a source has several.

    Parameters
    ----------
    writing : Writing
    columns : dict of stack to (spans, ndarray [R, K])

    Returns
    -------
    ndarray [R, S]
        NaN for a source in a stack that is not there.
    """
    some = next(iter(columns.values()))[1]
    values = np.full((len(some), len(writing.sources)), np.nan)
    for index, unit in enumerate(writing.sources):
        stack = unit.stack if unit.stack in columns else next(iter(columns))
        spans, scores = columns[stack]
        positions = set(unit.positions_in(stack))
        held = [place for place, span in enumerate(spans) if positions & set(span.positions)]
        if held and (unit.stack in columns or len(columns) == 1):
            values[:, index] = scores[:, held].sum(axis=1)
    return values


def row_at(targets: Sequence[Span], position: int) -> int:
    """The row that holds a position; the nearest where none does (a letter heard in silence)."""

    def distance(row: int) -> int:
        return min(max(start - position, position - stop + 1, 0) for start, stop in targets[row].ranges)

    return min(range(len(targets)), key=distance)
