"""The rank among twins: exact under the null, never of the wrong sign, unmoved by order, and silent
with few twins."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from speechmix.evaluation.statistics.twin_rank_test import TWINS_NEEDED, rank_p, twin_limits

RNG = np.random.default_rng(0)


def slow_p(values: np.ndarray) -> list[float]:
    """p of "more" in each cell from its definition, without vectors."""
    models, cells = values.shape

    def z(model, cell):
        others = np.delete(values[:, cell], model)
        return (values[model, cell] - others.mean()) / others.std(ddof=1)

    largest = [max(z(model, cell) for cell in range(cells)) for model in range(1, models)]
    return [(1 + sum(value >= z(0, cell) for value in largest)) / models for cell in range(cells)]


def test_it_is_what_its_definition_says():
    values = RNG.lognormal(2, 1, (12, 5))
    np.testing.assert_allclose(rank_p(values)[0], slow_p(values))
    np.testing.assert_allclose(rank_p(values)[1], slow_p(-values))


@pytest.mark.parametrize("draw", [RNG.normal, RNG.lognormal, lambda size: RNG.beta(0.5, 20, size)])
def test_every_model_of_one_distribution_comes_first_equally_often(draw):
    """Exactness: of T + 1 models that take turns as the trained one, at most one has the smallest
    possible p."""
    for _ in range(20):
        values = draw(size=(40, 24))
        smallest = [rank_p(np.roll(values, turn, axis=0))[0].min() for turn in range(40)]
        assert sum(p <= 1 / 40 + 1e-12 for p in smallest) <= 1
        assert np.mean(smallest) == pytest.approx(np.mean(np.arange(1, 41) / 40), abs=1e-9)


def test_layers_truly_below_make_no_layer_more():
    claimed = 0
    for _ in range(200):
        values = RNG.normal(30, 3, (40, 24))
        values[0, :4] -= 25
        p_more, p_less = rank_p(values, scale=100)
        assert (p_less[:4] == 1 / 40).all()
        claimed += (p_more <= 0.025).any()
    assert claimed <= 11  # of 200 at 2.5 %: more in less than 1 % of seeds


def test_order_of_twins_and_cells_changes_nothing():
    values = RNG.normal(10, 1, (40, 6))
    twins, cells = RNG.permutation(39), RNG.permutation(6)
    again = rank_p(np.concatenate([values[:1], values[1:][twins]])[:, cells], scale=100)
    np.testing.assert_array_equal(again, rank_p(values, scale=100)[:, cells])


def test_few_twins_reach_no_level():
    for twins, least in ((2, 1 / 3), (10, 1 / 11), (TWINS_NEEDED, 0.025)):
        values = np.concatenate([[[50.0]], RNG.normal(10, 1, (twins, 1))])
        assert rank_p(values)[0, 0] == pytest.approx(least)
    assert np.isnan(rank_p(np.array([[50.0], [10.0]]))).all()


def test_a_cell_that_cannot_be_claimed_is_not_but_others_are():
    values = RNG.normal(10, 1, (40, 3))
    values[0] += 30
    p = rank_p(values, can_claim=np.array([False, True, True]))[0]
    assert p.tolist() == [1, 0.025, 0.025]


def by_group_of(
    values: np.ndarray, groups: int, spread: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Means and groups of clips, where the trained model alone varies from group to group, in each
    cell by itself."""
    trained = values[0][:, None] * rng.lognormal(
        -(spread**2) / 2, spread, (values.shape[1], groups)
    )
    twins = np.repeat(values[1:].mean(axis=0)[:, None], groups, axis=1)
    return np.concatenate([trained.mean(axis=1)[None], values[1:]]), np.stack([trained, twins])


def test_clips_that_vary_make_p_larger():
    rng = np.random.default_rng(3)
    values = rng.normal(30, 1, (40, 4))
    values[0] += 15
    certain = rank_p(values, scale=100)[0]
    little, much = (
        rank_p(*by_group_of(values, 30, spread, rng), scale=100)[0] for spread in (0.05, 2.0)
    )
    assert (certain == 0.025).all()
    assert (little == 0.025).all()
    assert (much > 0.1).all()


