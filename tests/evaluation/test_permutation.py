"""The permutation test: what its definition says, exact under the null, unmoved by order."""

from __future__ import annotations

import numpy as np
import pytest

from speechmix.evaluation.statistics.intervals import permutation_p

RNG = np.random.default_rng(0)


def slow_p(values: np.ndarray) -> list[float]:
    """p of each cell from its definition, without vectors."""
    draws, cells = values.shape

    def z(draw, cell):
        return (values[draw, cell] - values[:, cell].mean()) / values[:, cell].std()

    largest = [max(z(draw, cell) for cell in range(cells)) for draw in range(1, draws)]
    return [(1 + sum(value >= z(0, cell) for value in largest)) / draws for cell in range(cells)]


def test_it_is_what_its_definition_says():
    values = RNG.lognormal(2, 1, (12, 5))
    np.testing.assert_allclose(permutation_p(values), slow_p(values))


@pytest.mark.parametrize("draw", [RNG.normal, RNG.lognormal, lambda size: RNG.beta(0.5, 20, size)])
def test_every_draw_of_one_distribution_comes_first_equally_often(draw):
    """Exactness: of S + 1 draws that take turns as the data, at most one has the smallest p."""
    for _ in range(20):
        values = draw(size=(40, 24))
        smallest = [permutation_p(np.roll(values, turn, axis=0)).min() for turn in range(40)]
        assert sum(p <= 1 / 40 + 1e-12 for p in smallest) <= 1
        assert np.mean(smallest) == pytest.approx(np.mean(np.arange(1, 41) / 40), abs=1e-9)


def test_order_of_shuffles_and_cells_changes_nothing():
    values = RNG.normal(10, 1, (40, 6))
    shuffles, cells = RNG.permutation(39), RNG.permutation(6)
    again = permutation_p(np.concatenate([values[:1], values[1:][shuffles]])[:, cells])
    np.testing.assert_array_equal(again, permutation_p(values)[cells])


def test_what_is_missing_is_no_number():
    values = RNG.normal(size=(40, 3))
    values[5, 1] = np.nan
    assert np.isnan(permutation_p(values)).tolist() == [False, True, False]
    assert np.isnan(permutation_p(values[:2])).all()
