"""Confidence intervals that also cover with few groups: of means, of proportions, and of
differences of proportions.

In: one number for each independent group of clips. Out: the limits of a 95 % interval, or NaN where
no interval holds.

- Means: the wider of Student's interval and Hall's, which corrects for skewness (Hall 1992, On the
  removal of skewness by transformation, JRSS B). With g the sample skewness divided by the root of
  n, t the Student quantile and s the standard error,

      limit = mean - s h(+-t),   h(t) = 3/g ( cube root(1 + g (t - g/6)) - 1 )

  It covers the mean of normal data in 95 to 97 % of samples and of lognormal data (sigma 1) in 91 %
  from `FEWEST_GROUPS` on (`benchmarks/conclusions.py`). Below that number of groups, and for
  identical values, there is no interval.
- A difference to one more untrained model: `one_more_twin_intervals`, the rule of every comparison
  with twins.
- Proportions: exact binomial limits (Clopper & Pearson 1934), one group as one trial. Means of
  several clips within a group vary less than single trials do, so the limits are then cautious.
- Differences of two proportions: limits combined as by Zou & Donner 2008.

Bootstrap intervals of means over clips that have different numbers of values.

In: a sum and a count for each independent group of clips. Out: the limits of a percentile interval of
sum / count, whose percentiles are widened for few groups as by Hesterberg 2015 (What teachers should
know about the bootstrap, The American Statistician 69): with n groups those at

    Phi(-+ sqrt(n / (n - 1)) t),   t the Student quantile of n - 1 degrees of freedom

In simulations it covered the mean of normal data in 91 % of samples of 5 groups and in 94 % of 30.

Test many means at once, by flipping the signs of groups.

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

Test many numbers against those of shuffled data at once.

In: one number for each cell, of the data and of each shuffle. Out: one-sided p of each cell,
corrected for all cells.

If the order of the data means nothing, the data are one more shuffle. So each cell is standardised
by the data and the shuffles together, and a shuffle counts with its *largest* value over all cells:
looking at many cells gives no advantage (single-step maximum test; Westfall & Young 1993,
Resampling-Based Multiple Testing).

    p[cell] = ( 1 + number of shuffles whose largest value reaches the cell's ) / (S + 1)
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import pandas as pd

Numbers: TypeAlias = "Sequence[float] | np.ndarray | pd.Series"

LEVEL = 0.95
FEWEST_GROUPS = 8  # below which an interval of a mean covers less than 90 % of skewed samples
# Shortest and longest side of Hall's interval, in sides of Student's.
_WIDER_OF_BOTH, _OF_TWINS = (1.0, np.inf), (0.6, 2.0)
UNBOUNDED = (-np.inf, np.inf)
CORRELATION_BOUNDS = (-1.0, 1.0)


def mean_interval(
    values: Numbers, *, level: float = LEVEL, bounds: tuple[float, float] = UNBOUNDED
) -> tuple[float, float]:
    """Return the confidence interval of a mean over independent groups.

    NaN are left out; (nan, nan) for fewer than `FEWEST_GROUPS` values or identical ones. `bounds`
    are the smallest and largest value that the mean can have; the interval ends there.
    """
    low, high = mean_intervals(np.asarray(values, dtype=float)[None], level=level, bounds=bounds)
    return float(low[0]), float(high[0])


def mean_intervals(
    values: np.ndarray,
    *,
    level: float | np.ndarray = LEVEL,
    bounds: tuple[float, float] = UNBOUNDED,
    sides: tuple[float, float] = _WIDER_OF_BOTH,
) -> tuple[np.ndarray, np.ndarray]:
    """Return `mean_interval` of each row, [rows, groups] -> low [rows], high [rows]; NaN are left
    out row by row. Each row may have its own level.

    `sides` limits Hall's correction, in sides of Student's interval.
    """
    from scipy.special import stdtrit

    count, mean, error, g = _moments(np.atleast_2d(np.asarray(values, dtype=float)))
    with np.errstate(invalid="ignore"):
        quantile = stdtrit(count - 1, (1 + level) / 2)
        below, above = _inverse_hall(quantile, g), -_inverse_hall(-quantile, g)
        shortest, longest = (side * quantile for side in sides)
        low = mean - np.clip(below, shortest, longest) * error
        high = mean + np.clip(above, shortest, longest) * error
    has_no_interval = (count < FEWEST_GROUPS) | ~(error > 0)
    low, high = np.clip(low, *bounds), np.clip(high, *bounds)
    return np.where(has_no_interval, np.nan, low), np.where(has_no_interval, np.nan, high)


def _moments(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return for each row [rows, groups]: count of finite values, mean, standard error, skewness /
    sqrt(n)."""
    is_finite = np.isfinite(values)
    count = is_finite.sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = np.where(is_finite, values, 0).sum(axis=1) / count
        centred = np.where(is_finite, values - mean[:, None], 0)
        second, third = (centred**2).sum(axis=1) / count, (centred**3).sum(axis=1) / count
        error = np.sqrt(second / (count - 1))
        error = np.where(
            error > 1e-12 * np.abs(np.where(is_finite, values, 0)).max(axis=1, initial=0), error, 0
        )
        g = np.sqrt(count - 1) / (count - 2) * third / second**1.5
    return count, mean, error, np.where(np.isfinite(g), g, 0)


