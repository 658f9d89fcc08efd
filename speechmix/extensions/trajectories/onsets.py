"""Onset of a rise over training: whether a value rises for good, and at which checkpoint.

In: one number for each cell (a layer, or a whole stack), checkpoint and group of clips, minus that of
an untrained model. Out: the onset of each cell, and whether it may be claimed.

- *Where.* The onset is the first checkpoint from which on the mean stays above `ONSET_SHARE` of its
  final level, the mean of the last `LASTING` checkpoints: a relative criterion, as for onset latencies
  (Kiesel, Miller, Jolicoeur & Brisson 2008, Psychophysiology 45). It does not depend on the unit, so
  onsets of different quantities can be compared.
- *Whether.* Two things could pass for a rise, and a claim excludes both, at the level .05 / number of
  cells (Bonferroni):

  1. The clips. At the onset and all later checkpoints, `LASTING` at least, the interval of the mean
     over groups lies above zero: that of `mean_intervals`, or without a checkpoint of step 0 that to
     one more untrained model.
  2. The training. Weights wander, and all clips with them. The lowest value from the onset on is
     divided by the largest fall from any checkpoint to a later one. p is the share of random walks
     with as large a ratio (Monte Carlo test; Dwass 1957): their increments have Student's t
     distribution with 3 degrees of freedom, for single large steps, times the root of the training
     steps between two checkpoints.

A walk of T checkpoints never falls with a probability of 2^-(T - 1). So of few checkpoints nothing can
be claimed (`fewest_checkpoints`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from ...evaluation.statistics.claim_rule import FEWEST_CLAIM_GROUPS
from ...evaluation.statistics.intervals import (
    LEVEL,
    mean_intervals,
    one_more_twin_intervals,
    percentile_levels,
    resample_groups,
)

ONSET_SHARE = 0.25  # of the final level
LASTING = 3  # checkpoints that a rise must last
_WALKS, _WALK_BATCH = 100_000, 10_000
_WALK_DF = 3  # degrees of freedom of a walk's increments


def fewest_checkpoints(cells: int) -> int:
    """Return the number of checkpoints, step 0 included, below which no rise can be claimed.

    Examples
    --------
    >>> [fewest_checkpoints(cells) for cells in (1, 9, 54)]
    [6, 9, 12]
    """
    return int(np.ceil(np.log2(cells / (1 - LEVEL)))) + 1


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
    differences: np.ndarray,
    is_possible: np.ndarray | None = None,
    *,
    steps: Sequence[float] | None = None,
    twin_means: np.ndarray | None = None,
    cells: int | np.ndarray | None = None,
) -> np.ndarray:
    """Decide for which cells an onset may be claimed.

    Parameters
    ----------
    differences : ndarray [C, T, G]
        Cells, checkpoints, groups of clips; a group with a NaN is left out of the cell. Minus the
        first checkpoint, which is untrained; or with `twin_means` minus the mean of the twins.
    is_possible : ndarray [C, T], optional
        Where a value may count as a rise at all, as above every untrained twin.
    steps : sequence of float [T], optional
        Of the training; by default checkpoints are at equal distances.
    twin_means : ndarray [C, twins], optional
        The mean of each twin, where no checkpoint is untrained.
    cells : int or ndarray [C], optional
        With how many cells each is corrected; by default C.

    Returns
    -------
    ndarray [C] of bool
        Where no cell rises, any is True with a probability of at most about .05.

    Examples
    --------
    >>> noise = np.random.default_rng(0).normal(0, 1, (1, 12, 15))
    >>> rise = np.where(np.arange(12) < 4, 0.0, 5.0)[:, None]
    >>> claim_onsets(noise), claim_onsets(noise + rise)
    (array([False]), array([ True]))
    """
    count, checkpoints, groups = differences.shape
    cells = np.broadcast_to(count if cells is None else cells, count)
    rows = np.repeat(cells, checkpoints)
    steps = range(1, checkpoints + 1) if steps is None else steps
    # The same groups at all checkpoints.
    is_whole = np.isfinite(differences).all(axis=1, keepdims=True)
    group_count = is_whole.sum(axis=-1)
    curves = np.where(is_whole, differences, 0).sum(axis=-1) / group_count.clip(1)
    values = np.where(is_whole, differences, np.nan).reshape(-1, groups)
    if twin_means is None:
        low = mean_intervals(values, level=1 - (1 - LEVEL) / rows)[0]
        p = _walk_p(curves, steps)
    else:
        means_of_rows = np.repeat(twin_means, checkpoints, axis=0)
        low = one_more_twin_intervals(values, means_of_rows, rows=rows)[0]
        p = _walk_p(np.pad(curves, ((0, 0), (1, 0))), [0, *steps])  # from the untrained model on
    is_above = low.reshape(count, checkpoints) > 0
    if is_possible is not None:
        is_above &= is_possible
    is_before = np.arange(checkpoints) < locate_onsets(curves)[:, None]
    claim = (is_above | is_before).all(axis=1) & (p <= (1 - LEVEL) / cells)
    claim &= group_count[:, 0] >= FEWEST_CLAIM_GROUPS
    return claim


def _walk_p(curves: np.ndarray, steps: Sequence[float]) -> np.ndarray:
    """Return how probable a rise like that of each curve [C, T] is in a random walk [C]."""
    walks = _walk_ratios(tuple(map(float, np.diff(steps))))
    reached = len(walks) - np.searchsorted(walks, _rise_ratios(curves))
    p: np.ndarray = (1 + reached) / (len(walks) + 1)
    return p


@lru_cache(maxsize=8)
def _walk_ratios(distances: tuple[float, ...]) -> np.ndarray:
    """Return the sorted ratios of random walks over checkpoints at such distances."""
    random = np.random.default_rng(0)
    ratios = []
    for _ in range(_WALKS // _WALK_BATCH):
        increments = random.standard_t(_WALK_DF, (_WALK_BATCH, len(distances)))
        walks = (increments * np.sqrt(distances)).cumsum(axis=1)
        ratios.append(_rise_ratios(np.pad(walks, ((0, 0), (1, 0)))))
    return np.sort(np.concatenate(ratios))


def _rise_ratios(curves: np.ndarray) -> np.ndarray:
    """Return the lowest value from the onset on, divided by the largest fall [..., T] -> [...].

    0 of a rise that is shorter than `LASTING`, or reached in size by a value before the onset.
    """
    checkpoints = curves.shape[-1]
    onsets = locate_onsets(curves)
    is_after = np.arange(checkpoints) >= onsets[..., None]
    lowest = np.where(is_after, curves, np.inf).min(axis=-1)
    before = np.where(is_after, 0, np.abs(curves)).max(axis=-1)
    falls = (np.maximum.accumulate(curves, axis=-1) - curves).max(axis=-1)
    is_rise = (checkpoints - onsets >= LASTING) & (lowest > before)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios: np.ndarray = np.where(is_rise, lowest / falls, 0.0)
    return ratios


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
