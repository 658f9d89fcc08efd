"""Attention norms with residual and layer norms, GlobEnc, mixing ratio, the random baseline; every measure on every family."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import speechmix
from speechmix.adapters.capture import Capture, attention_readable
from speechmix.adapters.norms import Norm
from speechmix.errors import InputError, ModelError
from speechmix.measures import MEASURES
from tests import oracle_decompositions as oracle
from tests.conftest import ALL_FAMILIES, FAMILIES, TEXT_FAMILIES, build, inputs_of

# RMS norms compute in float32 whatever the model's precision; transformers hides WavLM's weights per head.
ROUNDED = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma3_text")
WITH_ORACLE = [name for name in ALL_FAMILIES if not name.startswith("wavlm")]
POST = ("wav2vec2-post", "hubert-post", "wavlm-post", "data2vec-audio", "bert", "roberta", "electra", "distilbert")
POST_BOTH = ("bart", "marian")
LENGTHS = {"attention_norm_residual": 0, "attention_norm_residual_layernorm": 1, "globenc": 2}
BLOCK_MEASURES = ("value_zeroing", "attention", "attention_norm", *LENGTHS, "alti", "alti_l2", "random")


def loaded(name):
    return speechmix.load(build(name).double())


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


@pytest.mark.parametrize("name", WITH_ORACLE)
@pytest.mark.parametrize("measure", LENGTHS)
def test_lengths_are_those_of_the_explicit_vectors(name, measure):
    model = loaded(name)
    inputs = inputs_of(model)
    for stack in stacks_of(measure, name, model):
        found = speechmix.mix(model, inputs, measures=measure, stacks=stack)[measure, stack].scores
        close(found, oracle.norms(model.module, inputs, stack, LENGTHS[measure]), name)


@pytest.mark.parametrize("name", ["wav2vec2-post", "whisper-80", "bert", "gpt2", "gemma3_text"])
@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_words_pool_pairs_of_positions(name, pooling):
    model = loaded(name)
    inputs, spans = inputs_of(model), [(0, 2), (3, 4), (4, 9)]
    stack = next(iter(model.stacks))
    for measure in (m for m in LENGTHS if stack in stacks_of(m, name, model)):
        options = {"measures": measure, "stacks": stack}
        single = speechmix.mix(model, inputs, **options)[measure, stack].scores
        found = speechmix.mix(model, inputs, spans=spans, pooling=pooling, **options)[measure, stack].scores
        for i, (a, b) in enumerate(spans):
            for j, (c, d) in enumerate(spans):
                pairs = single[:, a:b, c:d].reshape(len(single), -1)
                expected = pairs.mean(axis=1) if pooling == "mean" else pairs.max(axis=1)
                np.testing.assert_allclose(found[:, i, j], expected, rtol=1e-10)


@pytest.mark.parametrize("name", WITH_ORACLE)
def test_mixing_ratio_is_that_of_the_summed_vectors(name):
    model = loaded(name)
    inputs = inputs_of(model)
    for measure, norms in LENGTHS.items():
        for stack in stacks_of(measure, name, model):
            ratio = f"mixing_ratio_{measure}"
            found = speechmix.mix(model, inputs, measures=ratio, stacks=stack)[ratio, stack].mixing_ratio()
            assert ((found >= 0) & (found <= 1)).all()
            np.testing.assert_allclose(
                found, oracle.mixing_ratio(model.module, inputs, stack, norms), atol=1e-5 if name in ROUNDED else 1e-10
            )


def test_mixing_ratio_of_attention_alone_and_of_words():
    model = loaded("bert")
    inputs, name = inputs_of(model), "mixing_ratio_attention_norm"
    options = {"measures": ["mixing_ratio_attention_norm", "mixing_ratio_attention_norm_residual"]}
    tokens, words = (
        speechmix.mix(model, inputs, **options),
        speechmix.mix(model, inputs, spans=[(0, 6), (6, 11)], **options),
    )
    assert (tokens[name, "encoder"].mixing_ratio() > tokens[f"{name}_residual", "encoder"].mixing_ratio()).mean() > 0.9
    assert words[name, "encoder"].mixing_ratio().shape == (3, 2)
    assert words[name, "encoder"].mixing_ratio().mean() < tokens[name, "encoder"].mixing_ratio().mean()
    some = speechmix.mix(model, inputs, targets=[4, 1], **options)[name, "encoder"].mixing_ratio()
    np.testing.assert_allclose(some, tokens[name, "encoder"].mixing_ratio()[:, [4, 1]], rtol=1e-10)


@pytest.mark.parametrize("name", ALL_FAMILIES)
@pytest.mark.parametrize("measure", BLOCK_MEASURES)
def test_every_measure_on_every_family(name, measure):
    """Shapes, non-negative, finite, causal zeros exact, rows that say something, chosen rows those of the whole map."""
    model = loaded(name)
    inputs, spans = inputs_of(model), [(0, 2), (2, 3), (5, 9)]
    defined = stacks_of(measure, name, model)
    for stack in model.stacks:
        if stack not in defined:
            with pytest.raises(InputError, match=measure):
                speechmix.mix(model, inputs, measures=measure, stacks=stack)
            continue
        options = {"measures": measure, "stacks": stack}
        found = speechmix.mix(model, inputs, **options)[measure, stack]
        words = speechmix.mix(model, inputs, spans=spans, **options)[measure, stack]
        for one in (found, words):
            assert one.scores.shape == (3, len(one.targets), len(one.sources))
            assert np.isfinite(one.scores).all()
            assert (one.scores >= 0).all()
            sums = one.scores.sum(axis=-1)
            if one is found or not measure.startswith("alti"):  # no part of a few words need bring a state nearer
                assert (sums > 0).all()
            np.testing.assert_allclose(one.normalized().scores.sum(axis=-1), sums > 0, rtol=1e-12)
            if stack == "decoder":
                assert (np.triu(one.scores, 1) == 0).all()
        if measure == "attention":
            np.testing.assert_allclose(found.scores.sum(axis=-1), 1, rtol=1e-6)
        some = speechmix.mix(model, inputs, targets=[2, 0], **options)[measure, stack].scores
        np.testing.assert_allclose(some, found.scores[:, [2, 0]], rtol=1e-6, atol=1e-9 * found.scores.max())


@pytest.mark.parametrize("measure", [m for m in BLOCK_MEASURES if m in LENGTHS or m.startswith("alti")])
def test_no_form_per_head_is_said(measure):
    model = loaded("bert")
    with pytest.raises(InputError, match="no form per head"):
        speechmix.mix(model, inputs_of(model), measures=measure, heads="each")


def test_errors_name_what_to_use_instead():
    whisper, bart = loaded("whisper-80"), loaded("bart")
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
    encoder = loaded("bert")
    with pytest.raises(ModelError, match="neither a layer norm nor an RMS norm"):
        _ = Norm(torch.nn.Tanh(), torch.randn(3, 8)).scale
    assert encoder.stacks


@pytest.mark.parametrize("batch_size", [1, 5, 64, 10**6])
def test_batch_size_changes_nothing(batch_size):
    for name in ("wav2vec2-post", "gpt2"):
        model = loaded(name)
        inputs = inputs_of(model)
        measures = [m for m in ("attention_norm", *LENGTHS, "alti") if stacks_of(m, name, model)]
        expected = speechmix.mix(model, inputs, spans=[(0, 3), (4, 9)], measures=measures)
        for key, found in speechmix.mix(
            model, inputs, spans=[(0, 3), (4, 9)], measures=measures, batch_size=batch_size
        ).items():
            np.testing.assert_allclose(found.scores, expected[key].scores, rtol=1e-10)


@pytest.mark.parametrize("name", ["wav2vec2-post", "bert"])
def test_second_norm_gives_the_layer_output(name):
    """The state that GlobEnc's deviation is read from is the true one: behind its norm it is the layer's output."""
    from speechmix.measures.norms import decompose

    model = loaded(name)

    def check(block):
        rows = torch.arange(block.n_targets)
        parts = decompose(block, rows, norms=2)
        torch.testing.assert_close(parts.output, block.states(rows), rtol=1e-10, atol=1e-10)

    with torch.no_grad(), attention_readable(model.module), Capture(list(model.stacks.values()), check):
        model.family.run(model.base, inputs_of(model), tuple(model.stacks))


class TestRandom:
    def test_scores_of_a_clip_are_the_same_every_time_and_others_differ(self):
        model = loaded("bert")
        first, again, other = (
            speechmix.mix(model, inputs_of(model, seed), measures="random")["random", "encoder"].scores
            for seed in (1, 1, 2)
        )
        np.testing.assert_array_equal(first, again)
        assert (first != other).all()
        assert (first[0] != first[1]).all()

    def test_seed_of_torch_or_numpy_is_neither_used_nor_changed(self):
        model = loaded("bert")
        torch.manual_seed(5)
        expected = torch.rand(1)
        torch.manual_seed(5)
        speechmix.mix(model, inputs_of(model), measures="random")
        assert torch.rand(1) == expected

    def test_rows_sum_to_one_in_expectation(self):
        for name, stack in (("bert", "encoder"), ("gpt2", "decoder"), ("whisper-80", "cross")):
            model = loaded(name)
            maps = [
                speechmix.mix(model, inputs_of(model, seed), measures="random", stacks=stack, heads="each")
                for seed in range(12)
            ]
            sums = np.concatenate([m["random", stack].scores.sum(axis=-1).ravel() for m in maps])
            assert abs(sums.mean() - 1) < 4 * sums.std() / len(sums) ** 0.5


def test_every_measure_has_a_citation_and_a_description():
    assert set(BLOCK_MEASURES) <= set(MEASURES)
    for name, measure in MEASURES.items():
        assert measure.name == name
        assert measure.description
        assert any(char.isdigit() for char in measure.citation)


def test_families_are_all_there():
    assert not set(FAMILIES) & set(TEXT_FAMILIES)
    assert len(ALL_FAMILIES) == len(FAMILIES) + len(TEXT_FAMILIES)
