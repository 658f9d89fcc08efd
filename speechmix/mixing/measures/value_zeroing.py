"""Value Zeroing (Mohebbi et al. 2023): how far a target moves when a source's value vectors are set
to zero.

    C_ij = mean (or max) over n in I of distance( y_n , y_n with v_k = 0 for all k in J )

Queries, keys and attention weights stay as they are, the rest of the same layer runs on the
original input. So only the attention context changes, by exactly -sum_h sum_{k in J} alpha^h_nk
v_k^h, and only the rest of the layer is needed, on the asked rows. In a Conformer a convolution
takes changes of other rows to them too: C_ij counts all that reaches the target.

Two engines, each the other's check: "delta" carries the change itself through the layer
(adapters/delta_engine/change_propagator.py), "replay" runs the layer's own modules on the changed rows and works for
any layer whose attention can be stubbed.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...adapters.delta_engine.change_propagator import ChangePropagator
from ...adapters.delta_engine.matrix_products import MatrixProduct
from ..maps.numerics import find_distance

if TYPE_CHECKING:
    from ...adapters.capture.block import Block
    from .unit_positions import Units

# Of pairs: head index, row index, source index, changed context [P, H, d].
_Pairs = tuple[Tensor, Tensor, Tensor, Tensor]

# A causal block's rows go in chunks of at least so many: later sources are left out of the earlier
# chunks.
_CAUSAL_ROWS = 64

# Sources whose value vectors are prepared together, in batches of pairs.
_GROUP = 3

# Sources of unequal length are padded to a batch's longest: no more than to twice their length, and
# this.
_PADDED = 256


def value_zeroing(
    block: Block,
    units: Units,
    *,
    distance: str = "cosine",
    heads: str = "mean",
    engine: str = "delta",
    product: MatrixProduct | None = None,
    batch_size: int = 2048,
) -> Tensor:
    """Distance of each target's layer output with and without each source's values.

    Parameters
    ----------
    distance : {"cosine", "euclidean", "manhattan", "correlation", "unit_euclidean", "unit_manhattan"}
    heads : {"mean", "each"}
        "mean" zeroes a source in all heads at once; "each" in one head at a time.
    engine : {"delta", "replay"}
        "replay" is used for layers that are not described (`StackSpec.feed_forwards`).
    product : MatrixProduct, optional
        Does the delta form's matrix products; in the precision of the states if not given.
    batch_size : int
        About how many (target position, source) pairs are handled at once; bounds the memory.

    Returns
    -------
    Tensor [W_t, W_s], or [H, W_t, W_s] for heads="each"
    """
    n_heads = block.stack.heads if heads == "each" else 1
    scores = block.values.new_zeros(n_heads, len(units.rows), len(units.sources))
    if engine == "delta" and block.modules.rest:
        distance_moved = find_distance(distance, of_change=True)
        for rows, source, states, change in _carried(
            block, units, heads == "each", batch_size, product
        ):
            moved = distance_moved(states, change).unflatten(0, (-1, n_heads))  # [S, H, R]
            scores[:, rows, source : source + len(moved)] = moved.permute(1, 2, 0)
    elif block.modules.convolution:
        distance_of, before = find_distance(distance), block.states(units.rows)
        for number, source, states in _replayed_whole(block, units, heads == "each", batch_size):
            scores[number, :, source : source + len(states)] = distance_of(before, states).T
    else:
        distance_of, before = find_distance(distance), block.states(units.rows)
        for head, row, first, context in _replayed_pairs(block, units, heads == "each", batch_size):
            after = block.replay(units.rows[row], context)
            scores[head, row, first] = distance_of(before[row], after)
    pooled = units.pool_targets(scores)
    return pooled if heads == "each" else pooled[0]


def value_zeroing_share(
    block: Block,
    units: Units,
    *,
    distance: str = "cosine",
    engine: str = "delta",
    product: MatrixProduct | None = None,
    batch_size: int = 2048,
) -> Tensor:
    """Value Zeroing, whose rows of cross-attention sum to the share of the two attention blocks'
    effect that is theirs.

    In a decoder behind an encoder a layer hears (cross-attention) and goes on from what was written
    (self-attention). With d the distance by which a target moves when *all* values of a block are
    zeroed, one block at a time:

        g_i = d_cross_i / (d_cross_i + d_self_i)        C_ij = g_i * cross C_ij / sum_j' C_ij'

    so that composed maps weigh cross-attention against self-attention, where those of
    `value_zeroing` weigh it by its mixing strength against the residual stream. In encoders and the
    decoder's self-attention it is Value Zeroing.

    Parameters
    ----------
    distance, engine, product, batch_size
        As of `value_zeroing`.

    Returns
    -------
    Tensor [W_t, W_s]
    """
    zeroed = partial(value_zeroing, engine=engine, product=product, batch_size=batch_size)
    scores = zeroed(block, units, distance=distance)
    if block.stack.name != "cross":
        return scores
    studied = block.modules.studied
    of_cross, of_self = (
        distance_without_source(block, units, number, distance=distance)
        for number in (studied, studied - 1)
    )
    both, whole = of_cross + of_self, scores.sum(dim=-1)
    gates = torch.where(
        both > 0, of_cross / both.where(both > 0, torch.ones_like(both)), torch.zeros_like(both)
    )
    shares = scores / whole.where(whole > 0, torch.ones_like(whole))[:, None]
    return gates[:, None] * shares


def distance_without_source(
    block: Block, units: Units, number: int, *, distance: str = "cosine"
) -> Tensor:
    """How far each target moves without all values of one of the layer's attention blocks,
    [W_t]."""
    heads, _, width = block.call(number).value.shape
    nothing = block.values.new_zeros(len(units.rows), heads, width)
    after = block.replay(units.rows, nothing, number=number)
    moved = find_distance(distance)(block.states(units.rows), after)
    return units.pool_targets(moved[:, None])[:, 0]


def _carried(
    block: Block, units: Units, each_head: bool, batch_size: int, product: MatrixProduct | None
) -> Iterator[tuple[slice, int, Tensor, Tensor]]:
    """Batches of (rows, first source, states [R, D], their changes [S, R, D]), S sources (each with
    all its heads)."""
    n_rows, n_heads, every_alpha = (
        len(units.rows),
        block.stack.heads,
        block.attention(units.rows),
    )  # [H, R, K]
    size = min(n_rows, batch_size, max(_CAUSAL_ROWS, n_rows // 8) if block.causal else n_rows)
    for first in range(0, n_rows, size):
        rows = slice(first, min(first + size, n_rows))
        positions = units.rows[rows]
        propagator = ChangePropagator(
            block, positions, product=product, positions=units.positions[rows]
        )
        windows = propagator.input_positions is not positions
        alpha = block.attention(propagator.input_positions) if windows else every_alpha[:, rows]
        seen, convolution = len(units.sources), block.modules.convolution
        if block.causal and not (convolution and convolution.right):
            last = units.positions[rows][-1]
            seen = (
                next((i for i, ranges in enumerate(units.sources) if ranges[0][0] > last), seen)
                if units.ordered
                else seen
            )
        at_once = max(
            1, batch_size // (len(propagator.input_positions) * (n_heads if each_head else 1))
        )
        for source, stop in _batches(
            units.source_lengths[:seen], at_once if each_head else _GROUP * at_once
        ):
            if each_head:
                places = units.source_places[source:stop]
                changes = torch.cat([_change_of_each_head(block, alpha, place) for place in places])
                yield rows, source, propagator.states, propagator(changes)
                continue
            weights, values = _zeroed(alpha, block.values, *units.padded_sources(source, stop))
            for change in propagator.propagate_source_removals(
                weights, values, source_count=seen, batch_size=at_once
            ):
                yield rows, source, propagator.states, change
                source += len(change)


def _batches(lengths: list[int], at_once: int) -> Iterator[tuple[int, int]]:
    """Runs [first, stop) of at most so many sources; one far longer than those before it begins a
    new run."""
    first, longest, total = 0, 0, 0
    for index, length in enumerate(lengths):
        longest, total = max(longest, length), total + length
        count = index + 1 - first
        if count > 1 and (count > at_once or longest * count > 2 * total + _PADDED):
            yield first, index
            first, longest, total = index, length, length
    if lengths:
        yield first, len(lengths)


def _zeroed(
    alpha: Tensor, values: Tensor, positions: Tensor, inside: Tensor
) -> tuple[Tensor, Tensor]:
    """What zeroing sources at positions [S, J] takes away: weights [H, R, S, J], 0 for padding, and
    values [H, S, J, d]."""
    weights = alpha.gather(-1, positions.flatten().expand(*alpha.shape[:2], -1)).unflatten(
        -1, positions.shape
    )
    return weights * inside, values[:, positions]


def _change_of_each_head(block: Block, alpha: Tensor, place: slice | Tensor) -> Tensor:
    """What zeroing a source in one head at a time takes from the rows' attention context, [H, R, H
    d]."""
    change = -(alpha[:, :, place] @ block.values[:, place])  # [H, R, d]
    heads = torch.arange(len(change), device=change.device)
    alone = change.new_zeros(
        len(change), change.shape[1], len(change), change.shape[2]
    )  # [H, R, H, d]
    alone[heads, :, heads] = change
    return alone.flatten(2)


def _replayed_pairs(
    block: Block, units: Units, each_head: bool, batch_size: int
) -> Iterator[_Pairs]:
    """Batches of (head index, row index, source index, changed context [P, H, d]).

    A causal block leaves out the pairs whose target cannot see the source: their score is zero.
    """
    alpha, context = block.attention(units.rows), block.context[units.rows]  # [H, R, K], [R, H, d]
    batch: list[_Pairs] = []
    n_pairs = 0
    for source, place in enumerate(units.source_places):
        change = (alpha[:, :, place] @ block.values[:, place]).transpose(0, 1)  # [R, H, d]
        first = bisect_left(units.positions, units.sources[source][0][0]) if block.causal else 0
        seeing = torch.arange(first, len(units.positions), device=units.device)
        for rows in seeing.split(batch_size) if len(seeing) else ():
            for head in range(block.stack.heads if each_head else 1):
                changed = context[rows].clone()
                if each_head:
                    changed[:, head] -= change[rows, head]
                else:
                    changed -= change[rows]
                if n_pairs and n_pairs + len(rows) > batch_size:
                    yield _together(batch)
                    batch, n_pairs = [], 0
                batch.append(
                    (torch.full_like(rows, head), rows, torch.full_like(rows, source), changed)
                )
                n_pairs += len(rows)
    if batch:
        yield _together(batch)


def _replayed_whole(
    block: Block, units: Units, each_head: bool, batch_size: int
) -> Iterator[tuple[int, int, Tensor]]:
    """Of layers that mix positions behind attention: (head index, first source index, states of the
    rows [S, R, D])."""
    alpha = block.attention()  # [H, Q, K]
    at_once = max(1, batch_size // block.n_targets)
    for head in range(block.stack.heads if each_head else 1):
        heads = slice(head, head + 1) if each_head else slice(None)
        for first in range(0, len(units.sources), at_once):
            places = units.source_places[first : first + at_once]
            contexts = block.context.repeat(len(places), 1, 1, 1)  # [S, Q, H, d]
            for number, place in enumerate(places):
                taken = alpha[heads, :, place] @ block.values[heads, place]
                contexts[number, :, heads] -= taken.transpose(0, 1)
            yield head, first, block.replay_all(contexts)[:, units.rows]


def _together(batch: list[_Pairs]) -> _Pairs:
    heads, rows, sources, contexts = (torch.cat(parts) for parts in zip(*batch, strict=True))
    return heads, rows, sources, contexts
