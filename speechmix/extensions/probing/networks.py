"""Perceptron probe of the published online code, and its training.

In: states and class numbers as tensors. Out: a probe that returns logits. Nothing here looks at the
items that are scored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

Network = Callable[[int, int], nn.Module]


@dataclass(frozen=True)
class Training:
    """How the network is trained; the defaults are the published setting.

    Parameters
    ----------
    epochs, patience, batch_size : int
    learning_rate : float
        Of AdamW.
    """

    epochs: int = 15
    patience: int = 5
    batch_size: int = 128
    learning_rate: float = 1e-3


def build_perceptron(width: int, labels: int) -> nn.Module:
    """Build the published probe: dropout .2, linear to 128, ReLU, layer norm, dropout .3, linear to
    the labels' logits."""
    return nn.Sequential(
        nn.Dropout(0.2),
        nn.Linear(width, 128),
        nn.ReLU(),
        nn.LayerNorm(128),
        nn.Dropout(0.3),
        nn.Linear(128, labels),
    )


class ConstantProbe(nn.Module):
    """A probe that finds all labels equally likely, whatever the state."""

    def __init__(self, labels: int):
        super().__init__()
        self._logits = nn.Parameter(torch.zeros(labels), requires_grad=False)

    def forward(self, states: Tensor) -> Tensor:
        return self._logits.expand(len(states), -1)


def train_epoch(
    probe: nn.Module,
    x: Tensor,
    y: Tensor,
    training: Training,
    loss_of: Callable[[Tensor, Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
    schedule: LRScheduler,
) -> None:
    """Train on all items once, in random order."""
    probe.train()
    for batch in torch.split(torch.randperm(len(y)), training.batch_size):
        optimizer.zero_grad()
        loss_of(probe(x[batch]), y[batch]).backward()
        optimizer.step()
        schedule.step()


def compute_logits(probe: nn.Module, x: Tensor) -> Tensor:
    probe.eval()
    with torch.no_grad():
        logits: Tensor = probe(x)
    return logits
