"""ALTI: parts add up to the attention block's output, scores are those of the explicit vectors."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
import torch

import speechmix
from speechmix.adapters.capture.forward_pass import Capture, use_attention
from speechmix.inputs.words.spans import Span
from speechmix.mixing.measures import attention_norm as alti
from speechmix.mixing.measures.measure import Units
from tests import oracle_decompositions as oracle
from tests.conftest import ALL_FAMILIES, build, inputs_of, maps_of, tiny

ROUNDED = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma3_text")
WITH_ORACLE = [name for name in ALL_FAMILIES if not name.startswith("wavlm")]
SPANS = [(0, 2), (2, 3), (5, 11)]


def each_block(model, inputs, function):
    with (
        torch.no_grad(),
        use_attention(model.module),
        Capture(list(model.stacks.values()), function),
    ):
        model.family.run(model.base, inputs, tuple(model.stacks))


@pytest.mark.parametrize("name", ALL_FAMILIES)
def test_parts_and_biases_are_the_true_output_of_the_attention_block(name):
    """sum_j t_ij (+ the residual, across) + biases = what the model's own modules hand on; to
    rounding in float64."""
    model = tiny(name)
    inputs = inputs_of(model)
    pre = oracle.is_pre_norm(model.module)
    true = {
        stack: [
            r["next"] if pre else r["out"]
            for r in oracle.seen_at_norms(model.module, inputs, stack)
        ]
        for stack in model.stacks
    }
    seen = []

    def check(block):
        rows = torch.arange(block.n_targets)
        everything = (
            [Span(0, block.n_sources)]
            if block.stack.name == "cross"
            else [Span(i, i + 1) for i in rows.tolist()]
        )
        units = Units(
            [Span(i, i + 1) for i in rows.tolist()], everything, pooling="mean", device=rows.device
        )
        parts = alti.linearize_attention_block(block, rows)
        total = (
            parts.residual.clone()
            if block.stack.name == "cross"
            else torch.zeros_like(parts.residual)
        )
        for _, at, vectors in alti.source_vectors(block, units, parts, 10_000):
            total[at] += vectors
        bias = parts.scale[:, None] * parts.linear(block.output_bias)
        if not pre:
            bias = bias + block.modules.attention.norm.bias
        output = true[block.stack.name][block.layer]
        tolerance = 1e-6 if name in ROUNDED else 1e-12
        assert (parts.output - output).abs().max() <= tolerance * output.abs().max()
        assert (total + bias - output).abs().max() <= tolerance * output.abs().max()
        seen.append(block.stack.name)

    each_block(model, inputs, check)
    assert len(seen) == 3 * len(model.stacks)


@lru_cache(maxsize=3)
def parts_of(name, stack):
    """Explicit vectors of every layer, for both orders of the norm."""
    model = tiny(name)
    norms = 0 if oracle.is_pre_norm(model.module) else 1
    return list(oracle.parts(model.module, inputs_of(model), stack, norms))


@pytest.mark.every_family
@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("name", WITH_ORACLE)
def test_words_are_the_sums_of_the_explicit_vectors(name, order):
    model, measure = tiny(name), {1: "alti", 2: "alti_l2"}[order]
    maps = maps_of(name, ("alti", "alti_l2"), spans=tuple(SPANS))
    words, tokens = [list(range(a, b)) for a, b in SPANS], [[i] for i in range(7)]
    for stack in model.stacks:
        alone = stack == "encoder" or len(model.stacks) == 1
        targets, sources = (
            (words if alone else tokens),
            (tokens if stack == "decoder" and not alone else words),
        )
        expected = oracle.alti(parts_of(name, stack), stack, targets, sources, order)
        found = maps[measure, stack].scores
        assert (
            np.abs(found - expected).max()
            <= (1e-5 if name in ROUNDED else 1e-9) * np.abs(expected).max()
        )


def test_single_positions_are_units_like_any_other():
    model = tiny("wav2vec2-stable")
    inputs = inputs_of(model)
    frames = speechmix.mix(model, inputs, measures="alti")["alti", "encoder"].scores
    some = speechmix.mix(model, inputs, measures="alti", spans=[(4, 5), (20, 21)])[
        "alti", "encoder"
    ].scores
    np.testing.assert_allclose(some, frames[:, [4, 20]][:, :, [4, 20]], rtol=1e-10)


def test_a_word_is_not_the_sum_of_its_frames_scores_but_the_score_of_their_sum():
    model = tiny("wav2vec2-post")
    inputs = inputs_of(model)
    frames = speechmix.mix(model, inputs, measures="alti")["alti", "encoder"].scores
    word = speechmix.mix(model, inputs, measures="alti", spans=[(4, 9), (20, 31)])[
        "alti", "encoder"
    ].scores
    assert np.abs(word[:, 0, 1] - frames[:, 4:9, 20:31].sum(-1).mean(-1)).max() > 1e-3


def test_one_word_of_everything_is_nearly_all_of_the_output():
    model = speechmix.load(build("bert").double())
    inputs = inputs_of(model)
    for layer in model.base.encoder.layer:  # without biases nothing is left but the parts
        layer.attention.output.dense.bias.data.zero_()
        layer.attention.output.LayerNorm.bias.data.zero_()
    outputs = [r["out"] for r in oracle.seen_at_norms(model.module, inputs, "encoder")]
    whole = speechmix.mix(model, inputs, measures="alti", spans=[(0, 11)])["alti", "encoder"].scores
    np.testing.assert_allclose(
        whole[:, 0, 0], [o.abs().sum(-1).mean().item() for o in outputs], rtol=1e-12
    )


@pytest.mark.parametrize("name", ["whisper-80", "bart", "mbart", "marian"])
def test_cross_rows_leave_the_residual_its_share(name):
    model = tiny(name)
    inputs = inputs_of(model)
    found = speechmix.mix(model, inputs, measures="alti", stacks="cross")["alti", "cross"].scores
    sums = found.sum(axis=-1)
    assert (sums > 0).all()
    assert (sums < 1 + 1e-12).all()
    assert (sums < 0.999).any()
