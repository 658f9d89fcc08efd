"""Value Zeroing (Mohebbi et al. 2023): how far a target moves when a source's value vectors are set
to zero.

    C_ij = mean (or max) over n in I of distance( y_n , y_n with v_k = 0 for all k in J )

Queries, keys and attention weights stay as they are, the rest of the same layer runs on the
original input. So only the attention context changes, by exactly -sum_h sum_{k in J} alpha^h_nk
v_k^h, and only the rest of the layer is needed, on the requested rows. In a Conformer a convolution
takes changes of other rows to them too: C_ij counts all that reaches the target.

Two engines, each the other's check: "delta" carries the change itself through the layer
(adapters/delta_engine), "replay" runs the layer's own modules on the changed rows and works for
any layer whose attention can be stubbed.

Run a layer's own modules without the values of some sources: the "replay" engine of Value Zeroing.

In: a captured attention block and its units. Out: batches of changed attention contexts, or of the
states of the whole layer where it mixes positions behind attention.

Mixing strength: change of a target when all other positions' values are zeroed.

    strength_i = mean over n in I of || y_n - y_n(without others) || / || y_n ||

y is the layer's output as Value Zeroing compares it (`value_zeroing`), I the positions of target i.
"Others" are all source positions outside I, whether or not they are units of the map; in
cross-attention they are all sources. A map whose rows are normalised shows shares even where a
layer changes almost nothing; the strength says how much there is to share. It has no unit, and it
is one number of the block and the target: the same for every measure and for every way to pool.

The delta engine carries the change itself through the layer, so a layer that moves a target by a
millionth has a strength of 1e-6 and not rounding noise.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...adapters.capture.attention_calls import join_heads
from ...adapters.delta_engine.change_propagator import ChangePropagator
from ...adapters.delta_engine.matrix_products import TF32, MatrixProduct, resolve_product_dtype
from ...errors import InputError
from ..maps.numerics import DISTANCES, find_distance
from .measure import Measure, check_choice

if TYPE_CHECKING:
    from ...adapters.capture.block_batch import BlockBatch
    from ...adapters.capture.layer_run import Block
    from .measure import Units, UnitsBatch

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


# A causal block's rows go in chunks of at least so many: later sources are left out of the earlier
# chunks.
_CAUSAL_ROWS = 64

# Sources whose value vectors are prepared together, in batches of pairs.
_SOURCES_PER_GROUP = 3

# Sources of unequal length are padded to a batch's longest: no more than to twice their length, and
# this.
_MAX_PADDING = 256


ENGINES = ("delta", "replay")
PRODUCT_DTYPES = ("bfloat16", TF32, "float16", "float32", "float64")


def check_value_zeroing_options(
    *, distance: str = "cosine", engine: str = "delta", product_dtype: str | None = None
) -> None:
    """Raise `InputError` for an option that Value Zeroing cannot have."""
    check_choice("distance", distance, tuple(DISTANCES))
    check_choice("engine", engine, ENGINES)
    if product_dtype is not None:
        check_choice("product_dtype", product_dtype, PRODUCT_DTYPES)
        if engine != "delta":
            raise InputError(
                "product_dtype belongs to engine=delta; leave it out with engine=replay"
            )


def _product_in(
    product_dtype: str | None, product: MatrixProduct | None, values: Tensor
) -> MatrixProduct | None:
    """Return the products in the precision that the measure was given, if it was given one."""
    if product_dtype is None:
        return product
    product_type = resolve_product_dtype(product_dtype, values.device)
    return (product or MatrixProduct(values.dtype)).in_dtype(product_type)


def value_zeroing(
    block: Block,
    units: Units,
    *,
    distance: str = "cosine",
    engine: str = "delta",
    product_dtype: str | None = None,
    heads: str = "mean",
    product: MatrixProduct | None = None,
    batch_size: int = 2048,
) -> Tensor:
    """Distance of each target's layer output with and without each source's values.

    Parameters
    ----------
    distance : {"cosine", "euclidean", "manhattan", "correlation", "unit_euclidean", "unit_manhattan"}
    engine : {"delta", "replay"}
        Carry the change through the layer, or run the layer's modules again on the changed rows:
        slower, and less exact at the same precision. "replay" is used in any case for layers that
        are not described (`StackSpec.feed_forwards`).
    product_dtype : {"bfloat16", "tf32", "float16", "float32", "float64"}, optional
        Precision of the delta engine's products with the feed-forward matrices alone; that of the
        states by default. "bfloat16" gives scores within about 5e-3, relatively; "tf32" is for GPUs.
        Where a processor only emulates the type, float32 is used, with a warning; the provenance of
        a map (`product_dtype`) says what was used.
    heads : {"mean", "each"}
        "mean" zeroes a source in all heads at once; "each" in one head at a time.
    product : MatrixProduct, optional
        Does the delta form's matrix products, and keeps what is computed from a layer's weights.
    batch_size : int
        About how many (target position, source) pairs are handled at once; bounds the memory.

    Returns
    -------
    Tensor [W_t, W_s], or [H, W_t, W_s] for heads="each"
    """
    product = _product_in(product_dtype, product, block.values)
    n_heads = block.stack.heads if heads == "each" else 1
    scores = block.values.new_zeros(n_heads, len(units.rows), len(units.sources))
    if engine == "delta" and block.modules.post_attention:
        change_distance = find_distance(distance, of_change=True)
        for rows, source, states, change in _propagated_batches(
            block, units, heads == "each", batch_size, product
        ):
            distances = change_distance(states, change).unflatten(0, (-1, n_heads))  # [S, H, R]
            scores[:, rows, source : source + len(distances)] = distances.permute(1, 2, 0)
    elif block.modules.runs_whole:
        distance_function, original_states = find_distance(distance), block.states(units.rows)
        for number, source, states in replay_layers(block, units, heads == "each", batch_size):
            distances = distance_function(original_states, states).T  # [R, S]
            if block.causal and not block.modules.convolution:
                distances = _zero_earlier_rows(distances, units, source)
            scores[number, :, source : source + len(states)] = distances
    else:
        distance_function, original_states = find_distance(distance), block.states(units.rows)
        for head, row, source_index, context in replay_pairs(
            block, units, heads == "each", batch_size
        ):
            changed_states = block.replay(units.rows[row], context)
            scores[head, row, source_index] = distance_function(
                original_states[row], changed_states
            )
    pooled = units.pool_targets(scores)
    return pooled if heads == "each" else pooled[0]


def value_zeroing_of_clips(
    batch: BlockBatch,
    units: UnitsBatch,
    *,
    distance: str = "cosine",
    engine: str = "delta",
    product_dtype: str | None = None,
    heads: str = "mean",
    product: MatrixProduct | None = None,
    batch_size: int = 2048,
) -> list[Tensor]:
    """`value_zeroing` of clips that share a pass, [W_t, W_s] each, by the delta engine; all heads at
    once."""
    product = _product_in(product_dtype, product, batch.values)
    clip_count, row_count = units.rows.shape
    alpha, change_distance = batch.attention(units.rows), find_distance(distance, of_change=True)
    propagator = ChangePropagator(batch, units.rows, product=product)
    scores = batch.values.new_zeros(clip_count, row_count, len(units.source_lengths))
    sources_per_batch = max(1, batch_size // units.rows.numel())
    for source, stop in _source_batches(
        units.source_lengths, _SOURCES_PER_GROUP * sources_per_batch
    ):
        weights, values = _gather_values_of_clips(
            alpha, batch.values, *units.padded_sources(source, stop)
        )
        for change in propagator.propagate_source_removals(
            weights,
            values,
            source_count=len(units.source_lengths),
            batch_size=sources_per_batch,
        ):
            distances = change_distance(propagator.states, change)  # [S', C R]
            scores[:, :, source : source + len(change)] = distances.unflatten(
                1, (clip_count, -1)
            ).permute(1, 2, 0)
            source += len(change)
    return units.pool_targets(scores)


def _gather_values_of_clips(
    alpha: Tensor, values: Tensor, positions: Tensor, is_position: Tensor
) -> tuple[Tensor, Tensor]:
    """As `_gather_zeroed_values`, for sources at positions [C, S, J] of C clips: weights [C H, R, S, J]
    and values [C H, S, J, d]."""
    clip_count, source_shape = len(positions), positions.shape[1:]
    flat_positions = positions.flatten(1)[:, None, None]  # [C, 1, 1, S J]
    alpha, values = (x.unflatten(0, (clip_count, -1)) for x in (alpha, values))
    weights = alpha.gather(-1, flat_positions.expand(*alpha.shape[:3], -1))
    weights = weights.unflatten(-1, source_shape) * is_position[:, None, None]
    indices = flat_positions[:, 0, 0, :, None].expand(-1, -1, values.shape[-1])[:, None]
    gathered = values.gather(2, indices.expand(-1, values.shape[1], -1, -1))
    return weights.flatten(0, 1), gathered.unflatten(2, source_shape).flatten(0, 1)


def value_zeroing_share(
    block: Block,
    units: Units,
    *,
    distance: str = "cosine",
    engine: str = "delta",
    product_dtype: str | None = None,
    product: MatrixProduct | None = None,
    batch_size: int = 2048,
) -> Tensor:
    """Value Zeroing, whose rows of cross-attention sum to the share of the two attention blocks'
    effect that is theirs.

    In a decoder behind an encoder a layer reads the sound (cross-attention) and the text so far
    (self-attention). With d the distance by which a target moves when *all* values of a block are
    zeroed, one block at a time:

        g_i = d_cross_i / (d_cross_i + d_self_i)        C_ij = g_i * cross C_ij / sum_j' C_ij'

    so that composed maps weigh cross-attention against self-attention, where those of
    `value_zeroing` weigh it by its mixing strength against the residual stream. In encoders and the
    decoder's self-attention it is Value Zeroing.

    Parameters
    ----------
    distance, engine, product_dtype, product, batch_size
        As of `value_zeroing`.

    Returns
    -------
    Tensor [W_t, W_s]
    """
    scores = value_zeroing(
        block,
        units,
        distance=distance,
        engine=engine,
        product_dtype=product_dtype,
        product=product,
        batch_size=batch_size,
    )
    if block.stack.name != "cross":
        return scores
    studied = block.modules.studied_index
    cross_distance, self_distance = (
        distance_without_source(block, units, number, distance=distance)
        for number in (studied, studied - 1)
    )
    distance_sum, row_sums = cross_distance + self_distance, scores.sum(dim=-1)
    gates = torch.where(
        distance_sum > 0,
        cross_distance / distance_sum.where(distance_sum > 0, torch.ones_like(distance_sum)),
        torch.zeros_like(distance_sum),
    )
    shares = scores / row_sums.where(row_sums > 0, torch.ones_like(row_sums))[:, None]
    return gates[:, None] * shares


def distance_without_source(
    block: Block, units: Units, number: int, *, distance: str = "cosine"
) -> Tensor:
    """How far each target moves without all values of one of the layer's attention blocks,
    [W_t]."""
    heads, _, width = block.call(number).value.shape
    zero_context = block.values.new_zeros(len(units.rows), heads, width)
    changed_states = block.replay(units.rows, zero_context, number=number)
    distances = find_distance(distance)(block.states(units.rows), changed_states)
    return units.pool_targets(distances[:, None])[:, 0]


def _zero_earlier_rows(distances: Tensor, units: Units, first_source: int) -> Tensor:
    """Distances [R, S] with zeros, not rounding, for rows that do not see a source."""
    count = distances.shape[1]
    starts = [ranges[0][0] for ranges in units.sources[first_source : first_source + count]]
    is_later = torch.tensor(units.positions)[:, None] < torch.tensor(starts)
    return distances.masked_fill(is_later.to(distances.device), 0)


def _propagated_batches(
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
    for first_row in range(0, n_rows, size):
        rows = slice(first_row, min(first_row + size, n_rows))
        positions = units.rows[rows]
        propagator = ChangePropagator(
            block, positions, product=product, positions=units.positions[rows]
        )
        windows = propagator.input_positions is not positions
        alpha = block.attention(propagator.input_positions) if windows else every_alpha[:, rows]
        visible_count, convolution = len(units.sources), block.modules.convolution
        if block.causal and not (convolution and convolution.right):
            last_position = units.positions[rows][-1]
            visible_count = (
                next(
                    (i for i, ranges in enumerate(units.sources) if ranges[0][0] > last_position),
                    visible_count,
                )
                if units.has_ordered_sources
                else visible_count
            )
        sources_per_batch = max(
            1, batch_size // (len(propagator.input_positions) * (n_heads if each_head else 1))
        )
        for source, stop in _source_batches(
            units.source_lengths[:visible_count],
            sources_per_batch if each_head else _SOURCES_PER_GROUP * sources_per_batch,
        ):
            if each_head:
                position_indices = units.source_position_indices[source:stop]
                changes = torch.cat(
                    [
                        _head_changes(block, alpha, source_indices)
                        for source_indices in position_indices
                    ]
                )
                yield rows, source, propagator.states, propagator(changes)
                continue
            weights, values = _gather_zeroed_values(
                alpha, block.values, *units.padded_sources(source, stop)
            )
            for change in propagator.propagate_source_removals(
                weights, values, source_count=visible_count, batch_size=sources_per_batch
            ):
                yield rows, source, propagator.states, change
                source += len(change)


def _source_batches(lengths: list[int], sources_per_batch: int) -> Iterator[tuple[int, int]]:
    """Runs [first, stop) of at most so many sources; one far longer than those before it begins a
    new run."""
    first, longest, total = 0, 0, 0
    for index, length in enumerate(lengths):
        longest, total = max(longest, length), total + length
        count = index + 1 - first
        if count > 1 and (count > sources_per_batch or longest * count > 2 * total + _MAX_PADDING):
            yield first, index
            first, longest, total = index, length, length
    if lengths:
        yield first, len(lengths)


def _gather_zeroed_values(
    alpha: Tensor, values: Tensor, positions: Tensor, is_position: Tensor
) -> tuple[Tensor, Tensor]:
    """What zeroing sources at positions [S, J] takes away: weights [H, R, S, J], 0 for padding, and
    values [H, S, J, d]."""
    weights = alpha.gather(-1, positions.flatten().expand(*alpha.shape[:2], -1)).unflatten(
        -1, positions.shape
    )
    return weights * is_position, values[:, positions]


def _head_changes(block: Block, alpha: Tensor, source_indices: slice | Tensor) -> Tensor:
    """What zeroing a source in one head at a time takes from the rows' attention context, [H, R, H
    d]."""
    change = -(alpha[:, :, source_indices] @ block.values[:, source_indices])  # [H, R, d]
    heads = torch.arange(len(change), device=change.device)
    head_changes = change.new_zeros(
        len(change), change.shape[1], len(change), change.shape[2]
    )  # [H, R, H, d]
    head_changes[heads, :, heads] = change
    return head_changes.flatten(2)


REVISION = 1  # of the definition: part of the cache key of stored maps, which hold the strengths


def mixing_strength(
    block: Block, units: Units, *, engine: str = "delta", batch_size: int = 2048
) -> Tensor:
    """Relative change of each target's layer output without the values of all other positions.

    Parameters
    ----------
    block : Block
    units : Units
        Their sources are not used: every position outside a target counts.
    engine : {"delta", "replay"}
        As of `value_zeroing`.
    batch_size : int
        About how many target positions are handled at once.

    Returns
    -------
    Tensor [W_t, 1]
        One column, for it is computed and collected like the scores of one source.
    """
    delta = engine == "delta" and block.modules.post_attention is not None
    if block.modules.runs_whole:
        ratios = (_propagated_window_ratios if delta else _whole_layer_ratios)(
            block, units, batch_size
        )
    else:
        ratios = (_propagated_ratios if delta else _replayed_ratios)(block, units, batch_size)
    return units.target_rows.mean(torch.cat(list(ratios)))[:, None]


def mixing_strength_of_clips(
    batch: BlockBatch, units: UnitsBatch, *, engine: str = "delta", batch_size: int = 2048
) -> list[Tensor]:
    """`mixing_strength` of clips that share a pass, [W_t, 1] each, by the delta engine."""
    positions, row_indices = units.target_rows
    clip_count = len(row_indices)
    clip_indices = torch.arange(clip_count, device=row_indices.device)[:, None]
    alpha = batch.attention(units.rows).unflatten(0, (clip_count, -1))
    weights = alpha[clip_indices, :, row_indices].transpose(1, 2)  # [C, H, P, K]
    if batch.stack.name != "cross":
        weights.masked_fill_(units.own_position_mask(batch.n_sources)[:, None], 0)
    propagator = ChangePropagator(batch, positions)
    context = join_heads(weights.flatten(0, 1) @ batch.values, clip_count)
    change = propagator(-context[None])[0]
    ratios = _relative_change(change, propagator.states).unflatten(0, (clip_count, -1))
    return [strengths[:, None] for strengths in units.mean_over_targets(ratios)]


def _propagated_ratios(block: Block, units: Units, batch_size: int) -> Iterator[Tensor]:
    """Ratios [P'] of some (target, position) pairs at a time, their changes carried through the
    layer."""
    for pairs, weights in _masked_weights(block, units, batch_size, keeps_own=False):
        positions = units.target_rows.positions[pairs]
        propagator = ChangePropagator(block, units.target_rows.rows[pairs], positions=positions)
        change = propagator(-(weights @ block.values).transpose(0, 1).flatten(1)[None])[0]
        yield _relative_change(change, propagator.states)


def _replayed_ratios(block: Block, units: Units, batch_size: int) -> Iterator[Tensor]:
    """The same by running the layer's own modules with the target's own values alone."""
    for pairs, weights in _masked_weights(block, units, batch_size, keeps_own=True):
        rows = units.target_rows.rows[pairs]
        changed_states = block.replay(rows, (weights @ block.values).transpose(0, 1))
        states = block.states(rows)
        yield _relative_change(changed_states - states, states)


def _masked_weights(
    block: Block, units: Units, batch_size: int, *, keeps_own: bool
) -> Iterator[tuple[slice, Tensor]]:
    """Attention weights [H, P', K] of some pairs, with zeros at the target's own positions or at
    all others."""
    alpha, own_mask = (
        block.attention(units.rows),
        _own_position_mask(block, units),
    )  # [H, R, K], [W_t, K]
    target_indices, row_indices = units.target_rows.targets, units.target_rows.row_indices
    for first_pair in range(0, len(row_indices), batch_size):
        pairs = slice(first_pair, min(first_pair + batch_size, len(row_indices)))
        is_own = own_mask[target_indices[pairs]]
        yield pairs, alpha[:, row_indices[pairs]].masked_fill_(~is_own if keeps_own else is_own, 0)


def _propagated_window_ratios(block: Block, units: Units, batch_size: int) -> Iterator[Tensor]:
    """Ratios of layers whose convolution takes the changes of a window of rows to each target row.

    A window's rows are shared by neighbouring targets, so a few targets go together: as many as a
    window is wide.
    """
    convolution = block.modules.convolution
    assert convolution is not None
    for group in units.groups(1 + convolution.left + convolution.right):
        propagator = ChangePropagator(block, group.rows, positions=group.positions)
        alpha, own_mask = (
            block.attention(propagator.input_positions),
            _own_position_mask(block, group),
        )
        targets_per_batch = max(1, batch_size // len(propagator.input_positions))
        for targets in torch.arange(len(group.targets)).split(targets_per_batch):
            contexts = [
                alpha.masked_fill(own_mask[target], 0) @ block.values for target in targets.tolist()
            ]
            change = propagator(-torch.stack(contexts).transpose(1, 2).flatten(2))  # [S, R, D]
            yield _select_own_rows(_relative_change(change, propagator.states), group, targets)


def _whole_layer_ratios(block: Block, units: Units, batch_size: int) -> Iterator[Tensor]:
    """The same by running the layer on all rows."""
    alpha, own_mask, states = (
        block.attention(),
        _own_position_mask(block, units),
        block.states(units.rows),
    )
    for targets in torch.arange(len(units.targets)).split(max(1, batch_size // block.n_targets)):
        contexts = [
            alpha.masked_fill(~own_mask[target], 0) @ block.values for target in targets.tolist()
        ]
        changed_states = block.replay_all(torch.stack(contexts).transpose(1, 2))[:, units.rows]
        yield _select_own_rows(_relative_change(changed_states - states, states), units, targets)


def _select_own_rows(ratios: Tensor, units: Units, targets: Tensor) -> Tensor:
    """Of ratios [S, R], S targets by all rows, those of each target's own rows, [P']."""
    ranges = units.target_rows.pair_ranges
    first_target, last_target = int(targets[0]), int(targets[-1])
    pairs = slice(ranges[first_target][0], ranges[last_target][1])
    return ratios[
        units.target_rows.targets[pairs] - first_target, units.target_rows.row_indices[pairs]
    ]


def _own_position_mask(block: Block, units: Units) -> Tensor:
    """Which source positions are each target's own, bool [W_t, K]; none in cross-attention."""
    if block.stack.name == "cross":
        return torch.zeros(
            len(units.targets), block.n_sources, dtype=torch.bool, device=block.values.device
        )
    return units.target_rows.own_position_mask(block.n_sources)


def _relative_change(change: Tensor, states: Tensor) -> Tensor:
    """|| change || / || state ||; zero where nothing changes, even at a state that is zero."""
    change_norm = change.norm(dim=-1)
    ratio: Tensor = (change_norm / states.norm(dim=-1)).where(
        change_norm > 0, torch.zeros_like(change_norm)
    )
    return ratio


# It has a measure's form, for it is computed and timed as measures are; it is shown with every map
# and cannot be requested.
STRENGTH = Measure(
    "mixing_strength",
    "how far the attention block moves a target when the values of all other positions are zeroed",
    "this package",
    no_heads=": it is one of the whole block",
    function=mixing_strength,
    batched=mixing_strength_of_clips,
    is_builtin=True,
)


def choose_strength_measure(measures: Iterable[Measure]) -> Measure:
    """Return the measure of mixing strengths, with the engine of the first measure that has one."""
    engines = [
        measure.option_values["engine"] for measure in measures if "engine" in measure.own_options
    ]
    return STRENGTH.with_values({"engine": engines[0]}) if engines else STRENGTH
