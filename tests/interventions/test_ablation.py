"""Ablation: values zeroed in all layers of one stack, and the choice between two spellings."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import speechmix
from speechmix.adapters.intervene import zeroed_values
from speechmix.errors import InputError
from tests import oracle
from tests.conftest import inputs_of


def run(model, inputs):
    with torch.no_grad():
        return model.family.run(model.base, inputs, tuple(model.stacks)).last_hidden_state


def test_zeroing_in_every_layer_is_zeroing_each_layers_values_in_one_pass(model):
    inputs = inputs_of(model)
    clean = run(model, inputs)
    for stack in model.stacks:
        rows = [3, 4]
        with zeroed_values(model, {stack: rows}):
            found = run(model, inputs)
        modules = [oracle.attention_module(layer, stack) for layer in oracle.layers_of(model.module, stack)]
        with oracle.zeroed_values_of_all(modules, rows):
            expected = run(model, inputs)
        assert torch.allclose(found, expected, atol=1e-10)
        assert not torch.allclose(found, clean, atol=1e-6)
    assert torch.equal(run(model, inputs), clean)


def test_zeroing_nothing_changes_nothing(model):
    inputs = inputs_of(model)
    clean = run(model, inputs)
    with zeroed_values(model, dict.fromkeys(model.stacks, ())):
        assert torch.equal(run(model, inputs), clean)


def test_a_clip_without_a_target_is_refused():
    clip = speechmix.Clip.from_array(np.ones(16_000), 16_000, text="les livres", words=[("les", 0.1, 0.2)], cue="les")
    with pytest.raises(InputError, match="needs text, words with times, a cue"):
        speechmix.ablate(None, clip)
