"""Run a layer's own modules without the values of some sources: the "replay" engine of Value Zeroing.

In: a captured attention block and its units. Out: batches of changed attention contexts, or of the
states of the whole layer where it mixes positions behind attention.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ...adapters.capture.attention_block import Block
    from .unit_positions import Units

# Of pairs: head index, row index, source index, changed context [P, H, d].
_Pairs = tuple[Tensor, Tensor, Tensor, Tensor]


def replay_pairs(block: Block, units: Units, each_head: bool, batch_size: int) -> Iterator[_Pairs]:
    """Batches of (head index, row index, source index, changed context [P, H, d]).

    A causal block leaves out the pairs whose target cannot see the source: their score is zero.
    """
    alpha, context = block.attention(units.rows), block.context[units.rows]  # [H, R, K], [R, H, d]
    batch: list[_Pairs] = []
    n_pairs = 0
    for source, source_indices in enumerate(units.source_position_indices):
        change = (alpha[:, :, source_indices] @ block.values[:, source_indices]).transpose(
            0, 1
        )  # [R, H, d]
        first = bisect_left(units.positions, units.sources[source][0][0]) if block.causal else 0
        visible_rows = torch.arange(first, len(units.positions), device=units.device)
        for rows in visible_rows.split(batch_size) if len(visible_rows) else ():
            for head in range(block.stack.heads if each_head else 1):
                changed_context = context[rows].clone()
                if each_head:
                    changed_context[:, head] -= change[rows, head]
                else:
                    changed_context -= change[rows]
                if n_pairs and n_pairs + len(rows) > batch_size:
                    yield _concatenate_pairs(batch)
                    batch, n_pairs = [], 0
                batch.append(
                    (
                        torch.full_like(rows, head),
                        rows,
                        torch.full_like(rows, source),
                        changed_context,
                    )
                )
                n_pairs += len(rows)
    if batch:
        yield _concatenate_pairs(batch)


def replay_layers(
    block: Block, units: Units, each_head: bool, batch_size: int
) -> Iterator[tuple[int, int, Tensor]]:
    """Of layers that mix positions behind attention: (head index, first source index, states of the
    rows [S, R, D])."""
    sources_per_batch = max(1, batch_size // block.n_targets)
    for head in range(block.stack.heads if each_head else 1):
        heads = slice(head, head + 1) if each_head else slice(None)
        for first in range(0, len(units.sources), sources_per_batch):
            position_indices = units.source_position_indices[first : first + sources_per_batch]
            contexts = torch.stack(
                [block.context_without(indices, heads) for indices in position_indices]
            )  # [S, Q, H, d]
            yield head, first, block.replay_all(contexts)[:, units.rows]


def _concatenate_pairs(batch: list[_Pairs]) -> _Pairs:
    heads, rows, sources, contexts = (torch.cat(tensors) for tensors in zip(*batch, strict=True))
    return heads, rows, sources, contexts
