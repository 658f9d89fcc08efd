"""Intervals: they cover with few groups and skewed data, are silent below, and are exact where they
are binomial."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from scipy.stats import multinomial

from speechmix.evaluation.statistics.intervals import (
    FEWEST_GROUPS,
    difference_interval,
    mean_interval,
    mean_intervals,
    proportion_interval,
)

RNG = np.random.default_rng(1)


@pytest.mark.parametrize("groups", [FEWEST_GROUPS, 10, 20, 100])
@pytest.mark.parametrize(
    ("draw", "mean"),
    [
        (RNG.normal, 0.0),
        (RNG.lognormal, np.exp(0.5)),
        (lambda size: -RNG.lognormal(size=size), -np.exp(0.5)),
        (lambda size: RNG.beta(0.5, 5, size), 1 / 11),
    ],
)
def test_nine_of_ten_hold_at_least(draw, mean, groups):
    low, high = mean_intervals(draw(size=(4000, groups)))
    assert ((low <= mean) & (mean <= high)).mean() >= 0.90


def test_symmetric_data_have_students_interval():
    values = np.array([-4.0, -3, -2, -1, 1, 2, 3, 4])
    expected = stats.t.interval(0.95, 7, scale=stats.sem(values))
    np.testing.assert_allclose(mean_interval(values), expected)


def test_skewed_data_reach_further_on_the_side_of_the_tail():
    values = RNG.lognormal(0, 1, 20)
    low, high = mean_interval(values)
    student = stats.t.interval(0.95, 19, values.mean(), stats.sem(values))
    assert high > student[1]
    assert low == pytest.approx(student[0]) or low < student[0]
    np.testing.assert_allclose(mean_interval(-values), (-high, -low))


def test_what_cannot_be_stated_is_not():
    assert np.isnan(mean_interval(RNG.normal(size=FEWEST_GROUPS - 1))).all()
    assert np.isnan(mean_interval([0.0] * 30)).all(), "identical values: not [0, 0]"
    assert np.isnan(mean_interval([])).all()
    values = [*RNG.normal(size=10), np.nan]
    assert mean_interval(values) == mean_interval(values[:-1])


def test_proportions_are_those_of_scipy():
    for successes, trials in ((0, 59), (3, 10), (20, 20)):
        expected = stats.binomtest(successes, trials).proportion_ci(method="exact")
        np.testing.assert_allclose(proportion_interval(successes, trials), expected)


def test_a_difference_of_nothing_is_not_certain():
    low, high = difference_interval(0, 0, 2)
    assert low < -0.5
    assert high > 0.5


@pytest.mark.parametrize(
    ("lost", "won"),
    [
        (0.0, 0.0),
        pytest.param(0.1, 0.0, marks=pytest.mark.long),
        pytest.param(0.5, 0.0, marks=pytest.mark.long),
        (0.2, 0.1),
    ],
)
def test_differences_of_proportions_hold(lost, won):
    changes = RNG.choice([1, -1, 0], p=[lost, won, 1 - lost - won], size=(1500, 12))
    held = [
        low - 1e-12 <= lost - won <= high + 1e-12
        for low, high in (
            difference_interval((row > 0).sum(), (row < 0).sum(), 12) for row in changes
        )
    ]
    assert np.mean(held) >= 0.90


def test_an_interval_ends_where_no_mean_can_be():
    correlations = [0.9, 1.0, 0.2, 1.0, 0.95, -0.9, 1.0, 0.8, 1.0]
    low, high = mean_interval(correlations)
    assert high > 1
    assert mean_interval(correlations, bounds=(-1, 1)) == (low, 1)
    assert np.isnan(mean_interval(correlations[:3], bounds=(-1, 1))).all()


@pytest.mark.parametrize("share", [0.05, 0.2, 0.4, 0.48])
def test_losses_as_frequent_as_gains_are_seldom_a_difference(share):
    """Exactly, over all counts of 40 groups: the interval is above zero in at most 2.5 %."""
    count, claimed = 40, 0.0
    null = multinomial(count, [share, share, 1 - 2 * share])
    for losses in range(count + 1):
        for gains in range(losses):  # the others have an interval that begins below zero
            if losses + gains <= count and difference_interval(losses, gains, count)[0] > 0:
                claimed += null.pmf([losses, gains, count - losses - gains])
    assert claimed <= 0.025
