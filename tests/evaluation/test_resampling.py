"""Bootstrap and permutation test of many groups: against scipy on the same draws, under a true null, in batches of any size."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from speechmix.evaluation import resampling, statistics
from speechmix.evaluation.resampling import bootstrap_limits, sign_flip_p


@pytest.fixture(scope="module")
def values():
    return np.random.default_rng(3).normal([0.0, 0.05, 0.3], 1.0, (1201, 3))


def test_limits_are_those_of_scipy_with_the_same_seed(values):
    low, high = bootstrap_limits(values, level=0.95, resamples=300)
    options = {"axis": -1, "confidence_level": 0.95, "n_resamples": 300, "batch": 100, "method": "percentile", "rng": 0}
    expected = stats.bootstrap((values.T,), np.mean, **options).confidence_interval
    np.testing.assert_allclose([low, high], [expected.low, expected.high], rtol=1e-12, atol=1e-14)


def test_size_of_batches_changes_no_limit(values, monkeypatch):
    whole = bootstrap_limits(values, level=0.95, resamples=50)
    monkeypatch.setattr(resampling, "_MOST_DRAWN", 7 * len(values))
    np.testing.assert_allclose(bootstrap_limits(values, level=0.95, resamples=50), whole, rtol=1e-12)


def test_p_is_about_that_of_the_normal_distribution(values):
    p = sign_flip_p(values, permutations=4999)
    z = np.abs(values.mean(axis=0)) / np.sqrt((values**2).mean(axis=0) / len(values))
    np.testing.assert_allclose(p, np.maximum(2 * stats.norm.sf(z), 2 / 5000), atol=0.03)
    assert p[2] == 2 / 5000


def test_p_under_a_true_null_is_uniform_and_one_for_nothing():
    nulls = np.random.default_rng(5).normal(0, 1, (1100, 200))
    p = sign_flip_p(nulls, permutations=499)
    assert 0.01 <= (p < 0.05).mean() <= 0.1
    assert sign_flip_p(np.zeros((1100, 1)), permutations=99)[0] == 1.0


def test_p_does_not_depend_on_the_unit_of_the_values():
    """Values of few sizes tie: a sum of tenths that is rounded up is still as far from zero as one that is rounded down."""
    whole = np.random.default_rng(6).integers(-2, 4, (1101, 12)).astype(float) - 0.5
    whole -= np.round(2 * whole.mean(axis=0)) / 2
    p = sign_flip_p(whole, permutations=999)
    for unit in (0.1, 1 / 3, 1e-9):
        np.testing.assert_array_equal(sign_flip_p(unit * whole, permutations=999), p)


def test_what_is_not_finite_has_no_p_and_does_not_count():
    values = np.random.default_rng(7).normal(0.1, 1.0, (1100, 3))
    values[5, 1], values[6, 2] = np.nan, np.inf
    assert np.isnan(sign_flip_p(values, permutations=99)).tolist() == [False, True, True]
    rows = [pd.Series(values[:, row]) for row in range(3)]
    at_scale = statistics.over_groups_together(rows)
    for row, numbers in zip(rows, at_scale, strict=True):
        finite = row[np.isfinite(row)]
        assert numbers == pytest.approx(statistics.over_groups(finite), rel=1e-12)
        assert numbers["difference"] == finite.mean()


def test_p_of_few_groups_agrees_with_scipys(monkeypatch):
    differences = np.random.default_rng(8).normal(0.3, 1.0, 60)
    expected = statistics.permutation_p(differences)
    monkeypatch.setattr(statistics, "MANY_GROUPS", 10)
    assert statistics.permutation_p(differences) == pytest.approx(expected, abs=0.02)


def test_statistics_of_many_groups_are_those_of_one_row_at_a_time(monkeypatch):
    rng = np.random.default_rng(9)
    rows = [pd.Series(rng.normal(shift, 1, count)) for shift, count in ((0, 40), (0.2, 40), (0.1, 30), (0.5, 8))]
    rows[1].iloc[3] = np.nan
    monkeypatch.setattr(statistics, "MANY_GROUPS", 20)
    together = statistics.over_groups_together(rows)
    for row, numbers in zip(rows, together, strict=True):
        alone = statistics.over_groups(row)
        assert numbers == pytest.approx(alone, rel=1e-12)
