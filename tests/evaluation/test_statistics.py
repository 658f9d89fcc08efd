"""Intervals, tests and the trained - random table: against scipy, on numbers worked out by hand, and under a true null."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from speechmix.evaluation.statistics import (
    by_layer,
    corrected,
    cross_fitted_layer,
    effect_size,
    interval_of_mean,
    intervals_of_means,
    permutation_p,
    trained_against_random,
    with_claims,
)
from speechmix.evaluation.twins import new_twin_interval, new_twin_p


def test_interval_holds_the_mean_and_narrows_with_more_values():
    rng = np.random.default_rng(0)
    few, many = rng.normal(1, 1, 20), rng.normal(1, 1, 500)
    for values in (few, many):
        low, high = interval_of_mean(values)
        assert low < values.mean() < high
    assert np.ptp(interval_of_mean(many)) < np.ptp(interval_of_mean(few)) / 3
    assert interval_of_mean(few) == interval_of_mean(few)


def test_interval_of_next_to_nothing():
    assert np.isnan(interval_of_mean([0.3])).all()
    assert interval_of_mean([0.3, 0.3]) == (0.3, 0.3)


def test_interval_covers_the_truth_about_as_often_as_it_says():
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        low, high = interval_of_mean(rng.normal(0, 1, 40), resamples=500)
        hits += low <= 0 <= high
    assert 0.88 <= hits / 200 <= 0.99


def test_difference_is_paired_within_groups_and_seeds_are_averaged():
    rows = []
    for pair, (trained, random) in enumerate([(0.5, (0.1, 0.3)), (0.7, (0.2, 0.2)), (0.9, (0.1, 0.1))]):
        for member in "ab":
            rows.append((f"{pair}{member}", pair, "trained", None, trained))
            rows += [(f"{pair}{member}", pair, "random", seed, value) for seed, value in enumerate(random)]
    table = pd.DataFrame(rows, columns=["clip", "pair", "init", "seed", "contribution"]).assign(stack="encoder")
    found = trained_against_random(table, by=["stack"], group="pair").iloc[0]
    assert found.trained == pytest.approx(0.7)
    assert found.random == pytest.approx(0.5 / 3)
    assert found.difference == pytest.approx(0.7 - 0.5 / 3)
    assert found.groups == 3
    assert 0.29 < found.clips_low < found.difference < found.clips_high < 0.81
    assert found.low < found.clips_low
    assert found.clips_high < found.high


def twins_and_a_model(model_shift, *, twins=5, groups=12, seed=0):
    """A model and its twins on the same groups: each has a shift of its own, the model this one."""
    rng = np.random.default_rng(seed)
    clips, shifts = rng.normal(30, 5, groups), rng.normal(0, 3, twins)
    rows = [(f"g{group}", "trained", None, clips[group] + model_shift + rng.normal()) for group in range(groups)]
    rows += [
        (f"g{group}", "random", number, clips[group] + shift + rng.normal())
        for number, shift in enumerate(shifts)
        for group in range(groups)
    ]
    return pd.DataFrame(rows, columns=["clip", "init", "seed", "contribution"]).assign(stack="encoder")


def test_p_is_the_larger_of_that_over_clips_and_that_over_twins():
    table = twins_and_a_model(5.0)
    row = trained_against_random(table, by=["stack"]).iloc[0]
    means = table[table["init"] == "random"].groupby("seed").contribution.mean()
    assert row.p_twins == pytest.approx(new_twin_p(row.trained, means))
    assert row.p_clips < 0.01 < row.p_twins
    assert row.p == row.p_twins
    assert (row.twin_low, row.twin_high) == pytest.approx(new_twin_interval(means))
    assert (row.twins, row.groups, row.clips) == (5, 12, 12)
    few = trained_against_random(twins_and_a_model(60.0, groups=3), by=["stack"]).iloc[0]
    assert few.p == few.p_clips == 0.25
    assert few.p_twins < 0.001


def test_twins_are_compared_over_the_groups_that_all_of_them_and_the_model_have():
    table = twins_and_a_model(25.0)
    half = table[~((table.seed > 2) & table["clip"].isin([f"g{number}" for number in range(6)]))]
    row = trained_against_random(half, by=["stack"]).iloc[0]
    shared = half[half["clip"].isin([f"g{number}" for number in range(6, 12)])]
    of_twins = shared[shared["init"] == "random"].groupby("seed").contribution.mean()
    assert row.p_twins == pytest.approx(new_twin_p(shared[shared["init"] == "trained"].contribution.mean(), of_twins))
    assert (row.twins, row.groups) == (5, 12)


def test_one_twin_makes_no_claim_however_large_the_difference():
    row = trained_against_random(twins_and_a_model(60.0, twins=1), by=["stack"])
    assert row.p_clips[0] < 0.001
    assert row[["p", "p_twins", "low", "high", "twin_low"]].isna().all(axis=None)
    (claimed,) = with_claims(row)
    assert (claimed.claim[0], claimed.twins[0]) == ("", 1)


def test_q_is_over_the_rows_of_all_tables_and_a_claim_needs_the_interval_too():
    first = pd.DataFrame({"p": [0.01, 0.04], "low": [1.0, 1.0], "high": [2.0, 2.0]})
    second = pd.DataFrame({"p": [0.02, 0.001, np.nan], "low": [-1.0, -2.0, np.nan], "high": [2.0, -1.0, np.nan]})
    first, second, untouched = with_claims(first, second, pd.DataFrame({"trained": [1.0]}))
    np.testing.assert_allclose([*first.q, *second.q[:2]], corrected([0.01, 0.04, 0.02, 0.001]))
    assert first.claim.tolist() == ["more", "more"]
    assert second.claim.tolist() == ["", "less", ""]
    assert list(untouched) == ["trained"]


def test_without_a_trained_model_there_is_no_difference():
    table = pd.DataFrame({"clip": ["a", "b"], "init": "random", "contribution": [0.1, 0.2], "stack": "encoder"})
    found = trained_against_random(table, by=["stack"])
    assert np.isnan(found.trained[0])
    assert "difference" not in found


def contributions(truth, *, pairs=12, noise=0.0, seed=0):
    """Trained contributions by layer as in `truth`, those of three random twins at 0.2."""
    rng = np.random.default_rng(seed)
    rows = []
    for pair in range(pairs):
        for layer, value in enumerate(truth):
            rows.append((f"p{pair:02d}", "trained", None, layer, value + noise * rng.normal()))
            rows += [(f"p{pair:02d}", "random", twin, layer, 0.2 + noise * rng.normal()) for twin in range(3)]
    return pd.DataFrame(rows, columns=["pair", "init", "seed", "layer", "contribution"]).assign(stack="decoder")


def test_the_best_layer_is_found_and_every_group_kept_once():
    table = contributions([0.2, 0.7, 0.3])
    kept = cross_fitted_layer(table, by=["stack"], group="pair")
    assert set(kept.layer) == {1}
    assert (kept.groupby(["pair", "init", "seed"], dropna=False).size() == 1).all()
    assert trained_against_random(kept, by=["stack"], group="pair").difference[0] == pytest.approx(0.5)


@pytest.mark.long
def test_under_a_true_null_the_best_layer_does_not_look_good():
    differences, best = [], []
    for seed in range(60):
        table = contributions([0.2] * 8, noise=0.1, seed=seed)
        kept = cross_fitted_layer(table, by=["stack"], group="pair")
        differences.append(trained_against_random(kept, by=["stack"], group="pair").difference[0])
        by_layer = table.groupby(["layer", "init"]).contribution.mean().unstack()
        best.append((by_layer.trained - by_layer.random).max())
    assert abs(np.mean(differences)) < 0.02
    assert np.mean(best) > 0.04  # what choosing and reading on the same data would claim


def test_random_models_alone_and_a_single_group_are_no_trouble():
    table = contributions([0.2, 0.7])
    alone = table[table["init"] == "random"]
    assert len(cross_fitted_layer(alone, by=["stack"], group="pair")) == 12 * 3
    one = table[table.pair == "p00"]
    assert set(cross_fitted_layer(one, by=["stack"], group="pair").layer) == {1}


def test_intervals_are_scipys_and_rows_with_holes_are_drawn_without_them():
    from scipy.stats import bootstrap

    values = np.random.default_rng(3).normal(2, 1, (4, 15))
    low, high = intervals_of_means(values, resamples=700)
    found = bootstrap((values,), np.mean, axis=-1, n_resamples=700, method="percentile", rng=0).confidence_interval
    np.testing.assert_allclose(low, found.low)
    np.testing.assert_allclose(high, found.high)
    holed = values.copy()
    holed[1, 3:] = np.nan
    holed[2] = np.nan
    low, high = intervals_of_means(holed, resamples=700)
    assert low[1] < holed[1, :3].mean() < high[1]
    assert np.isnan(low[2])
    assert np.isnan(high[2])


@pytest.mark.parametrize("count", [7, 200])
def test_p_is_that_of_scipys_permutation_test_and_close_to_its_t_test(count):
    from scipy.stats import permutation_test, ttest_1samp

    differences = np.random.default_rng(count).normal(0.15, 1, count)
    expected = permutation_test(
        (differences,), np.mean, permutation_type="samples", n_resamples=4999, rng=0, vectorized=False
    )
    assert permutation_p(differences) == pytest.approx(expected.pvalue, abs=0.02)
    assert permutation_p(differences) == pytest.approx(ttest_1samp(differences, 0).pvalue, abs=0.05)


def test_exact_p_of_few_groups_by_hand():
    assert permutation_p([1, 2, 3, 4, 5]) == 2 / 32
    assert permutation_p([1, -1]) == 1.0
    assert np.isnan(permutation_p([0.3]))
    assert np.isnan(permutation_p([0.3, np.nan]))


def test_under_a_true_null_p_rejects_at_its_nominal_rate():
    """1,000 data sets of 10 skewed differences whose sign is a coin: 43 rejections at 5 % were counted, 6 at 1 %."""
    rng = np.random.default_rng(11)
    p = np.array([permutation_p(rng.choice([-1, 1], 10) * rng.exponential(1, 10)) for _ in range(1000)])
    assert (p <= 0.05).sum() == pytest.approx(50, abs=20)  # 3 standard deviations of a binomial count
    assert (p <= 0.01).sum() == pytest.approx(10, abs=9)


@pytest.mark.long
def test_under_a_true_null_few_studies_name_any_layer():
    """150 null studies of 12 correlated layers and 10 groups: 6 of them (4 %) name a layer at q < 0.05."""
    rng = np.random.default_rng(12)
    named = 0
    for _ in range(150):
        values = rng.choice([-1, 1], 10) * (rng.normal(0, 1, (12, 10)) + rng.normal(0, 1, 10))
        named += (corrected([permutation_p(layer) for layer in values]) < 0.05).any()
    assert named / 150 < 0.1


def test_correction_is_benjamini_and_hochbergs_and_leaves_out_what_is_missing():
    np.testing.assert_allclose(corrected([0.01, 0.02, 0.03, 0.4]), [0.04, 0.04, 0.04, 0.4])
    np.testing.assert_allclose(corrected([0.01, np.nan, 0.02]), [0.02, np.nan, 0.02])
    assert np.isnan(corrected([np.nan])).all()


def test_effect_size_is_mean_over_standard_deviation():
    assert effect_size([1, 2, 3]) == pytest.approx(2.0)
    assert np.isnan(effect_size([0.5, 0.5]))
    assert np.isnan(effect_size([0.5]))


def test_by_layer_finds_the_layer_that_differs_and_no_other():
    found = by_layer(contributions([0.2, 0.7, 0.2, 0.2], noise=0.02, pairs=20, seed=1), by=["stack"], group="pair")
    assert found.layer.tolist() == [0, 1, 2, 3]
    assert (found.q >= found.p - 1e-12).all()
    assert found.q[1] < 0.01
    assert found.claim.tolist() == ["", "more", "", ""]


def test_several_seeds_say_where_a_new_one_would_lie_and_baselines_are_kept():
    rows = [("a", "trained", None, 0.6), ("b", "trained", None, 0.8)]
    rows += [(clip, "random", seed, 0.1 + 0.1 * seed) for clip in "ab" for seed in (0, 1, 2)]
    table = pd.DataFrame(rows, columns=["clip", "init", "seed", "contribution"]).assign(
        stack="encoder", length_matched=0.2
    )
    found = trained_against_random(table, by=["stack"]).iloc[0]
    assert (found.twin_low, found.twin_high) == pytest.approx(new_twin_interval([0.1, 0.2, 0.3]))
    assert found.random == pytest.approx(0.2)
    assert found.length_matched == pytest.approx(0.2)
    assert found.positive == 1.0
    assert found.effect == pytest.approx(0.5 / np.std([0.4, 0.6], ddof=1))


def test_numbers_that_are_missing_leave_the_rest_alone():
    table = contributions([0.2, 0.7, 0.3])
    table.loc[table.pair == "p03", "contribution"] = np.nan
    kept = cross_fitted_layer(table, by=["stack"], group="pair")
    found = trained_against_random(kept, by=["stack"], group="pair").iloc[0]
    assert found.difference == pytest.approx(0.5)
    nothing = contributions([0.2]).assign(contribution=np.nan)
    assert cross_fitted_layer(nothing, by=["stack"], group="pair").empty
