"""Value Zeroing (Mohebbi et al. 2023): how far a target moves when a source's value vectors are set to zero.

    C_ij = mean (or max) over n in I of distance( y_n , y_n with v_k = 0 for all k in J )

Queries, keys and attention weights stay as they are, the rest of the same layer runs on the original input. So only the
attention context changes, by exactly sum_h sum_{k in J} alpha^h_nk v_k^h, and the layer is replayed on the changed rows
alone. The delta form, which carries the change itself through the layer, will stand beside `_replayed`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .numerics import distance_named

if TYPE_CHECKING:
    from ..adapters.captured import Block
    from .units import Units


def value_zeroing(
    block: Block,
    units: Units,
    *,
    distance: str = "cosine",
    heads: str = "mean",
    batch_size: int = 2048,
    **_,
) -> Tensor:
    """Distance of each target's layer output with and without each source's values.

    Parameters
    ----------
    distance : {"cosine", "euclidean"}
    heads : {"mean", "each"}
        "mean" zeroes a source in all heads at once; "each" in one head at a time.
    batch_size : int
        (target position, source) pairs replayed at once; bounds the memory.

    Returns
    -------
    Tensor [W_t, W_s], or [H, W_t, W_s] for heads="each"
    """
    n_heads = block.stack.heads if heads == "each" else 1
    scores = block.values.new_zeros(n_heads, len(units.rows), len(units.sources))
    measure, before = distance_named(distance), block.states(units.rows)
    for head, row, source, context in _replayed_pairs(block, units, heads == "each", batch_size):
        after = block.replay(units.rows[row], context)
        scores[head, row, source] = measure(before[row], after)
    pooled = units.pool_targets(scores)
    return pooled if heads == "each" else pooled[0]


def _replayed_pairs(
    block: Block, units: Units, each_head: bool, batch_size: int
) -> Iterator[tuple[Tensor, Tensor, Tensor, Tensor]]:
    """Batches of (head index, row index, source index, changed context [P, H, d]).

    A causal block leaves out the pairs whose target cannot see the source: their score is zero.
    """
    alpha, context = block.attention(units.rows), block.context[units.rows]  # [H, R, K], [R, H, d]
    batch, n_pairs = [], 0
    for source, (start, stop) in enumerate(units.sources):
        change = (alpha[:, :, start:stop] @ block.values[:, start:stop]).transpose(0, 1)  # [R, H, d]
        seeing = units.rows >= start if block.causal else torch.ones_like(units.rows, dtype=torch.bool)
        for rows in seeing.nonzero().flatten().split(batch_size):
            for head in range(block.stack.heads if each_head else 1):
                changed = context[rows].clone()
                if each_head:
                    changed[:, head] -= change[rows, head]
                else:
                    changed -= change[rows]
                if n_pairs and n_pairs + len(rows) > batch_size:
                    yield _together(batch)
                    batch, n_pairs = [], 0
                batch.append((torch.full_like(rows, head), rows, torch.full_like(rows, source), changed))
                n_pairs += len(rows)
    if batch:
        yield _together(batch)


def _together(batch: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    return tuple(torch.cat(parts) for parts in zip(*batch, strict=True))
