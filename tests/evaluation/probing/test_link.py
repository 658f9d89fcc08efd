"""Mixing against probing over layers: the published curves' known correlations, and curves made to
agree."""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from scipy.stats import pearsonr, spearmanr

from speechmix.errors import InputError
from speechmix.extensions.probing.section import (
    permutation_correlation,
    probing_agreement,
)
from speechmix.reporting.plots.cue_tables import published_contributions, published_probing

BY = ["model", "init", "stack", "measure"]


@pytest.mark.parametrize(
    ("model", "pearson", "spearman"),
    [
        (
            "XLSR-53, published",
            {"value_zeroing": 0.89, "attention_norm": 0.80, "attention": 0.60},
            (0.72, 0.60, 0.54),
        ),
        (
            "Whisper-medium, published",
            {"value_zeroing": 0.52, "attention_norm": 0.50, "attention": 0.38},
            None,
        ),
    ],
)
def test_the_published_curves_agree_in_gain_as_was_computed_from_them(model, pearson, spearman):
    mixing, read = (
        table[table["init"] == "trained"]
        for table in (published_contributions(), published_probing())
    )
    mixing = mixing[(mixing["model"] == model) & (mixing["stack"] == "encoder")]
    table = probing_agreement(mixing, read).set_index(["measure", "against"])
    for place, (measure, expected) in enumerate(pearson.items()):
        assert table.pearson[measure, "gain"] == pytest.approx(expected, abs=0.015)
        assert table.layers[measure, "gain"] == 23  # the input of the first layer was not probed
        if spearman:
            assert table.spearman[measure, "gain"] == pytest.approx(spearman[place], abs=0.015)
            assert abs(table.pearson[measure, "level"]) < 0.3
    assert table.pearson_p["value_zeroing", "gain"] < 0.02


def test_p_is_the_share_of_all_orders():
    generator = np.random.default_rng(0)
    x, y = generator.standard_normal(6), generator.standard_normal(6)
    r, p = permutation_correlation(x, y)
    assert r == pytest.approx(pearsonr(x, y)[0])
    all_r = [abs(pearsonr(order, y)[0]) for order in itertools.permutations(x)]
    assert p == pytest.approx(np.mean([value >= abs(r) - 1e-12 for value in all_r]))
    x, y = generator.standard_normal(30), generator.standard_normal(30)
    assert permutation_correlation(x, y)[1] == pytest.approx(pearsonr(x, y)[1], abs=0.03)


def curves(contribution, accuracy):
    mixing = pd.DataFrame({"layer": range(len(contribution)), "contribution": contribution})
    read = pd.DataFrame({"layer": range(-1, len(accuracy) - 1), "accuracy": accuracy})
    facts = {"model": "m", "init": "trained", "stack": "encoder"}
    return mixing.assign(**facts, measure="attention"), read.assign(**facts)


def test_a_cue_that_arrives_where_it_is_given_agrees_in_gain():
    contribution = np.array([1.0, 2, 20, 9, 3, 1, 1, 2])
    mixing, read = curves(contribution, 0.5 + np.concatenate([[0], np.cumsum(contribution)]) / 100)
    table = probing_agreement(mixing, read, by=BY).set_index("against")
    assert table.pearson["gain"] == pytest.approx(1)
    assert table.spearman["gain"] == pytest.approx(spearmanr(contribution, contribution)[0])
    assert table.pearson_p["gain"] < 0.02
    assert table.pearson["level"] == pytest.approx(pearsonr(contribution, read.accuracy[1:])[0])
    assert set(table.layers) == {8}


def test_seeds_are_averaged_and_what_cannot_be_told_is_missing():
    mixing, read = curves([1.0, 1, 1, 1, 1], [0.5, 0.6, 0.7, 0.7, 0.9, 0.9])
    table = probing_agreement(mixing, pd.concat([read, read.assign(accuracy=1 - read.accuracy)]))
    assert table[["pearson", "spearman", "pearson_p"]].isna().all(axis=None)
    three = probing_agreement(*curves([1.0, 2, 4], [0.5, 0.6, 0.7, 0.9]))
    assert three.pearson.isna().all()
    assert probing_agreement(mixing, read.assign(model="another")).empty


def test_tables_that_do_not_fit_are_refused():
    mixing, read = curves([1.0, 2, 3, 1], [0.5, 0.6, 0.7, 0.7, 0.9])
    with pytest.raises(InputError, match="contribution not found"):
        probing_agreement(mixing.drop(columns="contribution"), read)
    with pytest.raises(InputError, match="one position"):
        probing_agreement(mixing, read.assign(position=["target", "cue", "cue", "cue", "cue"]))
