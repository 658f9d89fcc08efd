"""The probe of the online code, and how it is trained: the published network and settings (protocol E3).

In: states and class numbers as tensors. Out: a probe that gives logits. Nothing here looks at the items that are scored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Network = Callable[[int, int], nn.Module]
_FEWEST_TO_WATCH = 8  # items, of which a part can be put aside to see when to stop
_WATCHED = 8  # one in so many


@dataclass(frozen=True)
class Training:
    """How a probe is trained: the published setting.

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


def perceptron(width: int, labels: int) -> nn.Module:
    """The published probe: dropout .2, linear to 128, ReLU, layer norm, dropout .3, linear to the labels' logits."""
    return nn.Sequential(
        nn.Dropout(0.2), nn.Linear(width, 128), nn.ReLU(), nn.LayerNorm(128), nn.Dropout(0.3), nn.Linear(128, labels)
    )


class Constant(nn.Module):
    """A probe that finds all labels equally likely, whatever the state."""

    def __init__(self, labels: int):
        super().__init__()
        self._logits = nn.Parameter(torch.zeros(labels), requires_grad=False)

    def forward(self, states: Tensor) -> Tensor:
        return self._logits.expand(len(states), -1)


def trained(x: Tensor, y: Tensor, count: int, network: Network, training: Training) -> nn.Module:
    """Probe of the epoch that was best on a part of the items put aside; of the last where there are too few."""
    probe = network(x.shape[1], count)
    weights = [weight for weight in probe.parameters() if weight.requires_grad]
    if not weights:
        return probe
    drawn = torch.randperm(len(y))
    aside = len(y) // _WATCHED if len(y) >= _FEWEST_TO_WATCH else 0
    watched, trained_on = drawn[:aside], drawn[aside:]
    optimizer = torch.optim.AdamW(weights, lr=training.learning_rate)
    best, best_loss, waited = _copy(probe), float("inf"), 0
    for _ in range(training.epochs):
        train_once(probe, x[trained_on], y[trained_on], training, F.cross_entropy, optimizer)
        if not aside:
            continue
        loss = float(F.cross_entropy(logits_of(probe, x[watched]), y[watched]))
        waited = 0 if loss < best_loss else waited + 1
        if loss < best_loss:
            best, best_loss = _copy(probe), loss
        if waited >= training.patience:
            break
    if aside:
        probe.load_state_dict(best)
    return probe


def _copy(probe: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in probe.state_dict().items()}


def train_once(
    probe: nn.Module, x: Tensor, y: Tensor, training: Training, loss_of, optimizer, schedule: Any = None
) -> None:
    """Train on all items once, in random order."""
    probe.train()
    for batch in torch.randperm(len(y)).split(training.batch_size):
        optimizer.zero_grad()
        loss_of(probe(x[batch]), y[batch]).backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()


def logits_of(probe: nn.Module, x: Tensor) -> Tensor:
    probe.eval()
    with torch.no_grad():
        return probe(x)
