"""One attention block of several clips that shared a pass, read as if it were one block.

In: the blocks of a layer, and the trace of all clips. Out: what the delta engine reads of a block, for
rows [C, R] of C clips at once: a device is then given as many operations as for one clip. What is of
rows has one axis of C R rows; heads are those of all clips, [C H, ...]. Clips have the same numbers of
positions, for they are padded to a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from .attention_calls import AttentionCall, LayerTrace, join_heads

if TYPE_CHECKING:
    from ..binding.bound_layers import Layer
    from .layer_run import Block


class BatchedCall:
    """The calls of one attention block by several clips; key and value are [C H, K, d]."""

    def __init__(self, calls: Sequence[AttentionCall]):
        self.clip_count, self.scale, self._causal = len(calls), calls[0].scale, calls[0].causal
        self._clips = torch.arange(len(calls), device=calls[0].value.device)[:, None]
        self.key, self.value = (
            torch.stack([getattr(call, name) for call in calls]).flatten(0, 1)
            for name in ("key", "value")
        )
        self._query = torch.stack([call.query for call in calls])
        self._mask, self._alpha = (
            _stack([getattr(call, name) for call in calls]) for name in ("mask", "alpha")
        )

    def _select_rows(self, values: Tensor, rows: Tensor) -> Tensor:
        """Rows [C, R] of values [C, H, Q, n], as [C, H, R, n]."""
        return values[self._clips, :, rows].transpose(1, 2)

    def query_rows(self, rows: Tensor) -> Tensor:
        """Queries of the rows with their heads side by side, [C R, H d]."""
        return self._query[self._clips, :, rows].flatten(2).flatten(0, 1)

    def weights(self, rows: Tensor) -> Tensor:
        """Attention weights [C H, R, K] of the rows."""
        if self._alpha is not None:
            return self._select_rows(self._alpha, rows).flatten(0, 1)
        query = self._select_rows(self._query, rows).flatten(0, 1)
        products = (query * self.scale) @ self.key.transpose(1, 2)
        scores: Tensor = products.unflatten(0, (self.clip_count, -1))  # [C, H, R, K]
        if (mask := self._mask) is not None:
            if mask.shape[-2] > 1:
                mask = self._select_rows(mask, rows)
            scores = (
                scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
            )
        if self._causal:
            is_later = torch.arange(scores.shape[-1], device=rows.device) > rows[..., None]
            scores = scores.masked_fill(is_later[:, None], -torch.inf)
        return scores.softmax(dim=-1).flatten(0, 1)


def _stack(tensors: Sequence[Tensor | None]) -> Tensor | None:
    """One tensor [C, H or 1, Q or 1, K] of all calls; None where they have none."""
    present_tensors = [tensor for tensor in tensors if tensor is not None]
    if not present_tensors:
        return None
    stacked = torch.stack(present_tensors)
    return stacked if stacked.ndim == 4 else stacked[:, None]


class BlockBatch:
    """The blocks of C clips that follow each other in the batch, as the delta engine reads them."""

    def __init__(self, blocks: Sequence[Block], trace: LayerTrace, output: Tensor):
        first = blocks[0]
        self.stack, self.layer, self.final_norm = first.stack, first.layer, first.final_norm
        self.modules: Layer = first.modules
        self.clip_count, self.n_sources = len(blocks), first.n_sources
        self._first, self._trace, self._output = first, trace, output
        self._clip_range = range(first.clip, first.clip + len(blocks))
        self._clips = torch.arange(first.clip, first.clip + len(blocks), device=output.device)[
            :, None
        ]
        self._calls: dict[int, BatchedCall] = {}
        self._cached_weights: tuple[Tensor | None, Tensor | None] = (None, None)

    @staticmethod
    def is_possible(block: Block, trace: LayerTrace) -> bool:
        """Whether clips can go through what lies behind the block together: rows do not meet there,
        and it is described."""
        calls = trace.calls.values()
        return (
            len(trace.hidden) > 1
            and not trace.packed
            and not block.modules.runs_whole
            and block.modules.post_attention is not None
            and all(len(calls_of_block) == len(trace.hidden) for calls_of_block in calls)
        )

    def _select_rows(self, states: Tensor, rows: Tensor) -> Tensor:
        """Rows [C, R] of states [B, Q, n], one after the other."""
        return states[self._clips, rows].flatten(0, 1)

    def call(self, attention_index: int) -> BatchedCall:
        """Return queries, keys and values of one of the layer's attention blocks."""
        if attention_index not in self._calls:
            calls = self._trace.calls[attention_index]
            self._calls[attention_index] = BatchedCall([calls[clip] for clip in self._clip_range])
        return self._calls[attention_index]

    @property
    def values(self) -> Tensor:
        """Value vectors of the studied block, [C H, K, d]."""
        return self.call(self.modules.studied_index).value

    def attention(self, rows: Tensor) -> Tensor:
        """Attention weights [C H, R, K] of the studied block; the last ones are kept."""
        if self._cached_weights[0] is not rows or self._cached_weights[1] is None:
            weights = self.call(self.modules.studied_index).weights(rows)
            self._cached_weights = rows, weights
            return weights
        return self._cached_weights[1]

    def output_rows(self, rows: Tensor) -> Tensor:
        """The layer's output at the rows, [C R, D]."""
        return self._select_rows(self._output, rows)

    def residual(self, rows: Tensor) -> Tensor:
        """What the block's output is added to, [C R, D]; a ModelError as of a single block."""
        self._first.check_residual()
        return self._select_rows(self._trace.residuals[self.modules.studied_index], rows)

    def recorded_output(
        self, projection: nn.Module, rows: Tensor, compute_output: Callable[[], Tensor]
    ) -> Tensor:
        """Return a projection's output at the rows in the forward pass, [C R, out], or compute it."""
        output = self._trace.projections.get(projection)
        if output is None or output.ndim != 3 or output.shape[:2] != self._output.shape[:2]:
            return compute_output()
        return self._select_rows(output, rows)

    def attention_output(self, rows: Tensor) -> Tensor:
        """Return the attention block's output at the rows, [C R, D]."""
        projection = self.modules.attention.output

        def compute_output() -> Tensor:
            context = self.attention(rows) @ self.values
            output: Tensor = projection(join_heads(context, self.clip_count))
            return output

        return self.recorded_output(projection, rows, compute_output)
