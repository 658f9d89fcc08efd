"""Encoding: planted shares of variance are found, useless features explain nothing, and tables agree."""

from __future__ import annotations

import dataclasses
import functools
import importlib

import numpy as np
import pandas as pd
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.evaluation.statistics.intervals import mean_interval
from speechmix.extensions.encoding.encoding import Encoding, _divide_variance, conclude_shares
from speechmix.extensions.encoding.encoding_figure import encoding_figure
from speechmix.extensions.probing.value_fits import assign_group_folds, predict_values
from speechmix.inputs import bundled
from tests.conftest import trained

encoding = importlib.import_module("speechmix.extensions.encoding.encoding")
WIDTHS = {"a": 3, "b": 2, "null": 4}


def plant_states(seed, groups=40, units=8, dimensions=12, correlation=0.6, noise=0.6):
    """Sets of features of which two are correlated and one is useless, states [N, 1, D] made of them,
    and the true shares of variance. Features, and noise, are alike within groups."""
    generator = np.random.default_rng(seed)
    group = np.repeat(np.arange(groups), units)

    def draw(width):
        of_group = generator.standard_normal((groups, width))[group]
        return np.sqrt(0.3) * of_group + np.sqrt(0.7) * generator.standard_normal(
            (len(group), width)
        )

    sets = {name: draw(width) for name, width in WIDTHS.items()}
    mixed = correlation * sets["a"][:, :2]
    sets["b"] = mixed + np.sqrt(1 - correlation**2) * sets["b"]
    weights = {name: generator.standard_normal((WIDTHS[name], dimensions)) for name in ("a", "b")}
    for name, size in (("a", 0.30), ("b", 0.35)):
        weights[name] *= np.sqrt(size * dimensions / (weights[name] ** 2).sum())
    signal = sets["a"] @ weights["a"] + sets["b"] @ weights["b"]
    states = signal + np.sqrt(noise) * draw(dimensions)
    # Covariance of (a, b), and of each given the other, from the construction.
    across = np.zeros((3, 2))
    across[[0, 1], [0, 1]] = correlation
    both = np.block([[np.eye(3), across], [across.T, np.eye(2)]])
    stacked = np.vstack([weights["a"], weights["b"]])
    total = np.trace(stacked.T @ both @ stacked) + noise * dimensions
    given = {"a": np.eye(3) - across @ across.T, "b": np.eye(2) - across.T @ across}
    truth = {
        name: np.trace(weights[name].T @ given[name] @ weights[name]) / total for name in given
    }
    truth |= {"null": 0.0, "all": 1 - noise * dimensions / total}
    return sets, states[:, None], group.astype(str), truth


def divide(sets, states, groups, seed=0):
    """Share of each set, with the values by group; features are exact."""
    keys = [f"clip {name}" for name in groups]
    fold = assign_group_folds(groups, keys, seed=seed)
    exact = {name: np.ones(columns.shape[1]) for name, columns in sets.items()}
    found = _divide_variance(states, sets, groups, fold, exact)
    return {row["set"]: (row, shares) for row, shares, _ in found}


def test_planted_shares_are_found_within_five_points():
    sets, states, groups, truth = plant_states(0, groups=60, units=12)
    assert truth["b"] > 0.1
    for name, (row, shares) in divide(sets, states, groups).items():
        assert abs(row["share"] - truth[name]) < 0.05, name
        assert shares.mean() == pytest.approx(row["share"])
        assert len(shares) == row["groups"] == 60


