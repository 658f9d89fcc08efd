"""Test a term of a regression where groups differ in spread, and few of them decide.

In: responses, predictors and groups. Out: p of a term by least squares with errors that are robust for
groups, small samples and unequal spread: CR2 with Satterthwaite's degrees of freedom (Bell & McCaffrey
2002; Pustejovsky & Tipton 2018). For a mean it is Student's t test of the groups' means. For two sets
of groups t is that of Welch, with degrees of freedom that depend on the design alone: where one set
has two or three groups, Welch's own say too little about their spread.

With X the predictors, e the residuals, H the projection on X, and b the estimate of the term c:

    v_g = (I - H_gg)^(-1/2) X_g (X'X)^-1 c,    t = b / sqrt( sum over g of (v_g' e_g)^2 )

and degrees of freedom tr(P)^2 / tr(P^2), where P[g, h] = v_g' (I - H)_gh v_h.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_DETERMINED = 1 - 1e-9  # a group that alone determines a term: its residuals say nothing


class RobustTest(NamedTuple):
    """A robust test of one term."""

    p: float  # two-sided; 1 if one group alone determines the term
    df: float
    influences: np.ndarray  # of each group's residuals on the estimate, [G]


def robust_test(x: np.ndarray, y: np.ndarray, codes: np.ndarray, term: int) -> RobustTest:
    """Test a term of a regression of y [rows] on x [rows, terms], with groups numbered by `codes`.

    Examples
    --------
    >>> y, is_other = np.array([1.0, 2, 4, 3, 2, 9, 5, 1]), np.array([0, 0, 0, 0, 0, 1, 1, 1])
    >>> found = robust_test(np.column_stack([np.ones(8), is_other]), y, np.arange(8), 1)
    >>> round(found.p, 3), round(found.df, 1)
    (0.329, 4.3)
    """
    from scipy.stats import t as student

    factor = np.linalg.cholesky(np.linalg.inv(x.T @ x))
    basis, weights = x @ factor, factor[term]  # H = basis basis'
    estimate = weights @ (basis.T @ y)
    residuals = y - basis @ (basis.T @ y)
    influences, norms, projections = [], [], []
    for code in np.unique(codes):
        is_group = codes == code
        left, sizes, right = np.linalg.svd(basis[is_group], full_matrices=False)
        shares = right @ weights
        is_determined = sizes >= _DETERMINED
        if (is_determined & (np.abs(shares) > 1e-9 * np.linalg.norm(weights))).any():
            return RobustTest(1.0, 0.0, np.array([]))
        scaled = np.where(
            is_determined, 0, sizes / np.sqrt(1 - np.minimum(sizes, _DETERMINED) ** 2)
        )
        vector = left @ (scaled * shares)
        influences.append(vector @ residuals[is_group])
        norms.append(vector @ vector)
        projections.append(basis[is_group].T @ vector)
    products = np.diag(norms) - np.array(projections) @ np.array(projections).T
    df = np.trace(products) ** 2 / (products**2).sum()
    t = abs(estimate) / np.sqrt(np.sum(np.square(influences)))
    return RobustTest(float(2 * student.sf(t, df)), float(df), np.array(influences))
