"""Say where the p values of a mixed model may be wrong.

In: a design, and the robust tests of its terms. Out: sentences.

- *Few groups*: with fewer than `FEWEST_CLAIM_GROUPS`, skewed effects and unequal spread are neither seen
  nor averaged out.
- *Few groups decide*: robust errors leave less than half of the degrees of freedom of a balanced design
  (2 of 16 clips in one condition: 1.3 of 14). Then unequal spread cannot be seen.
- *Unequal spread* between the two values of a term that is constant within groups: Brown & Forsythe
  1974, of the groups' mean residuals, at 5 %.
- *Skewed effects*: D'Agostino 1970, of the influences of groups on the estimate, at 5 %.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ...evaluation.statistics.claim_rule import FEWEST_CLAIM_GROUPS
from ...evaluation.statistics.intervals import FEWEST_GROUPS, LEVEL
from .model_design import ModelDesign
from .robust_errors import RobustTest

_FEWEST_SHARE = 0.5  # of the degrees of freedom of a balanced design


def check_assumptions(design: ModelDesign, tests: Sequence[Mapping[str, RobustTest]]) -> list[str]:
    """Return a sentence for each assumption that does not hold, or cannot be seen to hold.

    Parameters
    ----------
    design : ModelDesign
    tests : sequence of mapping of str to RobustTest
        Of each term, by column of groups.
    """
    notes = []
    for group, codes in design.groups.items():
        count = int(codes.max()) + 1
        if count < FEWEST_CLAIM_GROUPS:
            notes.append(
                f"{count} values of {group!r} are few: nothing is concluded, {FEWEST_CLAIM_GROUPS - count} "
                f"more are needed. With few, p is too small where effects are skewed or differ in spread"
            )
        is_constant = design.is_constant(group)
        for index, term in enumerate(design.terms):
            if np.ptp(design.x[:, index]) == 0 and len(design.terms) > 1:
                continue  # the intercept
            test = tests[index][group]
            freedom = count - max(int(is_constant.sum()), 1)
            if test.df < _FEWEST_SHARE * freedom:
                notes.append(
                    f"{term}: the design is unbalanced, few values of {group!r} decide "
                    f"({_describe_values(design, index, group)}{test.df:.1f} of {freedom} degrees of "
                    "freedom). p and sign flips need equal spread, which cannot be seen here"
                )
            if is_constant[index]:
                notes += _check_spread(design, index, group)
            notes += _check_skewness(term, group, test)
    return notes


def _group_means(values: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Return the mean of each group [G]."""
    means: np.ndarray = np.bincount(codes, values) / np.bincount(codes)
    return means


def _split_groups(design: ModelDesign, index: int, group: str) -> np.ndarray | None:
    """Return which groups have the larger value of a term [G]; None unless it has two values."""
    by_group = _group_means(design.x[:, index], design.groups[group])
    has_two = design.is_constant(group)[index] and len(np.unique(by_group.round(9))) == 2
    return by_group > by_group.mean() if has_two else None


def _describe_values(design: ModelDesign, index: int, group: str) -> str:
    """Say how many groups have the rarer value of a term, if it has two; else ""."""
    is_larger = _split_groups(design, index, group)
    if is_larger is None:
        return ""
    return f"one condition has {min(is_larger.sum(), (~is_larger).sum())} of {len(is_larger)}; "


def _check_spread(design: ModelDesign, index: int, group: str) -> list[str]:
    """Compare the spread of the groups' mean residuals between the two values of a term."""
    from scipy.stats import levene

    is_larger = _split_groups(design, index, group)
    if is_larger is None:
        return []
    residuals = design.y - design.x @ np.linalg.lstsq(design.x, design.y, rcond=None)[0]
    means = _group_means(residuals, design.groups[group])
    sides = [means[is_larger], means[~is_larger]]
    if min(map(len, sides)) < 2:
        return []
    p = float(levene(*sides, center="median").pvalue)
    if not p < 1 - LEVEL:
        return []
    larger, smaller = (side.std(ddof=1) for side in sides)
    return [
        f"{design.terms[index]}: {group!r} differ in spread (standard deviation {larger:.3g} with it, "
        f"{smaller:.3g} without; Brown-Forsythe p {p:.3f}). p and sign flips need equal spread, the "
        "robust p does not"
    ]


def _check_skewness(term: str, group: str, test: RobustTest) -> list[str]:
    """Test whether the influences of groups on a term are skewed."""
    from scipy.stats import skewtest

    if len(test.influences) < FEWEST_GROUPS or not np.ptp(test.influences) > 0:
        return []
    p = float(skewtest(test.influences).pvalue)
    if not p < 1 - LEVEL:
        return []
    return [
        f"{term}: effects of {group!r} are skewed (D'Agostino p {p:.3f}). All three p need symmetric "
        "effects, or many groups"
    ]
