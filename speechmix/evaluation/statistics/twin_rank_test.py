"""Test the rank of a trained model among its randomly initialised twins.

In: for the trained model and each of T twins one number in each of E cells, and for each group of
clips the trained model's number and the mean of the twins. A cell is a layer, or a whole stack, of
one measure. Out: for each cell p of "more" and p of "less", corrected for the choice among all
cells.

For each model i, m and s are the mean and standard deviation of the *other* T models in a cell:

    z[i, e]    = (x[i, e] - m) / s
    largest[i] = max over cells of z[i, e]
    p_more[e]  = ( 1 + number of twins with largest >= z[trained, e] ) / (T + 1)

If the trained model is one more draw of an untrained one, its rank among the T + 1 is uniform, for
any distribution of shares, any number of cells and any correlation between them. So the probability
that *any* cell without a difference is called "more" is at most the level, also when other cells
truly differ (single-step maximum test, Westfall & Young 1993, Resampling-Based Multiple Testing).
"Less" is the same of -z; there a share is taken on the scale log x / (1 - x), because it cannot
fall below zero by many standard deviations.

That holds for clips that are given. Other clips would give other numbers, and a trained model
varies more from clip to clip than its twins do. Two steps make the models exchangeable again:

1. *The same clip error for all.* To each twin is added what another sample of clips would have
   added to the trained model: the sum over groups of e[g] (d[g] - mean d) / sqrt(n (n - 1)), where
   d is the difference of the trained model to the mean of the twins, and n the number of groups
   with the one of step 2 (multiplier bootstrap). e[g] = 1 - (a standard exponential number), the
   same in all cells: mean 0, variance 1, third moment -2, so that the sum is skewed as a t
   statistic of skewed clips is (by -2 skewness / sqrt(n)). It is divided by the root of chi-square
   / (n - 1), because the error is itself an estimate. p is the median over `N_CLIP_DRAWS` such draws.
2. *One group more.* A sample may lack a kind of clip. So the trained model gets a further group
   that speaks against the claim: for "more" one with half the share that the twins have in their
   lowest group, for "less" one with twice the share in their highest (at most everything). Of
   values without bounds: one as far on the other side as any group lies from the twins.

A cell in which the trained model's layer moves nothing cannot be claimed; the twins' largest value
still counts it, which is cautious. How often claims are false, in simulation:
`benchmarks/conclusions.py`, docs/calibration.md.

The smallest p is 1 / (T + 1): `TWINS_NEEDED` twins reach 2.5 % in each direction, 5 % in both
together.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

FALSE_CLAIM_RATE = 0.05  # false claims of one model, in both directions together
TWINS_NEEDED = 39  # 1 / (39 + 1) = SURE / 2
N_CLIP_DRAWS = 201  # odd: the median is one of them
_DRAW_BATCH_SIZE = 25  # bounds memory: 25 x 40 models x cells
_MIN_SHARE = 1e-4  # a share below is taken as this on the logit scale
_MIN_SPREAD = (
    1e-3  # of percentages and logits: twins that agree to this are taken as this far apart
)


def rank_p(
    values: np.ndarray,
    by_group: np.ndarray | None = None,
    *,
    can_claim: np.ndarray | None = None,
    scale: float | None = None,
) -> np.ndarray:
    """Return p of "more" and of "less" in each cell, corrected over all cells.

    Parameters
    ----------
    values : ndarray [1 + T, E]
        The trained model first, then its twins; every model over the same clips.
    by_group : ndarray [2, E, G], optional
        In each group of clips the trained model's value, and the mean of its twins; NaN where a
        cell lacks a group. Without them clips count as certain.
    can_claim : ndarray of bool [E], optional
        Cells that may be claimed; the others get p = 1. All by default.
    scale : float, optional
        The value that stands for a share of one (100 for %), if the values are shares; None for
        values without bounds.

    Returns
    -------
    ndarray [2, E]
        p of "more", p of "less"; NaN in cells in which a model has no number, or without two twins
        or two groups.

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
    if by_group is not None:
        by_group = np.asarray(by_group, dtype=float)
        by_group = np.where(np.isfinite(by_group).all(axis=0), by_group, np.nan)
        is_known &= np.isfinite(by_group[0]).sum(axis=1) > 1
    if len(values) < 3 or not is_known.any():
        return p
    is_claimable = np.ones(is_known.sum(), dtype=bool) if can_claim is None else can_claim[is_known]
    for direction, sign in enumerate((1, -1)):
        known_values = values[:, is_known]
        draws_of_models = (
            _draw_clip_errors(known_values, by_group[:, is_known], sign, scale)
            if by_group is not None
            else iter([_transform(known_values, sign, scale)[None]])
        )
        ranks = np.sort(np.concatenate([_ranks(models) for models in draws_of_models]), axis=0)
        p[direction, is_known] = np.where(is_claimable, ranks[len(ranks) // 2] / len(values), 1.0)
    return p


def _ranks(models: np.ndarray) -> np.ndarray:
    """Return 1 + the number of twins whose largest standardised value reaches the trained model's,
    [draws, M, E] -> [draws, E]."""
    z = _standardize(models)
    largest_of_twins = z[:, 1:].max(axis=2)
    ranks: np.ndarray = 1 + (largest_of_twins[:, :, None] >= z[:, :1] - 1e-9).sum(axis=1)
    return ranks


def _draw_clip_errors(
    values: np.ndarray, by_group: np.ndarray, sign: int, scale: float | None
) -> Iterator[np.ndarray]:
    """Yield draws of all models [draws, M, E] in which the twins have the clip error of the trained
    model."""
    from scipy.stats import chi2

    trained_values, twin_values = _append_opposing_group(by_group, sign, scale)
    trained_mean, twins_mean = np.nanmean(trained_values, axis=1), np.nanmean(twin_values, axis=1)
    models = _transform(np.concatenate([trained_mean[None], values[1:]]), sign, scale)
    slopes = (
        _transform_slope(trained_mean, sign, scale)[:, None],
        _transform_slope(twins_mean, sign, scale)[:, None],
    )
    differences = slopes[0] * trained_values - slopes[1] * twin_values
    group_count = np.isfinite(differences).sum(axis=1)
    centred = np.nan_to_num(differences - np.nanmean(differences, axis=1, keepdims=True))
    centred /= np.sqrt(group_count * (group_count - 1))[:, None]
    group_deviations, opposing_deviations = centred[:, :-1], centred[:, -1]
    # The order of groups must not matter, nor their names: the same group gets the same draws.
    group_deviations = group_deviations[:, np.argsort(group_deviations.sum(axis=0), kind="stable")]
    counts, count_index = np.unique(group_count, return_inverse=True)
    degrees_of_freedom = np.maximum(counts - 2, 1)  # the group against is no observation
    random = np.random.default_rng(0)
    for start in range(0, N_CLIP_DRAWS, _DRAW_BATCH_SIZE):
        draw_shape = (min(_DRAW_BATCH_SIZE, N_CLIP_DRAWS - start), len(values) - 1)
        errors = (
            1 - random.standard_exponential((*draw_shape, group_deviations.shape[1]))
        ) @ group_deviations.T
        errors += (
            random.standard_normal((*draw_shape, 1)) * opposing_deviations
        )  # its skewness is not known
        quantiles = random.uniform(size=draw_shape)
        deflation = np.stack(
            [np.sqrt(chi2.ppf(quantiles, df) / df) for df in degrees_of_freedom], axis=-1
        )
        errors /= deflation[..., count_index]
        trained_of_draws = np.broadcast_to(models[:1], (len(errors), *models[:1].shape))
        yield np.concatenate([trained_of_draws, models[1:] + errors], axis=1)


def _append_opposing_group(by_group: np.ndarray, sign: int, scale: float | None) -> np.ndarray:
    """Append the group that a sample may lack to trained model and mean of the twins [2, E, G +
    1]."""
    trained_values, twin_values = by_group
    twin_means = np.nanmean(twin_values, axis=1)
    if scale is None:
        opposing_values = twin_means - sign * np.nanmax(
            np.abs(trained_values - twin_values), axis=1
        )
    elif sign > 0:
        opposing_values = np.nanmin(twin_values, axis=1) / 2
    else:
        opposing_values = np.minimum(scale, 2 * np.nanmax(twin_values, axis=1))
    return np.concatenate([by_group, np.stack([opposing_values, twin_means])[:, :, None]], axis=2)


def _transform(values: np.ndarray, sign: int, scale: float | None) -> np.ndarray:
    """Transform values to the scale of the test, where larger values support the claim."""
    if sign > 0 or scale is None:
        return sign * values
    shares = np.clip(values / scale, _MIN_SHARE, 1 - _MIN_SHARE)
    return -np.log(shares / (1 - shares))


def _transform_slope(values: np.ndarray, sign: int, scale: float | None) -> np.ndarray:
    """Return the derivative of `_transform`."""
    if sign > 0 or scale is None:
        return np.full(len(values), float(sign))
    shares = np.clip(values / scale, _MIN_SHARE, 1 - _MIN_SHARE)
    return -1 / (scale * shares * (1 - shares))


def _standardize(values: np.ndarray) -> np.ndarray:
    """Standardize each model's values by mean and deviation of the other models, [..., M, E]."""
    models = values.shape[-2]
    other_count = models - 1
    centred = values - values.mean(axis=-2, keepdims=True)
    deviations = centred * models / other_count  # x - mean of the others
    squares = (centred**2).sum(axis=-2, keepdims=True) - centred**2 * models / other_count
    spread = np.sqrt(np.maximum(squares, 0) / max(other_count - 1, 1))
    z: np.ndarray = deviations / np.maximum(spread, _MIN_SPREAD)
    return z


def twin_limits(means: np.ndarray) -> tuple[float, float]:
    """Return the lowest and the highest of the twins' means; (nan, nan) for fewer than two.

    A further untrained model lies between them with probability (T - 1) / (T + 1), whatever their
    distribution: 95 % with 39.

    Examples
    --------
    >>> twin_limits(np.array([10.0, 12.0, 11.0]))
    (10.0, 12.0)
    """
    finite_means = means[np.isfinite(means)]
    return (
        (float(finite_means.min()), float(finite_means.max()))
        if len(finite_means) > 1
        else (np.nan, np.nan)
    )
