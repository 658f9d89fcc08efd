"""Test many means at once, by flipping the signs of groups.

In: one number for each row and group (a difference of two measures). Out: one-sided p, corrected
for all rows.

The test needs no normal distribution, but symmetry: without a difference, the sign of a group's
differences is as likely + as -. Skewed differences of few groups are found too often (lognormal ones
of 12 groups in 15 % of samples at 5 %). Groups are independent.

So the signs of a group are flipped in all rows together, each row's t is computed, and t becomes the
share of flips in which the same row has a t as large: p of the row alone. The corrected p is the share
of flips in which the smallest p of *any* row is as small (smallest p, Westfall & Young 1993). Unlike
the largest t, the smallest p treats rows over many and over few groups alike: a row over few groups
has large values of t by chance, but no small p.
"""

from __future__ import annotations

import itertools
from functools import lru_cache

import numpy as np

_MAX_EXACT_GROUPS, _N_FLIPS = (
    12,
    4999,
)  # groups whose signs are flipped in all ways; flips drawn for more groups
_ROUNDING = 1e-9


def corrected_p(differences: np.ndarray) -> np.ndarray:
    """Return the one-sided p [R] of each row's mean being above zero, corrected for all rows.

    `differences` are [R, G], NaN where a row lacks a group. p is NaN for rows with fewer than two
    groups, and exact up to twelve groups.
    """
    result = np.full(len(differences), np.nan)
    rows = np.isfinite(differences).sum(axis=1) > 1
    if not rows.any():
        return result
    tested_rows = differences[rows]
    tested_rows = tested_rows[:, np.isfinite(tested_rows).any(axis=0)]
    t = _t_values(tested_rows, _sign_flips(tested_rows.shape[1]))  # [flips, R]
    p = np.empty_like(t)
    for row, values in enumerate(t.T):
        count_above = len(values) - np.searchsorted(np.sort(values), values - _ROUNDING)
        p[:, row] = count_above / len(values)
    smallest = np.sort(p.min(axis=1))
    result[rows] = np.searchsorted(smallest, p[0] + _ROUNDING) / len(smallest)
    return result


def _t_values(differences: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """Compute t of each row with each set of signs [flips, R]."""
    counts = np.isfinite(differences).sum(axis=1)
    filled_values = np.nan_to_num(differences)  # a missing group adds nothing to a sum
    scale = np.sqrt((filled_values**2).sum(axis=1) / counts)
    filled_values = (
        filled_values / np.where(scale > 0, scale, 1)[:, None]
    )  # t does not depend on the unit
    means = signs @ filled_values.T / counts
    variances = ((filled_values**2).sum(axis=1) / counts - means**2).clip(1e-12)
    t: np.ndarray = means * np.sqrt((counts - 1) / variances)
    return t


@lru_cache(maxsize=8)  # a simulation asks for the same ones thousands of times
def _sign_flips(count: int) -> np.ndarray:
    """Return sign flips of groups [flips, G], the identity first: all flips, or random ones."""
    if count <= _MAX_EXACT_GROUPS:
        return np.array(list(itertools.product((1.0, -1.0), repeat=count)))
    random_signs = np.random.default_rng(0).choice([1.0, -1.0], size=(_N_FLIPS, count))
    return np.concatenate([np.ones((1, count)), random_signs])
