"""Attention rollout (Abnar & Zuidema 2020): the maps of all layers, multiplied.

    R_1 = A_1        R_l = A_l R_{l-1}

A_l is the layer's map with rows summing to one; for a measure that leaves out the residual stream, (A_l + I) / 2. The
matrix product of raw maps is GlobEnc's own convention. In: arrays [L, W, W]. Out: [L, W, W].
"""

from __future__ import annotations

import numpy as np

from ..errors import InputError
from .numerics import normalize_rows


def layer_maps(maps: np.ndarray, *, residual: bool) -> np.ndarray:
    """Maps with rows summing to one, and, with `residual`, the identity added and rows normalised again."""
    maps = normalize_rows(maps)
    return normalize_rows(maps + np.eye(maps.shape[-1], dtype=maps.dtype)) if residual else maps


def rollout(maps: np.ndarray, *, residual: bool = False, normalize: bool = True) -> np.ndarray:
    """Roll maps [L, W, W] out over layers.

    Parameters
    ----------
    residual : bool
        Add the identity to each layer's normalised map, and normalise again.
    normalize : bool
        False multiplies the raw maps.

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
    if residual and not normalize:
        raise InputError(
            "normalize=False multiplies raw maps, to which the identity cannot be added in proportion: give residual=False "
            "too, or leave normalize=True"
        )
    maps = layer_maps(maps, residual=residual) if normalize else maps
    rolled = [maps[0]]
    for layer in maps[1:]:
        rolled.append(layer @ rolled[-1])
    return np.stack(rolled)
