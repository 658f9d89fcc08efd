"""Attention rollout (Abnar & Zuidema 2020): the maps of all layers, multiplied.

    R_1 = A_1        R_l = A_l R_{l-1}

A_l is the layer's map with rows summing to one; for a measure that leaves out the residual stream,
(A_l + I) / 2; weighted by mixing strengths, w A_l + (1 - w) I. The matrix product of raw maps is
GlobEnc's own convention. In: arrays [L, W, W]. Out: [L, W, W].
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...errors import InputError
from .numerics import normalize_rows

if TYPE_CHECKING:
    from .score_map import ScoreMap


def layer_maps(
    maps: np.ndarray, *, residual: bool, weights: np.ndarray | None = None
) -> np.ndarray:
    """Return maps [L, W, W] with rows summing to one, with the residual stream if `residual`
    (identity added, rows normalised again).

    `weights` [L, W] are another share w of each row: w A + (1 - w) I. A row of zeros becomes that
    of the identity.
    """
    maps, identity = normalize_rows(maps), np.eye(maps.shape[-1], dtype=maps.dtype)
    if weights is None:
        return normalize_rows(maps + identity) if residual else maps
    weights = np.where(maps.any(axis=-1), weights, 0)[..., None]
    weighted_maps: np.ndarray = (weights * maps + (1 - weights) * identity).astype(maps.dtype)
    return weighted_maps


def strength_weights(mixing_map: ScoreMap) -> np.ndarray:
    """Weight of each row of a map against the residual stream, [L, W_t]: s / (1 + s) of its mixing
    strength s.

    A map without mixing strengths is an InputError.

    Examples
    --------
    >>> from speechmix import MixingMap, Span
    >>> unit, strengths = (Span(0, 5, "les"),), np.array([[0.0], [1.0], [3.0], [np.inf]])
    >>> strength_weights(MixingMap(np.ones((4, 1, 1)), unit, unit, "attention", "encoder", (0, 1, 2, 3), {}, strengths))[:, 0]
    array([0.  , 0.5 , 0.75, 1.  ])
    """
    strengths = mixing_map.mixing_strength
    if strengths is None:
        raise InputError(
            f"{mixing_map!r} has no mixing strengths: it is rolled out, or of a measure of one "
            "number. "
            "Compute it again with speechmix.mix, or do without: rollout(residual=True or False), "
            "composed(weighted=False)"
        )
    weights: np.ndarray = np.divide(
        strengths, 1 + strengths, out=np.ones_like(strengths), where=~np.isinf(strengths)
    )
    return weights


def rollout(
    maps: np.ndarray,
    *,
    residual: bool = False,
    normalize: bool = True,
    weights: np.ndarray | None = None,
) -> np.ndarray:
    """Roll maps [L, W, W] out over layers.

    Parameters
    ----------
    residual : bool
        Add the identity to each layer's normalised map, and normalise again.
    normalize : bool
        False multiplies the raw maps.
    weights : ndarray [L, W], optional
        Weigh each row of a layer against the residual stream instead; see `layer_maps`.

    Raises
    ------
    InputError
        If the identity is to be added to raw maps, whose scale is not that of the identity.

    Examples
    --------
    >>> rollout(np.array([[[1.0, 0.0], [1.0, 1.0]], [[1.0, 0.0], [1.0, 1.0]]]))[1]
    array([[1.  , 0.  ],
           [0.75, 0.25]])
    """
    if (residual or weights is not None) and not normalize:
        raise InputError(
            "normalize=False multiplies raw maps, to which the identity cannot be added in "
            "proportion: give residual=False "
            "too, or leave normalize=True"
        )
    maps = layer_maps(maps, residual=residual, weights=weights) if normalize else maps
    rolled_maps = [maps[0]]
    for layer in maps[1:]:
        rolled_maps.append(layer @ rolled_maps[-1])
    return np.stack(rolled_maps)
