"""The rank of a trained model among its untrained twins: one exact test of all stacks, layers and measures together.

In: for the trained model and each of T twins one number in each of E cells. A cell is a layer, or a whole stack, of one
measure. Out: for each cell p of "more" and p of "less", corrected for the choice among all cells.

For each model i, m and s are the mean and standard deviation of the *other* T models in a cell:

    z[i, e]     = (x[i, e] - m) / s
    largest[i]  = max over cells of z[i, e]
    z'[e]       = 1 / sqrt( 1 / z[trained, e]^2 + 1 / c[e]^2 )
    p_more[e]   = ( 1 + number of twins with largest >= z'[e] ) / (T + 1)

c is how many standard errors over groups of clips the trained model lies above its twins (`intervals.distance_from_zero`):
weights and clips both vary by chance, and their variances add. With clips that are certain (c infinite) every model is
treated alike. Under the null hypothesis the trained model is one more draw of an untrained one. Its rank among the T + 1
is then uniform (or, through c, cautious), for any distribution of shares, any number of cells and any correlation between
them. The probability that *any* cell without a difference is called "more" is at most the level, also when other cells
truly differ (single-step maximum test, Westfall & Young 1993, Resampling-Based Multiple Testing). "Less" is the same of
-z; there a share is taken on the scale log x / (1 - x), because it cannot fall below zero by many standard deviations. A
cell in which the trained model's layer moves nothing cannot be claimed; the twins' largest value still counts it, which is
cautious.

Not covered: a trained model that varies from clip to clip in another way than its twins. Then false claims of "less" were
found in up to 84 % of simulated studies (docs/calibration.md).

The smallest p is 1 / (T + 1): `TWINS_NEEDED` twins reach 2.5 % in each direction, 5 % in both together.
"""

from __future__ import annotations

import numpy as np

SURE = 0.05  # false claims of one model, in both directions together
TWINS_NEEDED = 39  # 1 / (39 + 1) = SURE / 2
_NO_SHARE = 1e-4  # a share below is taken as this on the logit scale
_SMALLEST_SPREAD = 1e-3  # of percentages and logits: twins that agree to this are taken as this far apart


def rank_p(
    values: np.ndarray,
    clip_distances: np.ndarray | None = None,
    *,
    can_claim: np.ndarray | None = None,
    scale: float | None = None,
) -> np.ndarray:
    """Return p of "more" and of "less" in each cell, corrected over all cells.

    Parameters
    ----------
    values : ndarray [1 + T, E]
        The trained model first, then its twins; every model over the same clips.
    clip_distances : ndarray [2, E], optional
        How many standard errors over groups the trained model lies above, and below, the mean of its twins. Without them clips
        count as certain.
    can_claim : ndarray of bool [E], optional
        Cells that may be claimed; the others get p = 1. All by default.
    scale : float, optional
        The value that stands for a share of one (100 for %), if the values are shares; None for values without bounds.

    Returns
    -------
    ndarray [2, E]
        p of "more", p of "less"; NaN in cells in which a model has no number, or without two twins.

    Examples
    --------
    >>> twins = np.linspace(9, 11, 39)[:, None]
    >>> rank_p(np.concatenate([[[20.0]], twins]), scale=100)
    array([[0.025],
           [1.   ]])
    """
    values = np.asarray(values, dtype=float)
    p = np.full((2, values.shape[1]), np.nan)
    is_known = np.isfinite(values).all(axis=0)
    if len(values) < 3 or not is_known.any():
        return p
    known = values[:, is_known]
    claimable = np.ones(known.shape[1], dtype=bool) if can_claim is None else can_claim[is_known]
    for direction, scores in enumerate((_standardized(known), -_standardized(_logit(known, scale)))):
        trained, largest_of_twins = scores[0], scores[1:].max(axis=1)
        if clip_distances is not None:
            trained = _variances_added(trained, clip_distances[direction][is_known])
        is_reached = largest_of_twins[:, None] >= trained - 1e-9
        p[direction, is_known] = np.where(claimable, (1 + is_reached.sum(axis=0)) / len(values), 1.0)
    return p


def _variances_added(z: np.ndarray, distances: np.ndarray) -> np.ndarray:
    """Both distances as one; the smaller where one of them is not above zero."""
    distances = np.nan_to_num(distances, nan=-np.inf, posinf=np.inf, neginf=-np.inf)
    is_above = (z > 0) & (distances > 0)
    with np.errstate(divide="ignore"):
        both = 1 / np.sqrt(1 / np.where(is_above, z, 1) ** 2 + 1 / np.where(is_above, distances, 1) ** 2)
    return np.where(is_above, both, np.minimum(z, distances))


def _logit(values: np.ndarray, scale: float | None) -> np.ndarray:
    if scale is None:
        return values
    shares = np.clip(values / scale, _NO_SHARE, 1 - _NO_SHARE)
    return np.log(shares / (1 - shares))


def _standardized(values: np.ndarray) -> np.ndarray:
    """Each model's values against the mean and standard deviation of the other models, [M, E] -> [M, E]."""
    others = len(values) - 1
    centred = values - values.mean(axis=0)
    gap = centred * len(values) / others  # x - mean of the others
    squares = (centred**2).sum(axis=0) - centred**2 * len(values) / others
    spread = np.sqrt(np.maximum(squares, 0) / max(others - 1, 1))
    return gap / np.maximum(spread, _SMALLEST_SPREAD)


def twin_limits(means: np.ndarray) -> tuple[float, float]:
    """Return the lowest and the highest of the twins' means; (nan, nan) for fewer than two.

    A further untrained model lies between them with probability (T - 1) / (T + 1), whatever their distribution: 95 % with 39.

    Examples
    --------
    >>> twin_limits(np.array([10.0, 12.0, 11.0]))
    (10.0, 12.0)
    """
    finite = means[np.isfinite(means)]
    return (float(finite.min()), float(finite.max())) if len(finite) > 1 else (np.nan, np.nan)
