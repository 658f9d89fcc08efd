"""Forty tables that are wrong on purpose: each is caught at load, changes no number, or makes
measures refuse that need it.

Every path leads somewhere. What must not happen is a model that loads and gives other numbers.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import speechmix
from speechmix.adapters import AttentionSpec, family_of_type
from speechmix.adapters.families import registry
from speechmix.errors import SpeechmixError
from tests.conftest import ALL_FAMILIES, build, inputs_of
from tests.models.more_families import MORE_FAMILIES, built

MEASURES = (
    "value_zeroing",
    "attention",
    "attention_norm",
    "attention_norm_residual",
    "alti",
    "random",
    "globenc",
)


@dataclass(frozen=True)
class Wrong:
    """A table with something else in it: in the stack, its studied attention, first feed-forward or
    convolution."""

    family: str
    outcome: str  # caught, harmless or refuses
    stack: str = ""  # all for none
    heads: int | None = None
    attention: dict[str, Any] | None = None
    feed_forward: dict[str, Any] | None = None
    convolution: dict[str, Any] | None = None
    fields: dict[str, Any] | None = None

    def table(self, plan):
        if self.stack not in ("", plan.name):
            return plan
        if self.attention:
            blocks = list(plan.blocks)
            blocks[plan.block_index] = replace(blocks[plan.block_index], **self.attention)
            plan = replace(plan, blocks=tuple(blocks))
        if self.feed_forward:
            first, *others = plan.feed_forwards
            plan = replace(plan, feed_forwards=(replace(first, **self.feed_forward), *others))
        if self.convolution:
            plan = replace(plan, convolution=replace(plan.convolution, **self.convolution))
        return replace(plan, **(self.fields or {}))


WRONG = {
    # which layers, which block of them, in which order
    "the other stack's layers": Wrong(
        "whisper-80", "caught", "decoder", fields={"layers": "encoder.layers"}
    ),
    "the other block": Wrong("whisper-80", "caught", "decoder", fields={"block": 1}),
    "the other block as cross": Wrong("bart", "caught", "cross", fields={"block": 0}),
    "a projection for the module": Wrong(
        "llama", "caught", attention={"module": "self_attn.v_proj"}
    ),
    "the feed-forward for the module": Wrong("llama", "caught", attention={"module": "mlp"}),
    "too many heads": Wrong("bert", "caught", heads=8),
    "causal, where it is not": Wrong("wav2vec2-stable", "caught", fields={"causal": True}),
    "not causal, where it is": Wrong("gpt2", "caught", fields={"causal": False}),
    "not causal behind an encoder": Wrong("bart", "caught", "decoder", fields={"causal": False}),
    # norms
    "post for pre": Wrong("llama", "caught", fields={"norm_order": "post"}),
    "pre for post": Wrong("bert", "caught", fields={"norm_order": "pre"}),
    "pre for post, undescribed": Wrong(
        "bert", "caught", fields={"norm_order": "pre", "feed_forwards": ()}
    ),
    "post for pre, undescribed": Wrong(
        "llama", "caught", fields={"norm_order": "post", "feed_forwards": ()}
    ),
    "norms swapped": Wrong(
        "llama",
        "caught",
        attention={"norm": "post_attention_layernorm"},
        feed_forward={"norm": "input_layernorm"},
    ),
    "norm of attention": Wrong("bert", "caught", attention={"norm": "output.LayerNorm"}),
    "norm of the feed-forward": Wrong(
        "wav2vec2-post", "caught", feed_forward={"norm": "layer_norm"}
    ),
    "norm left out": Wrong("gpt2", "caught", attention={"norm": None}),
    "no final norm": Wrong("llama", "caught", fields={"final_norm": None}),
    "a final norm where there is none": Wrong(
        "wav2vec2-post", "caught", fields={"final_norm": "encoder.layer_norm"}
    ),
    "the other stack's final norm": Wrong(
        "whisper-80", "caught", "encoder", fields={"final_norm": "decoder.layer_norm"}
    ),
    "norm of a branch left out": Wrong("gemma3_text", "caught", attention={"branch_norm": None}),
    "another norm of a branch": Wrong(
        "gemma3_text", "caught", attention={"branch_norm": "post_feedforward_layernorm"}
    ),
    "a norm of a branch that has none": Wrong("gpt2", "caught", attention={"branch_norm": "ln_2"}),
    "norm left out, undescribed": Wrong(
        "gpt2", "refuses", attention={"norm": None}, fields={"feed_forwards": ()}
    ),
    "a norm of a branch as the block's": Wrong(
        "olmo2", "caught", attention={"branch_norm": None, "norm": "post_attention_layernorm"}
    ),
    # projections
    "keys for values": Wrong(
        "whisper-80", "caught", attention={"value": "self_attn.k_proj"}, stack="encoder"
    ),
    "queries for the output": Wrong(
        "wav2vec2-stable", "caught", attention={"output": "attention.q_proj"}
    ),
    "keys for the queries": Wrong("bart", "caught", "decoder", fields={"blocks": ()}),
    "read off the softmax, though it need not": Wrong(
        "bert", "harmless", attention={"needs_eager": True}
    ),
    "not read off the softmax, though it must": Wrong(
        "gemma2", "caught", attention={"needs_eager": False}
    ),
    # feed-forwards
    "up for down": Wrong(
        "llama", "caught", feed_forward={"up": "mlp.gate_proj", "gate": "mlp.up_proj"}
    ),
    "gate left out": Wrong("qwen2", "caught", feed_forward={"gate": None}),
    "halves swapped": Wrong(
        "phi3", "caught", feed_forward={"gate": "mlp.gate_up_proj:1", "up": "mlp.gate_up_proj:0"}
    ),
    "an activation that is none": Wrong("gpt2", "caught", feed_forward={"activation": "ln_2"}),
    "half a feed-forward": Wrong("bert", "caught", feed_forward={"scale": 0.5}),
    "an adapter left out": Wrong("wav2vec2-adapters", "caught", fields={"feed_forwards": "first"}),
    "a feed-forward twice": Wrong("distilbert", "caught", fields={"feed_forwards": "twice"}),
    "feed-forward beside attention": Wrong("llama", "caught", fields={"parallel": True}),
    "feed-forward behind attention": Wrong("gpt_neox", "caught", fields={"parallel": False}),
    # Conformers
    "convolution left out": Wrong("parakeet", "caught", fields={"convolution": None}),
    "a causal convolution": Wrong("wav2vec2-conformer", "caught", convolution={"causal": True}),
    "a convolution that sees ahead": Wrong(
        "wav2vec2-bert", "caught", convolution={"causal": False}
    ),
    "norm of the convolution": Wrong(
        "parakeet", "caught", convolution={"norm": "norm_feed_forward2"}
    ),
    "norm inside the convolution": Wrong(
        "wav2vec2-bert", "caught", convolution={"depthwise_norm": "conv_module.layer_norm"}
    ),
    "a whole feed-forward": Wrong("seamless-m4t-v2", "caught", feed_forward={"scale": 1.0}),
    "closing norm left out": Wrong("parakeet", "caught", fields={"closing_norm": None}),
    "another closing norm": Wrong(
        "wav2vec2-bert", "caught", fields={"closing_norm": "ffn2_layer_norm"}
    ),
}


@functools.cache
def module_of(name):
    if name in MORE_FAMILIES:
        return built(name)
    module = build(name).double()
    with torch.no_grad():
        for index, part in enumerate(module.modules()):
            if type(part).__name__.endswith("Norm") and getattr(part, "weight", None) is not None:
                part.weight += 0.02 * index  # norms differ, as in trained models
    return module


def inputs_for(name, model):
    return MORE_FAMILIES[name].inputs(20) if name in MORE_FAMILIES else inputs_of(model)


def numbers(model, inputs):
    """Scores of every measure and stack, or that it refuses."""
    maps = {}
    for measure in MEASURES:
        for stack in model.stacks:
            try:
                maps[measure, stack] = speechmix.mix(
                    model, inputs, measures=[measure], stacks=[stack], spans=[(0, 2), (5, 9)]
                )
            except SpeechmixError:
                maps[measure, stack] = None
    return {key: found and found[key].scores for key, found in maps.items()}


@functools.cache
def right_numbers(name):
    model = speechmix.load(module_of(name))
    return numbers(model, inputs_for(name, model))


def found_out(wrong: Wrong, family) -> str:
    module, known = module_of(wrong.family), dict(registry._FAMILIES)

    def stacks(config):
        plans = family.stacks(config)
        told = (wrong.fields or {}).get("feed_forwards")
        if isinstance(told, str):
            return tuple(
                replace(
                    plan,
                    feed_forwards=plan.feed_forwards[:1]
                    if told == "first"
                    else 2 * plan.feed_forwards,
                )
                for plan in plans
            )
        if (wrong.fields or {}).get("blocks") == ():
            cross = replace(plans[1].blocks[1], query="encoder_attn.k_proj")
            return tuple(
                replace(plan, blocks=(*plan.blocks[:1], cross)) if len(plan.blocks) > 1 else plan
                for plan in plans
            )
        return tuple(map(wrong.table, plans))

    changes = {"stacks": stacks} | (
        {"heads": lambda config, stack: wrong.heads} if wrong.heads else {}
    )
    speechmix.register(replace(family, **changes))
    try:
        model = speechmix.load(module)
    except SpeechmixError:
        return "caught"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_FAMILIES", known)
        expected = right_numbers(wrong.family)
    outcome = "harmless"
    for key, scores in numbers(model, inputs_for(wrong.family, model)).items():
        if scores is None and expected[key] is not None:
            outcome = "refuses"
        elif scores is not None and expected[key] is None:
            return f"{key} is given, though it is not defined"
        elif (
            scores is not None
            and np.abs(scores - expected[key]).max() > 1e-6 * np.abs(expected[key]).max()
        ):
            return f"{key} has other numbers"
    return outcome


@pytest.mark.parametrize("which", WRONG)
def test_a_wrong_table_gives_no_other_numbers(monkeypatch, which):
    wrong = WRONG[which]
    module = module_of(wrong.family)
    monkeypatch.setattr(registry, "_FAMILIES", dict(registry._FAMILIES))
    assert found_out(wrong, family_of_type(module.config.model_type)) == wrong.outcome


@pytest.mark.parametrize("family", ["parakeet", "llama"])
def test_a_right_table_is_found_harmless(monkeypatch, family):
    module = module_of(family)
    monkeypatch.setattr(registry, "_FAMILIES", dict(registry._FAMILIES))
    assert (
        found_out(Wrong(family, "harmless"), family_of_type(module.config.model_type)) == "harmless"
    )


def test_there_are_forty():
    assert len(WRONG) >= 40
    assert {wrong.family for wrong in WRONG.values()} <= {*ALL_FAMILIES, *MORE_FAMILIES}
    assert AttentionSpec.__dataclass_fields__.keys() >= {
        name for wrong in WRONG.values() for name in wrong.attention or ()
    }


@pytest.mark.parametrize(
    "like", ["opt", "t5", "gpt2", "whisper", "wav2vec2", "gpt-neox", "falcon", "qwen2-audio"]
)
def test_a_borrowed_table_that_does_not_fit_is_an_error_that_names_the_place(monkeypatch, like):
    monkeypatch.setattr(registry, "_FAMILIES", dict(registry._FAMILIES))
    family = next(
        (family for family in registry.families() if like in (family.name, *family.model_types)),
        None,
    )
    if family is None:
        pytest.skip(f"no family {like}")
    config = transformers.GPTJConfig(n_embd=32, n_layer=2, n_head=4, rotary_dim=4, vocab_size=40)
    speechmix.register(replace(family, name="borrowed", model_types=("gptj",)))
    with pytest.raises(SpeechmixError):  # and no AttributeError
        speechmix.load(transformers.GPTJModel(config))


def test_a_weight_that_is_not_finite_is_named():
    module = build("gpt2")
    module.transformer.h[1].attn.c_attn.weight.data[0, 0] = float("nan")
    with pytest.raises(
        SpeechmixError,
        match=r"weights are not finite \(NaN or infinity\): transformer\.h\.1\.attn\.c_attn\.weight",
    ):
        speechmix.load(module)
