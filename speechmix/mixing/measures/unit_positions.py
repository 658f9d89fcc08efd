"""Positions of a measure's target and source units, and pooling over them.

A `Span` (inputs) is one labelled unit; a `View` (scoring) says which spans are the rows and columns
of each stack; `Units` are those rows and columns as a measure needs them: which positions to
compute, how to pool them. A unit is one range of positions, or several (a word in pieces). One
`Units` serves all layers of a stack: what a GPU needs of it is sent there once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from ...adapters.capture.device_copy import to_device
from ...errors import InputError
from ...inputs.words.spans import POOLING_METHODS, Span

# Half-open ranges of one unit, apart from each other and in ascending order.
Ranges = tuple[tuple[int, int], ...]


class Units:
    """Targets and sources of one map as positions, with pooling ("mean" or "max") over them.

    Axis letters: R positions needed on the target side, K source positions, W units. `targets` and
    `sources` hold each unit's ranges of positions: one as a rule. `positions` are the R target
    positions that are needed, ascending; `rows` [R], the same on the device.
    """

    def __init__(
        self,
        targets: Sequence[Span],
        sources: Sequence[Span],
        *,
        pooling: str,
        device: torch.device,
    ):
        if pooling not in POOLING_METHODS:
            raise InputError(f"pooling must be one of {POOLING_METHODS}, found {pooling!r}")
        self._target_spans, self._source_spans = targets, sources
        self.targets: list[Ranges] = [span.ranges for span in targets]
        self.sources: list[Ranges] = [span.ranges for span in sources]
        self.pooling, self.device = pooling, device
        self.positions = sorted({position for span in targets for position in span.positions})
        self.rows = to_device(torch.tensor(self.positions, dtype=torch.long), device)
        self._groups: dict[int, list[Units]] = {}

    def groups(self, max_positions: int) -> list[Units]:
        """Split the targets into runs of at most so many positions (one target at least), to bound
        memory."""
        if len(self.positions) <= max_positions:
            return [self]
        if max_positions not in self._groups:
            groups: list[list[Span]] = [[]]
            for span in self._target_spans:
                if groups[-1] and sum(map(len, groups[-1])) + len(span) > max_positions:
                    groups.append([])
                groups[-1].append(span)
            self._groups[max_positions] = [
                Units(group, self._source_spans, pooling=self.pooling, device=self.device)
                for group in groups
            ]
        return self._groups[max_positions]

    def rows_in_ranges(self, ranges: Ranges) -> list[slice]:
        """Which of the rows lie in each range of positions."""
        return [
            slice(bisect_left(self.positions, start), bisect_left(self.positions, stop))
            for start, stop in ranges
        ]

    @cached_property
    def has_ordered_sources(self) -> bool:
        """True if the sources come one after the other, by where each begins."""
        return all(a[0] <= b[0] for a, b in pairwise(self.sources))

    @cached_property
    def source_lengths(self) -> list[int]:
        """How many positions each source has."""
        return [len(span) for span in self._source_spans]

    @cached_property
    def source_position_indices(self) -> list[slice | Tensor]:
        """What takes each source's positions out of an axis of positions: a slice, or indices where
        it is in pieces."""
        return [
            slice(span.start, span.stop)
            if len(span.ranges) == 1
            else to_device(torch.tensor(span.positions, dtype=torch.long), self.device)
            for span in self._source_spans
        ]

    def padded_sources(self, first: int, stop: int) -> tuple[Tensor, Tensor]:
        """Positions of some sources, on the device, [S, J], and which of them are more than padding
        to the longest's length."""
        positions, begins, lengths = self._concatenated_sources
        columns = torch.arange(max(self.source_lengths[first:stop]), device=self.device)
        flat_indices = (begins[first:stop, None] + columns).clamp_max(len(positions) - 1)
        return positions[flat_indices], columns < lengths[first:stop, None]

    @cached_property
    def _concatenated_sources(self) -> tuple[Tensor, Tensor, Tensor]:
        """Positions of all sources, one after the other; where each source begins among them [W],
        and its length [W]."""
        positions = [position for span in self._source_spans for position in span.positions]
        begins = [0, *accumulate(self.source_lengths)][:-1]
        tables = (
            torch.tensor(numbers, dtype=torch.long)
            for numbers in (positions, begins, self.source_lengths)
        )
        all_positions, starts, lengths = (to_device(table, self.device) for table in tables)
        return all_positions, starts, lengths

    @cached_property
    def source_positions(self) -> Tensor:
        """Positions that belong to some source, in ascending order, on the device."""
        positions = sorted({position for span in self._source_spans for position in span.positions})
        return to_device(torch.tensor(positions, dtype=torch.long), self.device)

    @cached_property
    def self_mask(self) -> Tensor:
        """Where a target meets itself among the sources, on the device, bool [W_t, W_s]."""
        matches = [[source == target for source in self.sources] for target in self.targets]
        return to_device(
            torch.tensor(matches).reshape(len(self.targets), len(self.sources)), self.device
        )

    @cached_property
    def target_rows(self) -> TargetRows:
        """The rows of each target, one target after the other."""
        return TargetRows(self)

    @cached_property
    def _target_pooling(self) -> _Pooling:
        rows = [self.rows_in_ranges(ranges) for ranges in self.targets]
        return _Pooling(
            [tuple((run.start, run.stop) for run in runs) for runs in rows],
            self.pooling,
            self.device,
        )

    @cached_property
    def _source_pooling(self) -> _Pooling:
        return _Pooling(self.sources, self.pooling, self.device)

    def pool_targets(self, scores: Tensor) -> Tensor:
        """Pool rows [..., R, S] over the positions of each target: [..., W, S]."""
        return self._target_pooling(scores.transpose(-1, -2)).transpose(-1, -2)

    def pool_sources(self, scores: Tensor) -> Tensor:
        """Pool columns [..., R, K] over the positions of each source: [..., R, W]."""
        return self._source_pooling(scores)


