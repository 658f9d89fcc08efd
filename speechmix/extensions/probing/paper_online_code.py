"""The online code as the Value Zeroing paper's release computes it, bugs included.

In: states and class numbers. Out: what each item is said to cost. Kept apart, for nothing else may
learn from it.
"""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import InputError
from .networks import Network, Training, compute_logits, train_epoch

# Shares of the items in each block; each is rounded down by itself, so a few items are lost.
_BLOCK_SHARES = (0.008, 0.008, 0.016, 0.0305, 0.0625, 0.125, 0.25, 0.5)


def reference_costs(
    x: Tensor, y: Tensor, count: int, *, seed: int, network: Network, training: Training
) -> np.ndarray:
    """Compute the bits of items of the first block and the nats of others [N]; NaN for items lost
    by rounding.

    Raises
    ------
    InputError
        If there are too few items for a first block.
    """
    order = np.random.default_rng(seed).permutation(len(y))
    ends = np.cumsum([int(len(y) * share) for share in _BLOCK_SHARES])
    if ends[0] < 1:
        raise InputError(
            f"mode='reference' needs {int(np.ceil(1 / _BLOCK_SHARES[0]))} items at least, found {len(y)}"
        )
    item_costs = np.full(len(y), np.nan)  # floors lose the last ones
    item_costs[order[: ends[0]]] = np.log2(count)
    for start, stop in itertools.pairwise(ends):
        sent_indices, scored_indices = order[:start], order[start:stop]
        item_costs[scored_indices] = _min_epoch_losses(
            x[sent_indices],
            y[sent_indices],
            x[scored_indices],
            y[scored_indices],
            count,
            network,
            training,
        )
    return item_costs


def _min_epoch_losses(
    x: Tensor,
    y: Tensor,
    scored_x: Tensor,
    scored_y: Tensor,
    count: int,
    network: Network,
    training: Training,
) -> np.ndarray:
    """Return the losses of test items in the epoch with the smallest sum."""
    probe = network(x.shape[1], count)
    weights = [weight for weight in probe.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(
        weights or [nn.Parameter(torch.zeros(1))], lr=training.learning_rate
    )
    step_count = -(-len(y) // training.batch_size)  # of one epoch: the rate falls to zero within it
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: max(0.0, 1 - step / step_count)
    )
    smallest_losses, previous_sum, worse_count = np.full(len(scored_y), np.inf), float("inf"), 0
    for _ in range(training.epochs if weights else 1):
        if weights:
            train_epoch(probe, x, y, training, _double_softmax, optimizer, schedule)
        losses = _double_softmax(
            compute_logits(probe, scored_x), scored_y, reduction="none"
        ).numpy()
        smallest_losses = losses if losses.sum() < smallest_losses.sum() else smallest_losses
        worse_count = (
            worse_count + 1 if losses.sum() >= previous_sum else 0
        )  # than the epoch before, not than the best
        previous_sum = float(losses.sum())
        if (
            worse_count >= training.patience or schedule.get_last_lr()[0] == 0
        ):  # without a rate all further epochs are alike
            break
    return smallest_losses


def _double_softmax(logits: Tensor, true: Tensor, reduction: str = "mean") -> Tensor:
    return F.cross_entropy(logits.softmax(dim=-1), true, reduction=reduction)
