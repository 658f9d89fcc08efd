"""The online code on probes whose cost is known: a constant one, a perfect one, one that never
learns."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from torch import nn

from speechmix.errors import InputError
from speechmix.extensions.probing.online_code import (
    BLOCK_FRACTIONS,
    PENALTY_STRENGTHS,
    SWITCH_PROBABILITY,
    ConstantProbe,
    Training,
    online_code,
    split_blocks,
)

PUBLISHED_ITEMS = 2138


def labels_of(count: int, seed: int = 0) -> list[str]:
    return np.random.default_rng(seed).choice(["sg", "pl"], count).tolist()


class Oracle(nn.Module):
    """Is told the label, as +1 or -1, and is as sure as can be."""

    def __init__(self):
        super().__init__()
        self._sureness = nn.Parameter(torch.tensor(1e4), requires_grad=False)

    def forward(self, states):
        return torch.cat([-states, states], dim=1) * self._sureness


def even(states, classes, count, scored):
    """One predictor that finds all labels equally likely."""
    return np.full((1, len(scored), count), -np.log2(count))


def sure(states, classes, count, scored):
    """One predictor that reads the label off the sign of the state, without doubt."""
    index = (scored[:, 0] > 0).astype(int)  # "sg" is class 1
    return np.where(np.arange(count) == index[:, None], 0.0, -1e4)[None]


def softmax_of_states(states, classes, count, scored):
    """One predictor whose logits are the states themselves; nothing is learned."""
    shares = np.exp(scored) / np.exp(scored).sum(axis=1, keepdims=True)
    return np.log2(shares)[None]


def test_a_constant_probe_compresses_nothing_in_bits_and_1_44_as_published():
    labels, states = labels_of(PUBLISHED_ITEMS), np.zeros((PUBLISHED_ITEMS, 2))
    correct = online_code(states, labels, predictors=even)
    reference = online_code(
        states, labels, mode="reference", network=lambda width, count: ConstantProbe(count)
    )
    assert correct.length == pytest.approx(PUBLISHED_ITEMS)
    assert correct.compression == pytest.approx(1, abs=1e-6)
    assert reference.compression == pytest.approx(1.44, abs=0.005)
    assert np.isnan(reference.item_costs).sum() == 2  # lost by floors, and counted all the same
    assert reference.length == pytest.approx(17 + 2119 * np.log(2), rel=1e-6)


def test_a_perfect_probe_is_at_the_ceiling_as_published():
    labels = labels_of(PUBLISHED_ITEMS)
    states = np.where(np.array(labels) == "sg", 1.0, -1.0)[:, None]
    reference = online_code(states, labels, mode="reference", network=lambda width, count: Oracle())
    assert reference.compression == pytest.approx(3.14, abs=0.005)
    assert reference.length == pytest.approx(17 + 2119 * np.log(1 + np.exp(-1)), rel=1e-5)
    correct = online_code(states, labels, predictors=sure)
    assert correct.length == pytest.approx(
        18, abs=1e-3
    )  # ceil(0.008 x 2138): the first block alone costs
    assert correct.compression == pytest.approx(PUBLISHED_ITEMS / 18, rel=1e-3)


def test_the_code_is_the_sum_of_its_definition():
    labels, generator = labels_of(200), np.random.default_rng(1)
    states = generator.standard_normal((200, 2))
    code = online_code(states, labels, seed=3, predictors=softmax_of_states)
    order, ends = split_blocks(200, seed=3)
    assert ends == [2, 4, 7, 13, 25, 50, 100, 200]
    total = ends[0] * 1.0
    for start, stop in itertools.pairwise(ends):
        sent = states[order[:start]]
        deviation = sent.std(axis=0)
        for item in order[start:stop]:
            logits = (states[item] - sent.mean(axis=0)) / np.where(deviation > 0, deviation, 1)
            shares = np.exp(logits) / np.exp(logits).sum()
            total -= np.log2(shares[["pl", "sg"].index(labels[item])])
    assert code.length == pytest.approx(total, rel=1e-4)
    assert code.compression == pytest.approx(200 / total, rel=1e-4)
    assert code.item_costs.sum() == pytest.approx(code.length)


def test_what_can_be_read_is_cheap_and_what_cannot_is_not():
    labels, generator = labels_of(240), np.random.default_rng(2)
    states = generator.standard_normal((240, 8))
    nothing = online_code(states, labels)
    states[:, 3] = np.where(np.array(labels) == "sg", 3.0, -3.0)
    readable = online_code(states, labels)
    assert nothing.compression < 1.02
    assert readable.compression > 8
    published = online_code(states, labels, mode="reference")
    assert 1 < published.compression < readable.compression


def drawn(kind: str, count: int, width: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """States and labels 0 and 1, as many of each: separable, with overlap, or labels that no state
    says anything of."""
    generator = np.random.default_rng(seed)
    classes = generator.permutation(np.arange(count) % 2)
    states = generator.standard_normal((count, width))
    signs = 2 * classes[:, None] - 1
    if kind == "one dimension":
        states[:, :1] = 3 * signs
    if kind == "all dimensions":
        states += 0.5 * signs * generator.standard_normal(width)
    if kind == "overlap":
        states += 2 * signs * generator.standard_normal(width) / np.sqrt(width)
    return states, classes


def bits_of_one_regression(states, classes, strength: float) -> float:
    """The code of a single scikit-learn regression on the same blocks, written for this test."""
    order, ends = split_blocks(len(classes))
    total = float(ends[0])
    for start, stop in itertools.pairwise(ends):
        sent, scored = order[:start], order[start:stop]
        if len(set(classes[sent])) == 1:
            total += len(scored)
            continue
        scaler = StandardScaler().fit(states[sent])
        fitted = LogisticRegression(C=strength, max_iter=5000).fit(
            scaler.transform(states[sent]), classes[sent]
        )
        margins = fitted.decision_function(scaler.transform(states[scored])) * (
            2 * classes[scored] - 1
        )
        total += np.logaddexp(0, -margins).sum() / np.log(2)
    return total


@pytest.mark.parametrize(
    ("count", "width"),
    [(40, 64), (40, 1024), (600, 64)]
    + [pytest.param(*size, marks=pytest.mark.long) for size in ((200, 256), (2000, 1024))],
)
@pytest.mark.parametrize("kind", ["one dimension", "all dimensions", "overlap"])
def test_the_code_is_as_short_as_that_of_logistic_regression_on_the_same_blocks(kind, count, width):
    states, classes = drawn(kind, count, width, seed=count + width)
    length = online_code(states, classes.astype(str)).length
    best = min(bits_of_one_regression(states, classes, strength) for strength in (0.01, 1.0, 100.0))
    blocks_predicted = len(split_blocks(count)[1]) - 1
    predictors = 2 + len(PENALTY_STRENGTHS)
    overhead = np.log2(predictors) - (blocks_predicted - 1) * np.log2(
        1 - SWITCH_PROBABILITY + SWITCH_PROBABILITY / predictors
    )
    assert overhead < 4
    assert (
        length <= best + overhead + 1.5
    )  # where all sent labels are alike the two codes differ by a bit or so


@pytest.mark.parametrize(
    ("count", "width"),
    [(40, 64), (40, 1024), pytest.param(200, 256, marks=pytest.mark.long), (600, 64)],
)
def test_random_labels_are_not_compressed_and_cost_little_more_than_one_bit_each(count, width):
    compressions = []
    for seed in range(4):
        states, classes = drawn("random", count, width, seed)
        compressions.append(online_code(states, classes.astype(str), seed=seed).compression)
    assert max(compressions) < 1.03
    assert np.mean(compressions) < 1.005
    assert min(compressions) > count / (count + 6)


def test_what_one_dimension_tells_is_read_at_the_size_of_a_study():
    states, classes = drawn("one dimension", 2000, 64, seed=0)
    assert online_code(states, classes.astype(str)).compression > 20


def test_a_third_label_that_was_not_sent_yet_costs_bits_and_not_infinitely_many():
    labels = ["first"] * 30 + ["second"] * 30 + ["third"]
    states = np.random.default_rng(0).standard_normal((61, 5))
    for seed in range(5):
        code = online_code(states, labels, seed=seed)
        assert np.isfinite(code.item_costs).all()
        assert code.compression > 0.9


def test_the_published_schedule_makes_fifteen_epochs_one():
    labels, generator = labels_of(300), np.random.default_rng(0)
    states = (
        generator.standard_normal((300, 6)) + np.where(np.array(labels) == "sg", 1.0, -1.0)[:, None]
    )
    many, one = (
        online_code(states, labels, mode="reference", training=Training(epochs=epochs)).length
        for epochs in (15, 1)
    )
    assert many == one


def test_blocks_end_with_a_group_and_hold_their_shares():
    groups = [f"word {index % 50}" for index in range(400)]
    order, ends = split_blocks(400, groups, seed=1)
    assert sorted(order.tolist()) == list(range(400))
    assert ends[-1] == 400
    assert all(
        end >= share * 400
        for end, share in zip(reversed(ends), reversed(BLOCK_FRACTIONS), strict=False)
    )
    for end in ends[:-1]:
        assert not {groups[item] for item in order[:end]} & {groups[item] for item in order[end:]}


def test_the_callers_random_numbers_stay_and_the_seed_decides():
    labels, states = labels_of(60), np.random.default_rng(0).standard_normal((60, 4))
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    lengths = [online_code(states, labels, seed=seed).length for seed in (0, 0, 1)]
    assert torch.rand(1) == expected
    assert lengths[0] == lengths[1] != lengths[2]


def test_what_cannot_be_sent_is_refused():
    with pytest.raises(InputError, match="two kinds"):
        online_code(np.zeros((4, 2)), ["sg"] * 4)
    with pytest.raises(InputError, match="mode"):
        online_code(np.zeros((4, 2)), ["sg", "pl"] * 2, mode="fast")
    with pytest.raises(InputError, match="125 items"):
        online_code(np.zeros((100, 2)), ["sg", "pl"] * 50, mode="reference")
