"""Do states tell labels (phones, words) apart: ABX error, and mutual information with clusters.

ABX (Schatz et al. 2013), exact, on one vector for each unit. For labels a and b: A and X have the
label a, B has b, and A and B come from other groups of clips than X.

    error(a, b) = mean over A, B, X of [ d(A, X) > d(B, X) ] + [ d(A, X) = d(B, X) ] / 2

The result is 1 - 2 x the mean error over all ordered pairs of labels: 0 is chance, 1 perfect.

Mutual information: units are clustered by k-means without their labels, as in HuBERT (Hsu et al. 2021,
phone-normalised mutual information) and Pasad et al. 2021. Of few units it is far too high by chance;
it is corrected by its expectation over all permutations of the labels, E (Vinh et al. 2010):

    ( I(cluster; label) - E ) / ( H(label) - E ),     0 is chance, 1: clusters determine the label
"""

from __future__ import annotations

import numpy as np

from .grouped_units import SimilarityEstimate, group_starts, pair_distances


class LabelCodes:
    """Labels of grouped units as numbers [N]."""

    def __init__(self, labels: np.ndarray, groups: np.ndarray):
        self.codes = np.unique(labels, return_inverse=True)[1]
        self.one_hot = np.eye(self.codes.max() + 1)[self.codes]  # [N, labels]
        self.groups, self.group_count = groups, len(group_starts(groups))


def prepare_abx(
    features: np.ndarray, groups: np.ndarray, *, distance: str = "cosine"
) -> np.ndarray:
    """Return the distances of units [N, D] from each other [N, N]; see `pair_distances`."""
    group_starts(groups)
    return pair_distances(features, distance)


def compare_abx(distances: np.ndarray, labels: LabelCodes) -> SimilarityEstimate:
    """Return 1 - 2 x the ABX error of all labels, exact, also without each group; NaN without a pair
    of labels that can be compared."""
    codes, groups = labels.codes, labels.groups
    errors, pair_counts = np.zeros(labels.group_count + 1), np.zeros(labels.group_count + 1)
    for code in range(codes.max() + 1):
        wrong, count = np.zeros((2, len(errors), codes.max() + 1))
        units = np.flatnonzero(codes == code)
        for x in units:
            same = units[groups[units] != groups[x]]
            is_other = (groups != groups[x]) & (codes != code)
            difference = distances[x, same][:, None] - distances[x]  # [A, B]
            is_wrong = (difference > 1e-12) + 0.5 * (np.abs(difference) <= 1e-12)
            for sums, triples in ((wrong, is_wrong * is_other), (count, 0 * is_wrong + is_other)):
                without = _sum_without_each(triples, groups[same], labels)
                without[groups[x]] = 0
                sums += without
        is_there = count > 0
        errors += np.divide(wrong, count, out=np.zeros_like(wrong), where=is_there).sum(axis=1)
        pair_counts += is_there.sum(axis=1)
    values = np.where(pair_counts > 0, 1 - 2 * errors / np.maximum(pair_counts, 1), np.nan)
    return SimilarityEstimate(float(values[-1]), values[:-1])


def _sum_without_each(triples: np.ndarray, owners: np.ndarray, labels: LabelCodes) -> np.ndarray:
    """Sum triples [A, B] by the label of B, without A and B of each group, and of all (last)."""
    by_group = np.zeros((labels.group_count + 1, len(labels.codes)))
    np.add.at(by_group, owners, triples)
    of_b = by_group.sum(axis=0)
    without: np.ndarray = of_b @ labels.one_hot - by_group @ labels.one_hot
    in_group = of_b - by_group[labels.groups, np.arange(len(of_b))]  # B of the group, A of others
    np.subtract.at(without, (labels.groups, labels.codes), in_group)
    return without


def prepare_clusters(
    features: np.ndarray, groups: np.ndarray, *, clusters: int = 50, seed: int = 0
) -> np.ndarray:
    """Return the k-means cluster of each unit [N]; at most one for each five units."""
    from sklearn.cluster import KMeans

    group_starts(groups)
    count = max(2, min(clusters, len(features) // 5))
    return np.asarray(KMeans(count, n_init=3, random_state=seed).fit_predict(features))


def compare_clusters(clusters: np.ndarray, labels: LabelCodes) -> SimilarityEstimate:
    """Return the corrected mutual information of clusters and labels; clusters stay as they are
    without a group."""
    shape = (labels.group_count, clusters.max() + 1, labels.codes.max() + 1)
    tables = np.zeros(shape)
    np.add.at(tables, (labels.groups, clusters, labels.codes), 1)
    total = tables.sum(axis=0)
    values = [_corrected_information(total - table) for table in (*tables, 0.0)]
    return SimilarityEstimate(values[-1], np.array(values[:-1]))


def _corrected_information(table: np.ndarray) -> float:
    from scipy.stats import entropy
    from sklearn.metrics import mutual_info_score
    from sklearn.metrics.cluster import expected_mutual_information

    table = table[np.ix_(table.any(axis=1), table.any(axis=0))].astype(np.int64)
    count = int(table.sum())
    expected = expected_mutual_information(table, count)
    possible = entropy(table.sum(axis=0)) - expected
    information = mutual_info_score(None, None, contingency=table) - expected
    return float(information / possible) if possible > 1e-12 else float("nan")
