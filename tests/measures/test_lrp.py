"""Relevance propagation: conserved in every family, and the messages of the rules written out one
by one."""

from __future__ import annotations

import copy
import functools

import numpy as np
import pytest
import torch
import transformers
from torch import nn

import speechmix
from speechmix.errors import InputError, SpeechmixError
from speechmix.extensions.logit_decompositions import relevance_pass as lrp
from speechmix.extensions.logit_decompositions.relevance_pass import RelevanceRules
from speechmix.extensions.planted.case_table import CUE
from speechmix.extensions.planted.planting import plant
from tests import oracle_lrp as oracle
from tests.conftest import ALL_FAMILIES, inputs_of
from tests.measures.test_gradients import HEADS
from tests.models.more_families import MORE_FAMILIES
from tests.scoring.test_to_logit import ASKED, headed

FIRST = (
    "wav2vec2-post",
    "wav2vec2-stable",
    "wavlm-stable",
    "whisper-80",
    "bert",
    "gpt2",
    "llama",
    "gemma3_text",
    "bart",
)
COVERED = [
    pytest.param(name, marks=[] if name in FIRST else pytest.mark.long) for name in ALL_FAMILIES
]


@functools.cache
def answered(name):
    """Model, inputs and contributions of a family; the norms' gains and all biases are drawn."""
    model_class = ALL_FAMILIES[name][1]
    model = headed(name, HEADS.get(model_class, model_class))
    inputs = inputs_of(model)
    spans = ((0, 20), (20, 41)) if model.hears else None
    return (
        model,
        inputs,
        speechmix.logit_contributions(model, inputs, measure="lrp", objective=ASKED, spans=spans),
    )


@pytest.mark.parametrize("name", COVERED)
def test_parts_and_what_biases_and_softmaxes_keep_are_the_logit(name):
    model, inputs, answers = answered(name)
    with torch.no_grad():
        logits = model.module(**inputs).logits[0]
    for (position, token, *foil), parts in zip(ASKED, answers, strict=True):
        true = logits[position, token] - (logits[position, foil[0]] if foil else 0)
        assert abs(parts.logit - true.item()) <= 1e-10
        assert abs(parts.to_dataframe()["contribution"].sum() - true.item()) <= 1e-10
        assert parts.layer_parts["outside"].any() == model.hears
        table = parts.conservation()
        assert list(table["layer"]) == [layer for _ in parts.sides for layer in (2, 1, 0)]
        assert table["error"].abs().max() <= 1e-10
        assert table["softmax"].all()
        assert set(parts.scores) == set(model.stacks) - {"cross"}


FURTHER = {
    "unispeech": "UniSpeechForCTC",
    "sew": "SEWForCTC",
    "moonshine": "MoonshineForConditionalGeneration",
    "speech-to-text": "Speech2TextForConditionalGeneration",
    "m2m-100": "M2M100ForConditionalGeneration",
    "t5": "T5ForConditionalGeneration",
    "mt5": "MT5ForConditionalGeneration",
    "modernbert": "ModernBertForMaskedLM",
    "phi3": "Phi3ForCausalLM",
    "opt, post-norm": "OPTForCausalLM",
    "gpt_neox": "GPTNeoXForCausalLM",
    "falcon, two norms": "FalconForCausalLM",
}


def headed_further(name, model_class):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = getattr(transformers, model_class)(MORE_FAMILIES[name].build().config).double()
    return speechmix.load(module.eval().requires_grad_(False))


@pytest.mark.long
@pytest.mark.parametrize("name", FURTHER)
def test_further_families_conserve_relevance_too(name):
    model = headed_further(name, FURTHER[name])
    spans = [(0, 3), (3, 6)] if model.hears else None
    inputs = MORE_FAMILIES[name].inputs(40 if model.hears else 12)
    parts = speechmix.logit_contributions(
        model, inputs, measure="lrp", objective=(3, 5), spans=spans
    )
    assert abs(parts.error) <= 1e-10
    assert parts.conservation()["error"].abs().max() <= 1e-10


