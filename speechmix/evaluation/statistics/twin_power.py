"""Power of a comparison with untrained twins: which difference a study can find, and how many groups
of clips it needs.

In: the standard deviation over groups of clips and the one of the twins, from a pilot run. Out: a
difference, or a number of groups. The interval of `intervals.one_more_twin_intervals` reaches, without
its correction for skewness,

    reach = sqrt( (t[G - 1] sd)^2 / G + (t[T - 1] s)^2 (1 + 1/T) )

and the estimate has the standard error e = sqrt( sd^2 / G + s^2 / T ). Both standard deviations are
estimates, with df degrees of freedom together (Welch & Satterthwaite). So a true difference d is found
with the probability that Student's noncentral t (df; d / e) exceeds reach / e.
"""

from __future__ import annotations

import math

from .claim_rule import DEFAULT_TWINS, FEWEST_CLAIM_GROUPS, FEWEST_TWINS
from .intervals import LEVEL

POWER = 0.8
_MOST_GROUPS = 100_000


def detectable_difference(
    group_sd: float,
    twin_sd: float,
    *,
    groups: int,
    twins: int = DEFAULT_TWINS,
    rows: int = 1,
    power: float = POWER,
) -> float:
    """Return the true difference that a study finds with probability `power`.

    It is in the unit of `group_sd` (standard deviation of the difference over groups of clips) and
    `twin_sd` (that of the means of the twins); NaN with fewer than two groups or twins. `rows`
    counts intervals that hold together.
    """
    from scipy.optimize import brentq
    from scipy.stats import nct
    from scipy.stats import t as student

    if groups < 2 or twins < 2:
        return math.nan
    tail = 1 - (1 - LEVEL) / rows / 2
    clips, twin_error = group_sd / math.sqrt(groups), twin_sd / math.sqrt(twins)
    error = math.hypot(clips, twin_error)
    if not error > 0:
        return math.nan
    reach = math.hypot(
        student.ppf(tail, groups - 1) * clips,
        student.ppf(tail, twins - 1) * twin_sd * math.sqrt(1 + 1 / twins),
    )
    freedom = error**4 / (clips**4 / (groups - 1) + twin_error**4 / (twins - 1))
    size = brentq(
        lambda size: nct.sf(reach / error, freedom, size) - power, 0, 3 * reach / error + 20
    )
    return float(size * error)


def groups_for_difference(
    difference: float,
    group_sd: float,
    twin_sd: float,
    *,
    twins: int = DEFAULT_TWINS,
    rows: int = 1,
    power: float = POWER,
) -> int | None:
    """Return how many groups of clips find a difference, at least those that any conclusion needs.

    The parameters are those of `detectable_difference`. None if no number of groups is enough:
    untrained models differ too much, or there are too few.
    """

    def is_enough(groups: int) -> bool:
        smallest_difference = detectable_difference(
            group_sd, twin_sd, groups=groups, twins=twins, rows=rows, power=power
        )
        return smallest_difference <= abs(difference)

    if twins < FEWEST_TWINS or not is_enough(_MOST_GROUPS):
        return None
    low, high = FEWEST_CLAIM_GROUPS - 1, FEWEST_CLAIM_GROUPS
    while not is_enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
