"""Logistic probes on data whose answer is known: separable, random, and coded by the word alone."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_validate

from speechmix.errors import InputError
from speechmix.extensions.probing.fits import ProbeSettings, fit_probes
from speechmix.extensions.probing.logistic import (
    PUBLISHED_OPTIONS,
    assign_folds,
    control_labels,
    predict_labels,
)
from speechmix.extensions.probing.scores import ratio_interval, share_interval
from speechmix.extensions.probing.task import ProbeTask

GROUPS, WIDTH = 16, 64


def task_of(labels, groups, types=None) -> ProbeTask:
    names = tuple(f"clip {index}" for index in range(len(labels)))
    types = groups if types is None else types
    return ProbeTask(
        "number",
        (None,) * len(labels),
        names,
        np.array(labels),
        np.array(groups),
        np.array(types),
        np.array(["all"] * len(names)),
        "the pair",
    )


def pairs() -> tuple[list[str], list[str]]:
    """Both numbers of each word."""
    return ["sg", "pl"] * GROUPS, [f"word {index // 2}" for index in range(2 * GROUPS)]


def row_of(states, task: ProbeTask, **settings):
    rows, answers, left_out = fit_probes(
        [{("encoder", "target"): of_item[None]} for of_item in states],
        task,
        ProbeSettings(**settings),
    )
    assert len(rows) == 1
    assert not left_out
    if settings.get("grouped", True):
        assert np.mean([answer["right"] for answer in answers]) == pytest.approx(
            rows[0]["accuracy"]
        )
    return rows[0]


def words_and_noise(generator, noise=0.3):
    """States that tell the word and nothing else, [N, D]."""
    words = np.repeat(generator.standard_normal((GROUPS, WIDTH)), 2, axis=0)
    return words + noise * generator.standard_normal(words.shape)


def test_a_separable_label_is_read_whatever_the_word():
    labels, groups = pairs()
    states = words_and_noise(np.random.default_rng(0))
    states[:, 0] = np.where(np.array(labels) == "pl", 4.0, -4.0)
    row = row_of(states, task_of(labels, groups))
    assert row["accuracy"] == row["macro_f1"] == row["high"] == 1
    assert row["low"] == pytest.approx(
        0.025 ** (1 / GROUPS)
    )  # no bootstrap knows of errors that were not made
    assert row["majority"] == 0.5
    assert 0.3 < row["control"] < 0.65
    assert row["memorised"] > 0.7
    assert row["gain_over_baseline"] == pytest.approx(1 - max(row["control"], row["majority"]))


def test_a_control_below_chance_adds_nothing_to_the_gain():
    labels, groups = pairs()
    states = np.repeat(
        np.random.default_rng(1).standard_normal((GROUPS, 2)) * 0.01, 2, axis=0
    )  # nothing but the word
    states[:, 0] += (
        3.0 * (np.array(labels) == "pl") * (np.arange(2 * GROUPS) < 8)
    )  # the number in a quarter of them
    row = row_of(states, task_of(labels, groups), controls=3, seed=7)
    assert row["control"] < row["majority"] == 0.5
    assert row["accuracy"] > 0.5
    assert row["gain_over_baseline"] == pytest.approx(row["accuracy"] - 0.5)
    without = row_of(states, task_of(labels, groups), controls=0, seed=7)
    assert without["gain_over_baseline"] == pytest.approx(without["accuracy"] - 0.5)
    above = row_of(states, task_of(labels, groups), controls=3, seed=0)
    assert above["control"] > 0.5
    assert above["gain_over_baseline"] == pytest.approx(above["accuracy"] - above["control"])


def test_random_labels_are_at_chance_and_the_interval_says_so():
    _, groups = pairs()
    covered, accuracies = 0, []
    for seed in range(12):
        generator = np.random.default_rng(seed)
        labels = [label for _ in range(GROUPS) for label in generator.permutation(["sg", "pl"])]
        row = row_of(
            generator.standard_normal((2 * GROUPS, WIDTH)),
            task_of(labels, groups),
            seed=seed,
            controls=0,
        )
        accuracies.append(row["accuracy"])
        covered += row["low"] <= 0.5 <= row["high"]
    assert covered >= 10
    assert np.mean(accuracies) == pytest.approx(0.5, abs=0.06)


def test_a_label_that_the_word_alone_tells_looks_learnable_until_words_are_kept_together():
    generator = np.random.default_rng(0)
    labels = np.repeat(generator.permutation(["sg", "pl"] * (GROUPS // 2)), 2).tolist()
    _, groups = pairs()
    states, task = words_and_noise(generator), task_of(labels, groups)
    apart, together = (
        row_of(states, task, grouped=grouped, controls=0) for grouped in (False, True)
    )
    assert apart["accuracy"] > 0.8
    assert together["accuracy"] < 0.65
    assert together["low"] < 0.5


def newton(x, y, c=1.0, steps=60):
    """Weights and intercept of L2 logistic regression, the intercept free, by damped Newton steps
    in double precision."""
    x1 = np.column_stack([x, np.ones(len(x))])
    penalty = np.diag([1.0] * x.shape[1] + [0.0])
    weights = np.zeros(x1.shape[1])
    for _ in range(steps):
        p = 1 / (1 + np.exp(-x1 @ weights))
        gradient = c * x1.T @ (p - y) + penalty @ weights
        hessian = c * (x1 * (p * (1 - p))[:, None]).T @ x1 + penalty
        weights = weights - np.linalg.solve(hessian, gradient)
    return weights


def test_predictions_are_those_of_a_plain_newton_solver():
    generator = np.random.default_rng(3)
    labels, groups = pairs()
    states = words_and_noise(generator) * generator.uniform(0.1, 30, WIDTH)
    states[:, 1] += np.where(np.array(labels) == "pl", 8.0, 0.0)
    states[:, 2] = 7.0  # does not vary
    fold = assign_folds(labels, groups, folds=4)
    predicted, wanted = predict_labels(states, labels, fold), np.empty(len(labels), dtype="U2")
    for number in range(4):
        test, train = fold == number, fold != number
        mean, deviation = states[train].mean(axis=0), states[train].std(axis=0)
        deviation[deviation == 0] = 1
        weights = newton(
            (states[train] - mean) / deviation, (np.array(labels)[train] == "sg").astype(float)
        )
        margin = ((states[test] - mean) / deviation) @ weights[:-1] + weights[-1]
        assert np.abs(margin).min() > 1e-3
        wanted[test] = np.where(margin > 0, "sg", "pl")
    assert predicted.tolist() == wanted.tolist()


@pytest.mark.parametrize("plurals", [16, 11, 5])
def test_the_published_recipe_is_liblinear_unscaled_in_stratified_folds_after_a_shuffle(plurals):
    generator = np.random.default_rng(plurals)
    labels = np.array(
        ["sg"] * (32 - plurals) + ["pl"] * plurals
    )  # sorted: without a shuffle the folds would differ
    states = generator.standard_normal((32, 8)) * 3 + 0.8 * (labels == "pl")[:, None]
    order = np.random.default_rng(12).permutation(32)  # Dataset.shuffle(12) of the released code
    classifier = LogisticRegression(solver="liblinear", random_state=42)
    scores = cross_validate(
        classifier,
        states[order],
        (labels[order] == "pl").astype(int),
        cv=3,
        scoring=("accuracy", "f1_macro"),
    )
    names = [f"clip {index}" for index in range(32)]
    row = row_of(states, task_of(labels.tolist(), names), **PUBLISHED_OPTIONS, controls=0)
    assert row["accuracy"] == pytest.approx(scores["test_accuracy"].mean())
    assert row["macro_f1"] == pytest.approx(scores["test_f1_macro"].mean())


def test_folds_keep_groups_and_are_even_in_labels():
    labels, groups = pairs()
    fold = assign_folds(labels, groups, folds=5)
    assert all(len(set(fold[np.array(groups) == group])) == 1 for group in groups)
    assert sorted(set(fold)) == [0, 1, 2, 3, 4]
    for number in range(5):
        assert (np.array(labels)[fold == number] == "sg").mean() == 0.5
    with pytest.raises(InputError, match="pl: 1"):
        assign_folds(["sg", "sg", "pl", "pl"], ["a", "b", "c", "c"])
    with pytest.raises(InputError, match="two labels"):
        assign_folds(["sg", "sg"], ["a", "b"])


@pytest.mark.parametrize("solver", ["lbfgs", "liblinear"])
def test_three_labels_are_read_too(solver):
    labels = ["first", "second", "third"] * 8
    groups = [str(index // 3) for index in range(24)]
    states = np.random.default_rng(0).standard_normal((24, 6)) * 0.3
    states[np.arange(24), np.arange(24) % 3] += 5
    row = row_of(states, task_of(labels, groups), solver=solver, controls=1)
    assert row["accuracy"] == 1
    assert row["majority"] == pytest.approx(1 / 3)


def test_control_labels_belong_to_words_and_keep_proportions():
    types = [f"word {index // 3}" for index in range(60)]
    control = control_labels(["sg"] * 45 + ["pl"] * 15, types, seed=4)
    assert all(len(set(control[np.array(types) == name])) == 1 for name in types)
    assert (control == "sg").mean() == 0.75
    assert control.tolist() != control_labels(["sg"] * 45 + ["pl"] * 15, types, seed=5).tolist()


def test_what_cannot_be_probed_is_said_and_one_type_has_no_control():
    labels, groups = pairs()
    states = [{("encoder", "target"): np.zeros((1, 3))} for _ in labels]
    rows, _, left_out = fit_probes(states, task_of(["sg"] * len(labels), groups), ProbeSettings())
    assert not rows
    assert "two labels" in left_out[0]["reason"]
    rows, _, _ = fit_probes(
        states, task_of(labels, groups, types=["word"] * len(labels)), ProbeSettings()
    )
    assert np.isnan(rows[0]["control"])
    assert rows[0]["accuracy"] == 0.5
    for wrong in ({"method": "tree"}, {"solver": "adam"}, {"folds": 1}, {"mode": "fast"}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            ProbeSettings(**wrong)


@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize("count", [4, 8, 20])
def test_an_interval_of_a_share_covers_with_few_groups(count, share):
    generator, covered, groups = (
        np.random.default_rng(count),
        0,
        np.repeat(np.arange(count), 4).astype(str),
    )
    for _ in range(200):
        right = generator.random((count, 4)) < share
        right = np.where(
            generator.random(count)[:, None] < 0.3, right[:, :1], right
        )  # some groups are all alike
        low, high = share_interval(right.ravel(), groups)
        covered += low <= share <= high
    assert covered >= 186  # 93 %


def test_intervals_are_over_groups_and_not_over_items():
    right = [1.0] * 20 + [0.0] * 20
    many, few = (
        share_interval(right, list(map(str, range(40)))),
        share_interval(right, ["a"] * 20 + ["b"] * 20),
    )
    assert many[1] - many[0] < 0.35
    assert few == pytest.approx((0.0, 1.0), abs=1e-6)
    assert np.isnan(ratio_interval([1, 2], ["a", "a"])).all()
    assert np.isnan(ratio_interval(range(14), list("aabbccddeeffgg"))).all()  # seven groups
    drawn = np.random.default_rng(0).integers(40, size=(20_000, 40))
    expected = np.quantile(np.array(right)[drawn].mean(axis=1), [0.025, 0.975])
    assert np.allclose(many, expected, atol=0.03)
