"""Units in groups, and an estimate with each group left out in turn.

In: group numbers of units, in ascending order. Out: sums over groups, and the pseudo-values of the
jackknife (Quenouille 1956, Tukey 1958), one for each independent group, whose mean and interval are
those of the estimate.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import cdist

from ...errors import InputError
from ...evaluation.statistics.intervals import CORRELATION_BOUNDS, mean_interval

MIN_GROUPS = 5  # the estimators compare units of four different groups, and leave one out
MAX_PAIRED_UNITS = 6000  # a matrix of all pairs takes 8 bytes x units squared


class SimilarityEstimate(NamedTuple):
    """A similarity, and what it is without each group."""

    value: float
    without_group: np.ndarray  # [G]

    @property
    def pseudo_values(self) -> np.ndarray:
        """Return G value - (G - 1) value without group g, for each group [G]."""
        count = len(self.without_group)
        return count * self.value - (count - 1) * self.without_group

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval over groups; (nan, nan) for too few, see `mean_interval`."""
        return mean_interval(self.pseudo_values, bounds=CORRELATION_BOUNDS)


def group_starts(groups: np.ndarray) -> np.ndarray:
    """Return the index of the first unit of each group [G].

    Raises
    ------
    InputError
        For fewer than `MIN_GROUPS` groups, or groups in another order than 0, 0, 1, 2, 2, ...

    Examples
    --------
    >>> group_starts(np.array([0, 0, 1, 2, 3, 3, 4]))
    array([0, 2, 3, 4, 6])
    """
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    if len(starts) < MIN_GROUPS or not np.array_equal(groups[starts], np.arange(len(starts))):
        raise InputError(
            f"similarity needs units of {MIN_GROUPS} independent groups of clips or more, numbered "
            f"0, 0, 1, 2, ... in ascending order; found {len(starts)}: add clips of other sentences"
        )
    return starts


def pair_distances(features: np.ndarray, distance: str) -> np.ndarray:
    """Return the distances of all units from each other, [N, D] -> [N, N].

    Raises
    ------
    InputError
        For another distance than cosine, correlation or euclidean, and for more units than
        `MAX_PAIRED_UNITS`.
    """
    if distance not in ("cosine", "correlation", "euclidean"):
        raise InputError(f"distance should be cosine, correlation or euclidean, found {distance!r}")
    if len(features) > MAX_PAIRED_UNITS:
        raise InputError(
            f"{len(features)} units are too many to compare each with each (at most "
            f"{MAX_PAIRED_UNITS}): lower units_per_clip"
        )
    distances: np.ndarray = np.nan_to_num(cdist(features, features, distance), nan=1.0)
    return distances
