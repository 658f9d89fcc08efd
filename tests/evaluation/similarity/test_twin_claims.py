"""How often claims about training are wrong: untrained models that pose as trained, clips that vary."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import speechmix
from speechmix.evaluation.statistics.intervals import one_more_twin_intervals
from speechmix.extensions.similarity.unit_reader import SimilarityEstimate
from speechmix.inputs import bundled

similarity = importlib.import_module("speechmix.extensions.similarity.similarity")
_compare_twins = similarity._compare_twins
TWINS = 9


def draw_estimates(rng, groups, count, *, spread, shift=0.0, skewed=False):
    """A model's similarities in correlated pairs: its own deviation, and that of its clips."""
    noise = rng.normal(size=(count, groups)) + rng.normal(size=groups)
    noise = np.exp(noise / np.sqrt(8)) - np.exp(1 / 8) if skewed else noise / np.sqrt(2)
    levels = 0.4 + shift + 0.01 * rng.normal(size=(count, 1)) + spread * noise
    means = levels.mean(axis=1)
    without = (groups * means[:, None] - levels) / (groups - 1)
    return [SimilarityEstimate(v, w) for v, w in zip(means, without, strict=True)]


def claim_rates(draws, groups, count, **trained):
    claims = []
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        first = draw_estimates(rng, groups, count, **trained)
        twins = [draw_estimates(rng, groups, count, spread=0.02) for _ in range(TWINS)]
        claims.append((_compare_twins(first, twins)["claim"] != "").any())
    return float(np.mean(claims))


def test_pseudo_values_give_the_estimate_back():
    (estimate,) = draw_estimates(np.random.default_rng(0), 9, 1, spread=0.1)
    assert estimate.pseudo_values.mean() == pytest.approx(estimate.value)


def test_a_difference_is_claimed_and_a_variation_of_clips_is_not():
    assert claim_rates(20, 15, 10, spread=0.05, shift=0.2) == 1
    assert claim_rates(20, 15, 10, spread=0.2) <= 0.1


def test_the_interval_is_the_one_of_all_comparisons_with_twins():
    rng = np.random.default_rng(1)
    first = draw_estimates(rng, 16, 4, spread=0.05, shift=0.1)
    twins = [draw_estimates(rng, 16, 4, spread=0.02) for _ in range(TWINS)]
    found = _compare_twins(first, twins)
    values = np.array([[each.value for each in pairs] for pairs in twins]).T
    differences = [
        each.pseudo_values - np.mean([pairs[i].pseudo_values for pairs in twins], axis=0)
        for i, each in enumerate(first)
    ]
    low, high = one_more_twin_intervals(np.array(differences), values, rows=4)
    np.testing.assert_allclose(found["difference_low"], low)
    np.testing.assert_allclose(found["difference_high"], high)
    assert found["claim"].tolist() == ["more" if each > 0 else "" for each in low]


def test_fewer_twins_than_needed_and_few_groups_claim_nothing():
    rng = np.random.default_rng(0)
    first = draw_estimates(rng, 15, 4, spread=0.01, shift=0.5)
    twins = [draw_estimates(rng, 15, 4, spread=0.02) for _ in range(5)]
    assert (_compare_twins(first, twins)["claim"] == "more").all()
    assert (_compare_twins(first, twins[:-1])["claim"] == "").all()
    few = [draw_estimates(rng, 14, 4, spread=0.01, shift=s) for s in (0.5, *[0.0] * TWINS)]
    assert (_compare_twins(few[0], few[1:])["claim"] == "").all()


@pytest.mark.long
@pytest.mark.parametrize("skewed", [False, True])
@pytest.mark.parametrize("groups", [15, 30])
def test_clips_that_vary_more_in_the_trained_model_are_no_difference(groups, skewed):
    """Ten times the variation of the twins."""
    rate = claim_rates(400, groups, 10, spread=0.2, skewed=skewed)
    print(groups, skewed, rate)
    assert rate <= 0.07


@pytest.mark.long
@pytest.mark.parametrize("b", ["mel", None])
def test_an_untrained_model_posing_as_trained_is_rarely_claimed(b, monkeypatch):
    """80 untrained models in eight sets of ten; each poses as trained beside the other nine."""
    models = []

    def keep_estimates(estimates, twins):
        models.append(estimates)
        return _compare_twins(estimates, twins)

    monkeypatch.setattr(similarity, "_compare_twins", keep_estimates)
    for seed in range(80):
        model = speechmix.load("bundled:tiny-french-ctc", init="random", seed=seed, device="cpu")
        speechmix.similarity(model, b, clips=bundled.clips()[::2], shuffles=0)
    claims = [
        _compare_twins(
            models[i], [m for j, m in enumerate(models) if j != i and j // 10 == i // 10]
        )["claim"]
        for i in range(80)
    ]
    rate = np.mean([(each != "").any() for each in claims])
    print(b, rate)
    assert rate <= 0.07
