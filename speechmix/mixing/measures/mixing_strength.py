"""Mixing strength: how far an attention block moves each target when the values of all other
positions are zeroed.

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

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...adapters.delta_engine.change_propagator import ChangePropagator
from .measure import Measure

if TYPE_CHECKING:
    from ...adapters.capture.block import Block
    from .unit_positions import Units

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
    delta = engine == "delta" and block.modules.rest is not None
    if block.modules.convolution is not None:
        ratios = (_carried_windows if delta else _replayed_whole)(block, units, batch_size)
    else:
        ratios = (_carried if delta else _replayed)(block, units, batch_size)
    return units.target_rows.mean(torch.cat(list(ratios)))[:, None]


def _carried(block: Block, units: Units, batch_size: int) -> Iterator[Tensor]:
    """Ratios [P'] of some (target, position) pairs at a time, their changes carried through the
    layer."""
    for pairs, weights in _weights(block, units, batch_size, keep_own=False):
        positions = units.target_rows.positions[pairs]
        propagator = ChangePropagator(block, units.target_rows.rows[pairs], positions=positions)
        change = propagator(-(weights @ block.values).transpose(0, 1).flatten(1)[None])[0]
        yield _ratio(change, propagator.states)


def _replayed(block: Block, units: Units, batch_size: int) -> Iterator[Tensor]:
    """The same by running the layer's own modules with what the target's own values give it, and
    nothing else."""
    for pairs, weights in _weights(block, units, batch_size, keep_own=True):
        rows = units.target_rows.rows[pairs]
        after = block.replay(rows, (weights @ block.values).transpose(0, 1))
        before = block.states(rows)
        yield _ratio(after - before, before)


def _weights(
    block: Block, units: Units, batch_size: int, *, keep_own: bool
) -> Iterator[tuple[slice, Tensor]]:
    """Attention weights [H, P', K] of some pairs, with zeros at the target's own positions or at
    all others."""
    alpha, inside = block.attention(units.rows), _own_positions(block, units)  # [H, R, K], [W_t, K]
    of_target, of_row = units.target_rows.targets, units.target_rows.row_indices
    for first in range(0, len(of_row), batch_size):
        pairs = slice(first, min(first + batch_size, len(of_row)))
        own = inside[of_target[pairs]]
        yield pairs, alpha[:, of_row[pairs]].masked_fill_(~own if keep_own else own, 0)


def _carried_windows(block: Block, units: Units, batch_size: int) -> Iterator[Tensor]:
    """Ratios of layers whose convolution takes the changes of a window of rows to each target row.

    A window's rows are shared by neighbouring targets, so a few targets go together: as many as a
    window is wide.
    """
    convolution = block.modules.convolution
    assert convolution is not None
    for group in units.groups(1 + convolution.left + convolution.right):
        propagator = ChangePropagator(block, group.rows, positions=group.positions)
        alpha, inside = block.attention(propagator.input_positions), _own_positions(block, group)
        at_once = max(1, batch_size // len(propagator.input_positions))
        for targets in torch.arange(len(group.targets)).split(at_once):
            contexts = [
                alpha.masked_fill(inside[target], 0) @ block.values for target in targets.tolist()
            ]
            change = propagator(-torch.stack(contexts).transpose(1, 2).flatten(2))  # [S, R, D]
            yield _of_own_rows(_ratio(change, propagator.states), group, targets)


def _replayed_whole(block: Block, units: Units, batch_size: int) -> Iterator[Tensor]:
    """The same by running the layer on all rows."""
    alpha, inside, before = (
        block.attention(),
        _own_positions(block, units),
        block.states(units.rows),
    )
    for targets in torch.arange(len(units.targets)).split(max(1, batch_size // block.n_targets)):
        contexts = [
            alpha.masked_fill(~inside[target], 0) @ block.values for target in targets.tolist()
        ]
        after = block.replay_all(torch.stack(contexts).transpose(1, 2))[:, units.rows]
        yield _of_own_rows(_ratio(after - before, before), units, targets)


def _of_own_rows(ratios: Tensor, units: Units, targets: Tensor) -> Tensor:
    """Of ratios [S, R], S targets by all rows, those of each target's own rows, [P']."""
    ranges = units.target_rows.pair_ranges
    first, last = int(targets[0]), int(targets[-1])
    pairs = slice(ranges[first][0], ranges[last][1])
    return ratios[units.target_rows.targets[pairs] - first, units.target_rows.row_indices[pairs]]


def _own_positions(block: Block, units: Units) -> Tensor:
    """Which source positions are each target's own, bool [W_t, K]; none in cross-attention."""
    if block.stack.name == "cross":
        return torch.zeros(
            len(units.targets), block.n_sources, dtype=torch.bool, device=block.values.device
        )
    return units.target_rows.own_positions(block.n_sources)


def _ratio(change: Tensor, states: Tensor) -> Tensor:
    """|| change || / || state ||; zero where nothing changes, even at a state that is zero."""
    moved = change.norm(dim=-1)
    ratio: Tensor = (moved / states.norm(dim=-1)).where(moved > 0, torch.zeros_like(moved))
    return ratio


# It has a measure's form, for it is computed and timed as measures are; it is shown with every map
# and cannot be requested.
STRENGTH = Measure(
    "mixing_strength",
    "how far the attention block moves a target when the values of all other positions are zeroed",
    "this package",
    no_heads=": it is one of the whole block",
    function=mixing_strength,
    of_the_package=True,
)
