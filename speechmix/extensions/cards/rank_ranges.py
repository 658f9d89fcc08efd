"""Range of ranks that confidence intervals allow.

In: estimates with 95 % intervals over groups. Out: for each the best and the worst place that it
may have. Two estimates are in order only if their intervals, widened for the number of estimates
(Bonferroni: all hold together in 95 % of samples), do not overlap. This is the way of Mohamad,
Goeman & van Zwet 2022, Simultaneous confidence intervals for ranks, without their refinements.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...evaluation.statistics.intervals import LEVEL


def rank_ranges(
    values: Sequence[float],
    lows: Sequence[float],
    highs: Sequence[float],
    groups: Sequence[int],
) -> list[tuple[int, int]]:
    """Return the best and the worst rank of each estimate; rank 1 is the largest.

    Parameters
    ----------
    values, lows, highs : sequence of float
        Estimates with the limits of their 95 % intervals.
    groups : sequence of int
        Independent groups behind each interval, at least 2.

    Examples
    --------
    >>> rank_ranges([30, 10, 9], [29, 9, 8], [31, 11, 10], [20, 20, 20])
    [(1, 1), (2, 3), (2, 3)]
    """
    from scipy.stats import t as student

    middle = np.asarray(values, dtype=float)
    freedom = np.maximum(np.asarray(groups, dtype=float) - 1, 1)
    share = (1 - LEVEL) / 2
    widening = student.isf(share / max(len(middle), 1), freedom) / student.isf(share, freedom)
    low = middle - widening * (middle - np.asarray(lows, dtype=float))
    high = middle + widening * (np.asarray(highs, dtype=float) - middle)
    is_above = low[:, None] > high  # [estimate, other estimate]
    best = 1 + is_above.sum(axis=0)
    worst = len(middle) - is_above.sum(axis=1)
    return [(int(first), int(last)) for first, last in zip(best, worst, strict=True)]
