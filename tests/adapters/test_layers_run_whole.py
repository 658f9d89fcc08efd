"""Attention that is known by its function alone: a gate or a norm behind it, values that pass a norm.

Layers are run as a whole, with what the function returned replaced. What reads the output projection or
the residual stream is refused.
"""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import speechmix
from speechmix.adapters.binding.self_check import self_check
from speechmix.adapters.model import Model
from speechmix.extensions.tracing.replay_oracle import compare_with_replay
from tests.models.traced_models import build_traced_model
from tests.oracle_by_call import Zeroed, layer_states

IDS = torch.arange(3, 15)[None]


@pytest.fixture(scope="module")
def gated():
    """A decoder with a gate of each head before its output projection (latent attention)."""
    return speechmix.load(copy.deepcopy(build_traced_model("dots3_note")).float())


def run(model):
    with torch.no_grad():
        return model.family.run(model.base, {"input_ids": IDS}, tuple(model.stacks))


def test_value_zeroing_by_hand(gated):
    stack = gated.stacks["decoder"]
    assert stack.spec.blocks[0].is_rerun
    found = speechmix.mix(gated, {"input_ids": IDS})["value_zeroing", "decoder"].scores
    for index, layer in enumerate(stack.layers):
        norm = stack.final_norm if index == len(stack) - 1 else nn.Identity()
        before = layer_states(layer.module, lambda: run(gated))
        for source in (0, 5, 11):
            with Zeroed(layer.module, [source], lambda size: True):
                after = layer_states(layer.module, lambda: run(gated))
            states = (norm(x).flatten(0, -2).double() for x in (before, after))
            moved = 1 - F.cosine_similarity(*states, dim=-1)
            assert found[index, :, source] == pytest.approx(moved.numpy(), rel=1e-4, abs=2e-7)


def test_heads_and_rows_that_see_one_source(gated):
    """The first token sees itself alone: without it, each head's context is zero, as a gate has it."""
    each = speechmix.mix(gated, {"input_ids": IDS}, heads="each")["value_zeroing", "decoder"].scores
    assert each.shape[1] == gated.stacks["decoder"].heads
    assert (each[:, :, 0, 0] > 0).all()
    assert (each[:, :, 3, 4:] == 0).all()  # later tokens are not seen


@pytest.mark.parametrize("measure", ["attention_norm", "attention_norm_residual", "alti"])
def test_measures_of_the_output_projection_are_refused(gated, measure):
    with pytest.raises(speechmix.SpeechmixError):
        speechmix.mix(gated, {"input_ids": IDS}, measures=measure)


@pytest.mark.parametrize("measure", ["alti_logit", "lrp"])
def test_parts_of_a_logit_are_refused(gated, measure):
    with pytest.raises(speechmix.SpeechmixError, match=measure):
        speechmix.logit_contributions(gated, {"input_ids": IDS}, objective=(11, 3), measure=measure)


@pytest.mark.parametrize(
    "changes",
    [
        {"value": "self_attn.q_b_proj"},
        {"value": "self_attn.g_proj"},
        {"key": "self_attn.q_b_proj"},
        {"query": "self_attn.kv_b_proj"},
        {"output": "self_attn.g_proj"},
        {"output": "self_attn.k_rope_only_layernorm"},
        {"module": "mlp"},
        {"is_rerun": False},
        {"layers": "language_model.reversed_layers"},
        {"final_norm": None},
        {"causal": False},
        {"heads": 2},
    ],
    ids=lambda changes: " ".join(changes),
)
def test_wrong_tables_are_refused(gated, changes):
    module = copy.deepcopy(gated.module)
    decoder = module.base_model.language_model
    decoder.reversed_layers = nn.ModuleList(list(decoder.layers)[::-1])
    spec, heads = gated.stacks["decoder"].spec, changes.get("heads", gated.stacks["decoder"].heads)
    block_changes = {k: v for k, v in changes.items() if hasattr(spec.blocks[0], k)}
    stack_changes = {k: v for k, v in changes.items() if hasattr(spec, k)}
    spec = replace(spec, blocks=(replace(spec.blocks[0], **block_changes),), **stack_changes)
    family = replace(gated.family, stacks=lambda config: (spec,), heads=lambda config, stack: heads)
    model = Model(module, family, "wrong")
    try:
        self_check(model)
    except speechmix.SpeechmixError:
        return
    assert not any(x.agrees for x in compare_with_replay(model, {"input_ids": IDS}))
