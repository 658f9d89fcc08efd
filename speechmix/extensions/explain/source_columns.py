"""Sum the columns of maps by source, and find the rows of written words.

In: scores by the units of a model's stacks. Out: values by source, and which row is that of a
position.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..logit_decompositions.input_attribution import SideColumns, sum_at_positions

if TYPE_CHECKING:
    from ...inputs.words.spans import Span
    from .generated_tokens import Writing


def sum_by_source(writing: Writing, columns: SideColumns) -> np.ndarray:
    """Columns [R, K] of each stack's units as values [R, S] of the sources, added up where a source
    has several.

    Parameters
    ----------
    writing : Writing
    columns : dict of stack to (spans, ndarray [R, K])

    Returns
    -------
    ndarray [R, S]
        NaN for a source in a stack that is not there.
    """
    # The text before is no column of a transducer's encoder.
    is_only = len(columns) == 1 and not writing.model.capabilities.is_transducer
    only = next(iter(columns)) if is_only else None
    stacks = [unit.stack if only is None else only for unit in writing.sources]
    stack_positions = [
        (stack, unit.positions_in(stack))
        for stack, unit in zip(stacks, writing.sources, strict=True)
    ]
    return sum_at_positions(columns, stack_positions)


def find_row(targets: Sequence[Span], position: int) -> int:
    """The row that holds a position; the nearest where none does (a letter heard in silence)."""

    def distance(row: int) -> int:
        return min(
            max(start - position, position - stop + 1, 0) for start, stop in targets[row].ranges
        )

    return min(range(len(targets)), key=distance)
