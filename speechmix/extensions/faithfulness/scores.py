"""Metrics: how well the scores of words agree with the effects of removing them.

Conventions: all words of one item, the target left out; `scores` [W] of a measure, `drops` [W] of a
perturbation (what the decision loses without the word); a *curve* [W + 1] is the probability of the
decision with 0, 1, ..., W words removed (or kept), most important first. Scores are compared by
their order alone. A measure that gives all words the same has no order: it gets 0 as a correlation,
and shares the hit. If the effects of all words are equal, there is no metric: NaN.

References
- top-1, Spearman, Kendall: rank agreement with ablation, as the blank-out evaluation of Mohebbi et
  al. 2023, EACL
- comprehensiveness, sufficiency: DeYoung et al. 2020, ERASER, ACL; over 1, 2, ... words as their
  area over the perturbation curve (AOPC), without the ends, where the order of words plays no part
- deletion, insertion: Petsiuk et al. 2018, RISE, BMVC
- soft versions: Zhao & Aletras 2023, Incorporating Attribution Importance for Improving
  Faithfulness Metrics, ACL
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...evaluation.statistics.intervals import CORRELATION_BOUNDS

RANK_METRICS = ("top_1", "spearman", "kendall")
CURVE_METRICS = ("comprehensiveness", "sufficiency", "deletion", "insertion")
SOFT_METRICS = ("soft_comprehensiveness", "soft_sufficiency")
METRICS = (*RANK_METRICS, "average_precision", *CURVE_METRICS, *SOFT_METRICS)
# Smallest and largest value, where there are such.
METRIC_BOUNDS = {
    "top_1": (0.0, 1.0),
    "spearman": CORRELATION_BOUNDS,
    "kendall": CORRELATION_BOUNDS,
    "average_precision": (0.0, 1.0),
}
# Where a good measure has a small number.
LOWER_IS_BETTER = ("sufficiency", "soft_sufficiency", "deletion")


def top_1(scores: np.ndarray, drops: np.ndarray) -> float:
    """Return whether the measure's first word has the largest effect; tied first words share the hit.

    Chance is 1 / W.

    Examples
    --------
    >>> top_1(np.array([0.1, 0.7, 0.2]), np.array([0.0, 3.0, 1.0]))
    1.0
    >>> top_1(np.array([0.4, 0.4, 0.2]), np.array([0.0, 3.0, 1.0]))
    0.5
    """
    if not _has_order(drops):
        return float("nan")
    is_first, is_largest_effect = scores == scores.max(), drops == drops.max()
    return float((is_first & is_largest_effect).sum() / is_first.sum())


def spearman(scores: np.ndarray, drops: np.ndarray) -> float:
    """Rank correlation, -1 to 1.

    Examples
    --------
    >>> round(spearman(np.array([0.1, 0.7, 0.2]), np.array([0.0, 3.0, 1.0])), 6)
    1.0
    """
    from scipy.stats import spearmanr

    return _correlation(spearmanr, scores, drops)


def kendall(scores: np.ndarray, drops: np.ndarray) -> float:
    """Return Kendall's tau-b, -1 to 1: concordant minus discordant pairs of words.

    Examples
    --------
    >>> round(kendall(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0])), 3)
    0.333
    """
    from scipy.stats import kendalltau

    return _correlation(kendalltau, scores, drops)


def _correlation(
    function: Callable[..., tuple[float, float]], scores: np.ndarray, drops: np.ndarray
) -> float:
    if not _has_order(drops):
        return float("nan")
    return float(function(scores, drops)[0]) if _has_order(scores) else 0.0


def _has_order(values: np.ndarray) -> bool:
    """Whether there is an order: more than one value, all of them finite."""
    return bool(np.isfinite(values).all() and np.ptp(values) > 0)


def rank_words(scores: np.ndarray) -> list[int]:
    """Return word indices, most important first; of equal ones the earlier.

    Examples
    --------
    >>> rank_words(np.array([0.2, 0.5, 0.2]))
    [1, 0, 2]
    """
    return [int(index) for index in np.argsort(-np.asarray(scores, dtype=float), kind="stable")]


def comprehensiveness(removal_curve: np.ndarray) -> float:
    """Return the mean drop of the probability with 1, ..., W - 1 words removed; large if the first
    removed words are needed.

    Examples
    --------
    >>> round(comprehensiveness(np.array([0.9, 0.5, 0.1, 0.1])), 6)
    0.6
    """
    return float(np.mean(removal_curve[0] - removal_curve[1:-1]))


def sufficiency(insertion_curve: np.ndarray) -> float:
    """Return the mean drop of the probability with only 1, ..., W - 1 words kept; small if the
    first kept words are enough.

    Examples
    --------
    >>> round(sufficiency(np.array([0.1, 0.8, 0.9, 0.9])), 6)
    0.05
    """
    return float(np.mean(insertion_curve[-1] - insertion_curve[1:-1]))


def deletion(removal_curve: np.ndarray) -> float:
    """Return the area under the curve of removal, over the share of words; small if it falls at
    once.

    Examples
    --------
    >>> deletion(np.array([1.0, 0.0, 0.0]))
    0.25
    """
    return float(np.trapezoid(removal_curve) / (len(removal_curve) - 1))


def insertion(insertion_curve: np.ndarray) -> float:
    """Return the area under the curve of insertion, over the share of words; large if it rises at
    once.

    Examples
    --------
    >>> insertion(np.array([0.0, 1.0, 1.0]))
    0.75
    """
    return float(np.trapezoid(insertion_curve) / (len(insertion_curve) - 1))


def rank_metrics(vectors: Sequence[np.ndarray], drops: np.ndarray) -> list[dict[str, float]]:
    """Compute the rank metrics of several vectors of scores [W]; vectors of one order are computed
    once."""
    from scipy.stats import rankdata

    ranks = [tuple(rankdata(scores)) for scores in vectors]
    by_order = {
        order: {
            name: function(np.array(order), drops)
            for name, function in _RANK_METRIC_FUNCTIONS.items()
        }
        for order in set(ranks)
    }
    return [by_order[order] for order in ranks]


def chance_value(metric: str, count: int) -> float:
    """Return the expected metric of a random order of words; NaN if it is not known."""
    return {"top_1": 1 / count, "spearman": 0.0, "kendall": 0.0}.get(metric, float("nan"))


_RANK_METRIC_FUNCTIONS = {"top_1": top_1, "spearman": spearman, "kendall": kendall}


def curve_metrics(
    removal_curve: np.ndarray, insertion_curve: np.ndarray, shares: np.ndarray | None = None
) -> dict[str, float]:
    """Compute the curve metrics of curves word by word, or at some shares of the words [P]."""
    if shares is not None:
        width = shares[-1] - shares[0]
        return {
            "comprehensiveness": float(np.mean(removal_curve[0] - removal_curve[1:])),
            "sufficiency": float(np.mean(removal_curve[0] - insertion_curve[1:])),
            "deletion": float(np.trapezoid(removal_curve, shares) / width),
            "insertion": float(np.trapezoid(insertion_curve, shares) / width),
        }
    return {
        "comprehensiveness": comprehensiveness(removal_curve),
        "sufficiency": sufficiency(insertion_curve),
        "deletion": deletion(removal_curve),
        "insertion": insertion(insertion_curve),
    }
