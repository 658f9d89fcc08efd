"""Gradient times attention against the rules written out: eager attention, torch's own gradients,
whole matrices, float64."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
import transformers

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.planted.case_table import CUE
from speechmix.extensions.planted.planting import plant
from speechmix.inputs import bundled
from tests.conftest import ALL_FAMILIES, inputs_of
from tests.measures.test_gradients import OBJECTIVE, SPANS, with_head
from tests.models.more_families import MORE_FAMILIES

# WavLM shows weights that are averaged over heads, with no gradient: it is compared with
# differences of its output below.
FIRST = ("wav2vec2-post", "whisper-80", "bert", "gpt2", "gemma3_text", "marian")
SHOWN = [
    pytest.param(name, marks=[] if name in FIRST else pytest.mark.long)
    for name in ALL_FAMILIES
    if not name.startswith("wavlm")
]


def chefer_of(model, inputs=None, objective=OBJECTIVE, **options):
    inputs = inputs_of(model) if inputs is None else inputs
    return speechmix.mix(model, inputs, measures="chefer", objective=objective, **options)


def eager_weights(model, inputs, objective):
    """Weights [H, Q, K] and their gradients, of each layer, by the unmodified model with eager
    attention."""
    module = copy.deepcopy(model.module)
    module.set_attn_implementation("eager")
    for parameter in module.parameters():
        parameter.requires_grad_(True)
    position, token, *foil = objective
    further = {"use_cache": False} if "decoder" in model.stacks else {}
    output = module(**inputs, output_attentions=True, **further)
    if "cross" in model.stacks:
        shown = {
            "encoder": output.encoder_attentions,
            "decoder": output.decoder_attentions,
            "cross": output.cross_attentions,
        }
    else:
        shown = {next(iter(model.stacks)): output.attentions}
    for weights in shown.values():
        for layer in weights:
            layer.retain_grad()
    value = output.logits[0, position, token] - (output.logits[0, position, foil[0]] if foil else 0)
    value.backward()
    return {
        name: [(layer.detach()[0], layer.grad[0]) for layer in weights]
        for name, weights in shown.items()
    }


def mean_positive(weights, gradient):
    return (weights * gradient).clamp(min=0).mean(0)


def without_identity_by_sums(matrix):
    """Equations 8 and 9; where nothing was added to a row, it stays that of the identity."""
    added = matrix - torch.eye(len(matrix), dtype=matrix.dtype)
    normed = torch.eye(len(matrix), dtype=matrix.dtype)
    for row in range(len(matrix)):
        if added[row].sum() > 0:
            normed[row] += added[row] / added[row].sum()
    return normed


def by_the_rules(shown, position, first=0):
    """Rows of the relevances: whole matrices, one rule after the other; `first`: the layer where
    the asked stack starts."""
    weighted = {name: [mean_positive(*layer) for layer in layers] for name, layers in shown.items()}
    if "cross" not in weighted:
        (layers,) = weighted.values()
        relevance = torch.eye(len(layers[0]), dtype=torch.double)
        for layer in layers[first:]:
            relevance = relevance + layer @ relevance
        return {next(iter(weighted)): (relevance - torch.eye(len(relevance)))[position]}
    of_encoder = torch.eye(weighted["encoder"][0].shape[0], dtype=torch.double)
    for layer in weighted["encoder"][first:]:
        of_encoder = of_encoder + layer @ of_encoder
    tokens = torch.eye(weighted["decoder"][0].shape[0], dtype=torch.double)
    later, heard = tokens.clone(), torch.zeros(len(tokens), len(of_encoder), dtype=torch.double)
    alone = heard.clone()
    for index, (own, cross) in enumerate(zip(weighted["decoder"], weighted["cross"], strict=True)):
        tokens, heard, alone = tokens + own @ tokens, heard + own @ heard, alone + own @ alone
        later = later + own @ later if index >= first else later
        through = without_identity_by_sums(tokens).T @ cross
        heard = heard + through @ without_identity_by_sums(of_encoder)
        alone = alone + through if index == first else alone
    rows = {"encoder": heard, "decoder": later - torch.eye(len(later)), "cross": alone}
    return {name: matrix[position] for name, matrix in rows.items()}


@pytest.mark.parametrize("name", SHOWN)
def test_every_family_is_the_paper_s_rules_on_eager_attention(name, monkeypatch):
    model = with_head(name)
    inputs = inputs_of(model)
    softmax = (
        torch.nn.functional.softmax
    )  # some families have theirs in single precision, eager alone
    monkeypatch.setattr(
        torch.nn.functional, "softmax", lambda x, dim=None, dtype=None: softmax(x, dim=dim)
    )
    shown = eager_weights(model, inputs, OBJECTIVE)
    n_positions = shown["encoder"][0][0].shape[-1] if "encoder" in shown else None
    spans = [(p, p + 1) for p in range(n_positions)] if model.hears else None
    maps = chefer_of(model, inputs, spans=spans)
    for first in range(3):
        for stack, expected in by_the_rules(shown, OBJECTIVE[0], first).items():
            scores = maps["chefer", stack].scores[first, 0]
            assert expected.abs().max() > 1e-4
            np.testing.assert_allclose(scores, expected.numpy(), rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "name", ["wavlm-post", pytest.param("wavlm-stable", marks=pytest.mark.long)]
)
def test_wavlm_whose_gradients_are_differences(name, monkeypatch):
    """One weight of one head moved a little, in the context that the last layer's attention
    gives."""
    model = with_head(name)
    inputs, step, row, source, head = inputs_of(model), 1e-4, 3, 11, 1
    spans = [(p, p + 1) for p in range(60)]
    score = chefer_of(model, inputs, spans=spans)["chefer", "encoder"].scores[2, 0]
    layer = model.stacks["encoder"].layers[2]
    seen = []
    with (
        torch.no_grad(),
        speechmix.adapters.capture.forward_pass.Capture([model.stacks["encoder"]], seen.append),
    ):
        model.module(**inputs)
    block = seen[2]
    weights, values = block.attention(), block.values
    expected = 0.0
    for head in range(len(weights)):
        moved = (
            values[head, source] @ layer.attention.output.weight[:, head * 8 : head * 8 + 8].T
        ) * step

        def changed(sign, moved=moved):
            def hook(module, args, output):
                states = output[0].clone()
                states[0, row] += sign * moved
                return (states, *output[1:])

            handle = layer.attention.module.register_forward_hook(hook)
            with torch.no_grad():
                logits = model.module(**inputs).logits[0, OBJECTIVE[0]]
            handle.remove()
            return logits[OBJECTIVE[1]] - logits[OBJECTIVE[2]]

        slope = (changed(1) - changed(-1)) / (2 * step)
        expected += max(0.0, float(slope * weights[head, row, source])) / len(weights)
    assert score[source] == pytest.approx(expected, rel=1e-4, abs=1e-10)


def test_words_are_means_over_their_frames_and_later_tokens_count_nothing():
    model = with_head("wav2vec2-stable")
    frames = chefer_of(model, spans=[(p, p + 1) for p in range(60)])["chefer", "encoder"].scores
    words = chefer_of(model, spans=SPANS)["chefer", "encoder"].scores
    np.testing.assert_allclose(words[..., 0], frames[..., 3:9].mean(-1), atol=1e-14)
    assert (
        not chefer_of(with_head("gpt2"))["chefer", "decoder"].scores[..., OBJECTIVE[0] + 1 :].any()
    )


def test_a_label_is_read_at_the_position_of_its_head():
    config = transformers.BertConfig(**ALL_FAMILIES["bert"][2], num_labels=3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = (
            transformers.BertForSequenceClassification(config).double().eval().requires_grad_(False)
        )
    model = speechmix.load(module)
    scores = chefer_of(model, objective=("LABEL_2", "LABEL_0"))["chefer", "encoder"].scores[0, 0]
    eager = copy.deepcopy(module).requires_grad_(True)
    eager.set_attn_implementation("eager")
    output = eager(**inputs_of(model), output_attentions=True)
    for layer in output.attentions:
        layer.retain_grad()
    (output.logits[0, 2] - output.logits[0, 0]).backward()
    shown = {"encoder": [(layer.detach()[0], layer.grad[0]) for layer in output.attentions]}
    np.testing.assert_allclose(scores, by_the_rules(shown, 0)["encoder"], rtol=0, atol=1e-10)


def test_what_is_not_read_at_one_position_is_refused():
    for objective in (lambda output: output.logits.sum(), lambda output: output.logits[0, 3, 4]):
        with pytest.raises(InputError, match=r"reads one row of its relevances.*'given'"):
            chefer_of(with_head("gpt2"), objective=objective)
    with pytest.raises(InputError, match="heads"):
        chefer_of(with_head("gpt2"), heads="each")


def test_a_head_that_takes_a_mean_over_positions_is_refused():
    entry = MORE_FAMILIES["modernbert"]
    config = copy.deepcopy(entry.build().config)
    for pooling, refused in (("cls", False), ("mean", True)):
        config.classifier_pooling = pooling
        model = speechmix.load(transformers.ModernBertForSequenceClassification(config).eval())
        if not refused:
            assert chefer_of(model, entry.inputs(12), ("LABEL_1",))[
                "chefer", "encoder"
            ].scores.any()
            continue
        with pytest.raises(
            InputError, match=r"that of position 0; the head .* reads 12 positions together"
        ):
            chefer_of(model, entry.inputs(12), ("LABEL_1",))


def test_of_a_ctc_model_the_error_says_what_can_be_asked():
    model = speechmix.load(bundled.models()["tiny-french-ctc"])
    clip = bundled.clips()[0]
    for ask in (
        lambda **options: speechmix.mix(model, clip, measures="chefer", **options),
        lambda **options: speechmix.logit_contributions(model, clip, measure="lrp", **options),
    ):
        with pytest.raises(InputError, match=r"Give \(frame, token id\) or .*speechmix\.explain$"):
            ask()
        ask(objective=(27, 5))


def test_in_a_caller_s_inference_mode_scores_are_the_same():
    model = with_head("whisper-80")
    names = ["chefer", "gradient_input", "hta"]
    options = {
        "measures": names,
        "objective": OBJECTIVE,
        "spans": SPANS,
        "layers": [0],
        "stacks": ["encoder"],
    }
    plain = speechmix.mix(model, inputs_of(model), **options)
    with torch.inference_mode():
        inputs = {name: tensor.clone() for name, tensor in inputs_of(model).items()}
        maps = speechmix.mix(model, inputs, **options)
        parts = speechmix.logit_contributions(
            model, inputs, measure="lrp", objective=OBJECTIVE, spans=SPANS
        )
    for name in names:
        np.testing.assert_array_equal(maps[name, "encoder"].scores, plain[name, "encoder"].scores)
    assert abs(parts.error) <= 1e-10


def test_layers_that_mix_positions_otherwise_are_refused():
    entry = MORE_FAMILIES["wav2vec2-conformer"]
    model = speechmix.load(transformers.Wav2Vec2ConformerForCTC(entry.build().config).eval())
    with pytest.raises(InputError, match=r"by a convolution, for which there is no rule"):
        chefer_of(model, entry.inputs(40), objective=(3, 5), spans=[(0, 3)])


@pytest.mark.parametrize(
    ("family", "stack"), [("gpt2", "decoder"), ("bert", "encoder"), ("whisper", "cross")]
)
def test_a_planted_cue_comes_first(family, stack):
    planted = plant("copy", family=family, stack=stack, noise=0.002)
    maps = chefer_of(planted.model, planted.item, objective=planted.objective)
    row = maps["chefer", planted.source_stack].scores[0, 0].copy()
    row[[0, 6]] = 0  # the empty position, and the one that is read
    assert row.argmax() == CUE