@pytest.mark.long
def test_planted_shares_are_found_and_useless_sets_are_not_claimed():
    """A useless set is left out of all folds, or its interval holds 0. The share of all sets is a
    little low: a regression that has seen fewer clips explains less."""
    count = 200
    names = (*WIDTHS, "all")
    covered, within, claimed = dict.fromkeys(names, 0), dict.fromkeys(names, 0), 0
    for seed in range(count):
        dimensions = (2, 6, 12)[seed % 3]
        sets, states, groups, truth = plant_states(seed, groups=60, units=12, dimensions=dimensions)
        for name, (row, shares) in divide(sets, states, groups).items():
            low, high = mean_interval(shares) if np.ptp(shares) > 0 else (row["share"],) * 2
            covered[name] += int(low <= truth[name] <= high)
            within[name] += int(abs(row["share"] - truth[name]) < 0.05)
            claimed += int(name == "null" and low > 0)
    print(f"covered {covered}, within 5 points {within}, null claimed {claimed} of {count}")
    assert covered["null"] >= 0.95 * count
    assert claimed <= 0.05 * count
    assert min(within.values()) >= 0.95 * count
    assert min(covered.values()) >= 0.8 * count


def test_shares_are_those_of_the_definition():
    sets, states, groups, _ = plant_states(5, groups=12, units=4)
    found = divide(sets, states, groups)
    fold = assign_group_folds(groups, [f"clip {name}" for name in groups])
    y, one = states[:, 0], np.zeros(states.shape[2], dtype=int)

    def errors(*names):
        inputs = np.hstack([sets[name] for name in names])
        widths = [WIDTHS[name] for name in names]
        fit = predict_values(inputs, y, fold, widths=widths, blocks=one)
        return ((y - fit.predicted) ** 2).sum(axis=1), ((y - fit.mean) ** 2).sum(axis=1)

    whole, total = errors(*WIDTHS)
    assert found["all"][0]["share"] == pytest.approx(1 - whole.sum() / total.sum())
    without = errors("a", "null")[0]
    assert found["b"][0]["share"] == pytest.approx((without - whole).sum() / total.sum())
    assert found["b"][0]["alone"] == pytest.approx(1 - errors("b")[0].sum() / total.sum())


def test_rotated_states_copies_and_other_orders_have_the_same_shares():
    sets, states, groups, _ = plant_states(6, groups=10, units=4)
    found = divide(sets, states, groups)
    generator = np.random.default_rng(0)
    rotation = np.linalg.qr(generator.standard_normal((12, 12)))[0]
    order = generator.permutation(len(groups))
    shuffled = {name: values[order] for name, values in sets.items()}
    twice = {name: np.tile(values, (2, 1)) for name, values in sets.items()}
    for other in (
        divide(sets, states @ rotation, groups),
        divide(shuffled, states[order], groups[order]),
        divide(twice, np.tile(states, (2, 1, 1)), np.tile(groups, 2)),
    ):
        for name, (row, shares) in other.items():
            assert row["share"] == pytest.approx(found[name][0]["share"], abs=1e-9)
            np.testing.assert_allclose(shares, found[name][1], atol=1e-9)  # the same interval


def tables(trained_shares, twin_shares):
    """Synthetic tables: the share of each group, of a trained model and of twins."""
    rows, groups = [], []
    owners = [("trained", pd.NA, trained_shares)]
    owners += [("random", seed, shares) for seed, shares in enumerate(twin_shares)]
    for init, seed, shares in owners:
        for layer, values in enumerate(shares):
            for name in ("all", "sound"):
                place = {"model": "m", "init": init, "seed": seed, "stack": "encoder"}
                place |= {"layer": layer, "depth": layer / 2, "set": name}
                rows.append(place | {"share": values.mean(), "n": 40, "groups": len(values)})
                groups += [
                    place | {"group": f"g{i}", "share": v, "least": v} for i, v in enumerate(values)
                ]
    rows, groups = (pd.DataFrame(table).astype({"seed": "Int64"}) for table in (rows, groups))
    return Encoding(conclude_shares(rows, groups), groups)


