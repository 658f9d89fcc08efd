"""Rank correlation between measures."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from speechmix.evaluation.statistics.grouped_means import curve_agreement, measure_agreement


def table(values, clips=8):
    """Rows of measure -> [layers, clips]."""
    rows = [
        (measure, layer, f"c{clip}", array[layer][clip])
        for measure, array in values.items()
        for layer in range(len(array))
        for clip in range(clips)
    ]
    found = pd.DataFrame(rows, columns=["measure", "layer", "clip", "contribution"])
    return found.assign(model="m", init="trained", stack="encoder")


def test_it_is_scipys_in_each_layer():
    one, other = np.random.default_rng(0).random((2, 3, 8))
    found = measure_agreement(table({"one": one, "other": other}))
    assert found.layer.tolist() == [0, 1, 2]
    assert (found.n == 8).all()
    for layer, row in enumerate(found.itertuples()):
        expected = spearmanr(one[layer], other[layer])
        assert (row.rho, row.p) == pytest.approx((expected.statistic, expected.pvalue))


def test_heights_do_not_matter_but_order_does():
    one = np.random.default_rng(1).random((2, 8))
    found = measure_agreement(table({"a": one, "b": 0.01 * one**2, "c": -one}))
    assert dict(zip(zip(found.measure, found.other, strict=True), found.rho, strict=True)) == {
        ("a", "b"): pytest.approx(1),
        ("a", "c"): pytest.approx(-1),
        ("b", "c"): pytest.approx(-1),
    }


def test_what_does_not_vary_or_is_missing_has_no_correlation():
    flat = {"a": np.ones((1, 8)), "b": np.random.default_rng(2).random((1, 8))}
    assert np.isnan(measure_agreement(table(flat)).rho).all()
    few = table({"a": [[0.1, 0.2]], "b": [[0.3, 0.1]]}, clips=2)
    assert np.isnan(measure_agreement(few).rho).all()
    assert measure_agreement(table({"a": np.ones((1, 8))})).empty


def test_curves_agree_where_they_peak_in_the_same_layers():
    peak = np.array([0.1, 0.5, 0.2, 0.15])[:, None] * np.ones((1, 8))
    found = curve_agreement(table({"a": peak, "b": 2 * peak + 0.3, "c": peak[::-1]}))
    assert found.rho[0] == pytest.approx(1)
    assert found.rho[1] < 1
    assert (found.n == 4).all()
