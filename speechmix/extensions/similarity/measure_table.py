"""The measures of similarity, in one table: how features are prepared, and how two are compared.

A measure is one file with two functions, and one entry in `SIMILARITY_MEASURES`, also from outside.

Do states tell labels (phones, words) apart: ABX error, and mutual information with clusters.

ABX (Schatz et al. 2013), exact, on one vector for each unit. For labels a and b: A and X have the
label a, B has b, and A and B come from other groups of clips than X.

    error(a, b) = mean over A, B, X of [ d(A, X) > d(B, X) ] + [ d(A, X) = d(B, X) ] / 2

The result is 1 - 2 x the mean error over all ordered pairs of labels: 0 is chance, 1 perfect.

Mutual information: units are clustered by k-means without their labels, as in HuBERT (Hsu et al. 2021,
phone-normalised mutual information) and Pasad et al. 2021. Of few units it is far too high by chance;
it is corrected by its expectation over all permutations of the labels, E (Vinh et al. 2010):

    ( I(cluster; label) - E ) / ( H(label) - E ),     0 is chance, 1: clusters determine the label

Representational similarity analysis (Kriegeskorte et al. 2008): do two sets of features order pairs
of units alike?

    RSA(X, Y) = Spearman correlation of d(x_i, x_j) and d(y_i, y_j) over all pairs i < j

of units of different groups of clips. Speech: Chrupala et al. 2020. It does not grow with the number
of dimensions: features that have nothing to do with each other have an expectation of 0.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import rankdata

from ...errors import InputError
from .canonical_correlations import compare_cca, prepare_cca
from .debiased_cka import compare_cka, prepare_cka
from .unit_reader import SimilarityEstimate, group_starts, pair_distances


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


@dataclass(frozen=True)
class SimilarityMeasure:
    """A measure of similarity.

    Parameters
    ----------
    name : str
    label : str
        Of an axis.
    prepare : callable
        ``prepare(features, groups, **options)``: of one set of features [N, D], with the ascending
        numbers of groups [N], what `compare` needs. Its keyword arguments are the options.
    compare : callable
        ``compare(first, second)`` of two prepared sets of the same units returns an `SimilarityEstimate`.
    needs_labels : bool
        The second is `LabelCodes`, not features.
    """

    name: str
    label: str
    prepare: Callable[..., Any]
    compare: Callable[[Any, Any], SimilarityEstimate]
    needs_labels: bool = False

    def prepare_second(self, values: np.ndarray, groups: np.ndarray, **options: Any) -> Any:
        """Prepare what features are compared with: labels [N], or other features [N, D]."""
        if self.needs_labels:
            return LabelCodes(values, groups)
        return self.prepare(values, groups, **options)


SIMILARITY_MEASURES: dict[str, SimilarityMeasure] = {
    measure.name: measure
    for measure in (
        SimilarityMeasure("cka", "linear CKA, debiased", prepare_cka, compare_cka),
        SimilarityMeasure("cca", "held-out canonical correlation", prepare_cca, compare_cca),
        SimilarityMeasure("rsa", "RSA (Spearman correlation)", prepare_rsa, compare_rsa),
        SimilarityMeasure("abx", "ABX: 1 - 2 x error", prepare_abx, compare_abx, True),
        SimilarityMeasure(
            "mutual_information", "mutual information", prepare_clusters, compare_clusters, True
        ),
    )
}


_SMALLEST = {"batch_size": 1, "components": 1, "folds": 2, "clusters": 2}  # values of options


def find_similarity(name: str, options: Mapping[str, Any]) -> SimilarityMeasure:
    """Return the measure of this name, if it takes these options.

    Raises
    ------
    InputError
        If there is none, or it does not, or a number is too small.
    """
    if name not in SIMILARITY_MEASURES:
        names = ", ".join(SIMILARITY_MEASURES)
        raise InputError(f"measure should be one of {names}, found {name!r}")
    measure = SIMILARITY_MEASURES[name]
    option_names = [*inspect.signature(measure.prepare).parameters][2:]
    if unknown := sorted(set(options) - set(option_names)):
        raise InputError(
            f"measure {name!r} has no option {unknown[0]!r}; it takes {', '.join(option_names) or 'none'}"
        )
    for option, least in _SMALLEST.items():
        if option in options and not options[option] >= least:
            raise InputError(f"{option} should be {least} or more, found {options[option]}")
    return measure


def estimate_similarity(
    first: np.ndarray,
    second: np.ndarray,
    groups: np.ndarray | None = None,
    *,
    measure: str = "cka",
    **options: Any,
) -> SimilarityEstimate:
    """Compare two arrays of features of the same units.

    Parameters
    ----------
    first : ndarray [N, D]
    second : ndarray [N, E]
        Of "abx" and "mutual_information" labels [N].
    groups : ndarray [N], optional
        What belongs together, such as the clip of each unit: groups are what the interval is over.
        By default each unit is a group.
    measure : str
        "cka", "cca", "rsa", "abx", "mutual_information", or another of `SIMILARITY_MEASURES`.
    **options
        Of the measure.

    Returns
    -------
    SimilarityEstimate
        ``value``, ``interval`` (95 % over groups).

    Raises
    ------
    InputError
        For arrays of different lengths, values that are not finite, fewer than five groups, or an
        unknown measure or option.

    Examples
    --------
    >>> x = np.random.default_rng(0).standard_normal((100, 5))
    >>> round(estimate_similarity(x, x[:, ::-1] * 2 + 1).value, 6)
    1.0
    """
    similarity_measure = find_similarity(measure, options)
    x, y = np.asarray(first, dtype=float), np.asarray(second)
    y = y if similarity_measure.needs_labels else y.astype(float)
    keys = np.arange(len(x)) if groups is None else np.asarray(groups)
    if (
        x.ndim != 2
        or len({len(x), len(y), len(keys)}) > 1
        or y.ndim != 2 - similarity_measure.needs_labels
    ):
        wanted = "labels [N]" if similarity_measure.needs_labels else "features [N, E]"
        raise InputError(
            f"expected features [N, D], {wanted} and groups [N], found {x.shape}, {y.shape}, {keys.shape}"
        )
    if not (np.isfinite(x).all() and (similarity_measure.needs_labels or np.isfinite(y).all())):
        raise InputError("features have values that are not finite: leave those units out")
    codes = np.unique(keys, return_inverse=True)[1]
    order = np.argsort(codes, kind="stable")
    codes = codes[order]
    prepared = similarity_measure.prepare(x[order], codes, **options)
    return similarity_measure.compare(
        prepared, similarity_measure.prepare_second(y[order], codes, **options)
    )