class TargetRows:
    """The rows of each target, one target after the other: P pairs of a target and one of its
    positions.

    A position of two targets that overlap is in two pairs. `pair_ranges` say which pairs are of
    each target. `rows`, `targets` and `row_indices` [P] are on the device: positions, indices of
    targets, and indices of positions among the units' rows.
    """

    def __init__(self, units: Units):
        self._ranges, self._device = units.targets, units.device
        lengths = [sum(stop - start for start, stop in ranges) for ranges in units.targets]
        ends = list(accumulate(lengths))
        self.positions = [
            p for ranges in units.targets for start, stop in ranges for p in range(start, stop)
        ]
        self.pair_ranges = list(zip([0, *ends], ends, strict=False))
        self.rows, self.targets, self.row_indices = (
            to_device(torch.tensor(numbers, dtype=torch.long), units.device)
            for numbers in (
                self.positions,
                [target for target, length in enumerate(lengths) for _ in range(length)],
                [bisect_left(units.positions, position) for position in self.positions],
            )
        )
        self._pooling = _Pooling([(pairs,) for pairs in self.pair_ranges], "mean", units.device)
        self._own_masks: dict[int, Tensor] = {}

    def own_position_mask(self, n_sources: int) -> Tensor:
        """Which of the source positions are each target's own, on the device, bool [W, K]."""
        if n_sources not in self._own_masks:
            mask = torch.zeros(len(self._ranges), n_sources, dtype=torch.bool)
            for target, ranges in enumerate(self._ranges):
                for start, stop in ranges:
                    mask[target, start:stop] = True
            self._own_masks[n_sources] = to_device(mask, self._device)
        return self._own_masks[n_sources]

    def mean(self, values: Tensor) -> Tensor:
        """Mean of values of pairs [..., P] over the positions of each target, [..., W], whatever
        the units' pooling."""
        return self._pooling(values)


class _Pooling:
    """Mean or maximum over each unit's positions, runs (start, stop) of the last axis."""

    def __init__(self, units: Sequence[Ranges], pooling: str, device: torch.device):
        self._units, self._pooling, self._device = units, pooling, device
        self._has_single_positions = all(
            len(runs) == 1 and runs[0][1] - runs[0][0] == 1 for runs in units
        )
        self._matrices: dict[tuple[int, torch.dtype], Tensor] = {}

    def __call__(self, scores: Tensor) -> Tensor:
        if self._has_single_positions:
            return scores[..., self._starts]
        if self._pooling == "max":
            return torch.stack([_pool_maximum(scores, runs) for runs in self._units], dim=-1)
        return scores @ self._means(scores.shape[-1], scores.dtype)

    @cached_property
    def _starts(self) -> Tensor:
        return to_device(
            torch.tensor([runs[0][0] for runs in self._units], dtype=torch.long), self._device
        )

    def _means(self, length: int, dtype: torch.dtype) -> Tensor:
        """Matrix [length, W] that takes the mean of each unit."""
        if (length, dtype) not in self._matrices:
            matrix = torch.zeros(length, len(self._units), dtype=dtype)
            for column, runs in enumerate(self._units):
                for start, stop in runs:
                    matrix[start:stop, column] = 1 / sum(b - a for a, b in runs)
            self._matrices[length, dtype] = to_device(matrix, self._device)
        return self._matrices[length, dtype]


def _pool_maximum(scores: Tensor, runs: Ranges) -> Tensor:
    """Maximum over the positions of one unit [...]."""
    (start, stop), *further = runs
    highest = scores[..., start:stop].amax(dim=-1)
    for start, stop in further:
        highest = torch.maximum(highest, scores[..., start:stop].amax(dim=-1))
    return highest
