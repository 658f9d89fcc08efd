"""Where responses along a continuum cross 50 %.

In: mean responses of groups of items at each step. Out: the crossing, with its interval where one holds:

    five groups or more   of p = 1 / (1 + exp(-b0 - b1 x)), fitted to the mean responses by maximum likelihood; the interval is
                          a bootstrap over groups (`bootstrap_interval`)
    fewer                 between two steps, by linear interpolation; without an interval

A crossing is reported only if there is one: the mean responses cross 50 % once, the interval of b1 excludes zero, and the fit
is nowhere more than `MISFIT` from a mean response. Where they cross several times, the sentence names all of these values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import expit

from ...evaluation.statistics.intervals import MIN_GROUPS, percentile_levels, resample_groups

_SMALLEST_CHANGE = 1e-4  # of a response; below it is the rounding of another input
MISFIT = 0.1  # of a response, above which the fit does not describe the means
_RIDGE, _NEWTON_STEPS = 1e-4, 30


def find_crossing(values: Sequence[float] | np.ndarray, responses: np.ndarray) -> dict[str, Any]:
    """Find where mean responses [groups, S], from 0 to 1, at values [S] cross 50 %.

    Returns
    -------
    dict
        The columns of `ResponseCurve.crossings`; NaN where there is no crossing, or no interval.

    Examples
    --------
    >>> find_crossing([0, 1, 2], np.array([[0.9, 0.7, 0.1]]))["conclusion"]
    'crossing at 1.33; no interval: it needs 5 groups of continua, found 1'
    """
    x, means, count = np.asarray(values, float), responses.mean(axis=0), len(responses)
    crossings = _interpolate_crossings(x, means)
    intercept, slope = _fit_logistic(x, means[None])[0]
    crossing = low = high = misfit = np.nan
    reason, interval = "", f"; no interval: it needs {MIN_GROUPS} groups of continua, found {count}"
    if not len(crossings):
        reason = "no crossing: all mean responses are on one side of 50 %"
    elif np.ptp(means) < _SMALLEST_CHANGE:
        reason = "no crossing: the mean responses do not change"
    elif len(crossings) > 1:
        places = ", ".join(f"{value:.3g}" for value in crossings)
        reason = (
            f"no single crossing: the mean responses cross 50 % {len(crossings)} times, at {places}"
        )
    elif count < MIN_GROUPS:
        crossing = crossings[0]
    else:
        fits = _fit_logistic(x, resample_groups(count) @ responses / count)
        levels = percentile_levels(count)
        slope_low, slope_high = np.quantile(fits[:, 1], levels)
        misfit = float(abs(means - expit(intercept + slope * x)).max())
        if slope_low <= 0 <= slope_high or not x.min() <= -intercept / slope <= x.max():
            reason = "no crossing: no change of the responses along the steps is shown"
        elif misfit > MISFIT:
            reason = (
                f"no crossing: the fitted curve is up to {misfit:.0%} off the mean responses, which "
                f"cross 50 % at {crossings[0]:.3g}"
            )
        else:
            crossing = -intercept / slope
            low, high = np.quantile(-fits[:, 0] / fits[:, 1], levels)
            low, high = (-np.inf if low < x.min() else low), (np.inf if high > x.max() else high)
            interval = f" [{low:.3g}, {high:.3g}]"
    conclusion = reason or f"crossing at {crossing:.3g}{interval}"
    numbers = {"crossing": crossing, "low": low, "high": high, "slope": slope}
    return {**numbers, "misfit": misfit, "groups": count, "conclusion": conclusion}


def _interpolate_crossings(values: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Return where lines between mean responses [S] cross 50 %, in the order of the steps."""
    before = np.flatnonzero(np.diff(means > 0.5))
    shares = (0.5 - means[before]) / (means[before + 1] - means[before])
    crossings: np.ndarray = values[before] + shares * (values[before + 1] - values[before])
    return crossings


def _fit_logistic(values: np.ndarray, responses: np.ndarray) -> np.ndarray:
    """Fit intercept and slope [R, 2] to responses [R, S] by Newton's method, with a slight ridge."""
    centre, scale = values.mean(), np.ptp(values) / 2
    design = np.stack([np.ones(len(values)), (values - centre) / scale], axis=1)
    fits = np.zeros((len(responses), 2))
    for _ in range(_NEWTON_STEPS):
        p = expit(fits @ design.T)
        gradient = (responses - p) @ design - _RIDGE * fits
        curvature = np.einsum("rs,si,sj->rij", p * (1 - p), design, design) + _RIDGE * np.eye(2)
        steps = np.linalg.solve(curvature, gradient[..., None])[..., 0]
        fits += steps * np.minimum(1, 4 / np.maximum(np.linalg.norm(steps, axis=1), 1e-9))[:, None]
    slopes = fits[:, 1] / scale
    return np.stack([fits[:, 0] - slopes * centre, slopes], axis=1)
