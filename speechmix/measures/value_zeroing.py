"""Value Zeroing (Mohebbi et al. 2023): how far a target moves when a source's value vectors are set to zero.

    C_ij = mean (or max) over n in I of distance( y_n , y_n with v_k = 0 for all k in J )

Queries, keys and attention weights stay as they are, the rest of the same layer runs on the original input. So only the
attention context changes, by exactly -sum_h sum_{k in J} alpha^h_nk v_k^h, and only the rest of the layer is needed, on
the asked rows. Two engines, each the other's check: "delta" carries the change itself through the layer (adapters/carrier.py),
"replay" runs the layer's own modules on the changed rows and works for any layer whose attention can be stubbed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..adapters.carrier import Carrier, described
from .numerics import distance_named

if TYPE_CHECKING:
    from ..adapters.captured import Block
    from .units import Units

ENGINES = ("delta", "replay")

# A causal block's rows go in chunks of at least so many: later sources are left out of the earlier chunks.
_CAUSAL_ROWS = 64


def value_zeroing(
    block: Block,
    units: Units,
    *,
    distance: str = "cosine",
    heads: str = "mean",
    engine: str = "delta",
    product_dtype: torch.dtype | None = None,
    batch_size: int = 2048,
    **_,
) -> Tensor:
    """Distance of each target's layer output with and without each source's values.

    Parameters
    ----------
    distance : {"cosine", "euclidean", "manhattan"}
    heads : {"mean", "each"}
        "mean" zeroes a source in all heads at once; "each" in one head at a time.
    engine : {"delta", "replay"}
        "replay" is used for layers that are not described (`StackPlan.feed_forwards`).
    product_dtype : torch.dtype, optional
        Precision of the delta form's matrix products.
    batch_size : int
        (target position, source) pairs handled at once; bounds the memory.

    Returns
    -------
    Tensor [W_t, W_s], or [H, W_t, W_s] for heads="each"
    """
    n_heads = block.stack.heads if heads == "each" else 1
    scores = block.values.new_zeros(n_heads, len(units.rows), len(units.sources))
    if engine == "delta" and described(block):
        measure = distance_named(distance, of_change=True)
        for rows, source, states, change in _carried(block, units, heads == "each", batch_size, product_dtype):
            moved = measure(states, change).unflatten(0, (-1, n_heads))  # [S, H, R]
            scores[:, rows, source : source + len(moved)] = moved.permute(1, 2, 0)
    else:
        measure, before = distance_named(distance), block.states(units.rows)
        for head, row, source, context in _replayed_pairs(block, units, heads == "each", batch_size):
            after = block.replay(units.rows[row], context)
            scores[head, row, source] = measure(before[row], after)
    pooled = units.pool_targets(scores)
    return pooled if heads == "each" else pooled[0]


def _carried(
    block: Block, units: Units, each_head: bool, batch_size: int, product_dtype: torch.dtype | None
) -> Iterator[tuple[slice, int, Tensor, Tensor]]:
    """Batches of (rows, first source, states [R, D], their changes [S, R, D]), S sources (each with all its heads)."""
    n_rows, n_heads = len(units.rows), block.stack.heads
    size = min(n_rows, batch_size, max(_CAUSAL_ROWS, n_rows // 8) if block.causal else n_rows)
    for first in range(0, n_rows, size):
        rows = slice(first, min(first + size, n_rows))
        positions = units.rows[rows]
        carrier = Carrier(block, positions, product_dtype=product_dtype)
        alpha = block.attention(positions)  # [H, R, K]
        seen = len(units.sources)
        if block.causal:
            last = int(positions[-1])
            seen = (
                next((i for i, (start, _) in enumerate(units.sources) if start > last), seen) if units.ordered else seen
            )
        at_once = max(1, batch_size // (len(positions) * (n_heads if each_head else 1)))
        for source in range(0, seen, at_once):
            spans = units.sources[source : min(source + at_once, seen)]
            if not each_head and all(stop - start == 1 for start, stop in spans):
                yield rows, source, carrier.states, carrier.of_few(*_head_vectors(block, alpha, spans))
                continue
            changes = torch.stack([_context_change(block, alpha, span, each_head) for span in spans])
            yield rows, source, carrier.states, carrier(changes.flatten(0, 1))


def _head_vectors(block: Block, alpha: Tensor, spans: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
    """What zeroing single positions takes away, as weights [S, R, H] of each head's value vector [S, H, H d]."""
    positions = torch.tensor([start for start, _ in spans], device=alpha.device)
    values = block.values[:, positions].transpose(0, 1)  # [S, H, d]
    heads = torch.eye(values.shape[1], dtype=values.dtype, device=values.device)
    apart = (heads[:, :, None] * values[:, :, None]).flatten(2)  # [S, H, H d], head h in its own place
    return -alpha[:, :, positions].permute(2, 1, 0), apart


def _context_change(block: Block, alpha: Tensor, span: tuple[int, int], each_head: bool) -> Tensor:
    """What zeroing a source takes from the rows' attention context, [1, R, H d], or [H, R, H d] for one head at a time."""
    start, stop = span
    change = -(alpha[:, :, start:stop] @ block.values[:, start:stop])  # [H, R, d]
    if not each_head:
        return change.transpose(0, 1).flatten(1)[None]
    heads = torch.arange(len(change), device=change.device)
    alone = change.new_zeros(len(change), change.shape[1], len(change), change.shape[2])  # [H, R, H, d]
    alone[heads, :, heads] = change
    return alone.flatten(2)


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
