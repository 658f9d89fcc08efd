"""Measures of similarity: their published definitions, planted truths, nulls, invariances."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm, ortho_group

from speechmix.errors import InputError
from speechmix.extensions.similarity.canonical_correlations import mean_cca, projection_weighted_cca
from speechmix.extensions.similarity.measure_table import (
    SIMILARITY_MEASURES,
    LabelCodes,
    SimilarityMeasure,
    compare_clusters,
    estimate_similarity,
)
from tests.evaluation.similarity import similarity_oracles as oracles

GOLDEN = Path(__file__).resolve().parents[4] / "shared/golden/text/expected_decompx.npz"
OF_FEATURES = ("cka", "cca", "rsa")
OF_LABELS = ("abx", "mutual_information")


def planted(groups, per_group, seed=0, noise=1.0):
    """Features that share five dimensions; a part of all is the group's."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(groups), per_group)
    shared = 0.6 * rng.normal(size=(groups, 5))[owner] + 0.8 * rng.normal(size=(len(owner), 5))
    own = [
        0.6 * rng.normal(size=(groups, d))[owner] + 0.8 * rng.normal(size=(len(owner), d))
        for d in (30, 20)
    ]
    mix = np.random.default_rng(99)
    loadings = [mix.normal(size=(5, d)) for d in (30, 20)]
    x, y = (shared @ w + noise * z for w, z in zip(loadings, own, strict=True))
    covariances = [a.T @ b for a in loadings for b in loadings]
    covariances[0] = covariances[0] + noise**2 * np.eye(30)
    covariances[3] = covariances[3] + noise**2 * np.eye(20)
    squares = [np.sum(c**2) for c in covariances]
    return x, y, owner, squares[1] / np.sqrt(squares[0] * squares[3])


