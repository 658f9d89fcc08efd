"""Outlier weights of the norms, on a model whose gains are set."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.agreement.norm_outlier_weights import norm_gains, outlier_weights
from tests.conftest import build

WIDTH = 32
OUTLIERS = np.array([1, 7, 20, 30])


def bert_with(gains):
    """Tiny BERT whose two norms have the gains (first, second), layer by layer."""
    module = build("bert")
    for layer, (first, second) in zip(module.bert.encoder.layer, gains, strict=True):
        layer.attention.output.LayerNorm.weight.data = torch.tensor(first, dtype=torch.float32)
        layer.output.LayerNorm.weight.data = torch.tensor(second, dtype=torch.float32)
    return speechmix.load(module)


def gains(first_at, second_at, seed=0):
    draw = np.random.default_rng(seed)
    first, second = 1 + 0.01 * draw.standard_normal((2, WIDTH))
    first[OUTLIERS], second[OUTLIERS] = first_at, second_at
    return first, second


def test_over_the_outliers_alone_and_of_each_layer():
    opposed = gains([3, 4, 5, 6], [6, 5, 4, 3])
    alike = gains([3, 4, 5, 6], [3, 4, 5, 6])
    halfway = gains([3, 4, 5, 6], [6, 3, 5, 4])
    model = bert_with([opposed, alike, halfway])
    table = outlier_weights(model, deviations=1.0, permutations=20)
    assert table["outliers"].tolist() == [4, 4, 4]
    expected = [-1.0, 1.0, np.corrcoef([3, 4, 5, 6], [6, 3, 5, 4])[0, 1]]
    assert table["correlation"].tolist() == pytest.approx(expected, abs=1e-6)
    assert table["all_dimensions"][0] > 0.5  # over all dimensions the sign is another
    for (first, second), expected in zip(norm_gains(model), (opposed, alike, halfway), strict=True):
        np.testing.assert_allclose([first, second], expected, rtol=1e-6)


def test_gains_that_have_nothing_to_do_with_each_other_are_no_finding():
    """Choosing dimensions in which either gain is extreme makes r negative by itself: the null says
    so."""
    draw = np.random.default_rng(1)
    first, second = np.ones((2, WIDTH))
    for gain in (first, second):
        gain[draw.choice(WIDTH, 3, replace=False)] = [5, 5.5, 6]
    table = outlier_weights(bert_with([(first, second)] * 3), deviations=2.0)
    assert (table["correlation"] < -0.5).all()
    assert (table["null_low"] <= table["correlation"]).all()
    assert (table["correlation"] <= table["null_high"]).all()
    assert (table["null"] < -0.3).all()
    chosen = outlier_weights(bert_with([(first, second)] * 3), deviations=2.0, outliers_of="first")
    assert set(chosen["outliers"]) == {3}


def test_without_outliers_there_is_no_number():
    model = bert_with([(np.ones(WIDTH), np.ones(WIDTH))] * 3)
    table = outlier_weights(model, permutations=5)
    assert table["correlation"].isna().all()
    assert (table["outliers"] == 0).all()


def test_what_cannot_be_asked():
    model = speechmix.load(build("gpt2"))
    assert (
        len(outlier_weights(model, stack="decoder", permutations=2)) == 3
    )  # pre-norm: defined, and said to be another thing
    with pytest.raises(InputError, match="has no stack 'encoder'; it has decoder"):
        outlier_weights(model)
    with pytest.raises(InputError, match="outliers_of must be one of"):
        outlier_weights(model, stack="decoder", outliers_of="both")
