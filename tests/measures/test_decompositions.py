"""Attention norms with residual and layer norms, GlobEnc, mixing ratio, the random baseline; every
measure on every family."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
import torch

import speechmix
from speechmix.adapters.binding.bound_layers import Norm
from speechmix.adapters.capture.forward_pass import Capture, use_attention
from speechmix.errors import InputError, ModelError
from speechmix.mixing.measures.measure_functions import list_measures
from tests import oracle_decompositions as oracle
from tests.conftest import ALL_FAMILIES, FAMILIES, TEXT_FAMILIES, inputs_of, maps_of, tiny

# RMS norms compute in float32 whatever the model's precision; transformers hides WavLM's weights
# per head.
ROUNDED = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma3_text")
WITH_ORACLE = [name for name in ALL_FAMILIES if not name.startswith("wavlm")]
POST = (
    "wav2vec2-post",
    "hubert-post",
    "wavlm-post",
    "data2vec-audio",
    "bert",
    "roberta",
    "electra",
    "distilbert",
)
POST_BOTH = ("bart", "marian")
LENGTHS = {"attention_norm_residual": 0, "attention_norm_residual_layernorm": 1, "globenc": 2}
BLOCK_MEASURES = (
    "value_zeroing",
    "attention",
    "attention_norm",
    *LENGTHS,
    "alti",
    "alti_l2",
    "random",
)


def stacks_of(measure, name, model):
    """Where a measure is defined."""
    if measure in ("attention_norm_residual_layernorm", "globenc") and name not in POST + POST_BOTH:
        return []
    if measure == "globenc":
        return ["encoder"]
    without_cross = measure in LENGTHS
    return [stack for stack in model.stacks if not (without_cross and stack == "cross")]


def close(found, expected, name):
    tolerance = 1e-5 if name in ROUNDED else 1e-9
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= tolerance * np.abs(expected).max()


@lru_cache(maxsize=6)
def parts_of(name, stack, norms):
    """Explicit vectors of every layer, for lengths and ratios alike."""
    model = tiny(name)
    return list(oracle.parts(model.module, inputs_of(model), stack, norms))


def all_maps_of(name, measures, **options):
    """Maps of several measures, one `mix` for those that are defined in the same stacks."""
    together = {}
    for measure in measures:
        stacks = tuple(stacks_of(measure.removeprefix("mixing_ratio_"), name, tiny(name)))
        together.setdefault(stacks, []).append(measure)
    maps = {}
    for stacks, measures in together.items():
        if stacks:
            maps.update(maps_of(name, tuple(measures), stacks=stacks, **options))
    return maps


@pytest.mark.every_family
@pytest.mark.parametrize("measure", LENGTHS)
@pytest.mark.parametrize("name", WITH_ORACLE)
def test_lengths_are_those_of_the_explicit_vectors(name, measure):
    maps = all_maps_of(name, BLOCK_MEASURES)
    for stack in stacks_of(measure, name, tiny(name)):
        close(
            maps[measure, stack].scores, oracle.norms(parts_of(name, stack, LENGTHS[measure])), name
        )


@pytest.mark.parametrize("name", ["wav2vec2-post", "whisper-80", "bert", "gpt2", "gemma3_text"])
@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_words_pool_pairs_of_positions(name, pooling):
    model, spans = tiny(name), ((0, 2), (3, 4), (4, 9))
    stack = next(iter(model.stacks))
    defined = tuple(measure for measure in LENGTHS if stack in stacks_of(measure, name, model))
    words = maps_of(name, defined, stacks=stack, spans=spans, pooling=pooling)
    for measure in defined:
        single = maps_of(name, defined, stacks=stack)[measure, stack].scores
        found = words[measure, stack].scores
        for i, (a, b) in enumerate(spans):
            for j, (c, d) in enumerate(spans):
                pairs = single[:, a:b, c:d].reshape(len(single), -1)
                expected = pairs.mean(axis=1) if pooling == "mean" else pairs.max(axis=1)
                np.testing.assert_allclose(found[:, i, j], expected, rtol=1e-10)


@pytest.mark.every_family
@pytest.mark.parametrize("name", WITH_ORACLE)
def test_mixing_ratio_is_that_of_the_summed_vectors(name):
    maps = all_maps_of(name, [f"mixing_ratio_{measure}" for measure in LENGTHS])
    for measure, norms in LENGTHS.items():
        for stack in stacks_of(measure, name, tiny(name)):
            found = maps[f"mixing_ratio_{measure}", stack].mixing_ratio()
            assert ((found >= 0) & (found <= 1)).all()
            np.testing.assert_allclose(
                found,
                oracle.mixing_ratio(parts_of(name, stack, norms)),
                atol=1e-5 if name in ROUNDED else 1e-10,
            )


def test_mixing_ratio_of_attention_alone_and_of_words():
    model = tiny("bert")
    inputs, name = inputs_of(model), "mixing_ratio_attention_norm"
    options = {"measures": ["mixing_ratio_attention_norm", "mixing_ratio_attention_norm_residual"]}
    tokens, words = (
        speechmix.mix(model, inputs, **options),
        speechmix.mix(model, inputs, spans=[(0, 6), (6, 11)], **options),
    )
    assert (
        tokens[name, "encoder"].mixing_ratio()
        > tokens[f"{name}_residual", "encoder"].mixing_ratio()
    ).mean() > 0.9
    assert words[name, "encoder"].mixing_ratio().shape == (3, 2)
    assert (
        words[name, "encoder"].mixing_ratio().mean() < tokens[name, "encoder"].mixing_ratio().mean()
    )
    some = speechmix.mix(model, inputs, targets=[4, 1], **options)[name, "encoder"].mixing_ratio()
    np.testing.assert_allclose(some, tokens[name, "encoder"].mixing_ratio()[:, [4, 1]], rtol=1e-10)


@pytest.mark.every_family
@pytest.mark.parametrize("measure", BLOCK_MEASURES)
@pytest.mark.parametrize("name", ALL_FAMILIES)
def test_every_measure_on_every_family(name, measure):
    """Shapes, non-negative, finite, causal zeros exact, rows that say something, chosen rows those
    of the whole map."""
    model = tiny(name)
    inputs = inputs_of(model)
    defined = stacks_of(measure, name, model)
    of_positions, of_words, of_rows = (
        all_maps_of(name, BLOCK_MEASURES, **options)
        for options in ({}, {"spans": ((0, 2), (2, 3), (5, 9))}, {"targets": (2, 0)})
    )
    for stack in model.stacks:
        if stack not in defined:
            with pytest.raises(InputError, match=measure):
                speechmix.mix(model, inputs, measures=measure, stacks=stack)
            continue
        found, words = of_positions[measure, stack], of_words[measure, stack]
        for one in (found, words):
            assert one.scores.shape == (3, len(one.targets), len(one.sources))
            assert np.isfinite(one.scores).all()
            assert (one.scores >= 0).all()
            sums = one.scores.sum(axis=-1)
            if one is found or not measure.startswith(
                "alti"
            ):  # no part of a few words need bring a state nearer
                assert (sums > 0).all()
            np.testing.assert_allclose(one.normalized().scores.sum(axis=-1), sums > 0, rtol=1e-12)
            if stack == "decoder":
                assert (np.triu(one.scores, 1) == 0).all()
        if measure == "attention":
            np.testing.assert_allclose(found.scores.sum(axis=-1), 1, rtol=1e-6)
        rows = of_rows[measure, stack].scores
        np.testing.assert_allclose(
            rows, found.scores[:, [2, 0]], rtol=1e-6, atol=1e-9 * found.scores.max()
        )


@pytest.mark.parametrize(
    "measure", [m for m in BLOCK_MEASURES if m in LENGTHS or m.startswith("alti")]
)
def test_no_form_per_head_is_said(measure):
    model = tiny("bert")
    with pytest.raises(InputError, match="no form per head"):
        speechmix.mix(model, inputs_of(model), measures=measure, heads="each")


def test_errors_name_what_to_use_instead():
    whisper, bart = tiny("whisper-80"), tiny("bart")
    for measure, model, stack, advice in (
        ("attention_norm_residual_layernorm", whisper, "encoder", "Use attention_norm_residual"),
        ("globenc", bart, "decoder", "Use attention_norm_residual_layernorm"),
        ("attention_norm_residual", bart, "cross", "or alti"),
        ("mixing_ratio_attention_norm", bart, "cross", "cross-attention"),
    ):
        with pytest.raises(InputError, match=advice):
            speechmix.mix(model, inputs_of(model), measures=measure, stacks=stack)
    with pytest.raises(InputError, match="mixing_ratio_globenc"):
        speechmix.mix(bart, inputs_of(bart), measures="mixing_ratio")
    encoder = tiny("bert")
    with pytest.raises(ModelError, match="neither a layer norm nor an RMS norm"):
        _ = Norm(torch.nn.Tanh(), torch.randn(3, 8)).scale
    assert encoder.stacks


@pytest.mark.parametrize("batch_size", [1, 5, 64, 10**6])
def test_batch_size_changes_nothing(batch_size, set_pair_batches):
    for name in ("wav2vec2-post", "gpt2"):
        measures = tuple(
            m for m in ("attention_norm", *LENGTHS, "alti") if stacks_of(m, name, tiny(name))
        )
        expected = maps_of(name, measures, spans=((0, 3), (4, 9)))
        set_pair_batches(batch_size)
        model = tiny(name)
        found_maps = speechmix.mix(
            model, inputs_of(model), measures=measures, spans=[(0, 3), (4, 9)]
        )
        for key, found in found_maps.items():
            np.testing.assert_allclose(found.scores, expected[key].scores, rtol=1e-10)


@pytest.mark.parametrize("name", ["wav2vec2-post", "bert"])
def test_second_norm_gives_the_layer_output(name):
    """The state that GlobEnc's deviation is read from is the true one: behind its norm it is the
    layer's output."""
    from speechmix.mixing.measures.attention_norm import decompose

    model = tiny(name)

    def check(block):
        rows = torch.arange(block.n_targets)
        parts = decompose(block, rows, norms=2)
        torch.testing.assert_close(parts.output, block.states(rows), rtol=1e-10, atol=1e-10)

    with (
        torch.no_grad(),
        use_attention(model.module),
        Capture(list(model.stacks.values()), check),
    ):
        model.family.run(model.base, inputs_of(model), tuple(model.stacks))


