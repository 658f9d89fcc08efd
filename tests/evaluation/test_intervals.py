"""Intervals of few groups: those of Student and Clopper & Pearson where these hold, wider where data are skewed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest
from scipy.stats import t as student

from speechmix.evaluation.intervals import (
    FEWEST_GROUPS,
    difference_interval,
    mean_interval,
    mean_intervals,
    proportion_interval,
)


def test_of_symmetric_values_it_is_students():
    values = np.array([1, 2, 3, 4, 6, 7, 8, 9.0])
    expected = student.interval(0.95, 7, loc=5, scale=values.std(ddof=1) / np.sqrt(8))
    assert mean_interval(values) == pytest.approx(expected)


def test_of_skewed_values_it_reaches_further_to_the_long_side():
    values = np.exp(np.linspace(-1.5, 1.5, 9))
    low, high = mean_interval(values)
    assert high - values.mean() > 1.5 * (values.mean() - low)


@pytest.mark.parametrize("groups", [FEWEST_GROUPS, 20])
def test_it_covers_with_few_groups(groups):
    rng = np.random.default_rng(groups)
    for samples, mean, least in (
        (rng.normal(size=(4000, groups)), 0, 0.945),
        (rng.lognormal(size=(4000, groups)), np.exp(0.5), 0.9),
    ):
        low, high = mean_intervals(samples)
        assert ((low <= mean) & (mean <= high)).mean() >= least


def test_without_enough_groups_or_without_spread_there_is_none():
    assert np.isnan(mean_interval(range(FEWEST_GROUPS - 1))).all()
    assert np.isnan(mean_interval([0.1 + 0.2] * 4 + [0.3] * 6)).all()
    rows = np.vstack([np.arange(9.0), np.arange(9.0), np.arange(9.0)])
    rows[1, 0], rows[2, :2] = np.nan, np.nan
    low, high = mean_intervals(rows)
    assert np.isnan(low).tolist() == [False, False, True]
    assert (low[1], high[1]) == pytest.approx(mean_interval(np.arange(1.0, 9)))


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (3, 10), (10, 10)])
def test_proportions_have_the_exact_interval(successes, trials):
    exact = binomtest(successes, trials).proportion_ci(0.9, "exact")
    assert proportion_interval(successes, trials, level=0.9) == pytest.approx((exact.low, exact.high))
    assert np.isnan(proportion_interval(0, 0)).all()


def test_the_interval_of_a_difference_lies_around_it_and_turns_with_it():
    low, high = difference_interval(8, 3, 20)
    assert low < 0.25 < high
    assert difference_interval(3, 8, 20) == pytest.approx((-high, -low))
    assert np.isnan(difference_interval(0, 0, 0)).all()
