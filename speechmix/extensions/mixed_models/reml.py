"""Fit a linear mixed model by REML.

In: responses, fixed effects, and what differs between groups. Out: estimates, standard errors, variances. Fixed effects and
the residual variance follow from the factor L of the covariance of the random effects Z L u, with independent u (Bates et
al. 2015, Fitting linear mixed-effects models using lme4). So nothing is divided by a covariance that may be singular, where
statsmodels 0.15 gives wrong estimates, others on another machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

_SMALLEST = 1e-12  # of the variance of responses that is left unexplained


@dataclass(frozen=True, eq=False)
class RemlFit:
    """A fitted mixed model.

    Parameters
    ----------
    estimate, error : ndarray [terms]
        Fixed effects, and their standard errors by generalised least squares.
    covariances : list of ndarray [effects, effects]
        Of the random effects of each column of groups.
    residual : float
        Variance.
    converged : bool
    """

    estimate: np.ndarray
    error: np.ndarray
    covariances: list[np.ndarray]
    residual: float
    converged: bool


def fit_reml(
    x: np.ndarray, y: np.ndarray, effects: Sequence[tuple[np.ndarray, np.ndarray]]
) -> RemlFit:
    """Fit a linear mixed model.

    Parameters
    ----------
    x : ndarray [rows, terms]
    y : ndarray [rows]
        Of a scale near 1.
    effects : sequence of (codes [rows], values [rows, effects])
        For each column of groups the number of each row's group, and what has another weight in each group. Weights of one
        column are correlated; those of several are independent of each other.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> codes, ones = np.repeat(np.arange(30), 4), np.ones((120, 1))
    >>> fit = fit_reml(ones, 2 + rng.normal(size=30)[codes] + rng.normal(size=120), [(codes, ones)])
    >>> fit.estimate.round().tolist(), fit.converged
    ([2.0], True)
    """
    from scipy.optimize import minimize

    is_correlated = len(effects) == 1
    products = _products(x, y, effects)
    sizes = [values.shape[1] for _, values in effects]
    places = np.tril_indices(sizes[0])
    start = np.eye(sizes[0])[places] if is_correlated else np.ones(sum(sizes))
    repeats = np.repeat([codes.max() + 1 for codes, _ in effects], sizes)

    def factor(parameters: np.ndarray) -> np.ndarray:
        if not is_correlated:
            return np.diag(np.repeat(parameters, repeats))
        lower = np.zeros((sizes[0], sizes[0]))
        lower[places] = parameters
        return lower

    def deviance(parameters: np.ndarray) -> float:
        try:
            return _profile(products, factor(parameters), len(y))[0]
        except np.linalg.LinAlgError:  # variances so large that nothing else is left
            return np.inf

    # A triangle may have any sign on its diagonal: bounds would hold the search at zero.
    bounds = None if is_correlated else [(0.0, None)] * len(start)
    optimum = minimize(deviance, start, method="L-BFGS-B", bounds=bounds)
    optimum = minimize(
        deviance, optimum.x, method="Powell", bounds=bounds, options={"xtol": 1e-6, "ftol": 1e-12}
    )
    _, estimate, information, residual = _profile(products, factor(optimum.x), len(y))
    error = np.sqrt(residual * np.diag(np.linalg.inv(information)))
    if is_correlated:
        covariances = [residual * factor(optimum.x) @ factor(optimum.x).T]
    else:
        parts = np.split(optimum.x, np.cumsum(sizes)[:-1])
        covariances = [residual * np.diag(part**2) for part in parts]
    return RemlFit(estimate, error, covariances, residual, bool(optimum.success))


def _products(
    x: np.ndarray, y: np.ndarray, effects: Sequence[tuple[np.ndarray, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return Z'Z [blocks, q, q], Z'[x y] [blocks, q, terms + 1], [x y]'[x y]; a block is a group, or all of several columns."""
    fixed = np.column_stack([x, y])
    if len(effects) > 1:
        z = np.hstack(
            [
                np.eye(codes.max() + 1)[codes] * column[:, None]
                for codes, values in effects
                for column in values.T
            ]
        )
        return (z.T @ z)[None], (z.T @ fixed)[None], fixed.T @ fixed
    [(codes, values)] = effects
    both = np.column_stack([values, fixed])
    sums = np.zeros((codes.max() + 1, values.shape[1], both.shape[1]))
    np.add.at(sums, codes, values[:, :, None] * both[:, None, :])
    return sums[..., : values.shape[1]], sums[..., values.shape[1] :], fixed.T @ fixed


def _profile(
    products: tuple[np.ndarray, np.ndarray, np.ndarray], factor: np.ndarray, rows: int
) -> tuple[float, np.ndarray, np.ndarray, float]:
    """Return the REML deviance but for a constant, fixed effects, their information and the residual variance."""
    zz, zf, ff = products
    scaled = factor.T @ zz @ factor + np.eye(zz.shape[-1])
    lower = np.linalg.cholesky(scaled)
    rest = np.linalg.solve(lower, factor.T @ zf)
    whole = ff - np.einsum("bqi,bqj->ij", rest, rest)
    information, cross = whole[:-1, :-1], whole[:-1, -1]
    estimate = np.linalg.solve(information, cross)
    freedom = rows - len(estimate)
    unexplained = max(float(whole[-1, -1] - cross @ estimate), _SMALLEST * float(ff[-1, -1]))
    log_determinant = 2 * np.log(np.diagonal(lower, axis1=1, axis2=2)).sum()
    deviance = log_determinant + np.linalg.slogdet(information)[1] + freedom * np.log(unexplained)
    return float(deviance), estimate, information, unexplained / freedom