class TestRandom:
    def test_scores_of_a_clip_are_the_same_every_time_and_others_differ(self):
        model = tiny("bert")
        first, again, other = (
            speechmix.mix(model, inputs_of(model, seed), measures="random")[
                "random", "encoder"
            ].scores
            for seed in (1, 1, 2)
        )
        np.testing.assert_array_equal(first, again)
        assert (first != other).all()
        assert (first[0] != first[1]).all()

    def test_seed_of_torch_or_numpy_is_neither_used_nor_changed(self):
        model = tiny("bert")
        torch.manual_seed(5)
        expected = torch.rand(1)
        torch.manual_seed(5)
        speechmix.mix(model, inputs_of(model), measures="random")
        assert torch.rand(1) == expected

    def test_rows_sum_to_one_in_expectation(self):
        for name, stack in (("bert", "encoder"), ("gpt2", "decoder"), ("whisper-80", "cross")):
            model = tiny(name)
            maps = [
                speechmix.mix(
                    model, inputs_of(model, seed), measures="random", stacks=stack, heads="each"
                )
                for seed in range(12)
            ]
            sums = np.concatenate([m["random", stack].scores.sum(axis=-1).ravel() for m in maps])
            assert abs(sums.mean() - 1) < 4 * sums.std() / len(sums) ** 0.5


def test_every_measure_has_a_citation_and_a_description():
    assert set(BLOCK_MEASURES) <= set(list_measures())
    for name, measure in list_measures().items():
        assert measure.name == name
        assert measure.description
        assert any(char.isdigit() for char in measure.citation)


def test_families_are_all_there():
    assert not set(FAMILIES) & set(TEXT_FAMILIES)
    assert len(ALL_FAMILIES) == len(FAMILIES) + len(TEXT_FAMILIES)
