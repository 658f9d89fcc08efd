"""Ridge regression across folds against a slow oracle written from the definition."""

from __future__ import annotations

import numpy as np
import pytest

from speechmix.errors import InputError
from speechmix.extensions.probing.value_fits import PENALTIES, assign_group_folds, predict_values


def oracle(x, y, fold, scale=True):
    """Normal equations, one value at a time; the penalty by leaving out each further fold."""

    def fitted(train, test, penalty):
        centre, deviation = x[train].mean(0), x[train].std(0) if scale else np.ones(x.shape[1])
        z, w = (x[train] - centre) / deviation, (x[test] - centre) / deviation
        mean, count = y[train].mean(), train.sum()
        left = z.T @ z / count + penalty * np.eye(x.shape[1])
        return mean + w @ np.linalg.solve(left, z.T @ (y[train] - mean) / count)

    predicted = np.empty(len(y))
    for test in np.unique(fold):
        errors = []
        for penalty in PENALTIES:
            squares = 0.0
            for inner in np.unique(fold):
                if inner != test:
                    train = (fold != test) & (fold != inner)
                    squares += (
                        (fitted(train, fold == inner, penalty) - y[fold == inner]) ** 2
                    ).sum()
            errors.append(squares)
        best = PENALTIES[int(np.argmin(errors))]
        predicted[fold == test] = fitted(fold != test, fold == test, best)
    return predicted


@pytest.mark.parametrize("width", [3, 80])
@pytest.mark.parametrize("scale", [True, False])
def test_predictions_are_those_of_the_oracle(width, scale):
    generator = np.random.default_rng(width)
    x = generator.standard_normal((60, width)) * generator.uniform(0.5, 3, width) + 2
    values = np.stack(
        [x[:, 0] + generator.standard_normal(60), 3 * x[:, 1], generator.standard_normal(60)], 1
    )
    fold = assign_group_folds(np.arange(60) // 3, np.arange(60).astype(str))
    found = predict_values(x, values, fold, scale=scale)
    for column in range(3):
        np.testing.assert_allclose(
            found.predicted[:, column], oracle(x, values[:, column], fold, scale), atol=1e-8
        )
    for index in np.unique(fold):
        expected = values[fold != index].mean(axis=0)
        np.testing.assert_allclose(
            found.mean[fold == index], np.broadcast_to(expected, (sum(fold == index), 3))
        )


def test_one_penalty_for_a_block_makes_a_rotation_of_its_values_change_nothing():
    generator = np.random.default_rng(0)
    x, y = generator.standard_normal((50, 4)), generator.standard_normal((50, 6))
    y[:, 0] += 2 * x[:, 0]
    rotation = np.linalg.qr(generator.standard_normal((6, 6)))[0]
    fold, one = np.arange(50) % 5, np.zeros(6, dtype=int)
    found = predict_values(x, y, fold, blocks=one).predicted
    rotated = predict_values(x, y @ rotation, fold, blocks=one).predicted
    np.testing.assert_allclose(found @ rotation, rotated, atol=1e-8)
    noise = 9 * generator.standard_normal((50, 3))
    both = predict_values(x, np.hstack([noise, y]), fold, blocks=np.repeat([1, 0], [3, 6]))
    np.testing.assert_allclose(both.predicted[:, 3:], found, atol=1e-8)
    alone = predict_values(x, y, fold, blocks=np.arange(6)).predicted
    np.testing.assert_allclose(alone, predict_values(x, y, fold).predicted, atol=1e-8)


def test_constant_inputs_predict_the_mean_of_the_training_folds():
    y = np.random.default_rng(0).standard_normal((12, 1))
    found = predict_values(np.ones((12, 2)), y, np.arange(12) % 3)
    np.testing.assert_allclose(found.predicted, found.mean)


def test_folds_keep_groups_together_and_do_not_depend_on_order_or_names():
    generator = np.random.default_rng(0)
    groups = np.repeat([f"g{index}" for index in range(11)], generator.integers(1, 6, 11))
    keys = np.array([f"sound {index}" for index in range(len(groups))])
    fold = assign_group_folds(groups, keys, folds=4)
    assert all(len(set(fold[groups == name])) == 1 for name in groups)
    assert np.ptp(np.bincount(fold)) <= 5
    order = generator.permutation(len(groups))
    renamed = np.array([f"x{99 - int(name[1:])}" for name in groups])
    assert (assign_group_folds(renamed[order], keys[order], folds=4) == fold[order]).all()
    twice = assign_group_folds(np.tile(groups, 2), np.tile(keys, 2), folds=4)
    assert (twice == np.tile(fold, 2)).all()
    assert (assign_group_folds(groups, keys, folds=4, seed=1) != fold).any()
    for bad in (["a", "a", "b"], ["a"]):
        with pytest.raises(InputError, match="3 folds and as many groups"):
            assign_group_folds(bad, bad)
