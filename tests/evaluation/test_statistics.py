"""Intervals and the trained - random table on numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from speechmix.evaluation.statistics import cross_fitted_layer, interval_of_mean, trained_against_random


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
    assert 0.29 < found.low < found.difference < found.high < 0.81


def test_without_a_trained_model_there_is_no_difference():
    table = pd.DataFrame({"clip": ["a", "b"], "init": "random", "contribution": [0.1, 0.2], "stack": "encoder"})
    found = trained_against_random(table, by=["stack"])
    assert np.isnan(found.trained[0])
    assert "difference" not in found


def contributions(truth, *, pairs=12, noise=0.0, seed=0):
    """Trained contributions by layer as in `truth`, random ones at 0.2."""
    rng = np.random.default_rng(seed)
    rows = []
    for pair in range(pairs):
        for layer, value in enumerate(truth):
            rows.append((f"p{pair:02d}", "trained", layer, value + noise * rng.normal()))
            rows.append((f"p{pair:02d}", "random", layer, 0.2 + noise * rng.normal()))
    return pd.DataFrame(rows, columns=["pair", "init", "layer", "contribution"]).assign(stack="decoder")


def test_the_best_layer_is_found_and_every_group_kept_once():
    table = contributions([0.2, 0.7, 0.3])
    kept = cross_fitted_layer(table, by=["stack"], group="pair")
    assert set(kept.layer) == {1}
    assert (kept.groupby(["pair", "init"]).size() == 1).all()
    assert trained_against_random(kept, by=["stack"], group="pair").difference[0] == pytest.approx(0.5)


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
    assert len(cross_fitted_layer(alone, by=["stack"], group="pair")) == 12
    one = table[table.pair == "p00"]
    assert set(cross_fitted_layer(one, by=["stack"], group="pair").layer) == {1}
