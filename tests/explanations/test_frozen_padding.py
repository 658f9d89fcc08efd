"""Encoder passes in which padding keeps its states of the intact pass."""

from __future__ import annotations

import pytest
import torch

import speechmix
from speechmix.extensions.explain import removals as frozen_padding
from speechmix.extensions.explain.removals import FrozenPadding
from speechmix.inputs import bundled
from speechmix.interventions.decision import Decision
from speechmix.interventions.removals import Removal, change_inputs


@pytest.fixture(scope="module")
def decision() -> Decision:
    model = speechmix.load(bundled.models()["tiny-french-whisper"])
    return Decision.prepare(model, bundled.clips()[1])


@pytest.fixture(scope="module")
def muted(decision) -> dict[str, torch.Tensor]:
    removal = Removal("sound", (1,), "zeros")
    return change_inputs(decision.model, decision.item, decision.prepared.inputs, [removal])[0]


def test_the_intact_sound_gives_the_states_of_the_model(decision):
    intact = decision.encode(decision.inputs)
    frozen = FrozenPadding(decision, intact.shape[1] // 2).encode(decision.inputs)
    torch.testing.assert_close(frozen, intact)


def test_without_padding_it_is_the_model(decision, muted):
    whole = decision.encode(muted)
    padding = FrozenPadding(decision, whole.shape[1])
    torch.testing.assert_close(padding.encode(muted), whole)
    assert not torch.allclose(whole, decision.encode(decision.inputs))


def test_only_positions_of_the_clip_change(decision, muted):
    intact = decision.encode(decision.inputs)
    n_positions = intact.shape[1] // 2
    frozen = FrozenPadding(decision, n_positions).encode(muted)
    assert torch.equal(frozen[:, n_positions:], intact[:, n_positions:])
    assert not torch.allclose(frozen[:, :n_positions], intact[:, :n_positions])


def test_no_hook_is_left(decision, muted):
    FrozenPadding(decision, 10).encode(muted)
    modules = decision.model.module.modules()
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in modules)


def test_the_clip_decides_how_much_is_run(decision, monkeypatch):
    """1.2 s of a window of 3 s: 60 positions of 150, and those that its end reaches."""
    assert FrozenPadding.of(decision)._n_positions == 64
    monkeypatch.setattr(frozen_padding, "_MAX_SHARE", 0.4)
    assert FrozenPadding.of(decision) is None