@pytest.mark.parametrize("dtype", ["float32", pytest.param("float64", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    ("name", "model_class"), [("olmo2", "Olmo2ForCausalLM"), ("qwen3_moe", "Qwen3MoeForCausalLM")]
)
def test_a_product_that_no_table_tells_of_is_found_out(name, model_class, dtype):
    """Single precision is what is computed in by default."""
    module = headed_further(name, model_class).module.to(getattr(torch, dtype))
    inputs = MORE_FAMILIES[name].inputs(12)
    with pytest.raises(SpeechmixError, match="computes something that no rule covers"):
        speechmix.logit_contributions(
            speechmix.load(module), inputs, measure="lrp", objective=(3, 5)
        )


def test_roundings_of_single_precision_are_no_error():
    for name in ("gpt2", "bert"):
        model, inputs, _ = answered(name)
        single = speechmix.load(copy.deepcopy(model.module).float())
        parts = speechmix.logit_contributions(single, inputs, measure="lrp", objective=ASKED)
        assert any(abs(contributions.error) > 0 for contributions in parts)


def propagated(model, inputs, layer_back, head_back, layers):
    """Relevance [T] of what enters the first layer of a model of one stack."""
    entered = []
    hooks = [
        layer.register_forward_pre_hook(lambda module, args: entered.append(args[0][0]))
        for layer in layers
    ]
    last = []
    hooks.append(
        layers[-1].register_forward_hook(
            lambda module, args, output: last.append(
                (output[0] if isinstance(output, tuple) else output)[0]
            )
        )
    )
    with torch.no_grad():
        model.module(**inputs)
    for hook in hooks:
        hook.remove()
    with torch.no_grad():
        relevance = head_back(last[0])
        for layer, x in zip(reversed(layers), reversed(entered), strict=True):
            relevance = layer_back(layer, x, relevance, 4)
    return relevance.sum(-1).numpy()


@pytest.mark.parametrize("asked", ASKED[:1] + ASKED[2:])
def test_gpt2_is_the_messages_written_out(asked):
    model, inputs, answers = answered("gpt2")
    transformer, position, token = model.module.transformer, *asked

    def head_back(states):
        normed = transformer.ln_f(states)
        of_normed = oracle.at(position, normed) * normed * model.module.lm_head.weight[token]
        return oracle.norm(transformer.ln_f, states, of_normed)

    expected = propagated(model, inputs, oracle.gpt2_layer, head_back, transformer.h)
    parts = answers[ASKED.index(asked)]
    np.testing.assert_allclose(parts.scores["decoder"][0], expected, rtol=0, atol=1e-10)
    assert np.abs(expected[: position + 1]).min() > 1e-4


def test_bert_is_the_messages_written_out():
    model, inputs, answers = answered("bert")
    predictions, (position, token) = model.module.cls.predictions, ASKED[0]
    transform = predictions.transform

    def head_back(states):
        inner = transform.dense(states)
        active = transform.transform_act_fn(inner)
        normed = transform.LayerNorm(active)
        of_normed = oracle.at(position, normed) * normed * predictions.decoder.weight[token]
        return oracle.linear(
            transform.dense, states, oracle.norm(transform.LayerNorm, active, of_normed)
        )

    expected = propagated(
        model, inputs, oracle.bert_layer, head_back, model.module.bert.encoder.layer
    )
    np.testing.assert_allclose(answers[0].scores["encoder"][0], expected, rtol=0, atol=1e-10)


def putting(seen, key):
    """A hook that puts what a module is given (and gives) into a dict."""

    def hook(module, args, *output):
        seen[key] = (args[0][0], output[0][0]) if output else args[0][0]

    return hook


def test_whisper_is_the_messages_written_out_on_both_sides():
    model, inputs, _ = answered("whisper-80")
    base, (position, token) = model.module.model, ASKED[0]
    frames = [(p, p + 1) for p in range(60)]
    parts = speechmix.logit_contributions(
        model, inputs, measure="lrp", objective=ASKED[0], spans=frames
    )
    entered, norms, hooks = {}, {}, []
    for side in ("encoder", "decoder"):
        stack = getattr(base, side)
        for index, layer in enumerate(stack.layers):
            hooks.append(layer.register_forward_pre_hook(putting(entered, (side, index))))
        hooks.append(stack.layer_norm.register_forward_hook(putting(norms, side)))
    with torch.no_grad():
        model.module(**inputs)
        for hook in hooks:
            hook.remove()
        states, normed = norms["decoder"]
        head = oracle.at(position, normed) * normed * model.module.proj_out.weight[token]
        relevance, of_memory = oracle.norm(base.decoder.layer_norm, states, head), 0
        heard = []
        for index in (2, 1, 0):
            layer, memory = base.decoder.layers[index], norms["encoder"][1]
            relevance, of_layer = oracle.whisper_layer(
                layer, entered["decoder", index], relevance, 4, memory
            )
            of_memory = of_memory + of_layer
            heard.insert(0, of_layer.sum().item())
        np.testing.assert_allclose(
            parts.scores["decoder"][0], relevance.sum(-1), rtol=0, atol=1e-10
        )
        np.testing.assert_allclose(parts.passed["cross"], heard, rtol=0, atol=1e-10)
        relevance = oracle.norm(base.encoder.layer_norm, norms["encoder"][0], of_memory)
        for index in (2, 1, 0):
            relevance, _ = oracle.whisper_layer(
                base.encoder.layers[index], entered["encoder", index], relevance, 4
            )
    np.testing.assert_allclose(parts.scores["encoder"][0], relevance.sum(-1), rtol=0, atol=1e-10)


def test_a_gate_and_its_other_factor_share_alike():
    """One gated feed-forward of Llama: messages of down((act(gate x)) * up x)."""
    model, *_ = answered("llama")
    mlp = model.module.model.layers[0].mlp
    x = torch.randn(5, 32, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    gate, up = mlp.gate_proj(x), mlp.up_proj(x)
    product = mlp.act_fn(gate) * up
    of_product = oracle.linear(
        mlp.down_proj, product, torch.ones(5, 32, dtype=torch.double) * mlp.down_proj(product)
    )
    expected = sum(oracle.linear(part, x, of_product / 2) for part in (mlp.gate_proj, mlp.up_proj))
    x.requires_grad_(True)
    gate = lrp.relevance_through_product(
        lrp.relevance_through_activation(mlp.gate_proj(x), mlp.act_fn(mlp.gate_proj(x)))
    )
    mlp.down_proj(gate * lrp.relevance_through_product(mlp.up_proj(x))).sum().backward()
    torch.testing.assert_close(x.detach() * x.grad, expected, rtol=1e-9, atol=1e-9)


def test_rules_leave_values_as_they_are_and_conserve():
    x = torch.randn(
        4, 8, generator=torch.Generator().manual_seed(0), dtype=torch.double
    ).requires_grad_(True)
    unit = torch.ones((), dtype=torch.double, requires_grad=True)
    layer_norm, linear = nn.LayerNorm(8).double(), nn.Linear(8, 3).double()
    nn.init.normal_(layer_norm.bias)
    for after, plain, share in (
        (lrp.relevance_through_norm(layer_norm, x, layer_norm(x), unit), layer_norm(x), 1),
        (lrp.relevance_through_bias(linear(x), linear.bias, unit), linear(x), 1),
        (
            lrp.relevance_through_activation(x, torch.nn.functional.gelu(x)),
            torch.nn.functional.gelu(x),
            1,
        ),
        (lrp.relevance_through_product(x), x, 0.5),
    ):
        torch.testing.assert_close(after, plain, rtol=0, atol=1e-14)
        of_x, of_unit = torch.autograd.grad(
            after.sum(), [x, unit], allow_unused=True, retain_graph=True
        )
        reached = (x * of_x).sum().item() + (0 if of_unit is None else of_unit.item())
        assert reached == pytest.approx(share * plain.sum().item(), abs=1e-12)


def failing(*args):
    raise KeyError("in the middle")


@pytest.mark.parametrize("where", ["a layer", "while hooks are set"])
def test_nothing_is_left_on_the_model(where, monkeypatch):
    model, inputs, _ = answered("llama")
    place = {
        "a layer": (model.module.model.layers[1].mlp, "forward"),
        "while hooks are set": (RelevanceRules, "_halve_gates"),
    }
    with monkeypatch.context() as patch:
        patch.setattr(*place[where], failing)
        with pytest.raises(KeyError, match="in the middle"):
            speechmix.logit_contributions(model, inputs, measure="lrp", objective=(3, 5))
    hooks = [
        len(part._forward_hooks) + len(part._forward_pre_hooks) for part in model.module.modules()
    ]
    assert not any(hooks)
    with torch.no_grad():
        logits = model.module(**inputs).logits
    assert not logits.requires_grad


def test_labels_are_taken_apart_too():
    for name in ("bert", "roberta", "distilbert"):
        model = headed(
            name,
            {"bert": "Bert", "roberta": "Roberta", "distilbert": "DistilBert"}[name]
            + "ForSequenceClassification",
        )
        contrast = speechmix.logit_contributions(
            model, inputs_of(model), measure="lrp", objective=("LABEL_1", "LABEL_0")
        )
        assert abs(contrast.error) <= 1e-10


def test_what_no_rule_covers_is_refused_or_found_out():
    entry = MORE_FAMILIES["wav2vec2-conformer"]
    conformer = speechmix.load(transformers.Wav2Vec2ConformerForCTC(entry.build().config).eval())
    capped = headed_further("gemma2", "Gemma2ForCausalLM")
    for model, inputs, why in (
        (conformer, entry.inputs(40), "Conformer layers"),
        (capped, MORE_FAMILIES["gemma2"].inputs(12), "attention by code of its own"),
    ):
        with pytest.raises(InputError, match=f"{why}.*speechmix.knock_out"):
            speechmix.logit_contributions(model, inputs, measure="lrp", objective=(3, 5))
    squared = headed("gpt2")
    squared.module.lm_head.register_forward_hook(lambda module, args, output: output**2)
    with pytest.raises(SpeechmixError, match="computes something that no rule covers"):
        speechmix.logit_contributions(squared, inputs_of(squared), measure="lrp", objective=(3, 5))
    parts = speechmix.logit_contributions(headed("gpt2"), inputs_of(squared), objective=(3, 5))
    with pytest.raises(InputError, match="conservation is of measure='lrp'"):
        parts.conservation()


@pytest.mark.parametrize(
    ("family", "stack"), [("gpt2", "decoder"), ("bert", "encoder"), ("whisper", "cross")]
)
def test_a_planted_cue_comes_first(family, stack):
    planted = plant("copy", family=family, stack=stack, noise=0.002)
    parts = speechmix.logit_contributions(
        planted.model, planted.item, measure="lrp", objective=planted.objective
    )
    row = np.abs(parts.total(planted.source_stack))
    row[[0, 6]] = 0  # the empty position, and the one that is read
    assert row.argmax() == CUE