def labelled(groups, per_group, distance=1.5, seed=0):
    """One dimension, two labels, and their ABX of infinitely many units, in closed form."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(groups), per_group)
    labels = rng.integers(0, 2, len(owner))
    x = rng.normal(size=(len(owner), 1)) + distance * labels[:, None]
    a, b = norm.cdf(distance / np.sqrt([2, 6]))
    return x, labels, owner, 2 * (a * b + (1 - a) * (1 - b)) - 1


def test_cka_is_the_published_estimator():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(14, 30)) + 3
    y = x[:, :4] + rng.normal(size=(14, 4))
    assert estimate_similarity(x, y).value == pytest.approx(oracles.song_cka(x, y), abs=1e-10)


def test_cka_of_groups_compares_units_of_four_groups_only():
    rng = np.random.default_rng(1)
    groups = np.array([0, 0, 1, 2, 2, 3, 4, 4, 5])
    x = rng.normal(size=(9, 3)) + 5
    y = rng.normal(size=(9, 4)) + x[:, :1]
    found = estimate_similarity(x, y, groups)
    assert found.value == pytest.approx(oracles.grouped_cka(x, y, groups), abs=1e-10)
    without = [oracles.grouped_cka(x, y, groups, g) for g in range(6)]
    assert found.without_group == pytest.approx(without, abs=1e-10)


@pytest.mark.skipif(not GOLDEN.is_file(), reason="needs the shared golden arrays")
def test_cka_of_shared_arrays():
    states = np.load(GOLDEN)["bert|hidden_states"]
    x, y = states[1].reshape(-1, states.shape[-1]), states[-1].reshape(-1, states.shape[-1])
    assert estimate_similarity(x, y).value == pytest.approx(oracles.song_cka(x, y), abs=1e-6)


def test_batches_agree_with_the_whole():
    x, y, groups, truth = planted(80, 5)
    whole, batches = (
        estimate_similarity(x, y, groups, batch_size=size).value for size in (2000, 100)
    )
    assert abs(whole - truth) < 0.05 > abs(batches - whole)


def test_cca_is_the_published_one():
    x, y, _, _ = planted(50, 2)
    correlations, _ = oracles.canonical(x, y)
    assert mean_cca(x, y) == pytest.approx(np.mean(correlations), abs=1e-6)
    assert projection_weighted_cca(x, y) == pytest.approx(oracles.pwcca(x, y), abs=1e-6)
    with pytest.raises(InputError, match="more units than dimensions"):
        mean_cca(x[:40], y[:40])


def test_rsa_is_the_published_one():
    x, y, groups, _ = planted(8, 3)
    found = estimate_similarity(x, y, groups, measure="rsa").value
    assert found == pytest.approx(oracles.cosine_rsa(x, y, groups), abs=1e-10)


def test_abx_is_the_published_one():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 24)
    x = rng.integers(0, 4, size=(24, 2)).astype(float) + labels[:, None]  # with ties
    groups = np.repeat(np.arange(8), 3)
    found = estimate_similarity(x, labels, groups, measure="abx", distance="euclidean")
    assert found.value == pytest.approx(oracles.abx(x, labels, groups), abs=1e-12)
    without = [oracles.abx(x, labels, groups, g) for g in range(8)]
    assert found.without_group == pytest.approx(without, abs=1e-12)


def test_information_is_corrected_by_its_expectation():
    clusters, labels = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 0, 1, 1, 1, 0])
    found = compare_clusters(clusters, LabelCodes(labels, np.arange(6)))
    assert found.value == pytest.approx(oracles.corrected_information(clusters, labels), abs=1e-9)


@pytest.mark.parametrize("measure", OF_FEATURES)
def test_random_features_are_not_similar(measure):
    """Fewer units than dimensions: 60 units, 500 dimensions, from 20 groups."""
    groups = np.repeat(np.arange(20), 3)
    values = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        x, y = rng.normal(size=(2, 60, 500)) + 4 * rng.normal(size=(2, 20, 500))[:, groups]
        values.append(estimate_similarity(x, y, groups, measure=measure).value)
    assert abs(np.mean(values)) < 3 * np.std(values, ddof=1) / np.sqrt(12) + 0.01
    assert abs(np.mean(values)) < 0.06


@pytest.mark.parametrize("measure", OF_LABELS)
def test_random_labels_are_not_told_apart(measure):
    values = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        x, labels = rng.normal(size=(60, 500)), rng.integers(0, 10, 60)
        values.append(estimate_similarity(x, labels, np.arange(60) // 3, measure=measure).value)
    assert abs(np.mean(values)) < 0.06


def test_planted_similarities_lie_in_their_intervals():
    x, y, groups, truth = planted(60, 4, seed=3)
    low, high = estimate_similarity(x, y, groups).interval
    assert low < truth < high
    assert high - low < 0.2
    x, labels, groups, truth = labelled(30, 4)
    low, high = estimate_similarity(x, labels, groups, measure="abx", distance="euclidean").interval
    assert low < truth < high
    rng = np.random.default_rng(0)
    clusters = rng.integers(0, 6, 600)  # told apart without error; labels follow them in 80 %
    labels = np.where(rng.random(600) < 0.8, clusters, rng.integers(0, 6, 600))
    p = np.full(6, 0.2 / 6) + np.eye(6)[0] * 0.8
    truth = 1 + np.sum(p * np.log(p)) / np.log(6)
    found = estimate_similarity(
        20 * np.eye(6)[clusters] + rng.normal(size=(600, 6)),
        labels,
        np.arange(600) // 10,
        measure="mutual_information",
        clusters=6,
    )
    assert found.interval[0] < truth < found.interval[1]


def test_held_out_cca_finds_planted_correlations():
    """Four dimensions on each side, correlations .9, .6, .3, 0; variances alike: their mean."""
    rng = np.random.default_rng(0)
    planted_correlations = np.array([0.9, 0.6, 0.3, 0.0])
    x = rng.normal(size=(2000, 4))
    noise = np.sqrt(1 - planted_correlations**2) * rng.normal(size=(2000, 4))
    y = (planted_correlations * x + noise) @ ortho_group.rvs(4, random_state=0)
    found = estimate_similarity(x, y, np.arange(2000) // 10, measure="cca")
    assert found.interval[0] < planted_correlations.mean() < found.interval[1]


@pytest.mark.parametrize("measure", OF_FEATURES)
def test_rotations_shifts_and_units_change_nothing(measure):
    x, y, groups, _ = planted(20, 3)
    rotated = 7 * x @ ortho_group.rvs(30, random_state=1) + 2
    plain, other = (estimate_similarity(z, y, groups, measure=measure) for z in (x, rotated))
    assert other.value == pytest.approx(plain.value, abs=1e-8)
    assert other.interval == pytest.approx(plain.interval, abs=1e-6)
    swapped = estimate_similarity(y, x, groups, measure=measure)
    assert swapped.value == pytest.approx(plain.value, abs=1e-10)


@pytest.mark.parametrize("measure", [*OF_FEATURES, "abx"])
def test_order_of_units_and_copies_of_groups_change_nothing(measure):
    x, y, groups, _ = planted(20, 3)
    second = groups % 4 if measure == "abx" else y
    second = np.random.default_rng(0).permutation(second) if measure == "abx" else second
    plain = estimate_similarity(x, second, groups, measure=measure)
    order = np.random.default_rng(1).permutation(len(x))
    other = estimate_similarity(x[order], second[order], groups[order], measure=measure)
    assert other.value == pytest.approx(plain.value, abs=1e-10)
    assert other.interval == pytest.approx(plain.interval, abs=1e-8)
    twice = np.tile(np.arange(len(x)), 2)  # every clip a second time, in the group of the first
    copied = estimate_similarity(x[twice], second[twice], groups[twice], measure=measure)
    tolerance = 0.02 if measure == "cca" else 1e-8  # shrinkage follows the number of units
    assert copied.value == pytest.approx(plain.value, abs=tolerance)
    widths = [np.diff(each.interval)[0] for each in (plain, copied)]
    assert widths[1] == pytest.approx(widths[0], rel=0.1 if measure == "cca" else 1e-6)


def test_few_groups_have_no_interval_and_very_few_no_value():
    x, y, groups, _ = planted(7, 5)
    assert np.isnan(estimate_similarity(x, y, groups).interval).all()
    with pytest.raises(InputError, match=r"5 independent groups of clips or more.*found 4"):
        estimate_similarity(x[:20], y[:20], groups[:20])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"measure": "ckq"}, r"measure should be one of cka, cca.*found 'ckq'"),
        ({"distance": "cosine"}, r"'cka' has no option 'distance'; it takes batch_size"),
        ({"measure": "rsa", "distance": "l1"}, r"distance should be cosine.*found 'l1'"),
        ({"second": np.zeros((3, 2))}, r"found \(60, 30\), \(3, 2\), \(60,\)"),
        ({"measure": "abx"}, r"labels \[N\]"),
        ({"batch_size": 0}, "batch_size should be 1 or more, found 0"),
        ({"measure": "cca", "folds": 1}, "folds should be 2 or more, found 1"),
        ({"measure": "cca", "components": 0}, "components should be 1 or more, found 0"),
        ({"measure": "mutual_information", "clusters": 1}, "clusters should be 2 or more"),
        ({"second": np.full((60, 2), np.nan)}, "not finite"),
    ],
)
def test_what_cannot_be_compared_is_refused(change, message):
    x, y, groups, _ = planted(20, 3)
    options = {"first": x, "second": y, "groups": groups, **change}
    with pytest.raises(InputError, match=message):
        estimate_similarity(**options)


def test_a_measure_from_outside_is_one_entry(monkeypatch):
    from speechmix.extensions.similarity.unit_reader import SimilarityEstimate

    def prepare(features, groups, *, power: float = 1.0):
        return features.mean() * power

    def compare(first, second):
        return SimilarityEstimate(first - second, np.zeros(5))

    measure = SimilarityMeasure("difference", "difference of means", prepare, compare)
    monkeypatch.setitem(SIMILARITY_MEASURES, "difference", measure)
    x = np.ones((10, 2))
    found = estimate_similarity(x, 3 * x, measure="difference", power=2.0)
    assert found.value == -4


@pytest.mark.long
@pytest.mark.parametrize("groups", [10, 30])
def test_intervals_cover_planted_similarities(groups):
    covered = {"cka": [], "abx": []}
    for seed in range(int(os.environ.get("DRAWS", "400"))):
        x, y, owner, truth = planted(groups, 4, seed=seed)
        low, high = estimate_similarity(x, y, owner).interval
        covered["cka"].append(low <= truth <= high)
        x, labels, owner, truth = labelled(groups, 4, seed=seed)
        low, high = estimate_similarity(
            x, labels, owner, measure="abx", distance="euclidean"
        ).interval
        covered["abx"].append(low <= truth <= high)
    rates = {name: np.mean(each) for name, each in covered.items()}
    print(groups, rates)
    assert all(0.9 <= rate <= 0.995 for rate in rates.values()), rates
