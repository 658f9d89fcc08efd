"""Untrained models as draws: against scipy's own tests, and by how often a true null is rejected."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from speechmix.evaluation.statistics import permutation_p
from speechmix.evaluation.twins import (
    combined_p,
    crossed_interval,
    new_twin_interval,
    new_twin_p,
    new_twin_reach,
    smallest_claim,
    two_gains,
)


def test_p_is_that_of_a_two_sample_t_test_with_one_draw_in_one_sample():
    rng = np.random.default_rng(0)
    for count in (2, 3, 10):
        means, mean = rng.normal(20, 3, count), 31.0
        expected = stats.ttest_ind(np.array([mean, np.nan]), means, nan_policy="omit", equal_var=True).pvalue
        assert new_twin_p(mean, means) == pytest.approx(expected, rel=1e-9)


def test_two_gains_are_compared_as_by_scipys_welch_test_with_the_variance_of_a_new_twin():
    means, others = np.array([10.0, 14.0, 11.0, 12.5]), np.array([30.0, 31.0, 37.0])
    spreads = [part.std(ddof=1) * np.sqrt(len(part) + 1) for part in (means, others)]
    expected = stats.ttest_ind_from_stats(9.0, spreads[0], 4, 0.0, spreads[1], 3, equal_var=False).pvalue
    p, reach = two_gains(9.0, means, others)
    assert p == pytest.approx(expected)
    assert two_gains(reach, means, others)[0] == pytest.approx(0.05)


def test_interval_ends_where_p_is_five_percent():
    means = [10.0, 14.0, 11.0, 12.5]
    for limit in new_twin_interval(means):
        assert new_twin_p(limit, means) == pytest.approx(0.05)


def test_a_difference_as_large_as_the_smallest_claim_is_one():
    means = np.array([3.0, 5.0, 4.0])
    reach = smallest_claim(3) * means.std(ddof=1)
    assert new_twin_p(means.mean() + 1.001 * reach, means) < 0.05 < new_twin_p(means.mean() + 0.999 * reach, means)


def test_one_twin_says_nothing_and_twins_that_are_all_alike_say_all():
    assert np.isnan(new_twin_p(3.0, [1.0]))
    assert np.isnan(new_twin_interval([1.0])).all()
    assert np.isnan(crossed_interval(1.0, 0.5, 1.5, new_twin_reach([1.0]))).all()
    assert np.isnan(two_gains(1.0, [1.0], [2.0, 3.0])).all()
    assert two_gains(0.0, [1.0, 1.0], [2.0, 2.0]) == (1.0, 0.0)
    assert two_gains(0.1, [1.0, 1.0], [2.0, 2.0]) == (0.0, 0.0)
    assert np.isnan(new_twin_p(np.nan, [1.0, 2.0]))
    assert new_twin_p(0.0, [0.0, 0.0]) == 1
    assert new_twin_p(0.1, [0.0, 0.0]) == 0
    assert smallest_claim(1) == float("inf")
    assert new_twin_p(16.0, [10.0, np.nan, 11.0, 12.0]) == new_twin_p(16.0, [10.0, 11.0, 12.0])


def test_combination_keeps_the_level_however_the_layers_depend_on_each_other():
    rng = np.random.default_rng(1)
    common, own = rng.normal(size=(4000, 1)), rng.normal(size=(4000, 12))
    for share in (0.0, 0.6, 1.0):
        z = np.sqrt(share) * common + np.sqrt(1 - share) * own
        rejected = np.mean([combined_p(2 * stats.norm.sf(np.abs(row))) < 0.05 for row in z])
        assert 0.03 <= rejected <= 0.07
    assert np.isnan(combined_p([np.nan]))
    assert combined_p([0.2, np.nan]) == pytest.approx(0.2)


def test_an_untrained_model_that_poses_as_trained_is_found_out_by_clips_alone_and_not_by_both():
    """Weights shift a model's contribution on all clips alike, so clips alone find every twin special."""
    rng = np.random.default_rng(2)
    by_clips, by_both, groups, twins = 0, 0, 20, 3
    for _ in range(300):
        clips = rng.normal(30, 5, groups)
        models = clips + rng.normal(0, 4, (twins + 1, 1)) + rng.normal(0, 3, (twins + 1, groups))
        poser, others = models[0], models[1:]
        p_clips = permutation_p(poser - others.mean(axis=0), permutations=499)
        p_twins = new_twin_p(poser.mean(), others.mean(axis=1))
        by_clips += p_clips < 0.05
        by_both += max(p_clips, p_twins) < 0.05
    assert by_clips / 300 > 0.4
    assert 0.02 <= by_both / 300 <= 0.08


def test_the_crossed_interval_holds_the_truth_of_trained_models_in_general():
    rng = np.random.default_rng(3)
    hits = 0
    for _ in range(300):
        twins = rng.normal(20, 3, 5)
        differences = rng.normal(15, 6, 25) - (twins.mean() - 20) + rng.normal(0, 3)
        mean, half = differences.mean(), 2.064 * differences.std(ddof=1) / 5
        low, high = crossed_interval(mean, mean - half, mean + half, new_twin_reach(twins))
        hits += low <= 15 <= high
    assert hits / 300 >= 0.93
