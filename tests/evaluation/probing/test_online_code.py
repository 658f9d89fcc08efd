"""The online code on probes whose cost is known: a constant one, a perfect one, one that never learns."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import nn

from speechmix.errors import InputError
from speechmix.evaluation.probing.networks import Constant, Training
from speechmix.evaluation.probing.online_code import FRACTIONS, blocks, online_code

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


class Fixed(nn.Module):
    """Logits that are the states themselves; nothing is learned."""

    def __init__(self):
        super().__init__()
        self._one = nn.Parameter(torch.ones(1), requires_grad=False)

    def forward(self, states):
        return states * self._one


def test_a_constant_probe_compresses_nothing_in_bits_and_1_44_as_published():
    labels, states = labels_of(PUBLISHED_ITEMS), np.zeros((PUBLISHED_ITEMS, 2))
    options = {"network": lambda width, count: Constant(count)}
    correct, reference = (online_code(states, labels, mode=mode, **options) for mode in ("correct", "reference"))
    assert correct.length == pytest.approx(PUBLISHED_ITEMS)
    assert correct.compression == pytest.approx(1, abs=1e-6)
    assert reference.compression == pytest.approx(1.44, abs=0.005)
    assert np.isnan(reference.of_items).sum() == 2  # lost by floors, and counted all the same
    assert reference.length == pytest.approx(17 + 2119 * np.log(2), rel=1e-6)


def test_a_perfect_probe_is_at_the_ceiling_as_published():
    labels = labels_of(PUBLISHED_ITEMS)
    states = np.where(np.array(labels) == "sg", 1.0, -1.0)[:, None]
    options = {"network": lambda width, count: Oracle()}
    reference = online_code(states, labels, mode="reference", **options)
    assert reference.compression == pytest.approx(3.14, abs=0.005)
    assert reference.length == pytest.approx(17 + 2119 * np.log(1 + np.exp(-1)), rel=1e-5)
    correct = online_code(states, labels, **options)
    assert correct.length == pytest.approx(18, abs=1e-3)  # ceil(0.008 x 2138): the first block alone costs
    assert correct.compression == pytest.approx(PUBLISHED_ITEMS / 18, rel=1e-3)


def test_the_code_is_the_sum_of_its_definition():
    labels, generator = labels_of(200), np.random.default_rng(1)
    states = generator.standard_normal((200, 2))
    code = online_code(states, labels, seed=3, network=lambda width, count: Fixed())
    order, ends = blocks(200, seed=3)
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
    assert code.of_items.sum() == pytest.approx(code.length)


def test_what_can_be_read_is_cheap_and_what_cannot_is_not():
    labels, generator = labels_of(240), np.random.default_rng(2)
    states = generator.standard_normal((240, 8))
    nothing = online_code(states, labels)
    states[:, 3] = np.where(np.array(labels) == "sg", 3.0, -3.0)
    readable = online_code(states, labels)
    assert nothing.compression < 1.05
    assert readable.compression > 1.5
    published = online_code(states, labels, mode="reference")
    assert 1 < published.compression < readable.compression


def test_the_published_schedule_makes_fifteen_epochs_one():
    labels, generator = labels_of(300), np.random.default_rng(0)
    states = generator.standard_normal((300, 6)) + np.where(np.array(labels) == "sg", 1.0, -1.0)[:, None]
    many, one = (
        online_code(states, labels, mode="reference", training=Training(epochs=epochs)).length for epochs in (15, 1)
    )
    assert many == one
    many, one = (online_code(states, labels, training=Training(epochs=epochs)).length for epochs in (15, 1))
    assert many < 0.9 * one


def test_blocks_end_with_a_group_and_hold_their_shares():
    groups = [f"word {index % 50}" for index in range(400)]
    order, ends = blocks(400, groups, seed=1)
    assert sorted(order.tolist()) == list(range(400))
    assert ends[-1] == 400
    assert all(end >= share * 400 for end, share in zip(reversed(ends), reversed(FRACTIONS), strict=False))
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
