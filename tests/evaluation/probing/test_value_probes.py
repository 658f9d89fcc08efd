"""Probes of continuous values: R^2 by its definition, nulls at their level, invariances, estimators."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from sklearn.svm import SVC

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.probing.conclusions import (
    _values_by_group,
    describe_conclusions,
    draw_conclusions,
)
from speechmix.extensions.probing.fits import ProbeSettings, fit_probes
from speechmix.extensions.probing.probe import fit_models
from speechmix.extensions.probing.scores import ratio_by_group
from speechmix.extensions.probing.task import ItemStates, ProbeTask
from speechmix.extensions.probing.value_fits import assign_group_folds, shuffle_values
from tests.evaluation.probing.test_ridge import oracle


def make_task(values, groups, texts=None, places=None):
    """A task without a model: sentences stand for the content of the items."""
    count = len(values)
    texts = [f"sentence {index}" for index in range(count)] if texts is None else texts
    items = tuple(speechmix.Sentence(text) for text in texts)
    names = tuple(f"item {index}" for index in range(count))
    labels, types = np.array([repr(float(value)) for value in values]), np.array(names)
    parts = np.array(["all"] * count)
    return ProbeTask(
        "value", items, names, labels, np.asarray(groups, dtype=str), types, parts, "", (), places
    )


def fit(states, task, **settings):
    """Rows, answers and what was left out, for states [N, layers, D]."""
    settings = ProbeSettings(**{"method": "ridge", "controls": 0, **settings})
    return fit_probes([{("encoder", "target"): vectors} for vectors in states], task, settings)


def clip_units(clips, units, generator):
    """Groups, and places of units in clips of unequal length."""
    lengths = generator.integers(units // 2, units + 1, clips)
    number = np.repeat(np.arange(clips), lengths)
    index = np.concatenate([np.arange(length) for length in lengths])
    return number, np.column_stack([number, index, lengths[number]])


def test_r2_is_that_of_the_definition():
    generator = np.random.default_rng(0)
    states = generator.standard_normal((48, 2, 5))
    values, groups = states[:, 1, 0] + generator.standard_normal(48), np.arange(48) // 2
    task = make_task(values, groups)
    rows, answers, _ = fit(states, task)
    fold = assign_group_folds(groups, [item.text for item in task.items])
    for layer, row in enumerate(rows):
        predicted = oracle(states[:, layer], values, fold)
        mean = np.array([values[fold != index].mean() for index in fold])
        total = (values - mean) ** 2
        explained = total - (values - predicted) ** 2
        assert row["r2"] == pytest.approx(explained.sum() / total.sum(), abs=1e-8)
        assert row["r"] == pytest.approx(np.corrcoef(predicted - mean, values - mean)[0, 1])
        told = pd.DataFrame(answers)[lambda t, layer=layer: t["layer"] == layer - 1]
        np.testing.assert_allclose(told["explained"], explained / total.mean(), atol=1e-8)
    assert rows[1]["low"] < rows[1]["r2"] < rows[1]["high"]
    assert rows[1]["p"] == 0.01
    assert (rows[0]["n"], rows[0]["groups"]) == (48, 24)


def test_names_order_and_copies_of_all_clips_change_nothing_but_the_count():
    generator = np.random.default_rng(1)
    states = generator.standard_normal((40, 1, 6))
    values, groups = states[:, 0, 0] + generator.standard_normal(40), np.arange(40) // 2
    texts = [f"sentence {index}" for index in range(40)]
    ((row,), _, _) = fit(states, make_task(values, groups, texts))
    order = generator.permutation(40)
    renamed = np.array([f"z{50 - group}" for group in groups])
    ((other,), _, _) = fit(
        states[order], make_task(values[order], renamed[order], [texts[i] for i in order])
    )
    assert other == pytest.approx(row, nan_ok=True)
    ((twice,), _, _) = fit(
        np.tile(states, (2, 1, 1)), make_task(np.tile(values, 2), np.tile(groups, 2), texts * 2)
    )
    assert twice.pop("n") == 2 * row["n"]
    for name in ("r2", "low", "high", "r"):  # a copy adds no certainty
        assert twice[name] == pytest.approx(row[name]), name
    assert twice["p"] <= 0.05


def test_a_value_that_only_follows_the_position_is_not_significant():
    generator = np.random.default_rng(2)
    number, places = clip_units(24, 10, generator)
    position = places[:, 1] / (places[:, 2] - 1)
    states = generator.standard_normal((len(position), 1, 6))
    states[:, 0, 0] += 4 * position
    values = position + 0.1 * generator.standard_normal(len(position))
    task = make_task(values, number, [f"clip {i}" for i in number], places)
    (table, answers, _) = fit(states, task)
    (row,) = table
    assert row["r2"] > 0.5
    assert row["by_position"] > 0.85
    assert row["gain_over_baseline"] < 0
    assert row["p"] > 0.05
    claims = conclude(table, answers)
    assert not claims["read"].any()
    assert describe_conclusions(claims) == []
    values = values + states[:, 0, 1]  # and more
    (table, answers, _) = fit(states, make_task(values, number, task_texts(number), places))
    assert table[0]["p"] == 0.01
    claims = conclude(table, answers)
    assert claims["read"].all()
    (sentence,) = describe_conclusions(claims)
    assert "a probe predicts value from the vectors of the target in the encoder" in sentence
    assert "Its best R² (share of variance) is 0." in sentence
    assert "The position in the clip alone has 0." in sentence
    assert "needs 5 untrained twins and 15 groups; there are 0 and" in sentence


def test_groups_of_unequal_size_count_as_in_r2():
    generator = np.random.default_rng(8)
    groups = np.repeat(np.arange(12), np.arange(1, 13))
    states = generator.standard_normal((len(groups), 1, 4))
    values = states[:, 0, 0] + generator.standard_normal(len(groups))
    ((row,), answers, _) = fit(states, make_task(values, groups))
    answers = pd.DataFrame(answers).assign(model="m")
    found = _values_by_group(answers, ["model"], answers["explained"])
    assert found.mean() == pytest.approx(row["r2"])
    expected = ratio_by_group(answers["explained"], answers["group"])
    np.testing.assert_allclose(np.sort(found), np.sort(expected))


def task_texts(number):
    return [f"clip {index}" for index in number]


def conclude(rows, answers, model="m"):
    place = {"model": model, "init": "trained", "seed": pd.NA, "part": "all"}
    tables = [
        pd.DataFrame(table).assign(**place).astype({"seed": "Int64"}) for table in (rows, answers)
    ]
    return draw_conclusions(*tables)


def test_twins_decide_whether_training_added_it():
    generator = np.random.default_rng(3)
    values, groups = generator.standard_normal(60), np.arange(60) // 2
    task = make_task(values, groups)

    class Owner:
        name = "m"

        def __init__(self, seed):
            self.init, self.seed = ("trained", None) if seed is None else ("random", seed)

    def states_of(signal):
        states = generator.standard_normal((60, 1, 4))
        states[:, 0, 0] += signal * values
        return [ItemStates({("encoder", "word"): vectors}, {}) for vectors in states]

    settings = ProbeSettings(method="ridge", controls=0, shuffles=19)
    for of_trained, of_twins, more in ((2, 0, True), (2, 2, False)):
        models = [(Owner(None), states_of(of_trained))]
        models += [(Owner(seed), states_of(of_twins)) for seed in range(9)]
        probes = fit_models(models, task, settings)
        claims = draw_conclusions(probes.scores, probes.answers)
        assert claims["read"].all()
        assert claims["more"].all() == more
        (sentence,) = describe_conclusions(claims)
        assert "from the vectors of each word in the encoder" in sentence
        assert (
            "Over all layers, the probe is better than in untrained models (R² " in sentence
        ) or not more
        assert ("inconclusive whether the probe is better" in sentence) or more


def test_shuffles_keep_clips_whole_and_do_not_depend_on_names():
    generator = np.random.default_rng(4)
    number, places = clip_units(8, 9, generator)
    keys = [f"clip {index}" for index in number]
    groups = np.array([f"g{index // 2}" for index in number])  # two clips each
    draws = shuffle_values(groups, places, keys, 30)
    for draw in draws:
        donors = {}
        for item, source in enumerate(draw):
            donors.setdefault(number[item], set()).add(number[source])
        assert all(len(found) == 1 for found in donors.values())  # a clip takes over one clip
        for clip in range(8):
            assert (np.diff(places[draw[number == clip], 1]) >= 0).all()  # in its order
    order = generator.permutation(len(number))
    renamed = np.array([f"x{9 - int(name[1:])}" for name in groups])
    relabelled = places[order] + np.array([10, 0, 0])
    again = shuffle_values(renamed[order], relabelled, [keys[i] for i in order], 30)
    assert (order[again] == draws[:, order]).all()


@pytest.mark.parametrize("estimator", [Ridge(1.0)])
def test_any_regressor_is_a_probe(estimator):
    generator = np.random.default_rng(5)
    states, groups = generator.standard_normal((40, 1, 4)), np.arange(40) // 2
    values = states[:, 0, 0] + 0.3 * generator.standard_normal(40)
    ((row,), _, _) = fit(states, make_task(values, groups), estimator=estimator)
    assert (row["method"], row["p"]) == ("Ridge", 0.05)
    assert row["r2"] > 0.7
    assert not hasattr(estimator, "coef_")
    for wrong in (SVC(), "ridge"):
        with pytest.raises(InputError, match="regressor"):
            ProbeSettings(method="ridge", estimator=wrong)
    with pytest.raises(InputError, match="method='ridge' takes a regressor"):
        ProbeSettings(estimator=Ridge())


def test_what_is_no_number_or_never_changes_is_refused():
    states, groups = np.ones((12, 1, 2)), np.arange(12)
    task = make_task(np.arange(12.0), groups)
    for labels, message in (
        (np.array(["1.5"] * 11 + ["sg"]), "found value 'sg' of item 11: .*method='logistic'"),
        (np.array(["1.5"] * 11 + ["inf"]), "found value 'inf' of item 11"),
        (np.array(["1.5"] * 12), "value is the same for all items"),
    ):
        bad = ProbeTask(**{**vars(task), "labels": labels})
        (rows, _, ((left_out),)) = fit(states, bad)
        assert rows == []
        assert pd.Series([left_out["reason"]]).str.contains(message).all()
    (_, _, (left_out,)) = fit(states[:4], make_task([1, 2, 3, 4], list("aabb")))
    assert "3 folds and as many groups" in left_out["reason"]
    (_, _, (left_out,)) = fit(states, task, folds=2)
    assert "found folds=2 and 12 groups" in left_out["reason"]


def draw_null(kind, generator):
    """States [N, 3 layers, D] and values that have nothing to do with each other."""
    if kind == "pairs":  # states and values alike within pairs
        number = np.repeat(np.arange(24), 2)
        pair = generator.standard_normal((24, 1, 6))[number]
        states = pair + 0.5 * generator.standard_normal((48, 3, 6))
        values = generator.exponential(size=24)[number] + 0.3 * generator.standard_normal(48)
        return states, values, number, None, None
    number, places = clip_units(16, 12, generator)
    position = places[:, 1] / (places[:, 2] - 1)
    states = np.empty((len(number), 3, 5))
    values = np.empty(len(number))
    for clip in range(16):  # alike from one unit to the next
        count = (number == clip).sum()
        walk = generator.standard_normal((count + 20, 16))
        for step in range(1, count + 20):
            walk[step] += 0.8 * walk[step - 1]
        states[number == clip] = walk[20:, :15].reshape(count, 3, 5)
        values[number == clip] = walk[20:, 15]
    if kind == "position":
        states[:, :, 0] += 4 * position[:, None]
        values += 4 * position
    return states, values, number, task_texts(number), places


@pytest.mark.long
@pytest.mark.parametrize("kind", ["pairs", "autocorrelated", "position"])
def test_null_values_are_rejected_in_five_percent(kind):
    count, rejected, claimed = 1000, 0, 0
    for seed in range(count):
        states, values, groups, texts, places = draw_null(kind, np.random.default_rng(seed))
        (rows, answers, _) = fit(
            states, make_task(values, groups, texts, places), shuffles=39, seed=seed
        )
        rejected += min(row["p"] for row in rows) <= 0.05
        claimed += bool(conclude(rows, answers)["read"].any())
    print(f"{kind}: {rejected / count:.3f} rejected, {claimed / count:.3f} concluded")
    assert 0.03 <= rejected / count <= 0.07
    assert claimed / count <= 0.05
