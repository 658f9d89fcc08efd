"""Means of groups: those of pandas and in its order, of texts and of categories alike.

Both are within two units in the last place of the exact mean. They are not the same to the last bit:
pandas 3.1 sums sorted groups in another way than unsorted ones, and these means must not depend on
how groups are numbered.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest

from speechmix.evaluation.statistics import grouped_means as module
from speechmix.evaluation.statistics.grouped_means import (
    grouped_means,
    iterate_matrices,
    label_indices,
)
from speechmix.evaluation.statistics.random_twin_comparison import compare_with_twins, whole_stack

TEXTS = ("clip", "model", "init", "group")
LAST_PLACES = {"rtol": 2 * np.finfo(float).eps, "atol": 0.0}


@pytest.fixture(scope="module")
def table():
    """Contributions in random order, with missing numbers, a missing seed, and twins that heard
    fewer clips."""
    rng = np.random.default_rng(2)
    rows = [
        (f"clip {number:02d}", f"group {number // 2}", model, init, seed, layer)
        for number in range(24)
        for model in ("m/b", "m a")
        for init, seed in (("trained", None), ("random", 0), ("random", 1), ("random", 2))
        for layer in range(3)
        if number < 12 or seed in (None, 0)
    ]
    table = pd.DataFrame(rows, columns=["clip", "group", "model", "init", "seed", "layer"])
    table = table.assign(contribution=rng.random(len(table)), seed=table["seed"].astype("Int64"))
    table.loc[rng.choice(len(table), 20), "contribution"] = np.nan
    return table.sample(frac=1, random_state=4).reset_index(drop=True)


def as_categories(table: pd.DataFrame) -> pd.DataFrame:
    """The same with categories, among them one that no row has."""
    categories = {name: pd.CategoricalDtype(sorted({*table[name], "~"})) for name in TEXTS}
    return table.astype(categories)


@pytest.mark.parametrize("sort", [False, True])
@pytest.mark.parametrize(
    "keys", [["clip"], ["model", "layer", "init"], ["init", "seed", "clip", "layer"]]
)
def test_means_are_those_of_pandas(table, keys, sort):
    expected = table.groupby(keys, sort=sort)["contribution"].mean().reset_index()
    for same in (table, as_categories(table)):
        means = grouped_means(same, keys, "contribution", sort=sort)
        pd.testing.assert_frame_equal(
            means, expected, **LAST_PLACES, check_dtype=False, check_categorical=False
        )


@pytest.mark.parametrize("groups", [1, 10, 1000])
def test_means_are_exact_and_do_not_depend_on_how_groups_are_numbered(groups):
    rng = np.random.default_rng(5)
    values, numbers = 20 * rng.random(3 * groups), np.repeat(np.arange(groups), 3)
    exact = [math.fsum(three) / 3 for three in values.reshape(-1, 3)]
    means = module._group_means(values, numbers, groups)
    np.testing.assert_allclose(means, exact, rtol=2 * np.finfo(float).eps, atol=0)
    other = rng.permutation(groups)
    assert (module._group_means(values, other[numbers], groups)[other] == means).all()


@pytest.mark.parametrize("largest", [1, 30, 300])
@pytest.mark.parametrize("lookup_size", [0, 16])
@pytest.mark.parametrize("sort", [False, True])
def test_gaps_between_group_numbers_are_closed(table, sort, lookup_size, largest, monkeypatch):
    """A million clips in half a million groups, by model, layer, ..., are more than 64 bits can
    number."""
    monkeypatch.setattr(module, "_MAX_SPARSITY", 0)
    monkeypatch.setattr(module, "_MAX_SMALL_COUNT", largest)
    monkeypatch.setattr(module, "_MAX_LOOKUP_SIZE", lookup_size)
    keys = ["model", "layer", "clip", "group", "init", "seed"]
    expected = table.groupby(keys, sort=sort)["contribution"].mean().reset_index()
    means = grouped_means(as_categories(table), keys, "contribution", sort=sort)
    pd.testing.assert_frame_equal(
        means, expected, **LAST_PLACES, check_dtype=False, check_categorical=False
    )
    test_matrices_are_what_pandas_unstacks(table)


@pytest.mark.parametrize("sparsity", [0, 2])
def test_rows_that_lack_a_key_which_follows_from_others_are_left_out(monkeypatch, sparsity):
    monkeypatch.setattr(module, "_MAX_SPARSITY", sparsity)
    monkeypatch.setattr(module, "_MAX_SMALL_COUNT", 1)
    group = pd.Categorical(["g", None, "g", None])
    rows = pd.DataFrame({"clip": list("abab"), "group": group, "contribution": [1.0, 2, 3, 4]})
    rows["clip"] = rows["clip"].astype("category")
    means = grouped_means(rows, ["clip", "group"], "contribution")
    assert means.to_dict("list") == {"clip": ["a"], "group": ["g"], "contribution": [2.0]}


def test_matrices_are_what_pandas_unstacks(table):
    keys = ["model", "layer", "clip", "init"]
    wide = table.groupby(keys, sort=False)["contribution"].mean().unstack("init")
    expected = {key: part.droplevel([0, 1]) for key, part in wide.groupby(level=[0, 1], sort=False)}
    means = grouped_means(as_categories(table), keys, "contribution")
    parts = dict(
        iterate_matrices(
            means, ["model", "layer"], rows="clip", columns="init", value="contribution"
        )
    )
    assert list(parts) == list(expected)
    for key, part in parts.items():
        pd.testing.assert_frame_equal(part, expected[key], **LAST_PLACES, check_names=False)


def test_nothing_in_nothing_out(table):
    none = table.iloc[:0]
    assert grouped_means(none, ["clip", "layer"], "contribution").empty
    assert (
        list(iterate_matrices(none, ["layer"], rows="clip", columns="init", value="contribution"))
        == []
    )
    assert label_indices(pd.Series([None, None], dtype="category"))[1].tolist() == [-1, -1]


def test_statistics_of_categories_are_those_of_texts(table):
    few = table.rename(columns={"model": "stack"})
    same = as_categories(table).rename(columns={"model": "stack"})
    expected = compare_with_twins(few, by=["stack", "layer"], group="group")
    of_stacks = whole_stack(few)
    assert len(expected) == 6
    in_any_order = pd.CategoricalDtype(
        table["group"].unique()[::-1]
    )  # as in the dictionary of a Parquet file
    for categories in (same, same.astype({"group": in_any_order})):
        found = compare_with_twins(categories, by=["stack", "layer"], group="group")
        pd.testing.assert_frame_equal(found, expected, check_exact=True)
        stacks = whole_stack(categories).astype({name: of_stacks[name].dtype for name in of_stacks})
        pd.testing.assert_frame_equal(stacks, of_stacks, check_exact=True)
