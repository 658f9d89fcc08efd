"""Layers bound when a model is loaded: modules found once, and found again where they were
exchanged."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch

import speechmix
from speechmix.adapters.binding import bound_layers as layers
from speechmix.adapters.binding.bound_layers import bind_stack, layer_modules
from speechmix.adapters.patching.patched_runs import run_patches
from speechmix.adapters.patching.patches import Patch
from speechmix.errors import ModelError
from tests.conftest import build, inputs_of

MEASURES = ("value_zeroing", "attention_norm", "alti")


def scores_of(model, inputs):
    return {
        key: found.scores for key, found in speechmix.mix(model, inputs, measures=MEASURES).items()
    }


def assert_same_scores(model, other):
    inputs = inputs_of(model)
    scores, expected = scores_of(model, inputs), scores_of(other, inputs)
    assert list(scores) == list(expected)
    for key in expected:
        np.testing.assert_array_equal(scores[key], expected[key])


def test_bound_modules_are_those_the_table_names(any_model):
    for stack in any_model.stacks.values():
        modules = layer_modules(stack.spec, any_model.base)
        assert tuple(layer.module for layer in stack.layers) == modules
        assert len(stack) == len(modules)
        for layer in stack.layers:
            assert layer.studied_index == stack.spec.block_index
            assert layer.attention is layer.attentions[stack.spec.block_index]
            for plan, bound in zip(stack.spec.blocks, layer.attentions, strict=True):
                for name in ("module", "value", "key", "output", "norm", "query", "branch_norm"):
                    path = getattr(plan, name)
                    assert getattr(bound, name) is (path and layer.module.get_submodule(path)), (
                        stack.name,
                        name,
                    )
                assert bound.includes_output == any(
                    part is bound.output for part in bound.module.modules()
                )
            for plan, bound in zip(stack.spec.feed_forwards, layer.feed_forwards, strict=True):
                for name in ("norm", "up", "down", "activation", "gate", "branch_norm"):
                    path = getattr(plan, name)
                    assert getattr(bound, name) is (path and layer.module.get_submodule(path)), (
                        stack.name,
                        name,
                    )


def test_stacks_know_what_runs_their_layers():
    whisper, llama = speechmix.load(build("whisper-80")), speechmix.load(build("llama"))
    assert whisper.stacks["cross"].holder is whisper.base.decoder
    assert whisper.stacks["encoder"].holder is whisper.base.encoder
    assert llama.stacks["decoder"].holder is llama.base


def test_the_rest_of_a_layer_is_there_where_all_of_it_is_described():
    model = speechmix.load(build("whisper-80"))
    decoder, cross = (model.stacks[name].layers[0].post_attention for name in ("decoder", "cross"))
    layer = model.base.decoder.layers[0]
    assert [(later.attention_index, later.norm, later.query) for later in decoder.attentions] == [
        (1, layer.encoder_attn_layer_norm, layer.encoder_attn.q_proj)
    ]
    assert not cross.attentions
    assert cross.norm is layer.encoder_attn_layer_norm
    assert [part.up for part in cross.feed_forwards] == [layer.fc1]
    stack = model.stacks["decoder"]
    for changes in (
        {"feed_forwards": ()},
        {"blocks": (stack.spec.blocks[0], replace(stack.spec.blocks[1], query=None))},
        {"blocks": (stack.spec.blocks[0], replace(stack.spec.blocks[1], norm=None))},
        {"blocks": (replace(stack.spec.blocks[0], norm=None), stack.spec.blocks[1])},
        {
            "blocks": (
                stack.spec.blocks[0],
                replace(stack.spec.blocks[1], branch_norm="final_layer_norm"),
            )
        },
    ):
        assert (
            bind_stack(replace(stack.spec, **changes), model.base, 4).layers[0].post_attention
            is None
        ), changes
    # Gemma 3 norms what a block gives.
    assert speechmix.load(build("gemma3_text")).stacks["decoder"].layers[0].post_attention is None


def test_a_feed_forward_runs_without_its_norm_and_residual():
    states = torch.randn(3, 32, dtype=torch.double)
    for name, path, up in (
        ("wav2vec2-stable", "feed_forward", "encoder"),
        ("llama", "mlp", "decoder"),
    ):
        model = speechmix.load(build(name).double())
        layer = model.stacks[up].layers[1]
        torch.testing.assert_close(
            layer.feed_forwards[0](states), layer.module.get_submodule(path)(states)
        )


def test_a_path_that_leads_nowhere_fails_when_it_is_bound():
    model = speechmix.load(build("bert"))
    plan = model.stacks["encoder"].spec
    block = replace(plan.blocks[0], norm="attention.output.norm")
    with pytest.raises(
        ModelError,
        match=r"attention of the encoder: expected 'attention.output.norm' inside BertLayer",
    ):
        bind_stack(replace(plan, blocks=(block,)), model.base, 4)
    with pytest.raises(ModelError, match=r"feed-forward of the encoder: .* has no 'fc1'"):
        bind_stack(
            replace(plan, feed_forwards=(replace(plan.feed_forwards[0], up="fc1"),)), model.base, 4
        )
    assert bind_stack(replace(plan, layers="nowhere.layer"), model.base, 4) is None


@pytest.mark.parametrize("name", ["bert", "whisper-80"])
def test_nothing_is_looked_up_by_its_path_while_blocks_are_handled(name, monkeypatch):
    model = speechmix.load(build(name).double())
    inputs = inputs_of(model)
    expected = scores_of(model, inputs)
    monkeypatch.setattr(type(model), "rebind", lambda model: None)
    monkeypatch.delattr(layers, "submodule")
    for key, scores in scores_of(model, inputs).items():
        np.testing.assert_array_equal(scores, expected[key])


def another_linear(module: torch.nn.Linear) -> torch.nn.Linear:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return (
            torch.nn.Linear(module.in_features, module.out_features)
            .to(module.weight.dtype)
            .requires_grad_(False)
        )


EXCHANGED = {
    "wav2vec2-post": ("attention.out_proj", "feed_forward.output_dense"),
    "bert": ("attention.self.value", "intermediate.dense"),
    "llama": ("self_attn.o_proj", "mlp.gate_proj"),
}


@pytest.mark.parametrize("name", EXCHANGED)
def test_parts_exchanged_after_loading_are_those_that_are_measured(name):
    """An experiment puts other modules into layers of a model that is loaded: scores are those of
    loading it again."""
    module = build(name).double()
    model = speechmix.load(module)
    inputs = inputs_of(model)
    before = scores_of(model, inputs)
    for path in EXCHANGED[name]:
        layer = next(iter(model.stacks.values())).layers[1].module
        layer.set_submodule(path, another_linear(layer.get_submodule(path)))
    after = scores_of(model, inputs)
    assert all(not np.array_equal(after[key], before[key]) for key in after)
    assert_same_scores(model, speechmix.load(module))


def test_a_final_norm_exchanged_after_loading():
    module = build("llama").double()
    model = speechmix.load(module)
    module.model.norm = copy.deepcopy(module.model.norm)
    module.model.norm.weight.data *= torch.linspace(0.5, 2, 32)
    assert_same_scores(model, speechmix.load(module))


def test_an_attention_module_exchanged_before_its_values_are_set_to_zero():
    module = build("wav2vec2-post")
    model = speechmix.load(module)
    inputs = {key: x.float() for key, x in inputs_of(model).items()}
    for layer in module.base_model.encoder.layers:
        layer.attention = copy.deepcopy(layer.attention)
    branch = Patch("encoder", range(3), [3, 4])
    intact, (zeroed,) = run_patches(model, inputs, [branch], lambda output: output.logits)
    assert not torch.equal(intact, zeroed)
    _, (again,) = run_patches(
        speechmix.load(module), inputs, [branch], lambda output: output.logits
    )
    torch.testing.assert_close(again, zeroed)


def test_a_part_exchanged_for_what_the_table_does_not_fit():
    module = build("bert")
    model = speechmix.load(module)
    module.bert.encoder.layer[1].output = torch.nn.Identity()
    with pytest.raises(
        ModelError, match=r"feed-forward of the encoder: .*Identity has no 'LayerNorm'"
    ):
        speechmix.mix(model, inputs_of(model))


@pytest.mark.parametrize("name", ["bert", "whisper-80"])
def test_a_copied_model_is_bound_to_its_own_modules(name):
    model = speechmix.load(build(name).double())
    copied = copy.deepcopy(model)
    parts = {id(part) for part in copied.module.modules()}
    for stack in copied.stacks.values():
        for layer in stack.layers:
            assert id(layer.module) in parts
            assert all(id(attention.output) in parts for attention in layer.attentions)
    assert_same_scores(copied, model)
    with torch.no_grad():
        for layer in next(iter(copied.stacks.values())).layers:
            layer.attention.output.weight *= 2
    assert_same_scores(model, speechmix.load(build(name).double()))


def test_a_random_twin_is_bound_to_its_own_modules():
    module = build("bert")
    twin = speechmix.load(module, init="random", seed=1)
    own = {id(part) for part in module.modules()}
    for layer in twin.stacks["encoder"].layers:
        assert not own & {
            id(layer.module),
            id(layer.attention.value),
            id(layer.feed_forwards[0].up),
        }


def test_layers_and_adapters_are_refused_as_often_as_the_model_is_used():
    module = build("bert")
    model = speechmix.load(module)
    before = module.bert.encoder.layer[0]
    module.bert.encoder.layer[0] = copy.deepcopy(before)
    for _ in range(2):
        with pytest.raises(
            ModelError, match=r"layers of the encoder were exchanged after loading: load it again"
        ):
            speechmix.mix(model, inputs_of(model))
    module.bert.encoder.layer[0] = before
    assert speechmix.mix(model, inputs_of(model))


def test_two_modules_that_change_places():
    module = build("llama").double()
    model = speechmix.load(module)
    attention = module.model.layers[1].self_attn
    attention.q_proj, attention.o_proj = attention.o_proj, attention.q_proj
    assert_same_scores(model, speechmix.load(module))
