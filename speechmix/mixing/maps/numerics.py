"""Shared numerics: stable distances, row normalization, CTC likelihood.

Nobody re-derives them elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...errors import InputError

if TYPE_CHECKING:
    from torch import Tensor

# Of two states, or of a state and its change, over the last axis.
Distance = Callable[["Tensor", "Tensor"], "Tensor"]

# A layer whose attention block moves its targets by less than this share of their length mixes next
# to nothing: its normalised map shows shares of a change that hardly is one. See
# `MixingMap.mixing_strength`.
STRENGTH_FLOOR = 0.01


def cosine_distance(x: Tensor, y: Tensor) -> Tensor:
    """Return 1 - cos(x, y) over the last axis, as 1/2 ||x/||x|| - y/||y||||^2.

    The two are equal, but 1 - cos loses everything to cancellation where the distance is small:
    Value Zeroing scores of 1e-6 are noise in float32 that way.
    """
    difference = x / x.norm(dim=-1, keepdim=True) - y / y.norm(dim=-1, keepdim=True)
    distance: Tensor = 0.5 * difference.square().sum(dim=-1)
    return distance


def cosine_distance_of_change(x: Tensor, dx: Tensor) -> Tensor:
    """Return 1 - cos(x, x + dx), exact however small the change: only what of dx is orthogonal to x
    turns it.

    With dx = p x/||x|| + o and n = ||x + dx||, 1 - cos = ||o||^2 / ( n (n + ||x|| + p) ).
    """
    norm = x.norm(dim=-1, keepdim=True)
    parallel = (dx * x).sum(dim=-1, keepdim=True) / norm
    orthogonal = (dx - parallel * (x / norm)).square().sum(dim=-1)
    length = (norm + parallel)[..., 0]
    changed_norm = (length.square() + orthogonal).sqrt()
    distance: Tensor = orthogonal.where(length > 0, changed_norm * (changed_norm - length)) / (
        changed_norm * (changed_norm + length)
    ).where(length > 0, changed_norm.square())
    return distance


def euclidean_distance(x: Tensor, y: Tensor) -> Tensor:
    """Return ||x - y|| over the last axis."""
    distance: Tensor = (x - y).norm(dim=-1)
    return distance


def manhattan_distance(x: Tensor, y: Tensor) -> Tensor:
    """Return sum |x - y| over the last axis."""
    return (x - y).abs().sum(dim=-1)


def center(x: Tensor) -> Tensor:
    """Return x minus its mean over the last axis."""
    return x - x.mean(dim=-1, keepdim=True)


def scale_to_unit(x: Tensor) -> Tensor:
    """Return x at length 1 over the last axis."""
    normalized: Tensor = x / x.norm(dim=-1, keepdim=True)
    return normalized


def unit_change(x: Tensor, dx: Tensor) -> Tensor:
    """Return (x + dx)/||x + dx|| - x/||x||, exact however small the change.

    With n = ||x|| and m = ||x + dx||, it is dx/m + x (1/m - 1/n), and 1/m - 1/n = -(2 x + dx).dx / (n m (n + m)).
    """
    norm, changed_norm = x.norm(dim=-1, keepdim=True), (x + dx).norm(dim=-1, keepdim=True)
    squared_growth = ((2 * x + dx) * dx).sum(dim=-1, keepdim=True)
    change: Tensor = dx / changed_norm - x * (
        squared_growth / (norm * changed_norm * (norm + changed_norm))
    )
    return change


# Of two states; and of a state and its change, for the delta form. "unit_..." and "correlation" are
# distances of normalised states: at length 1, and centred (as a layer norm without gain leaves
# them; 1 - Pearson's r).
DISTANCES: dict[str, Distance] = {
    "cosine": cosine_distance,
    "euclidean": euclidean_distance,
    "manhattan": manhattan_distance,
    "correlation": lambda x, y: cosine_distance(center(x), center(y)),
    "unit_euclidean": lambda x, y: euclidean_distance(scale_to_unit(x), scale_to_unit(y)),
    "unit_manhattan": lambda x, y: manhattan_distance(scale_to_unit(x), scale_to_unit(y)),
}
DISTANCES_OF_CHANGE: dict[str, Distance] = {
    "cosine": cosine_distance_of_change,
    "euclidean": lambda x, dx: dx.norm(dim=-1),
    "manhattan": lambda x, dx: dx.abs().sum(dim=-1),
    "correlation": lambda x, dx: cosine_distance_of_change(center(x), center(dx)),
    "unit_euclidean": lambda x, dx: unit_change(x, dx).norm(dim=-1),
    "unit_manhattan": lambda x, dx: unit_change(x, dx).abs().sum(dim=-1),
}


def find_distance(name: str, *, of_change: bool = False) -> Distance:
    """Look a distance up by name: of two states, or of a state and its change."""
    if name not in DISTANCES:
        raise InputError(f"distance must be one of {sorted(DISTANCES)}, found {name!r}")
    return (DISTANCES_OF_CHANGE if of_change else DISTANCES)[name]


def normalize_rows(scores: np.ndarray) -> np.ndarray:
    """Divide each row (last axis) by its sum; rows that are all zero stay zero.

    Examples
    --------
    >>> normalize_rows(np.array([[1.0, 3.0], [0.0, 0.0]]))
    array([[0.25, 0.75],
           [0.  , 0.  ]])
    """
    sums = scores.sum(axis=-1, keepdims=True)
    normalized: np.ndarray = np.divide(scores, sums, out=np.zeros_like(scores), where=sums != 0)
    return normalized


def ctc_log_probability(scores: Tensor, ids: Sequence[int], *, blank: int) -> Tensor:
    """Log-probability of a label sequence, summed over its alignments, from log-probabilities [T,
    V]; -inf where there are too few frames."""
    import torch

    if not len(scores):
        return scores.new_tensor(-torch.inf)
    return -torch.nn.functional.ctc_loss(
        scores[:, None],  # [T, 1, V]
        torch.tensor([list(ids)], device=scores.device),
        torch.tensor([len(scores)]),
        torch.tensor([len(ids)]),
        blank=blank,
        reduction="sum",
    )