def _inverse_hall(t: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Apply the inverse of Hall's cubic transformation t + g t^2 / 3 + g^2 t^3 / 27 + g / 6 of a t
    statistic."""
    is_symmetric = np.abs(g) < 1e-9
    safe = np.where(is_symmetric, 1.0, g)
    return np.where(is_symmetric, t, 3 / safe * (np.cbrt(1 + safe * (t - safe / 6)) - 1))


def proportion_interval(
    successes: float, trials: float, *, level: float = LEVEL
) -> tuple[float, float]:
    """Return the exact binomial interval of a proportion (0 to 1); (nan, nan) without a trial.

    Successes and trials are whole numbers, or sums of means of groups.
    """
    from scipy.special import betaincinv

    if not trials > 0:
        return np.nan, np.nan
    tail, failures = (1 - level) / 2, trials - successes
    low = 0.0 if successes <= 0 else float(betaincinv(successes, failures + 1, tail))
    high = 1.0 if successes >= trials else float(betaincinv(successes + 1, failures, 1 - tail))
    return low, high


def difference_interval(
    losses: float, gains: float, trials: float, *, level: float = LEVEL
) -> tuple[float, float]:
    """Return the interval of (losses - gains) / trials, from the exact interval of each.

    No clip is both lost and won, so the two shares are negatively correlated, the more the larger
    they are: their errors add by the rule of Zou & Donner (2008) for correlated estimates. Losses
    and gains are sums over groups of the share of clips that were lost, and won; trials are groups.
    """
    if not trials > 0:
        return np.nan, np.nan
    loss_share, gain_share = losses / trials, gains / trials
    (lost_low, lost_high), (won_low, won_high) = (
        proportion_interval(count, trials, level=level) for count in (losses, gains)
    )
    odds = [share / max(1 - share, np.finfo(float).tiny) for share in (loss_share, gain_share)]
    correlation = min(1.0, np.sqrt(odds[0] * odds[1]))  # with its sign reversed, of a difference

    def add_errors(first: float, second: float) -> float:
        return float(np.sqrt(first**2 + second**2 + 2 * correlation * first * second))

    difference = loss_share - gain_share
    return (
        float(difference - add_errors(loss_share - lost_low, won_high - gain_share)),
        float(difference + add_errors(lost_high - loss_share, gain_share - won_low)),
    )


def one_more_twin_intervals(
    differences: np.ndarray, twin_means: np.ndarray, *, rows: int | np.ndarray = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Return the intervals of the difference to one more untrained model, 95 % together over
    `rows`.

    Both the clips and the twin are draws (Clark 1973). The twins are few, so a further one is
    judged by Student's t (Crawford & Howell 1998); the two errors add in squares (Zou & Donner
    2008):

        difference -+ sqrt( clips^2 + (t[T - 1] s)^2 (1 + 1/T) )

    where `clips` is the half width of the differences' interval over groups (Hall's; each side at
    least .6 and at most 2 times Student's, because Hall's limits explode with few groups), and s
    the standard deviation of the T twins' means. Both parts have the level 1 - .05 / rows
    (Bonferroni).

    `differences` [R, G] are the model minus the mean of its twins by row and group of clips, and
    `twin_means` [R, T] the mean of each twin; NaN are left out. Low and high [R] are NaN with fewer
    than two twins, or fewer than `FEWEST_GROUPS` groups.
    """
    level = 1 - (1 - LEVEL) / rows
    twins_low, twins_high = twin_bands(twin_means, rows=rows)
    reach = (twins_high - twins_low) / 2
    mean = _moments(np.atleast_2d(np.asarray(differences, dtype=float)))[1]
    low, high = mean_intervals(differences, level=level, sides=_OF_TWINS)
    return mean - np.hypot(mean - low, reach), mean + np.hypot(high - mean, reach)


def twin_bands(
    twin_means: np.ndarray, *, rows: int | np.ndarray = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Return where one more untrained model lies with 95 %, together over `rows`, on the same clips.

        mean of the twins -+ t[T - 1] s sqrt(1 + 1/T)

    Parameters
    ----------
    twin_means : ndarray [R, T]
        The mean of each twin; NaN are left out.
    rows : int or ndarray [R]

    Returns
    -------
    low, high : ndarray [R]
        NaN with fewer than two twins.

    Examples
    --------
    >>> low, high = twin_bands(np.array([[9.0, 10, 11, 10, 9.5, 10.5]]))
    >>> low.round(1), high.round(1)
    (array([8.]), array([12.]))
    """
    from scipy.special import stdtrit

    level = 1 - (1 - LEVEL) / rows
    count, mean, error, _ = _moments(np.atleast_2d(np.asarray(twin_means, dtype=float)))
    with np.errstate(invalid="ignore", divide="ignore"):
        # `error` is that of the mean, s / sqrt(T): s^2 (1 + 1/T) = error^2 (T + 1)
        reach = stdtrit(count - 1, (1 + level) / 2) * error * np.sqrt(count + 1)
    reach = np.where(count > 1, reach, np.nan)
    return mean - reach, mean + reach


_RESAMPLES = 2000
MIN_GROUPS = 5  # below which an interval would promise too much


def bootstrap_interval(
    sums: np.ndarray, counts: np.ndarray, *, level: float = LEVEL, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the interval of a ratio of sums over groups; NaN for fewer than five groups.

    `sums` is [..., groups], `counts` [groups] or [..., groups], low and high are [...]. The same
    groups are drawn for all rows, so that differences of two rows give paired intervals.
    """
    n_groups = sums.shape[-1]
    if n_groups < MIN_GROUPS:
        return np.full(sums.shape[:-1], np.nan), np.full(sums.shape[:-1], np.nan)
    draws = resample_groups(n_groups, seed=seed)
    with np.errstate(invalid="ignore", divide="ignore"):
        means = (sums @ draws.T) / (counts @ draws.T)  # [..., resamples]
    low, high = np.nanquantile(means, percentile_levels(n_groups, level), axis=-1)
    return low, high


def resample_groups(n_groups: int, *, seed: int = 0) -> np.ndarray:
    """Draw how often each group is in each resample, [resamples, groups]."""
    shares = np.full(n_groups, 1 / n_groups)
    return np.random.default_rng(seed).multinomial(n_groups, shares, size=_RESAMPLES)


def percentile_levels(n_groups: int, level: float = LEVEL) -> np.ndarray:
    """Return the two widened percentiles (0 to 1) that limit an interval."""
    from scipy.special import ndtr, stdtrit

    quantile = stdtrit(n_groups - 1, (1 + level) / 2) * np.sqrt(n_groups / (n_groups - 1))
    levels: np.ndarray = ndtr([-quantile, quantile])
    return levels


# Groups whose signs are flipped in all ways; flips drawn for more groups.
_MAX_EXACT_GROUPS, _N_FLIPS = 12, 4999
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
