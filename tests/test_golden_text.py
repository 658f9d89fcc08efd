"""Parity with the published text toolkit and with ALTI: their outputs on three small seeded models
(../shared/golden/text)."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch

import speechmix

# What a key is called here: (measure, steps on the map). The references' own rows of Value Zeroing
# and ALTI sum to one.
MEASURES = {
    "attention": ("attention", ()),
    "rollout": ("attention", ("rollout",)),
    "value_zeroing": ("value_zeroing", ("normalized",)),
    "value_zeroing_raw_final_ln": ("value_zeroing", ()),
    "attention_norm": ("attention_norm", ()),
    "attention_norm_res": ("attention_norm_residual", ()),
    "attention_norm_res_ln": ("attention_norm_residual_layernorm", ()),
    "globenc": ("globenc", ()),
    "alti": ("alti", ("normalized",)),
    "alti_rollout": ("alti", ("rollout",)),
}
ENCODER = (
    "attention",
    "rollout",
    "value_zeroing",
    "attention_norm",
    "attention_norm_res",
    "attention_norm_res_ln",
    "globenc",
)
KEYS = [
    *((model, key) for model in ("bert", "roberta") for key in ENCODER),
    ("gpt2", "attention"),
    ("gpt2", "value_zeroing_raw_final_ln"),
    ("bert", "alti"),
    ("bert", "alti_rollout"),
]
# These the references normalise (ALTI: compute) in float32; all others are float64 throughout.
FLOAT32 = ("value_zeroing", "alti", "alti_rollout")


@functools.cache
def _golden(folder):
    expected = {}
    for name, prefix in (("expected.npz", ""), ("expected_alti.npz", "bert|")):
        with np.load(folder / name) as file:
            expected |= {
                f"{prefix}{key}": value
                for key, value in file.items()
                if prefix + key not in expected
            }
    with np.load(folder / "inputs.npz") as file:
        ids = torch.as_tensor(file["input_ids"])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return (
        expected,
        inputs,
        {name: speechmix.load(folder / name, device="cpu") for name in ("bert", "roberta", "gpt2")},
    )


@pytest.fixture(scope="module")
def golden(shared):
    return _golden(shared / "golden" / "text")


def test_every_golden_key_is_compared(golden):
    expected, _, cases = golden
    states = {f"{name}|last_hidden" for name in cases}
    assert {f"{model}|{key}" for model, key in KEYS} | states == set(expected)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("name", "key"), KEYS)
def test_scores_are_those_of_the_published_code(golden, name, key, dtype):
    expected, inputs, cases = golden
    measure, steps = MEASURES[key]
    heads = "each" if name == "gpt2" and measure == "attention" else "mean"
    found = next(
        iter(
            speechmix.mix(cases[name], inputs, measures=measure, heads=heads, dtype=dtype).values()
        )
    )
    for step in steps:
        found = getattr(found, step)()
    reference = expected[f"{name}|{key}"]
    assert found.scores.shape == reference.shape
    tolerance = 1e-4 if dtype == "float32" else 1e-5 if key in FLOAT32 else 1e-8
    assert np.abs(found.scores - reference).max() <= tolerance


@pytest.mark.parametrize("name", ["bert", "roberta", "gpt2"])
def test_last_hidden_states_of_the_plain_forward_pass(golden, name):
    expected, inputs, cases = golden
    with cases[name].in_use(torch.float64), torch.no_grad():
        found = cases[name].base(**inputs).last_hidden_state.numpy()
    assert np.abs(found - expected[f"{name}|last_hidden"]).max() <= 1e-9


def test_both_conventions_of_globenc_over_layers(golden):
    _, inputs, cases = golden
    found = speechmix.mix(cases["bert"], inputs, measures="globenc", dtype="float64")[
        "globenc", "encoder"
    ]
    a, b, c = found.scores
    np.testing.assert_allclose(found.rollout(normalize=False).scores[-1], c @ b @ a, rtol=1e-12)
    rows = found.normalized().scores
    np.testing.assert_allclose(found.rollout().scores[-1], rows[2] @ rows[1] @ rows[0], rtol=1e-12)
    raw = found.rollout(normalize=False).normalized().scores
    assert np.abs(raw - found.rollout().scores)[1:].max() > 1e-3
