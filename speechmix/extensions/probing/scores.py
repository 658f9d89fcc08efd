"""How good is a probe: accuracy and compression, their baselines, and intervals over groups.

In: which items a probe predicted correctly, or how many bits each took; groups of items that belong
together. Out: numbers. The intervals are those of `statistics.intervals`, for a sum over items
divided by the number of items.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...evaluation.statistics.intervals import LEVEL, mean_interval, proportion_interval

FILE, ANSWERS_FILE = "probes.csv", "probe_answers.csv"
Texts = Sequence[str] | np.ndarray
Numbers = Sequence[float] | np.ndarray


def majority_share(labels: Texts) -> float:
    """Return the share of the most frequent label, the accuracy of a constant prediction.

    Examples
    --------
    >>> majority_share(["sg", "sg", "pl"]).__round__(3)
    0.667
    """
    return float(
        np.unique(np.asarray(labels, dtype=str), return_counts=True)[1].max() / len(labels)
    )


def accuracy_score(labels: Texts, predicted: Texts) -> float:
    """Return the share of items with the correct label."""
    return float((np.asarray(predicted) == np.asarray(labels)).mean())


def macro_f1(labels: Texts, predicted: Texts) -> float:
    """Return the mean over labels of F1, the harmonic mean of precision and recall; 0 for a label
    never predicted.

    Examples
    --------
    >>> macro_f1(["sg", "sg", "pl", "pl"], ["sg", "sg", "sg", "pl"]).__round__(3)
    0.733
    """
    from sklearn.metrics import f1_score

    return float(
        f1_score(np.asarray(labels), np.asarray(predicted), average="macro", zero_division=0)
    )


def share_interval(is_correct: Numbers, groups: Texts) -> tuple[float, float]:
    """Return the 95 % interval of a share of items, over groups; (nan, nan) for fewer than two
    groups.

    Exact binomial limits for the number of independent items that has the same variance over groups
    (Korn & Graubard 1998). They cover in 95 % or more from four groups on, near 0 and 1, too. Where
    all groups have the same share the variance is unknown, and each group counts as one item.

    Parameters
    ----------
    is_correct : sequence of float [N]
        0 to 1.
    groups : sequence of str [N]

    Examples
    --------
    >>> low, high = share_interval([1, 1, 1, 0, 1, 1, 0, 1], list("aabbccdd"))
    >>> low < 0.75 < high
    True
    >>> share_interval([1, 1, 1, 1, 1, 1], list("aabbcc"))[0].__round__(3)  # (1 - 0.95) / 2 to the power of 1 / 3
    0.292
    """
    from scipy.stats import t as student

    sums, counts = _sum_by_group(is_correct, groups)
    if len(counts) < 2:
        return np.nan, np.nan
    values, items = _linearise_ratio(sums, counts), counts.sum()
    share, variance = float(np.clip(sums.sum() / items, 0, 1)), values.var(ddof=1) / len(counts)
    trials = counts.sum() ** 2 / (counts**2).sum()
    if variance > 1e-12 and items > len(counts):
        quantiles = student.ppf((1 + LEVEL) / 2, [items - 1, len(counts) - 1])
        trials = min(share * (1 - share) / variance * (quantiles[0] / quantiles[1]) ** 2, items)
    return proportion_interval(share * trials, trials)


def ratio_interval(
    values: Numbers, groups: Texts, weights: Numbers | None = None
) -> tuple[float, float]:
    """Return the 95 % interval over groups of the mean over items, or of the sum of values divided by
    that of weights; (nan, nan) for fewer groups than `mean_interval` needs."""
    return mean_interval(ratio_by_group(values, groups, weights))


def ratio_by_group(values: Numbers, groups: Texts, weights: Numbers | None = None) -> np.ndarray:
    """Return a value for each group [G], in the order of their names, whose mean is the ratio of
    `ratio_interval`, and whose variance over groups is that of the ratio."""
    sums, counts = _sum_by_group(values, groups)
    return _linearise_ratio(sums, counts if weights is None else _sum_by_group(weights, groups)[0])


def _linearise_ratio(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return a value for each group [G], whose mean is sum / count and whose variance is that of
    this ratio."""
    ratio = sums.sum() / counts.sum()
    values: np.ndarray = ratio + (sums - ratio * counts) / counts.mean()
    return values


def _sum_by_group(values: Numbers, groups: Texts) -> tuple[np.ndarray, np.ndarray]:
    """Return the sum of the values and the number of items of each group."""
    _, index = np.unique(np.asarray(groups, dtype=str), return_inverse=True)
    return np.bincount(index, weights=np.asarray(values, dtype=float)), np.bincount(index).astype(
        float
    )
