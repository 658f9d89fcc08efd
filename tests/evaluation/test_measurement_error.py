"""Regression calibration, against its closed form, and multiple correlations against known ones."""

from __future__ import annotations

import numpy as np
import pytest

from speechmix.extensions.encoding.encoding import calibrate_features, multiple_correlation


def test_calibrated_values_are_expectations_of_the_true_ones():
    """w = true + error, z exact: the regression of the truth on both, from the construction."""
    rng = np.random.default_rng(0)
    true, z = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], size=50_000).T
    w = true + 0.5 * rng.standard_normal(len(true))
    sets = {"w": w[:, None], "z": z[:, None]}
    reliability = {"w": np.array([0.8]), "z": np.array([1.0])}
    found = calibrate_features(sets, reliability)
    expected = np.linalg.solve([[1.25, 0.6], [0.6, 1]], [1, 0.6]) @ [w, z]
    assert found["w"][:, 0] == pytest.approx(expected, abs=0.05)
    assert (found["z"] == sets["z"]).all()


def test_without_error_nothing_changes_and_no_value_is_pulled_too_far():
    rng = np.random.default_rng(1)
    z = rng.standard_normal((200, 2))
    w = z[:, :1] + 0.1 * rng.standard_normal((200, 1))
    sets = {"w": w, "z": z}
    exact = {name: np.ones(values.shape[1]) for name, values in sets.items()}
    for step, reliability in ((1.0, exact), (0.0, exact | {"w": np.array([0.5])})):
        found = calibrate_features(sets, reliability, step=step)
        assert found["w"] == pytest.approx(w)
    pulled = calibrate_features(sets, exact | {"w": np.array([0.5])})["w"]
    inputs = np.column_stack([np.ones(200), z])
    predicted = inputs @ np.linalg.lstsq(inputs, w, rcond=None)[0]
    assert pulled == pytest.approx(predicted)  # the error is larger than what z leaves open


def test_multiple_correlations_are_adjusted_for_the_number_of_columns():
    rng = np.random.default_rng(2)
    noise = rng.standard_normal((20, 15))
    assert np.mean([multiple_correlation(noise, rng.standard_normal(20)) for _ in range(50)]) < 0.4
    one = rng.standard_normal(5000)
    other = 0.8 * one + 0.6 * rng.standard_normal(5000)
    assert multiple_correlation(one[:, None], other) == pytest.approx(0.8, abs=0.02)
    assert multiple_correlation(one[:, None], np.ones(5000)) == 0
    assert multiple_correlation(np.ones((3, 4)), np.arange(3.0)) == 0
