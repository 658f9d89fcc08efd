"""Correlation of maps: against sums written out on random data; identical maps, controls, causal
rows, what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import rankdata

import speechmix
from speechmix import MixingMap, Span
from speechmix.errors import InputError
from speechmix.extensions.agreement.distance_metric_effect import (
    map_correlations,
    mean_correlations,
)
from tests.models import text_models

UNITS = tuple(Span(i, i + 1, f"w{i}", "token", i) for i in range(7))


def mixing_map(scores, name="attention", stack="encoder", units=UNITS):
    return MixingMap(scores, units, units, name, stack, tuple(range(len(scores))))


def draws(seed, layers=3, heads=()):
    return np.random.default_rng(seed).random((layers, *heads, 7, 7))


def by_hand(x, y):
    """Pearson's r as its sums."""
    dx, dy = x - sum(x) / len(x), y - sum(y) / len(y)
    return sum(dx * dy) / (sum(dx**2) * sum(dy**2)) ** 0.5


@pytest.mark.parametrize("diagonal", [True, False])
@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_is_the_sum_over_the_cells_of_normalised_rows(diagonal, stack):
    maps = {
        name: mixing_map(draws(seed), name, stack) for seed, name in enumerate(["hta", "attention"])
    }
    table = map_correlations(maps, diagonal=diagonal)
    table = table[table["measure"] == "attention"].set_index("layer")
    for layer in range(3):
        rows = {
            name: m.scores[layer] / m.scores[layer].sum(axis=1, keepdims=True)
            for name, m in maps.items()
        }
        cells = [
            (i, j)
            for i in range(7)
            for j in range(7)
            if (diagonal or i != j) and (stack == "encoder" or j <= i)
        ]
        x, y = (np.array([rows[name][cell] for cell in cells]) for name in ("attention", "hta"))
        assert table.pearson[layer] == pytest.approx(by_hand(x, y), abs=1e-10)
        assert table.spearman[layer] == pytest.approx(by_hand(rankdata(x), rankdata(y)), abs=1e-10)
        assert table.cells[layer] == len(cells)


def test_identical_maps_agree_wholly_and_unrelated_ones_not():
    scores = draws(0, layers=40)
    maps = {
        "hta": mixing_map(scores),
        "same": mixing_map(3 * scores),
        "random": mixing_map(draws(9, layers=40)),
    }
    table = map_correlations(maps).groupby("measure")[["pearson", "spearman"]]
    assert table.min().loc["same"].tolist() == pytest.approx([1.0, 1.0])
    assert table.mean().loc["random"].abs().max() < 0.06


def test_a_map_that_keeps_itself_agrees_by_its_diagonal_alone():
    """The control: two maps that share nothing but a heavy diagonal."""
    heavy = 20 * np.eye(7)
    maps = {"hta": mixing_map(draws(1) + heavy), "other": mixing_map(draws(2) + heavy)}
    table = map_correlations(maps).groupby("measure")["pearson"].mean()
    assert table["other"] > 0.97
    assert table["identity"] > 0.97
    without = map_correlations(maps, diagonal=False)
    assert "identity" not in set(without["measure"])
    assert abs(without["pearson"].mean()) < 0.3


def test_heads_are_averaged_after_their_rows_are_normalised():
    heads = draws(3, heads=(2,)) * np.array([1.0, 50.0])[None, :, None, None]
    normalised = (heads / heads.sum(axis=-1, keepdims=True)).mean(axis=1)
    table = map_correlations({"hta": mixing_map(normalised), "attention": mixing_map(heads)})
    assert table.loc[table["measure"] == "attention", "pearson"].tolist() == pytest.approx(
        [1.0] * 3
    )


def test_maps_that_do_not_fit_are_refused_and_constant_ones_have_no_correlation():
    with pytest.raises(InputError, match="expected a map 'hta' of the encoder, found attention"):
        map_correlations({"attention": mixing_map(draws(0))})
    fewer = mixing_map(draws(0)[:, :6, :6], units=UNITS[:6])
    with pytest.raises(InputError, match="expected the same targets and sources"):
        map_correlations({"hta": mixing_map(draws(0)), "attention": fewer})
    table = map_correlations({"hta": mixing_map(draws(0)), "even": mixing_map(np.ones((3, 7, 7)))})
    assert table.loc[table["measure"] == "even", ["pearson", "spearman"]].isna().all().all()


def test_what_mix_returns_and_means_over_items():
    model = text_models.bert()
    tables = [
        map_correlations(
            speechmix.mix(model, text, measures=["hta", "attention", "globenc"], units="token")
        ).assign(item=text, model="tiny", init="random")
        for text in ("the cat is here .", "the cats are very here .", "cats play")
    ]
    table = pd.concat(tables)
    means = mean_correlations(table)
    assert set(means["measure"]) == {"attention", "globenc", "identity"}
    assert len(means) == 3 * 3 * 2  # measures, layers, statistics
    one = means[
        (means["measure"] == "globenc") & (means["layer"] == 1) & (means["statistic"] == "spearman")
    ].iloc[0]
    values = table.loc[(table["measure"] == "globenc") & (table["layer"] == 1), "spearman"]
    assert one["mean"] == pytest.approx(values.mean())
    assert np.isnan(one["low"])  # of three items
    assert one["items"] == 3
    rng = np.random.default_rng(0)
    eight = pd.concat(
        table.assign(item=f"{number}", spearman=table["spearman"] + rng.normal(0, 0.1))
        for number in range(8)
    )
    means = mean_correlations(eight[eight["measure"] == "globenc"])
    assert (
        means.query("statistic == 'spearman'")["low"]
        < means.query("statistic == 'spearman'")["mean"]
    ).all()
    with pytest.raises(InputError, match="and item missing"):
        mean_correlations(table.drop(columns="item"))
