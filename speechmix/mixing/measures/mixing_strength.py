"""Mixing strength: change of a target when all other positions' values are zeroed.

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

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...adapters.delta_engine.change_propagator import ChangePropagator
from .measure import Measure

if TYPE_CHECKING:
    from ...adapters.capture.layer_run import Block
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
    delta = engine == "delta" and block.modules.post_attention is not None
    if block.modules.runs_whole:
        ratios = (_propagated_window_ratios if delta else _whole_layer_ratios)(
            block, units, batch_size
        )
    else:
        ratios = (_propagated_ratios if delta else _replayed_ratios)(block, units, batch_size)
    return units.target_rows.mean(torch.cat(list(ratios)))[:, None]


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
    is_builtin=True,
)


def choose_strength_measure(measures: Iterable[Measure]) -> Measure:
    """Return the measure of mixing strengths, with the engine of the first measure that has one."""
    engines = [
        measure.option_values["engine"] for measure in measures if "engine" in measure.own_options
    ]
    return STRENGTH.with_values({"engine": engines[0]}) if engines else STRENGTH
