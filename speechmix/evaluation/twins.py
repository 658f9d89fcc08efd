"""Against untrained models: random twins are draws too, like clips, and a claim must hold for draws of both.

What a claim means: this model's contribution lies outside what untrained models of its architecture give on clips like these.
The means m_s of n twins over the same groups of clips are draws of one distribution, and under the null hypothesis the trained
model's mean is one more. So, with s their standard deviation,

    t = (trained - mean m) / ( s sqrt(1 + 1/n) )                n - 1 degrees of freedom
    a new twin lies, 95 of 100 times, within   mean m -+ t_.975 s sqrt(1 + 1/n)

Groups of clips cancel in it, for all models heard the same ones; that the difference is one of clips in general, and not of a
few, is a second test (`statistics.permutation_p`). A claim needs both: its p is the larger one (an intersection-union test;
`statistics.trained_against_random` makes it). One twin says nothing about how much the draw matters: no p, and no claim.
Two models of different architecture are compared by their gains over their own twins: two such draws, and Welch's t test.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd

Numbers: TypeAlias = "Sequence[float] | np.ndarray | pd.Series"

_LEVEL = 0.95


def new_twin_interval(means: Numbers) -> tuple[float, float]:
    """95 % prediction interval of the mean of a new untrained model; (nan, nan) for fewer than two twins.

    Parameters
    ----------
    means : sequence of float [n]
        One mean for each twin, over the same groups of clips.

    Examples
    --------
    >>> low, high = new_twin_interval([10.0, 11.0, 12.0])
    >>> round(low, 2), round(high, 2)
    (6.03, 15.97)
    """
    finite, reach = _finite(means), new_twin_reach(means)
    return (float(finite.mean() - reach), float(finite.mean() + reach)) if len(finite) > 1 else (np.nan, np.nan)


def new_twin_reach(means: Numbers) -> float:
    """How far from the mean of twins a new one lies, 95 of 100 times; NaN for fewer than two.

    Examples
    --------
    >>> round(new_twin_reach([10.0, 11.0, 12.0]), 2)
    4.97
    """
    finite = _finite(means)
    return smallest_claim(len(finite)) * float(finite.std(ddof=1)) if len(finite) > 1 else np.nan


def _finite(means: Numbers) -> np.ndarray:
    numbers = np.asarray(means, dtype=float)
    return numbers[np.isfinite(numbers)]


def new_twin_p(mean: float, means: Numbers) -> float:
    """Two-sided p of a model's mean as one more draw of an untrained model; NaN for fewer than two twins.

    Where all twins give exactly the same, as a causal layer that cannot see the cue, another number has p = 0.

    Examples
    --------
    >>> round(new_twin_p(16.0, [10.0, 11.0, 12.0]), 3)
    0.049
    """
    from scipy.stats import t

    finite = _finite(means)
    count = len(finite)
    if count < 2 or not np.isfinite(mean):
        return np.nan
    distance, spread = abs(mean - finite.mean()), finite.std(ddof=1) * np.sqrt(1 + 1 / count)
    if spread == 0:
        return 1.0 if distance == 0 else 0.0
    return float(2 * t.sf(distance / spread, count - 1))


def combined_p(p: Numbers) -> float:
    """One p for "in some layer", by the Cauchy combination, which holds however the layers depend on each other.

        p = 1/2 - arctan( mean tan( (1/2 - p_l) pi ) ) / pi

    Liu & Xie 2020, Cauchy Combination Test, JASA. Missing ones are left out; NaN if all are.

    Examples
    --------
    >>> round(combined_p([0.04, 0.04, 0.04]), 3), round(combined_p([0.001, 0.5, 0.9]), 3)
    (0.04, 0.003)
    """
    finite = _finite(p).clip(1e-15, 1 - 1e-15)
    if not len(finite):
        return np.nan
    return float(0.5 - np.arctan(np.tan((0.5 - finite) * np.pi).mean()) / np.pi)


def two_gains(gap: float, means: Numbers, other_means: Numbers) -> tuple[float, float]:
    """Two models' gains over their own twins: p of their gap if both are untrained, and its reach.

    Parameters
    ----------
    gap : float
        Gain of the first less gain of the second.
    means, other_means : sequence of float
        One mean for each twin of the first, and of the second.

    Returns
    -------
    p, reach : float
        By Welch's t test, each gain with the variance of a new twin, s^2 (1 + 1/n); the gap of two untrained models
        lies within the reach of zero 95 of 100 times. NaN for fewer than two twins of either.

    Examples
    --------
    >>> p, reach = two_gains(8.0, [10.0, 11.0, 12.0], [20.0, 21.0, 22.0])
    >>> round(p, 3), round(reach, 2)
    (0.008, 4.53)
    """
    from scipy.stats import t

    parts = [_finite(means), _finite(other_means)]
    if min(map(len, parts)) < 2 or not np.isfinite(gap):
        return np.nan, np.nan
    variances = np.array([part.var(ddof=1) * (1 + 1 / len(part)) for part in parts])
    if not variances.any():
        return (1.0 if gap == 0 else 0.0), 0.0
    spread = np.sqrt(variances.sum())
    freedom = variances.sum() ** 2 / sum(v**2 / (len(part) - 1) for v, part in zip(variances, parts, strict=True))
    return float(2 * t.sf(abs(gap) / spread, freedom)), float(t.ppf((1 + _LEVEL) / 2, freedom) * spread)


def crossed_interval(difference: float, low: float, high: float, reach: float) -> tuple[float, float]:
    """95 % interval of a difference trained - random, over groups of clips *and* draws of untrained models.

    Parameters
    ----------
    difference, low, high : float
        With its interval over groups of clips.
    reach : float
        `new_twin_reach`.

    Notes
    -----
    Both ways to be wrong add in squares (Zou & Donner 2008, Construction of confidence limits about effect measures, Statistics
    in Medicine): the interval reaches sqrt(a^2 + b^2), a to the limit over groups, b to that of a new twin. What clips add
    to a twin's mean is in both, so it is a little too wide. (nan, nan) where there is no reach.

    Examples
    --------
    >>> crossed_interval(5.0, 2.0, 8.0, 4.0)
    (0.0, 10.0)
    """
    if not np.isfinite(reach):
        return np.nan, np.nan
    return (
        float(difference - np.hypot(difference - low, reach)),
        float(difference + np.hypot(high - difference, reach)),
    )


def smallest_claim(count: int) -> float:
    """How many standard deviations of the twins a difference must have to be claimed at 5 %, with so many twins.

    Examples
    --------
    >>> [round(smallest_claim(count), 1) for count in (2, 3, 5, 10, 20)]
    [15.6, 5.0, 3.0, 2.4, 2.1]
    """
    from scipy.stats import t

    return float(t.ppf((1 + _LEVEL) / 2, count - 1) * np.sqrt(1 + 1 / count)) if count > 1 else float("inf")
