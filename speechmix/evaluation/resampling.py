"""Bootstrap and permutation test of means over many groups: the draws as a matrix, for all rows at once, in little memory.

In: values [groups, rows], a number for each group in each row (layer). Out: limits of the percentile bootstrap, and two-sided p
of the test that flips signs. A mean over resampled groups is a product with how often each was drawn, so one set of draws
serves every row:

    mean[b, l] = 1/n sum_g count[b, g] value[g, l]        null[b, l] = 1/n sum_g sign[b, g] value[g, l]

`statistics` takes it where there are more than `MANY_GROUPS`; up to there scipy's, which draws for each row.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

MANY_GROUPS = 1000
_MOST_DRAWN = 2**20  # numbers at a time
_ROUNDING = 1e-12  # of the mean size of the values: sums that differ by less are equally far from zero


def bootstrap_limits(
    values: np.ndarray, *, level: float, resamples: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Limits of the percentile bootstrap of each row's mean, [groups, rows] -> low [rows], high [rows].

    The draws are those of ``scipy.stats.bootstrap(..., method="percentile", rng=seed)``, so are the limits, but for rounding.

    Examples
    --------
    >>> low, high = bootstrap_limits(np.arange(2000.0)[:, None], level=0.95, resamples=500)
    >>> bool(970 < low[0] < 999.5 < high[0] < 1030)
    True
    """
    groups, rng, means = len(values), np.random.default_rng(seed), []
    for batch in _batches(resamples, groups):
        drawn = rng.integers(0, groups, (batch, groups))
        counts = np.empty((batch, groups))
        for place, row in enumerate(drawn):
            counts[place] = np.bincount(row, minlength=groups)
        means.append(counts @ values / groups)
    tail = 100 * (1 - level) / 2
    low, high = np.percentile(np.concatenate(means), [tail, 100 - tail], axis=0)
    return low, high


def sign_flip_p(values: np.ndarray, *, permutations: int, seed: int = 0) -> np.ndarray:
    """Two-sided p of each row's mean by a permutation test that flips the signs of groups, [groups, rows] -> [rows].

    Signs are drawn at random, so the observed ones count as one of the draws: (extreme + 1) / (permutations + 1), the smaller
    side twice. These are not scipy's draws, which would take minutes. NaN for a row with a number that is not finite.

    Examples
    --------
    >>> values = np.random.default_rng(1).normal(0.1, 1.0, (2000, 1))
    >>> bool(sign_flip_p(values, permutations=4999)[0] < 0.01)
    True
    """
    groups, rng = len(values), np.random.default_rng(seed)
    is_finite = np.isfinite(values).all(axis=0)
    values = values if is_finite.all() else np.where(is_finite, values, 0.0)
    observed, total = values.mean(axis=0), values.sum(axis=0)
    reach = _ROUNDING * np.abs(values).mean(axis=0)
    above, below = np.zeros(values.shape[1], dtype=int), np.zeros(values.shape[1], dtype=int)
    for batch in _batches(permutations, groups):
        bits = rng.integers(0, 256, (batch, -(-groups // 8)), dtype=np.uint8)
        is_plus = np.unpackbits(bits, axis=1, count=groups).astype(float)
        null = (2 * (is_plus @ values) - total) / groups
        above += (null >= observed - reach).sum(axis=0)
        below += (null <= observed + reach).sum(axis=0)
    p = np.minimum(2 * (np.minimum(above, below) + 1) / (permutations + 1), 1.0)
    return np.where(is_finite, p, np.nan)


def _batches(draws: int, groups: int) -> Iterator[int]:
    """How many draws at a time."""
    most = max(_MOST_DRAWN // groups, 1)
    yield from (min(most, draws - start) for start in range(0, draws, most))