def test_a_share_is_claimed_by_its_interval_and_compared_with_twins():
    generator = np.random.default_rng(0)

    def draw(mean, groups=20):
        return [m + 0.02 * generator.standard_normal(groups) for m in mean]

    found = tables(draw([0, 0.1, 0.2]), [draw([0, 0, 0.2]) for _ in range(9)])
    trained_rows = found.scores[lambda t: (t["init"] == "trained") & (t["set"] == "sound")]
    assert trained_rows["present"].tolist() == [False, True, True]
    assert trained_rows["more"].tolist() == [False, True, False]
    assert set(trained_rows["twins"]) == {9}
    assert found.scores["present"].sum() > 2  # twins have shares of their own, too
    alone = tables(draw([0.2, 0.2]), []).scores
    assert alone["present"].all()
    assert not alone["more"].any()
    few = tables(draw([0.2, 0.2], groups=5), [])
    assert not few.scores["present"].any()


@functools.cache
def bundled_encoding():
    """What the duration and the identity of words explain of trained and untrained states."""
    twin = functools.partial(speechmix.load, "bundled:tiny-french-ctc", init="random", seed=0)
    sets = {"length": ["duration"], "word": ["label"], "size": ["size"]}
    clips = bundled.clips()[:12]
    values = pd.DataFrame({"clip": [c.name for c in clips], "word": 0, "size": range(12)})
    values = pd.concat([values, values.assign(word=1, size=values["size"] % 7)])
    return speechmix.encode([trained("tiny-french-ctc"), twin], clips, sets, table=values)


def test_a_model_is_encoded_by_features_of_its_words():
    found = bundled_encoding()
    table = found.to_dataframe()
    assert list(table["set"][:4]) == ["all", "length", "word", "size"]
    assert list(table["layer"].unique()) == [-1, 0, 1, 2, 3]
    assert set(table["n"]) == {24}
    assert found.left_out == sum(len(clip.words) for clip in bundled.clips()[:12]) - 24
    last = table[(table["layer"] == 3) & (table["set"] == "all")].set_index("init")["share"]
    assert last["trained"] > last["random"] + 0.1
    shares = found.by_group.groupby(["init", "layer", "set"])["share"].mean()
    expected = table.set_index(["init", "layer", "set"])["share"]
    np.testing.assert_allclose(shares, expected.reindex(shares.index))
    assert repr(found) == (
        "Encoding(length, word, size: 2 models, 24 units; 12 clips in 6 groups (same pair or same "
        "target word), speakers unknown)"
    )


def test_the_figure_has_a_panel_for_each_stack_and_a_line_for_each_set(tmp_path):
    figure = encoding_figure(bundled_encoding().to_dataframe())
    (ax,) = figure.axes
    assert ax.get_title() == "encoder"
    assert [text.get_text() for text in figure.legends[0].get_texts()][:4] == [
        "all sets",
        "length",
        "word",
        "size",
    ]
    figure.savefig(tmp_path / "x.png")


def test_sets_that_cannot_be_are_refused():
    model, clips = trained("tiny-french-ctc"), bundled.clips()[:4]
    for sets in ({}, {"all": ["duration"]}, {"a": []}, {str(i): ["duration"] for i in range(8)}):
        with pytest.raises(InputError, match="expected 1 to 7 sets of features"):
            speechmix.encode(model, clips, sets)
    values = pd.DataFrame({"clip": ["elsewhere"], "word": [0], "size": [1.0]})
    with pytest.raises(InputError, match="has all features; missing most often: size"):
        speechmix.encode(model, clips, {"a": ["size"]}, table=values)
    with pytest.raises(InputError, match="3 folds and as many groups"):
        speechmix.encode(model, clips, {"a": ["duration"]})
    with pytest.raises(InputError, match="there is no feature 'tempo'"):
        speechmix.encode(model, clips, {"a": ["tempo"]})
    blank = ["", float("inf"), *range(40)]  # in a CSV a blank cell, of a logarithm infinity
    units = speechmix.unit_states(model, bundled.clips()[:8])["encoder"].units
    values = units[["clip", "index"]].assign(size=blank[: len(units)])
    found = speechmix.encode(model, bundled.clips()[:8], {"a": ["size", "group"]}, table=values)
    assert found.left_out == 2
    models = [model, trained("tiny-french-whisper")]
    with pytest.raises(
        InputError, match="frames of tiny-french-whisper are not those of the first"
    ):
        speechmix.encode(models, bundled.clips()[:6], {"a": ["intensity"]}, level="frame")


