"""Value Zeroing, attention and attention norm against the slow oracle, for every text family and
stack."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import speechmix
from tests import oracle
from tests.conftest import inputs_of, tiny

# Sub-words of words: runs of tokens, one token, and tokens that belong to nothing.
SPANS = [(0, 2), (2, 3), (4, 8)]
# Their RMS norms compute in float32 whatever the model's precision.
ROUNDED = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma3_text")
GROUPED = ROUNDED


def close(found, expected, family):
    tolerance = 1e-5 if family in ROUNDED else 1e-9
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


def sides(model, stack, n_tokens=7):
    words, tokens = [list(range(a, b)) for a, b in SPANS], [[i] for i in range(n_tokens)]
    if "cross" not in model.stacks or stack == "encoder":
        return words, words
    return tokens, tokens if stack == "decoder" else words


@pytest.mark.parametrize(
    ("distance", "engine"),
    [("cosine", "delta"), pytest.param("euclidean", "replay", marks=pytest.mark.every_family)],
)
def test_value_zeroing_is_rerunning_the_layer_with_zeroed_values(
    text_model, text_family_name, distance, engine
):
    inputs = inputs_of(text_model)
    measure = f"value_zeroing:distance={distance},engine={engine}"
    maps = speechmix.mix(text_model, inputs, measures=measure, spans=SPANS)
    for stack in text_model.stacks:
        expected = oracle.value_zeroing(
            text_model.module, inputs, stack, *sides(text_model, stack), distance
        )
        close(maps[measure, stack].scores, expected, text_family_name)


def test_value_zeroing_of_each_head_zeroes_that_head_alone(text_model, text_family_name):
    if text_family_name in GROUPED:
        pytest.skip(
            "heads share value vectors, so no hook on the projection zeroes those of one head"
        )
    inputs = inputs_of(text_model)
    maps = speechmix.mix(text_model, inputs, spans=SPANS, heads="each")
    for stack in text_model.stacks:
        for head in (0, 3):
            expected = oracle.value_zeroing(
                text_model.module, inputs, stack, *sides(text_model, stack), head=head
            )
            close(maps["value_zeroing", stack].scores[:, head], expected, text_family_name)


def test_attention_and_attention_norm_are_the_explicit_tensors(text_model, text_family_name):
    inputs = inputs_of(text_model)
    maps = speechmix.mix(text_model, inputs, measures=["attention", "attention_norm"], heads="each")
    summed = speechmix.mix(text_model, inputs, measures=["attention_norm"])
    for stack in text_model.stacks:
        weights = oracle.attention_weights(text_model.module, inputs, stack).numpy()
        close(maps["attention", stack].scores, weights, text_family_name)
        for found, each in ((maps, True), (summed, False)):
            expected = oracle.attention_norm(text_model.module, inputs, stack, each_head=each)
            close(found["attention_norm", stack].scores, expected, text_family_name)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama", "bart"])
def test_tokens_that_the_mask_leaves_out_change_nothing(name):
    model = tiny(name)
    inputs = inputs_of(model)
    mask = torch.ones_like(inputs["input_ids"])
    padded = {
        **inputs,
        "input_ids": torch.nn.functional.pad(inputs["input_ids"], (0, 4)),
        "attention_mask": torch.nn.functional.pad(mask, (0, 4)),
    }
    measures = [
        m
        for m in ("attention", "attention_norm_residual", "globenc", "alti")
        if m != "globenc" or name == "bert"
    ]
    stacks = [stack for stack in model.stacks if stack != "cross"]
    whole = speechmix.mix(
        model, {**inputs, "attention_mask": mask}, measures=measures, stacks=stacks
    )
    for key, found in speechmix.mix(model, padded, measures=measures, stacks=stacks).items():
        close(found.scores, whole[key].scores, name)
