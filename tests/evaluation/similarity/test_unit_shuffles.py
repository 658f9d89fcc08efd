"""Units that are not related: a drift over the session is no relation, and a relation is found beside it."""

from __future__ import annotations

import importlib
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from speechmix.extensions.similarity.measure_table import find_similarity
from speechmix.extensions.similarity.similarity import remove_drift, roll_units, shuffle_groups
from speechmix.extensions.similarity.unit_reader import LayerFeatures, UnitReader
from speechmix.inputs import bundled

similarity = importlib.import_module("speechmix.extensions.similarity.similarity")
SEEDS = range(11)
WIDTH = 8


def draw_drift(kind, groups, rng):
    """A slow change over the groups in the order of the recording, in each dimension another."""
    time = np.linspace(0, 1, groups)[:, None]
    if kind == "line":
        return 3 * time * rng.normal(size=WIDTH)
    if kind == "walk":
        return 0.5 * rng.normal(size=(groups, WIDTH)).cumsum(axis=0)
    periods = rng.uniform(0.5, 1.5, WIDTH)
    return 1.5 * np.sin(2 * np.pi * (periods * time + rng.uniform(size=WIDTH)))


def compare_planted(seed, kind, *, shared=0.0, groups=30, measure="cka"):
    """Features of two sides that drift, and have noise of their own, and of units that are `shared`.

    Groups have 1 to 7 units. The comparison has them in another order than that of the recording.
    """
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), rng.integers(1, 8, groups))
    common = shared * rng.normal(size=(len(group), WIDTH))
    content = rng.permutation(groups)[group]
    order = np.argsort(content, kind="stable")
    sides = []
    for name in "ab":
        noise = rng.normal(size=(len(group), WIDTH))
        values = draw_drift(kind, groups, rng)[group] + noise + common
        sides.append([LayerFeatures(name, "encoder", 0, values[order])])
    reader = SimpleNamespace(
        units=pd.DataFrame({"group": content[order], "clip": group[order]}),
        positions={index: index for index in range(groups)},
        select_complete=lambda features: np.ones(len(group), dtype=bool),
    )
    comparison = similarity._Comparison(find_similarity(measure, {}), {}, reader, *sides)
    (estimate,) = comparison.compare(
        comparison.prepare(sides[0]), comparison.prepare_second(sides[1])
    )
    return estimate, comparison.compare_shuffled(*sides, 19, seed).iloc[0]


@pytest.mark.parametrize("kind", ["line", "walk", pytest.param("wave", marks=pytest.mark.long)])
def test_a_slow_drift_of_both_sides_is_not_claimed(kind):
    """Nothing else is shared."""
    found = [compare_planted(seed, kind) for seed in SEEDS]
    assert all(estimate.interval[0] > 0.05 for estimate, _ in found)
    assert np.mean([row["without_drift"] for _, row in found]) == pytest.approx(0, abs=0.02)
    assert sum(row["p_shuffled"] <= 0.05 for _, row in found) <= (1 if kind == "walk" else 0)


def test_without_the_filter_both_shuffles_would_claim_each_drift(monkeypatch):
    monkeypatch.setattr(similarity, "remove_drift", lambda features, ranks: features)
    assert all(compare_planted(seed, "line")[1]["p_shuffled"] <= 0.05 for seed in SEEDS)


@pytest.mark.parametrize("measure", ["cka", "cca", "rsa"])
def test_a_relation_of_units_is_found_beside_a_drift(measure):
    found = [compare_planted(seed, "walk", shared=0.8, measure=measure) for seed in range(5)]
    assert all(row["p_shuffled"] <= 0.05 for _, row in found)


def test_only_slow_variation_is_removed():
    ranks = np.repeat(np.arange(40), 2)
    slow, fast = np.cos(2 * np.pi * ranks / 40), np.cos(np.pi * ranks)
    found = remove_drift(np.column_stack([slow, fast, 2.0 * ranks]), ranks)
    assert np.abs(found[:, [0, 2]]).max() < 0.05
    assert np.abs(found[:, 1] - fast).mean() < 0.1


def test_rolls_keep_neighbours_and_shuffles_keep_groups():
    ranks = np.array([2, 2, 0, 0, 1, 1, 3, 3])  # groups of one size, in another order
    order = np.argsort(ranks, kind="stable")
    for donors in roll_units(ranks, 5):
        assert (np.diff(np.argsort(order)[donors[order]]) % len(ranks) == 1).all()
    shuffles = shuffle_groups(ranks, 20)
    assert len({tuple(donors) for donors in shuffles}) > 5
    for donors in shuffles:
        assert (ranks[donors].reshape(-1, 2).std(axis=1) == 0).all()
        assert sorted(donors) == list(range(8))
    uneven = np.array([0, 0, 0, 1, 2, 2])
    assert all(sorted(donors) == list(range(6)) for donors in shuffle_groups(uneven, 9))


def test_the_order_of_the_recording_is_that_of_the_given_clips():
    clips = bundled.clips()[:6][::-1]
    reader = UnitReader(clips, "word")
    assert reader.positions == {clip.name: index for index, clip in enumerate(clips)}
