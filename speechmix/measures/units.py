"""Units of a measure: targets and sources as ranges of positions alone, and pooling over the positions of each.

A `Span` (inputs) is one labelled unit; a `View` (scoring) says which spans are the rows and columns of each stack; `Units`
are those rows and columns as a measure needs them: which positions to compute, how to pool them. One serves all layers of a
stack: what a GPU needs of it is sent there once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

import torch
from torch import Tensor

from ..adapters.transfers import to_device
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

    Attributes
    ----------
    positions : list of int [R]
        Target positions that are needed, in ascending order.
    rows : Tensor [R]
        The same, on the device.
    """

    def __init__(self, targets: Sequence[Span], sources: Sequence[Span], *, pooling: str, device):
        if pooling not in POOLINGS:
            raise InputError(f"pooling must be one of {POOLINGS}, found {pooling!r}")
        self._target_spans, self._source_spans = targets, sources
        self.targets = [(span.start, span.stop) for span in targets]
        self.sources = [(span.start, span.stop) for span in sources]
        self.pooling, self.device = pooling, device
        self.positions = sorted({position for start, stop in self.targets for position in range(start, stop)})
        self.rows = to_device(torch.tensor(self.positions, dtype=torch.long), device)
        self._groups: dict[int, list[Units]] = {}

    def groups(self, most: int) -> list[Units]:
        """Split the targets into runs of at most so many positions (one target at least), to bound memory."""
        if len(self.positions) <= most:
            return [self]
        if most not in self._groups:
            groups: list[list[Span]] = [[]]
            for span in self._target_spans:
                if groups[-1] and sum(map(len, groups[-1])) + len(span) > most:
                    groups.append([])
                groups[-1].append(span)
            options = {"pooling": self.pooling, "device": self.device}
            self._groups[most] = [Units(group, self._source_spans, **options) for group in groups]
        return self._groups[most]

    def rows_within(self, start: int, stop: int) -> slice:
        """Which of the rows lie between two positions."""
        return slice(bisect_left(self.positions, start), bisect_left(self.positions, stop))

    @cached_property
    def ordered(self) -> bool:
        """True if the sources come one after the other."""
        return all(a[0] <= b[0] for a, b in pairwise(self.sources))

    @cached_property
    def source_bounds(self) -> Tensor:
        """Start and stop of each source, on the device, [W, 2]."""
        return to_device(torch.tensor(self.sources, dtype=torch.long).reshape(-1, 2), self.device)

    @cached_property
    def source_positions(self) -> Tensor:
        """Positions that belong to some source, in ascending order, on the device."""
        positions = sorted({position for start, stop in self.sources for position in range(start, stop)})
        return to_device(torch.tensor(positions, dtype=torch.long), self.device)

    @cached_property
    def own_columns(self) -> Tensor:
        """Where a target meets itself among the sources, on the device, bool [W_t, W_s]."""
        places = [[source == target for source in self.sources] for target in self.targets]
        return to_device(torch.tensor(places).reshape(len(self.targets), len(self.sources)), self.device)

    @cached_property
    def _over_targets(self) -> _Pooling:
        rows = [self.rows_within(start, stop) for start, stop in self.targets]
        return _Pooling([(run.start, run.stop) for run in rows], self.pooling, self.device)

    @cached_property
    def _over_sources(self) -> _Pooling:
        return _Pooling(self.sources, self.pooling, self.device)

    def pool_targets(self, scores: Tensor) -> Tensor:
        """Pool rows [..., R, S] over the positions of each target: [..., W, S]."""
        return self._over_targets(scores.transpose(-1, -2)).transpose(-1, -2)

    def pool_sources(self, scores: Tensor) -> Tensor:
        """Pool columns [..., R, K] over the positions of each source: [..., R, W]."""
        return self._over_sources(scores)


class _Pooling:
    """Mean or maximum over runs of neighbouring positions (start, stop) of the last axis."""

    def __init__(self, runs: Sequence[tuple[int, int]], pooling: str, device):
        self._runs, self._pooling, self._device = runs, pooling, device
        self._single = all(stop - start == 1 for start, stop in runs)
        self._matrices: dict[tuple[int, torch.dtype], Tensor] = {}

    def __call__(self, scores: Tensor) -> Tensor:
        if self._single:
            return scores[..., self._starts]
        if self._pooling == "max":
            return torch.stack([scores[..., start:stop].amax(dim=-1) for start, stop in self._runs], dim=-1)
        return scores @ self._means(scores.shape[-1], scores.dtype)

    @cached_property
    def _starts(self) -> Tensor:
        return to_device(torch.tensor([start for start, _ in self._runs], dtype=torch.long), self._device)

    def _means(self, length: int, dtype: torch.dtype) -> Tensor:
        """Matrix [length, W] that takes the mean of each run."""
        if (length, dtype) not in self._matrices:
            matrix = torch.zeros(length, len(self._runs), dtype=dtype)
            for column, (start, stop) in enumerate(self._runs):
                matrix[start:stop, column] = 1 / (stop - start)
            self._matrices[length, dtype] = to_device(matrix, self._device)
        return self._matrices[length, dtype]
