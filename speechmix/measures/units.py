"""Units of a measure: targets and sources as ranges of positions alone, and pooling over the positions of each.

A `Span` (inputs) is one labelled unit; a `View` (scoring) says which spans are the rows and columns of each stack; `Units`
are those rows and columns as a measure needs them: which positions to compute, how to pool them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from ..errors import InputError
from ..inputs.spans import POOLINGS, Span


class Units:
    """Targets and sources of one map as position ranges, with pooling over them.

    Axis letters: R positions needed on the target side, K source positions, W units.

    Parameters
    ----------
    targets, sources : sequence of Span
    pooling : {"mean", "max"}
    device : torch.device
    """

    def __init__(self, targets: Sequence[Span], sources: Sequence[Span], *, pooling: str, device):
        if pooling not in POOLINGS:
            raise InputError(f"pooling must be one of {POOLINGS}, found {pooling!r}")
        self._target_spans, self._source_spans = targets, sources
        self.targets = [(span.start, span.stop) for span in targets]
        self.sources = [(span.start, span.stop) for span in sources]
        self.pooling, self.device = pooling, device
        needed = sorted({position for start, stop in self.targets for position in range(start, stop)})
        self.rows = torch.tensor(needed, dtype=torch.long, device=device)
        self._row_of = {position: row for row, position in enumerate(needed)}

    def groups(self, most: int) -> list[Units]:
        """Split the targets into runs of at most so many positions (one target at least), to bound memory."""
        if len(self.rows) <= most:
            return [self]
        groups: list[list[Span]] = [[]]
        for span in self._target_spans:
            if groups[-1] and sum(map(len, groups[-1])) + len(span) > most:
                groups.append([])
            groups[-1].append(span)
        return [Units(group, self._source_spans, pooling=self.pooling, device=self.device) for group in groups]

    @cached_property
    def ordered(self) -> bool:
        """True if the sources come one after the other."""
        return all(a[0] <= b[0] for a, b in pairwise(self.sources))

    @cached_property
    def _target_rows(self) -> list[list[int]]:
        return [[self._row_of[p] for p in range(start, stop)] for start, stop in self.targets]

    @cached_property
    def _source_columns(self) -> list[list[int]]:
        return [list(range(start, stop)) for start, stop in self.sources]

    def pool_targets(self, scores: Tensor) -> Tensor:
        """Pool rows [..., R, S] over the positions of each target: [..., W, S]."""
        return _pool(scores.transpose(-1, -2), self._target_rows, self.pooling).transpose(-1, -2)

    def pool_sources(self, scores: Tensor) -> Tensor:
        """Pool columns [..., R, K] over the positions of each source: [..., R, W]."""
        return _pool(scores, self._source_columns, self.pooling)


def _pool(scores: Tensor, groups: list[list[int]], pooling: str) -> Tensor:
    """Mean or maximum over groups of positions of the last axis."""
    lengths = {len(group) for group in groups}
    if lengths <= {1}:
        return scores[..., [group[0] for group in groups]]
    if pooling == "max":
        return torch.stack([scores[..., group].amax(dim=-1) for group in groups], dim=-1)
    matrix = scores.new_zeros(scores.shape[-1], len(groups))
    for column, group in enumerate(groups):
        matrix[group, column] = 1 / len(group)
    return scores @ matrix
