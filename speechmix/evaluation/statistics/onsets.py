"""Onset of a rise over training: whether a value rises for good, and at which checkpoint.

In: one number for each cell (a layer, or a whole stack), checkpoint and group of clips, minus that of
an untrained model. Out: the onset of each cell, and whether it may be claimed.

- *Where.* The onset is the first checkpoint from which on the mean stays above `ONSET_SHARE` of its
  final level, the mean of the last `LASTING` checkpoints: a relative criterion, as for onset latencies
  (Kiesel, Miller, Jolicoeur & Brisson 2008, Psychophysiology 45). It does not depend on the unit, so
  onsets of different quantities can be compared.
- *Whether.* A claim needs, in the onset and all later checkpoints, `LASTING` at least: (1) a mean above
  zero, by a sign-flip test that is corrected for all cells and checkpoints (`sign_flips`); (2) a mean
  above that of every checkpoint before the onset, also in size; (3) a mean above `WANDERING` times the
  largest fall from any checkpoint to a later one. Weights wander while they are trained; (1) sees only
  that clips agree, (2) and (3) that the rise is none of many ups and downs. In simulated walks in which
  all clips agree they hold in 0.3 % (autocorrelation 0.8) to 5 % (a random walk of 12 checkpoints).
"""

from __future__ import annotations

import numpy as np

from .bootstrap import percentile_levels, resample_groups
from .intervals import LEVEL
from .sign_flips import corrected_p

ONSET_SHARE = 0.25  # of the final level
WANDERING = 2.0  # largest falls, above which a value must stay
LASTING = 3  # checkpoints that a rise must last
FEWEST_ONSET_GROUPS = 6  # of clips, below which nothing is claimed


def locate_onsets(curves: np.ndarray) -> np.ndarray:
    """Return the checkpoint from which on each curve stays above a share of its final level.

    Parameters
    ----------
    curves : ndarray [..., T]
        Differences from an untrained model, in the order of the steps.

    Returns
    -------
    ndarray [...]
        Index from 0; T where the curve ends below that share, or its final level is not above zero.

    Examples
    --------
    >>> locate_onsets(np.array([[0, 3, 0, 4, 8, 10, 10.0], [0, 0, 0, 0, 0, -1, 0]]))
    array([3, 7])
    """
    count = curves.shape[-1]
    final = curves[..., -LASTING:].mean(axis=-1, keepdims=True)
    is_below = (curves <= ONSET_SHARE * final) | (final <= 0)
    onsets: np.ndarray = (is_below * np.arange(1, count + 1)).max(axis=-1)
    return onsets


def claim_onsets(
    differences: np.ndarray, is_possible: np.ndarray | None = None, *, level: float = LEVEL
) -> np.ndarray:
    """Decide for which cells an onset may be claimed.

    Parameters
    ----------
    differences : ndarray [C, T, G]
        Cells, checkpoints, groups of clips; a group with a NaN is left out of the cell.
    is_possible : ndarray [C, T], optional
        Where a value may count as a rise at all, as above every untrained twin.
    level : float

    Returns
    -------
    ndarray [C] of bool
        Where no cell differs from an untrained model, any is True with a probability of at most
        1 - `level`.

    Examples
    --------
    >>> noise = np.random.default_rng(0).normal(0, 1, (1, 9, 8))
    >>> rise = np.where(np.arange(9) < 4, 0.0, 5.0)[:, None]
    >>> claim_onsets(noise), claim_onsets(noise + rise)
    (array([False]), array([ True]))
    """
    cells, checkpoints, groups = differences.shape
    is_whole = np.isfinite(differences).all(
        axis=1, keepdims=True
    )  # the same groups at all checkpoints
    differences = np.where(is_whole, differences, np.nan)
    p = corrected_p(differences.reshape(-1, groups)).reshape(cells, checkpoints)
    holds = (p <= 1 - level + 1e-9) & (is_whole.sum(axis=-1) >= FEWEST_ONSET_GROUPS)
    if is_possible is not None:
        holds &= is_possible
    means = np.where(is_whole, differences, 0).sum(axis=-1) / is_whole.sum(axis=-1).clip(1)
    return np.array(
        [
            checkpoints - onset >= LASTING
            and row_holds[onset:].all()
            and row[onset:].min() > np.abs(row[:onset]).max(initial=0)
            and row[onset:].min() > WANDERING * (np.maximum.accumulate(row) - row).max()
            for onset, row_holds, row in zip(locate_onsets(means), holds, means, strict=True)
        ],
        dtype=bool,
    )


def draw_onsets(differences: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """Locate onsets in bootstrap samples of the groups.

    Parameters
    ----------
    differences : ndarray [C, T, G]
        Without NaN; the same groups are drawn for all cells.
    seed : int

    Returns
    -------
    ndarray [C, resamples]
        As of `locate_onsets`.
    """
    draws = resample_groups(differences.shape[-1], seed=seed)  # [resamples, G]
    means = differences @ draws.T / differences.shape[-1]  # [C, T, resamples]
    return locate_onsets(np.moveaxis(means, -1, 1))


def limit_draws(draws: np.ndarray, groups: int, *, level: float = LEVEL) -> tuple[float, float]:
    """Return the two percentiles that limit the interval of draws, widened for few groups.

    Examples
    --------
    >>> limit_draws(np.arange(101.0), 10)
    (1.0, 99.0)
    """
    low, high = np.quantile(draws, percentile_levels(groups, level), method="nearest")
    return float(low), float(high)
