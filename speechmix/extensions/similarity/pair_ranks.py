"""Representational similarity analysis (Kriegeskorte et al. 2008): do two sets of features order pairs
of units alike?

    RSA(X, Y) = Spearman correlation of d(x_i, x_j) and d(y_i, y_j) over all pairs i < j

of units of different groups of clips. Speech: Chrupala et al. 2020. It does not grow with the number
of dimensions: features that have nothing to do with each other have an expectation of 0.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from .grouped_units import SimilarityEstimate, group_starts, pair_distances


class PairRanks(NamedTuple):
    """Ranks of the distances of pairs [N, N], centred, 0 within a group; and where groups start."""

    ranks: np.ndarray
    is_pair: np.ndarray
    starts: np.ndarray


def prepare_rsa(features: np.ndarray, groups: np.ndarray, *, distance: str = "cosine") -> PairRanks:
    """Rank the distances of units [N, D] of different groups [N]; see `pair_distances`."""
    starts = group_starts(groups)
    is_pair = groups[:, None] != groups
    distances = pair_distances(features - features.mean(axis=0), distance)
    ranks = np.zeros(distances.shape)
    upper = np.triu(is_pair)
    # differences below 1e-10 of the largest distance are rounding: ties
    ranks[upper] = rankdata(np.round(distances[upper] / (distances.max() or 1.0), 10))
    ranks[upper] -= ranks[upper].mean()
    return PairRanks(ranks + ranks.T, is_pair, starts)


def compare_rsa(first: PairRanks, second: PairRanks) -> SimilarityEstimate:
    """Return Spearman's correlation of two sets of ranks; NaN if all distances of one are the same.

    Without a group: the correlation of the remaining ranks, which are not ranked again.
    """
    x, y, starts = first.ranks, second.ranks, first.starts
    terms = (first.is_pair, x, y, x * y, x * x, y * y)
    sums = []
    for term in terms:
        by_group = np.add.reduceat(term.sum(axis=1, dtype=float), starts)
        total = by_group.sum()
        sums.append(np.append(total - 2 * by_group, total))
    count, sum_x, sum_y, xy, xx, yy = sums
    with np.errstate(invalid="ignore", divide="ignore"):
        covariance = xy - sum_x * sum_y / count
        values = covariance / np.sqrt((xx - sum_x**2 / count) * (yy - sum_y**2 / count))
    return SimilarityEstimate(float(values[-1]), values[:-1])
