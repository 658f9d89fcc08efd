"""The rank of a trained model among its twins: exact for any distribution and any number of cells."""

from __future__ import annotations

import numpy as np
import pytest

from speechmix.evaluation.rank_test import SURE, TWINS_NEEDED, rank_p, twin_limits


def untrained(models: int, cells: int, seed: int) -> np.ndarray:
    """Skewed shares in % of untrained models, correlated over cells."""
    rng = np.random.default_rng(seed)
    return 100 / (1 + np.exp(-(rng.gumbel(-2, 1, (models, cells)) + rng.normal(0, 1, (models, 1)))))


@pytest.mark.parametrize("cells", [1, 30])
def test_of_forty_untrained_models_one_is_called_more_and_one_less(cells):
    """Each takes the part of the trained model in turn: 1 in 40 is 2.5 %, whatever the distribution."""
    values = untrained(TWINS_NEEDED + 1, cells, seed=cells)
    found = np.array([rank_p(np.roll(values, -model, axis=0), scale=100).min(axis=1) for model in range(len(values))])
    assert ((found <= SURE / 2).sum(axis=0) == 1).all()
    assert sorted(found[:, 0]) == pytest.approx(np.arange(1, 41) / 40)


def test_fewer_twins_never_reach_the_level():
    values = untrained(TWINS_NEEDED, 2, seed=0)  # with one of them the trained model, 38 twins
    values[0] = 99.9
    assert rank_p(values, scale=100)[0].tolist() == [1 / TWINS_NEEDED] * 2
    assert SURE / 2 < 1 / TWINS_NEEDED


def test_p_is_corrected_over_cells_and_says_in_which_the_model_differs():
    values = np.random.default_rng(2).normal(20, 3, (40, 30))
    values[0, 7] = 60
    p = rank_p(values, scale=100)
    assert p[0, 7] == 1 / 40
    assert (np.delete(p[0], 7) > SURE / 2).all()
    alone = np.array([rank_p(values[:, [cell]], scale=100)[0, 0] for cell in range(30)])
    assert (alone <= p[0]).all()


def test_a_share_near_zero_can_be_called_less():
    values = np.random.default_rng(0).uniform(1, 40, (40, 1))
    values[0] = 0.001
    assert rank_p(values, scale=100)[1, 0] == 1 / 40


def test_cells_without_a_claim_or_a_number():
    values = untrained(40, 3, seed=1)
    values[0] = 99.9
    values[5, 2] = np.nan
    p = rank_p(values, can_claim=np.array([True, False, True]), scale=100)
    np.testing.assert_array_equal(p, [[1 / 40, 1, np.nan], [1, 1, np.nan]])
    assert np.isnan(rank_p(values[:2])).all()  # of one twin nothing is known


def test_limits_of_twins_are_the_lowest_and_the_highest():
    assert twin_limits(np.array([3.0, np.nan, 1.0])) == (1.0, 3.0)
    assert np.isnan(twin_limits(np.array([3.0]))).all()