@pytest.mark.parametrize(
    ("repeats", "most"), [(80, 5), pytest.param(200, 11, marks=pytest.mark.long)]
)
def test_a_model_that_varies_more_than_its_twins_is_not_claimed(repeats, most):
    """Twins that agree, and a trained model of the same level whose clips differ: any deviation is
    the clips'."""
    rng, claimed = np.random.default_rng(4), np.zeros(2)
    for _ in range(repeats):
        values = 30 + rng.normal(0, 0.1, (40, 12))
        p = rank_p(*by_group_of(values, 14, 0.6, rng), scale=100)
        claimed += (p <= 0.025).any(axis=1)
    assert (claimed <= most).all()  # at 2.5 %


def test_a_sample_that_lacks_a_kind_of_clip():
    """A quarter of the clips carry three quarters of the contribution, in each layer others."""
    rng, claimed = np.random.default_rng(5), np.zeros(2)
    for _ in range(100):
        values = 30 + rng.normal(0, 1, (40, 12))
        trained = values[0][:, None] * np.where(rng.random((12, 14)) < 0.25, 3.0, 1 / 3)
        twins = np.repeat(values[1:].mean(axis=0)[:, None], 14, axis=1)
        values = np.concatenate([trained.mean(axis=1)[None], values[1:]])
        claimed += (rank_p(values, np.stack([trained, twins]), scale=100) <= 0.025).any(axis=1)
    assert (claimed <= 6).all()


def test_order_and_copies_of_groups_change_nothing():
    rng = np.random.default_rng(6)
    values = rng.normal(30, 3, (40, 5))
    values[0, 2:] += 8
    means, by_group = by_group_of(values, 20, 0.3, rng)
    expected = rank_p(means, by_group, scale=100)
    assert ((expected > 0.025) & (expected < 1)).any()
    order, cells = rng.permutation(20), rng.permutation(5)
    np.testing.assert_array_equal(rank_p(means, by_group[:, :, order], scale=100), expected)
    np.testing.assert_allclose(
        rank_p(means[:, cells], by_group[:, cells], scale=100), expected[:, cells], atol=0.026
    )


def test_groups_that_a_cell_lacks_count_in_the_others_only():
    rng = np.random.default_rng(7)
    values = rng.normal(30, 1, (40, 2))
    values[0] += 20
    means, by_group = by_group_of(values, 20, 0.1, rng)
    by_group[:, 1, 10:] = np.nan
    assert rank_p(means, by_group, scale=100)[0].tolist() == [0.025, 0.025]
    by_group[:, 1, 1:] = np.nan
    p = rank_p(means, by_group, scale=100)
    assert np.isnan(p[:, 1]).all()
    assert p[0, 0] == 0.025


def test_values_without_bounds_work_alike_in_both_directions():
    rng = np.random.default_rng(8)
    values = rng.normal(0, 1, (40, 3))
    values[0, 0] += 30
    trained, twins = values[0][:, None] + rng.normal(0, 1, (3, 20)), np.zeros((3, 20))
    values[0] = trained.mean(axis=1)
    p = rank_p(values, np.stack([trained, twins]))
    assert p[0, 0] == 0.025
    np.testing.assert_array_equal(rank_p(-values, -np.stack([trained, twins]))[::-1], p)


def test_cells_that_a_model_lacks_take_no_part():
    values = RNG.normal(10, 1, (40, 3))
    values[7, 1] = np.nan
    p = rank_p(values)
    assert np.isnan(p[:, 1]).all()
    np.testing.assert_array_equal(p[:, [0, 2]], rank_p(values[:, [0, 2]]))


def test_twins_that_agree_exactly():
    """A layer that cannot see the cue: all twins have the same share, and so has the trained
    model."""
    values = np.full((40, 2), 10.0)
    assert (rank_p(values) == 1).all()
    values[0, 0] = 40.0
    assert rank_p(values)[0].tolist() == [0.025, 1]


def test_the_range_of_twins_holds_a_new_one_as_often_as_it_says():
    inside = []
    for draw, count in itertools.product((RNG.normal, RNG.lognormal), (19, 39)):
        values = draw(size=(4000, count + 1))
        limits = np.array([twin_limits(row[1:]) for row in values])
        inside.append(((limits[:, 0] <= values[:, 0]) & (values[:, 0] <= limits[:, 1])).mean())
    np.testing.assert_allclose(inside, [0.90, 0.95, 0.90, 0.95], atol=0.015)
