"""Weights in half precision are converted where they are read; scores do not depend on how many are
held meanwhile."""

from __future__ import annotations

import copy
import gc

import numpy as np
import pytest
import torch
from torch import nn

import speechmix
from speechmix.adapters.capture import module_access
from speechmix.adapters.capture import module_access as weight_conversion
from speechmix.adapters.capture.module_access import precision_context
from tests.adapters.test_lending import assert_same, state_of
from tests.conftest import ALL_FAMILIES, build, inputs_of


@pytest.fixture
def no_memory(monkeypatch):
    """Nothing converted is held but the weight read last."""
    monkeypatch.setattr(module_access, "free_bytes", lambda device: 0)
    monkeypatch.setattr(weight_conversion, "_RECENT_BYTES", 0)


def half_precision_model(name, dtype=torch.bfloat16):
    """A model in half precision, the same one converted as a whole, and inputs."""
    module = build(name).to(dtype)
    converted = speechmix.load(copy.deepcopy(module).float(), check=False)
    model = speechmix.load(module)
    inputs = {key: x.float() if x.is_floating_point() else x for key, x in inputs_of(model).items()}
    return model, converted, inputs


@pytest.mark.every_family
@pytest.mark.parametrize(
    "name",  # of two that are alike, one
    [
        pytest.param(name, marks=[pytest.mark.long] * (name in ("bart", "wav2vec2-post")))
        for name in ALL_FAMILIES
    ],
)
def test_scores_are_those_of_the_model_converted_as_a_whole(name, no_memory):
    model, converted, inputs = half_precision_model(name)
    before = state_of(model.module)
    for options in (
        {"measures": ["value_zeroing", "attention", "attention_norm"]},
        {"measures": "value_zeroing:engine=replay", "layers": [1]},
    ):
        found = speechmix.mix(model, inputs, **options)
        expected = speechmix.mix(converted, inputs, **options)
        for key in expected:
            np.testing.assert_array_equal(found[key].scores, expected[key].scores)
    assert_same(before, state_of(model.module))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_gradients_are_those_of_the_model_converted_as_a_whole(name, dtype, no_memory):
    model, converted, inputs = half_precision_model(name, dtype)
    options = {"measures": ["gradient_input", "alti"], "objective": (3, 5)}
    found, expected = (speechmix.mix(each, inputs, **options) for each in (model, converted))
    for key in expected:
        np.testing.assert_array_equal(found[key].scores, expected[key].scores)


def live_bytes():
    """Memory of all float32 parameters."""
    return sum(
        weight.untyped_storage().nbytes()
        for weight in gc.get_objects()
        if type(weight) is nn.Parameter and weight.dtype == torch.float32
    )


def test_a_backward_pass_keeps_no_converted_weights(no_memory):
    layers = nn.Sequential(*(nn.Linear(64, 64) for _ in range(8)))
    expected = copy.deepcopy(layers).to(torch.bfloat16).float()
    layers.to(torch.bfloat16)
    x = torch.randn(5, 64, requires_grad=True)
    (gradient,) = torch.autograd.grad(expected(x).square().sum(), x)
    before = live_bytes()
    with precision_context(layers, torch.float32):
        value = layers(x).square().sum()
        gc.collect()
        assert live_bytes() - before <= 64 * 64 * 4 + 16 * 4  # and placeholders
        (found,) = torch.autograd.grad(value, x)
    assert torch.equal(found, gradient)


def test_weights_are_held_as_long_as_there_is_memory(monkeypatch):
    layers = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(8))).to(torch.bfloat16)
    one, placeholders = 64 * 64 * 4, 8 * 4
    monkeypatch.setattr(module_access, "free_bytes", lambda device: 2 * 3 * one)
    monkeypatch.setattr(weight_conversion, "_RECENT_BYTES", 2 * one)
    before = live_bytes()
    with precision_context(layers, torch.float32):
        weights = [layer.weight for layer in layers]
        assert all(
            layer.weight is weight for layer, weight in zip(layers[:3], weights, strict=False)
        )
        assert layers[7].weight is weights[7]
        assert layers[3].weight is not weights[3]
        del weights
        layers(torch.ones(1, 64))
        gc.collect()
        assert live_bytes() - before == 5 * one + placeholders
    gc.collect()
    assert live_bytes() == before


def test_whoever_iterates_learns_precision_and_shape_and_no_numbers(no_memory):
    module = build("bert").to(torch.bfloat16)
    shapes = [weight.shape for weight in module.parameters()]
    with precision_context(module, torch.float32):
        assert module.dtype == torch.float32
        assert [weight.shape for weight in module.parameters()] == shapes
        assert all(weight.isnan().all() for weight in module.parameters())


def test_a_finer_precision_inside_another(no_memory):
    layer = nn.Linear(4, 4).to(torch.bfloat16)
    with precision_context(layer, torch.float32):
        with precision_context(layer, torch.float64):
            assert torch.equal(layer.weight, layer.weight.double())
            assert layer.weight.dtype == torch.float64
        with precision_context(layer, torch.float32):
            assert layer.weight.dtype == torch.float32
        assert layer.weight.dtype == torch.float32
    assert layer.weight.dtype == torch.bfloat16
    assert layer.weight.requires_grad


def test_recurrent_layers_have_their_weights_by_number_too(no_memory):
    layer = nn.LSTM(4, 4).to(torch.bfloat16)
    numbered, x = layer._flat_weights, torch.randn(3, 4)
    expected = copy.deepcopy(layer).float()(x)[0]
    with precision_context(layer, torch.float32):
        assert torch.equal(layer(x)[0], expected)
    assert layer._flat_weights is numbered


def test_an_error_leaves_the_module_as_it_was(no_memory):
    module = build("gpt2").to(torch.bfloat16)
    before = state_of(module)
    with pytest.raises(IndexError), precision_context(module, torch.float32):
        module(torch.full((1, 3), 10**6))  # no such token
    assert_same(before, state_of(module))
