"""Parity with the published code of ALTI-Logit: its outputs on a small seeded GPT-2 (../shared/golden/text)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers

import speechmix

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
    return expected, speechmix.load(module, device="cpu"), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


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
            near(parts.total("decoder", embedding=True), expected[f"contrast|{name}|attribution_with_init"])


def test_what_the_published_code_adds_is_seen(golden):
    clean, published = contributions(golden)[0], contributions(golden, reference=True)[0]
    assert 1e-9 < np.abs(clean.scores["decoder"] - published.scores["decoder"]).max() < 1e-6


def near(found, expected):
    assert np.abs(np.asarray(found) - expected).max() <= 1e-9
