"""How good is a probe: accuracy and compression with intervals over groups, and what they are held against.

In: which items a probe got right, or how many bits each took; groups of items that belong together. Out: numbers. An interval
is the percentile bootstrap over groups of (sum over items) / (number of items): 2000 draws, 95 %. Where all groups are
entirely right (or wrong) a bootstrap knows no spread; the exact binomial limit for that many groups (Clopper & Pearson 1934)
is then the limit.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Texts = Sequence[str] | np.ndarray
Numbers = Sequence[float] | np.ndarray
_LEVEL, _DRAWS = 0.95, 2000


def majority_share(labels: Texts) -> float:
    """Share of the most frequent label: the accuracy of always saying it.

    Examples
    --------
    >>> majority_share(["sg", "sg", "pl"]).__round__(3)
    0.667
    """
    return float(np.unique(np.asarray(labels, dtype=str), return_counts=True)[1].max() / len(labels))


def macro_f1(labels: Texts, predicted: Texts) -> float:
    """Mean over labels of F1, the harmonic mean of precision and recall; 0 for a label that is never found.

    Examples
    --------
    >>> macro_f1(["sg", "sg", "pl", "pl"], ["sg", "sg", "sg", "pl"]).__round__(3)
    0.733
    """
    from sklearn.metrics import f1_score

    return float(f1_score(np.asarray(labels), np.asarray(predicted), average="macro", zero_division=0))


def share_interval(right: Numbers, groups: Texts, *, seed: int = 0) -> tuple[float, float]:
    """95 % interval of a share of items, over groups; (nan, nan) for fewer than two groups.

    Parameters
    ----------
    right : sequence of float [N]
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
    sums, counts = _by_group(right, groups)
    low, high = ratio_interval(right, groups, seed=seed)
    exact = ((1 - _LEVEL) / 2) ** (1 / len(counts))
    if len(counts) > 1 and (sums == counts).all():
        low = exact
    if len(counts) > 1 and (sums == 0).all():
        high = 1 - exact
    return low, high


def ratio_interval(values: Numbers, groups: Texts, *, seed: int = 0) -> tuple[float, float]:
    """95 % bootstrap interval over groups of the mean over items; (nan, nan) for fewer than two groups."""
    sums, counts = _by_group(values, groups)
    if len(counts) < 2:
        return np.nan, np.nan
    drawn = np.random.default_rng(seed).multinomial(len(counts), np.full(len(counts), 1 / len(counts)), size=_DRAWS)
    low, high = np.quantile((drawn @ sums) / (drawn @ counts), [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return float(low), float(high)


def _by_group(values: Numbers, groups: Texts) -> tuple[np.ndarray, np.ndarray]:
    """Sum of the values and number of items of each group."""
    _, place = np.unique(np.asarray(groups, dtype=str), return_inverse=True)
    return np.bincount(place, weights=np.asarray(values, dtype=float)), np.bincount(place).astype(float)
