"""Attention joined by entropy against loops over what eager attention shows, and what a sure head
among even ones does."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import speechmix
from speechmix.errors import InputError
from speechmix.mixing.measures.entropy_attention import combine_heads_by_entropy
from tests import oracle
from tests.conftest import inputs_of, tiny


def joined_by_loops(weights):
    """[H, Q, K] to [Q, K], number by number."""
    n_heads, n_rows, n_sources = weights.shape
    joined = np.zeros((n_rows, n_sources))
    for row in range(n_rows):
        seen = sum(1 for source in range(n_sources) if weights[:, row, source].any())
        sureness = []
        for head in range(n_heads):
            entropy = -sum(w * math.log(w) for w in weights[head, row] if w > 0)
            sureness.append(1 - entropy / math.log(seen) if seen > 1 else 1)
        for head in range(n_heads):
            joined[row] += sureness[head] / sum(sureness) * weights[head, row]
    return joined


@pytest.mark.parametrize(
    "name", ["wav2vec2-stable", "whisper-80", "bert", "gpt2", "mistral", "marian"]
)
def test_heads_are_joined_as_loops_over_eager_attention_join_them(name):
    model = tiny(name)
    inputs = inputs_of(model)
    spans = [(3, 9), (9, 10)] if model.hears else None
    maps = speechmix.mix(model, inputs, measures=["entropy_attention", "attention"], spans=spans)
    for stack in model.stacks:
        shown = oracle.attention_weights(model.module, inputs, stack).double().numpy()
        joined = np.stack([joined_by_loops(layer) for layer in shown])
        if spans and stack == "encoder":
            joined = np.stack([joined[:, slice(*span)].mean(1) for span in spans], axis=1)
        if spans and stack != "decoder":
            joined = np.stack([joined[..., slice(*span)].mean(-1) for span in spans], axis=-1)
        tolerance = 1e-6 if name == "mistral" else 1e-12  # its eager softmax is in single precision
        np.testing.assert_allclose(
            maps["entropy_attention", stack].scores, joined, rtol=0, atol=tolerance
        )
        assert np.abs(joined - maps["attention", stack].scores).max() > 1e-4


def test_a_sure_head_counts_and_even_heads_do_not():
    sure, even = torch.tensor([[0.0, 1.0, 0.0]]), torch.full((1, 3), 1 / 3)
    torch.testing.assert_close(combine_heads_by_entropy(torch.stack([even, sure, even])), sure)
    torch.testing.assert_close(combine_heads_by_entropy(torch.stack([even, even])), even)
    one = torch.tensor([[1.0, 0.0, 0.0]])  # a row that sees one source: nothing to be sure of
    torch.testing.assert_close(combine_heads_by_entropy(torch.stack([one, one])), one)


def test_it_is_rolled_out_with_the_residual_stream_and_composed():
    model = tiny("whisper-80")
    maps = speechmix.mix(
        model, inputs_of(model), measures="entropy_attention", spans=[(0, 30), (30, 60)]
    )
    encoder = maps["entropy_attention", "encoder"]
    assert encoder.rollout().provenance["steps"] == ["rollout (residual=True)"]
    np.testing.assert_allclose(maps.composed("entropy_attention").scores.sum(-1), 1)
    with pytest.raises(InputError, match="heads are joined by their entropy"):
        speechmix.mix(model, inputs_of(model), measures="entropy_attention", heads="each")