@functools.cache
def words_of_clips():
    return speechmix.unit_states(trained("tiny-french-ctc"), bundled.clips())["encoder"]


def encode_planted(monkeypatch, seed, *, error=0.25, correlation=0.8, own=0.0, **options):
    """States that depend on the true duration, and by `own` on frequency, which is correlated with it.
    The duration is measured with an error, in shares of its variance."""
    rng, words = np.random.default_rng(seed), words_of_clips()
    count = len(words.units)
    true = rng.standard_normal(count)
    frequency = correlation * true + np.sqrt(1 - correlation**2) * rng.standard_normal(count)
    measured = true + np.sqrt(error) * rng.standard_normal(count)
    weights = rng.standard_normal((2, 12))
    states = np.column_stack([true, own * frequency]) @ weights
    states += 0.5 * rng.standard_normal(states.shape)
    planted = dataclasses.replace(words, values=states[:, None])
    monkeypatch.setattr(encoding, "unit_states", lambda *_, **__: {"encoder": planted})
    table = words.units[["clip", "index"]].assign(measured=measured, frequency=frequency)
    sets = {"duration": ["measured"], "frequency": ["frequency"]}
    return speechmix.encode(
        trained("tiny-french-ctc"), bundled.clips(), sets, table=table, **options
    )


@pytest.mark.parametrize("seeds", [range(3, 6), pytest.param(range(11), marks=pytest.mark.long)])
def test_a_feature_is_not_claimed_for_one_that_is_measured_with_error(monkeypatch, seeds):
    """The states depend on duration alone. With the measured duration as if it were exact, frequency
    is claimed in nine of ten."""
    claims = 0
    for seed in seeds:
        found = encode_planted(monkeypatch, seed)
        row = found.scores.set_index("set").loc["frequency"]
        assert not row["present"]
        assert row["least"] < 0.01 < row["share"]
        if row["present_if_exact"]:
            note = next(
                each for each in found.notes if each.startswith("'frequency' goes together")
            )
            assert "can look present where it is not" in note
            assert note.endswith("if the reliability of 'measured' may be as low as 0.7: 0")
            assert note in repr(found)
            claims += 1
    assert claims >= 9 / 11 * len(seeds)


@pytest.mark.parametrize("seeds", [(0,), pytest.param((1, 2), marks=pytest.mark.long)])
def test_errors_of_other_sizes_explain_it_away_too(monkeypatch, seeds):
    for error in (0.06, 0.15, 0.4):
        for seed in seeds:
            found = encode_planted(monkeypatch, seed, error=error)
            assert not found.scores.set_index("set").loc["frequency", "present"]


def test_a_feature_with_a_share_of_its_own_is_present_where_the_other_is_exact(monkeypatch):
    exact = {"measured": 1.0, "frequency": 1.0}
    found = encode_planted(monkeypatch, 0, error=0.0, own=0.8, reliability=exact)
    assert found.scores["present"].all()
    assert (found.scores["least"] == found.scores["share"]).all()
    assert not found.notes
    loose = encode_planted(monkeypatch, 0, error=0.0, own=0.8, correlation=0.3)
    assert loose.scores["present"].all()  # a weak correlation explains little, whatever the error
    for reliability in ({"pitch": 0.8}, {"measured": 0.0}, 1.2):
        with pytest.raises(InputError, match="expected reliabilities above 0 to 1"):
            encode_planted(monkeypatch, 0, reliability=reliability)
