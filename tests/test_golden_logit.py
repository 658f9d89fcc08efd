"""Parity with the published code of ALTI-Logit (a small seeded GPT-2) and DecompX (BERT, RoBERTa):
../shared/golden/text."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

import speechmix
from speechmix.adapters.capture.forward_pass import Capture, use_attention
from speechmix.extensions.logit_decompositions.decompx_logit import vectors_through_layer

FOILS = {"runner_up": 1, "argmin": 2, "fixed7": 3}
LAYER_PARTS = {"mlp": "mlp_logit", "attention_bias": "attn_out_bias_logit"}
SINGLE_PARTS = {"embedding": "init_logit", "final_norm_bias": "lnf_bias_logit"}


@pytest.fixture(scope="module")
def golden(shared):
    folder = shared / "golden" / "text"
    with np.load(folder / "expected_alti_logit.npz") as file:
        expected = dict(file.items())
    with np.load(folder / "inputs.npz") as file:
        ids = torch.as_tensor(file["input_ids"])
    # The checkpoint is of the model without its head, which is tied to the embeddings.
    module = transformers.GPT2LMHeadModel.from_pretrained(folder / "gpt2")
    return (
        expected,
        speechmix.load(module, device="cpu"),
        {"input_ids": ids, "attention_mask": torch.ones_like(ids)},
    )


def contributions(golden, **options):
    expected, model, inputs = golden
    last, (best, *others) = inputs["input_ids"].shape[1] - 1, expected["tokens"].tolist()
    asked = [(last, token) for token in (best, *others)] + [(last, best, foil) for foil in others]
    return speechmix.logit_contributions(model, inputs, objective=asked, dtype="float64", **options)


@pytest.mark.parametrize(("reference", "form"), [(True, ""), (False, "noeps|")])
def test_contributions_are_those_of_the_published_code(golden, reference, form):
    expected, found = golden[0], contributions(golden, reference=reference)
    for index, parts in enumerate(found[:4]):
        near(parts.scores["decoder"], expected[f"{form}layer_input"][index])
        near(parts.total("decoder"), expected[f"{form}attribution"][index])
        near(parts.direct["decoder"], expected["layer_source"][index])
        if reference:
            near(parts.total("decoder", embedding=True), expected["attribution_with_init"][index])
        for name, key in LAYER_PARTS.items():
            near(parts.layer_parts[name], expected[key][:, index])
        for name, key in SINGLE_PARTS.items():
            near(parts.single_parts[name], expected[key][index])
        near(parts.logit, expected["logits_last"][expected["tokens"][index]])
        near(parts.error, 0)
    if reference:
        for name, index in FOILS.items():
            parts = found[3 + index]
            near(parts.scores["decoder"], expected[f"contrast|{name}|layer_input"])
            near(parts.direct["decoder"], expected[f"contrast|{name}|layer_source"])
            near(parts.direct["decoder"].sum(0), expected[f"contrast|{name}|attribution_source"])
            near(parts.total("decoder"), expected[f"contrast|{name}|attribution"])
            near(
                parts.total("decoder", embedding=True),
                expected[f"contrast|{name}|attribution_with_init"],
            )


def test_what_the_published_code_adds_is_seen(golden):
    clean, published = contributions(golden)[0], contributions(golden, reference=True)[0]
    assert 1e-9 < np.abs(clean.scores["decoder"] - published.scores["decoder"]).max() < 1e-6


@pytest.fixture(scope="module")
def carried(shared):
    with np.load(shared / "golden" / "text" / "expected_decompx.npz") as file:
        return dict(file.items())


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_carried_vectors_are_those_of_the_published_code(shared, golden, carried, name):
    model = speechmix.load(shared / "golden" / "text" / name, device="cpu")
    found = []

    def on_block(block):
        vectors = (
            found[-1] if found else torch.diag_embed(block.inputs.T).permute(1, 2, 0)
        )  # [T, T, D]: own states
        found.append(vectors_through_layer(block, vectors))

    with (
        model.in_use(torch.float64),
        torch.no_grad(),
        use_attention(model.module),
        Capture([model.stacks["encoder"]], on_block),
    ):
        model.base(**golden[2])
    for vectors, expected, states in zip(
        found,
        carried[f"{name}|aggregated_vectors"],
        carried[f"{name}|hidden_states"][1:],
        strict=True,
    ):
        near(vectors, expected)
        near(vectors.sum(1), states)
        near(vectors.norm(dim=-1), np.linalg.norm(expected, axis=-1))


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_parts_of_labels_are_those_of_the_published_code(shared, golden, carried, name):
    folder = shared / "golden" / "text" / name
    kind = {
        "bert": transformers.BertForSequenceClassification,
        "roberta": transformers.RobertaForSequenceClassification,
    }
    module = kind[name].from_pretrained(folder, num_labels=3).eval()
    head = module.classifier
    if (
        name == "roberta"
        # the published code reads its pooler, which transformers' classifier has as a layer of its own
    ):
        pooler = transformers.RobertaModel.from_pretrained(folder).pooler.dense
        head.dense.load_state_dict(pooler.state_dict())
        head = head.out_proj
    module.double()
    head.weight.data, head.bias.data = (
        torch.as_tensor(carried[f"classifier_{part}"]) for part in ("weight", "bias")
    )
    model = speechmix.load(module, device="cpu")
    labels = [(f"LABEL_{index}",) for index in range(3)]
    found = speechmix.logit_contributions(model, golden[2], measure="decompx", objective=labels)
    for index, parts in enumerate(found):
        near(parts.total("encoder"), carried[f"{name}|classifier"][:, index])
        near(parts.logit, carried[f"{name}|logits"][index])


def near(found, expected):
    assert np.abs(np.asarray(found) - expected).max() <= 1e-9
