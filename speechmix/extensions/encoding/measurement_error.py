"""Features measured with error: can a correlated feature explain a contribution away?

Where states depend on duration alone, but duration is measured with error, a feature that is correlated
with duration predicts the part of duration that the measurement misses, and looks present (Westfall &
Yarkoni 2016, Statistically controlling for confounding constructs is harder than you think). Its
contribution is that feature's own only if it is left when the error is taken into account.

In: sets of features, and the reliability of each column: the share of its variance that is no error.
Out: the sets by regression calibration (Carroll et al. 2006, Measurement error in nonlinear models,
chapter 4): a measured value w becomes the expectation of the true value, given all features,

    w - e / s^2 (w - w'),    at most w'

where w' is the prediction of w from all other columns, s^2 the variance of w - w', and e that of the
error, (1 - reliability) times the variance of w.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

LOWEST_RELIABILITY = 0.7  # that is commonly accepted (Nunnally 1978, Psychometric theory)
ERROR_STEPS = tuple(np.linspace(0, 1, 7)[1:])  # of the error: a reliability of .95, .9, ..., .7
CORRELATED = 0.5  # from which on features are said to go together


def calibrate_features(
    sets: Mapping[str, np.ndarray], reliability: Mapping[str, np.ndarray], *, step: float = 1.0
) -> dict[str, np.ndarray]:
    """Return sets of features as they are expected to be without measurement error.

    Parameters
    ----------
    sets : mapping of str to ndarray [N, P]
    reliability : mapping of str to ndarray [P]
        Of each column.
    step : float
        How much of the error there is.

    Examples
    --------
    >>> duration, frequency = np.array([[1.0], [2], [3], [4]]), np.array([[1.0], [1], [2], [2]])
    >>> sets = {"a": duration, "b": frequency}
    >>> calibrate_features(sets, {"a": np.array([0.5]), "b": np.array([1.0])})["a"].ravel()
    array([1.5, 1.5, 3.5, 3.5])
    """
    names = [name for name, columns in sets.items() for _ in range(columns.shape[1])]
    errors = step * (1 - np.concatenate([reliability[name] for name in sets]))
    columns = np.hstack(list(sets.values()))
    calibrated = columns.copy()
    for index in np.flatnonzero(errors > 0):
        rest = columns[:, index] - _predict(np.delete(columns, index, axis=1), columns[:, index])
        freedom = max(len(columns) - columns.shape[1], 1)
        unexplained = (rest**2).sum() / freedom
        error = errors[index] * columns[:, index].var()
        calibrated[:, index] -= rest * min(1.0, error / max(unexplained, np.finfo(float).tiny))
    owners = np.array(names)
    return {name: calibrated[:, owners == name] for name in sets}


def multiple_correlation(columns: np.ndarray, values: np.ndarray) -> float:
    """Return how closely values [N] follow columns [N, P]: the root of the adjusted R^2; 0 to 1.

    Examples
    --------
    >>> multiple_correlation(np.arange(9.0)[:, None], 2 * np.arange(9.0))
    1.0
    """
    total = ((values - values.mean()) ** 2).sum()
    freedom = len(values) - columns.shape[1] - 1
    if not total > 0 or freedom < 1:
        return 0.0
    unexplained = ((values - _predict(columns, values)) ** 2).sum() / total
    adjusted = 1 - unexplained * (len(values) - 1) / freedom
    return float(np.sqrt(max(adjusted, 0.0)).round(12))


def _predict(columns: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the least-squares prediction of values [N] from columns [N, P] and a constant."""
    inputs = np.column_stack([np.ones(len(values)), columns])
    predicted: np.ndarray = inputs @ np.linalg.lstsq(inputs, values, rcond=None)[0]
    return predicted
