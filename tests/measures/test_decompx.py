"""DecompX's rules one by one: each keeps the sum of the vectors that of the true states."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch import nn

import speechmix
from speechmix.errors import ModelError
from speechmix.extensions.logit_decompositions.decompx_logit import (
    vectors_through_activation,
    vectors_through_bias,
    vectors_through_linear,
    vectors_through_norm,
)
from tests.conftest import inputs_of


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def test_every_rule_keeps_the_sum():
    vectors = drawn(4, 3, 8)
    states = vectors.sum(1)
    linear, norm = nn.Linear(8, 5).double(), nn.LayerNorm(8).double()
    norm.weight.data, norm.bias.data = drawn(8, seed=1), drawn(8, seed=2)
    with torch.no_grad():
        torch.testing.assert_close(
            vectors_through_linear(vectors, linear).sum(1), linear(states), rtol=0, atol=1e-14
        )
        torch.testing.assert_close(
            vectors_through_norm(vectors, norm, states).sum(1), norm(states), rtol=0, atol=1e-14
        )
        active = nn.functional.gelu(states)
        torch.testing.assert_close(
            vectors_through_activation(vectors, states, active).sum(1), active, rtol=0, atol=1e-14
        )


def test_a_bias_goes_where_it_points_and_is_never_lost():
    bias = torch.tensor([1.0, 0.0])
    shared = vectors_through_bias(torch.tensor([[1.0, 0.0], [-3.0, 0.0], [0.0, 9.0]]), bias)
    torch.testing.assert_close(shared, torch.tensor([[1.25, 0.0], [-2.25, 0.0], [0.0, 9.0]]))
    orthogonal = vectors_through_bias(
        torch.tensor([[0.0, 1.0], [0.0, 2.0]]), bias
    )  # the published code drops it here
    torch.testing.assert_close(orthogonal.sum(0), torch.tensor([1.0, 3.0]))
    assert vectors_through_bias(orthogonal, None) is orthogonal


def test_a_unit_at_zero_gives_nothing():
    vectors = torch.tensor([[[2.0, 1.0], [-2.0, 1.0]]])
    before = vectors.sum(1)
    carried = vectors_through_activation(vectors, before, before.relu())
    torch.testing.assert_close(carried, torch.tensor([[[0.0, 1.0], [0.0, 1.0]]]))


def test_values_that_are_scaled_behind_their_projection_are_refused():
    config = transformers.BertConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=48,
        vocab_size=60,
    )
    model = speechmix.load(transformers.BertForSequenceClassification(config).double())
    options = {"measure": "decompx", "objective": (1,)}
    assert speechmix.logit_contributions(model, inputs_of(model), **options).error < 1e-9
    value = model.stacks["encoder"].layers[0].attention.value
    hook = value.register_forward_hook(lambda module, args, output: 0.5 * output)
    try:
        with pytest.raises(ModelError, match="changes its values behind their projection"):
            speechmix.logit_contributions(model, inputs_of(model), **options)
    finally:
        hook.remove()
