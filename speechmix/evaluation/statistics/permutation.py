"""Test many numbers against those of shuffled data at once.

In: one number for each cell, of the data and of each shuffle. Out: one-sided p of each cell,
corrected for all cells.

If the order of the data means nothing, the data are one more shuffle. So each cell is standardised
by the data and the shuffles together, and a shuffle counts with its *largest* value over all cells:
looking at many cells gives no advantage (single-step maximum test; Westfall & Young 1993,
Resampling-Based Multiple Testing).

    p[cell] = ( 1 + number of shuffles whose largest value reaches the cell's ) / (S + 1)
"""

from __future__ import annotations

import numpy as np

_MIN_SPREAD = 1e-9  # of numbers that all agree


def permutation_p(values: np.ndarray) -> np.ndarray:
    """Return p [E] of each cell being larger than in shuffled data, corrected over all cells.

    `values` [1 + S, E] are the data, then its shuffles. p is NaN for cells without a number, or
    with fewer than two shuffles.
    """
    values = np.asarray(values, dtype=float)
    p = np.full(values.shape[1], np.nan)
    is_known = np.isfinite(values).all(axis=0)
    if len(values) < 3 or not is_known.any():
        return p
    known_values = values[:, is_known]
    z = (known_values - known_values.mean(axis=0)) / np.maximum(
        known_values.std(axis=0), _MIN_SPREAD
    )
    reached = z[1:].max(axis=1, keepdims=True) >= z[:1] - 1e-9
    p[is_known] = (1 + reached.sum(axis=0)) / len(values)
    return p
