"""The delta engine against replay (the layer's own modules), in every family; its precision; its
pieces."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import torch
from torch import nn
from transformers.activations import ACT2FN

import speechmix
from speechmix.adapters.binding.bound_layers import Norm
from speechmix.adapters.delta_engine.change_propagator import (
    ChangePropagator,
    smooth_activations,
    taylor_coefficients,
)
from speechmix.errors import ModelError
from speechmix.mixing.maps.numerics import DISTANCES, find_distance
from tests.conftest import ALL_FAMILIES, build, inputs_of, tiny

# transformers' RMS norms compute in float32 whatever they are given, so that replayed states are no
# better than that.
RMS = ("llama", "mistral", "qwen2", "qwen3", "gemma")
REPLAYED = ("gemma3_text",)


def by_engine(model, inputs, *, distance="cosine", **options):
    """Maps of Value Zeroing by stack: of the delta engine, and of replay."""
    measures = [
        f"value_zeroing:distance={distance},engine={engine}" for engine in ("delta", "replay")
    ]
    maps = speechmix.mix(model, inputs, measures=measures, **options)
    return (
        {stack: found for (name, stack), found in maps.items() if name == measure}
        for measure in measures
    )


def both(model, **options):
    return by_engine(model, inputs_of(model), **options)


def error(found, expected) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.mark.every_family
@pytest.mark.parametrize("name", ALL_FAMILIES)
@pytest.mark.parametrize("heads", ["mean", "each"])
def test_is_replay(name, heads):
    model = tiny(name)
    delta, replay = both(model, heads=heads)
    for key, expected in replay.items():
        assert error(delta[key].scores, expected.scores) < (1e-6 if name in RMS else 1e-11), key
        assert delta[key].provenance["engine"] == "delta"


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_every_distance_and_pooling(distance, pooling):
    model = tiny("whisper-80")
    delta, replay = both(
        model, distance=distance, pooling=pooling, spans=[(0, 4), (4, 30), (50, 60)]
    )
    for key, expected in replay.items():
        assert error(delta[key].scores, expected.scores) < 1e-11


@functools.cache
def short(name):
    """Model and inputs of about 20 frames: what is done one by one is done 400 times a layer, and
    not 3,600 times."""
    model = tiny(name, max_source_positions=20) if name.startswith("whisper") else tiny(name)
    inputs = inputs_of(model)
    inputs = {key: x[:, :6_500] if key == "input_values" else x for key, x in inputs.items()}
    return model, inputs, speechmix.mix(model, inputs)


@pytest.mark.long
@pytest.mark.parametrize("name", ["whisper-80", "gpt2", "wav2vec2-adapters"])
@pytest.mark.parametrize("batch_size", [1, 7, 100, 10_000])
def test_batch_size_changes_nothing(name, batch_size, set_pair_batches):
    model, inputs, expected = short(name)
    set_pair_batches(batch_size)
    for key, found in speechmix.mix(model, inputs).items():
        assert error(found.scores, expected[key].scores) < 1e-12


@pytest.mark.every_family
@pytest.mark.parametrize("name", [name for name in ALL_FAMILIES if name not in REPLAYED])
@pytest.mark.parametrize("few", [True, False])
def test_acting_on_value_vectors_is_acting_on_rows(name, few, monkeypatch):
    monkeypatch.setattr(
        ChangePropagator,
        "_is_cheaper_on_values",
        lambda self, *_: few and self._fused_feed_forward is not None,
    )
    model = tiny(name)
    delta, replay = both(model, spans=[(0, 1), (1, 2), (2, 9)])
    for key, expected in replay.items():
        assert error(delta[key].scores, expected.scores) < (1e-6 if name in RMS else 1e-11), key


def test_spans_of_any_lengths_are_batched_without_padding_them_all_to_the_longest(monkeypatch):
    from speechmix.mixing.measures import value_zeroing

    monkeypatch.setattr(value_zeroing, "_MAX_PADDING", 4)
    spans = [(0, 1), (1, 2), (2, 40), (40, 42), (42, 60)]
    assert list(value_zeroing._source_batches([stop - start for start, stop in spans], 10)) == [
        (0, 2),
        (2, 5),
    ]
    model = tiny("wav2vec2-stable")
    delta, replay = both(model, spans=spans)
    for key, expected in replay.items():
        assert error(delta[key].scores, expected.scores) < 1e-12


def test_causal_rows_see_nothing_later_however_they_are_cut():
    model = speechmix.load(build("gpt2", n_positions=200).double())
    inputs = {
        "input_ids": torch.randint(4, 50, (1, 150), generator=torch.Generator().manual_seed(0))
    }
    delta, replay = by_engine(model, inputs)
    scores = delta["decoder"].scores
    assert error(scores, replay["decoder"].scores) < 1e-12
    assert not np.triu(scores, 1).any()


class TestPrecision:
    @pytest.mark.every_family
    @pytest.mark.parametrize("name", [name for name in ALL_FAMILIES if name not in RMS])
    def test_float32_is_within_2e_5_of_float64(self, name):
        model = tiny(name, torch.float32)
        inputs = {k: x.float() if x.is_floating_point() else x for k, x in inputs_of(model).items()}
        expected = speechmix.mix(model, inputs, dtype="float64")
        for key, found in speechmix.mix(model, inputs).items():
            assert error(found.scores, expected[key].scores) < 2e-5

    def test_scores_of_1e_7_keep_their_precision_better_than_in_replay(self):
        # Attention is spread, so that its own rounding stays small.
        module = build(
            "wav2vec2-stable", hidden_size=256, intermediate_size=1024, initializer_range=0.04
        )
        for layer in module.encoder.layers:
            layer.attention.v_proj.weight.data *= 0.05
        model = speechmix.load(module)
        inputs = {name: x.float() for name, x in inputs_of(model).items()}
        options = {"spans": [(0, 1), (20, 21), (40, 44)]}
        expected = speechmix.mix(model, inputs, dtype="float64", **options)[
            "value_zeroing", "encoder"
        ].scores
        assert expected.min() < 1e-7
        delta, replay = (maps["encoder"].scores for maps in by_engine(model, inputs, **options))
        delta, replay = (np.abs(found - expected) / expected for found in (delta, replay))
        assert delta.max() < 2e-5
        assert np.median(delta) < np.median(replay)

    def test_bfloat16_products_keep_small_scores_too(self, native_bfloat16):
        module = build(
            "wav2vec2-stable", hidden_size=256, intermediate_size=512, initializer_range=0.05
        )
        for layer in module.encoder.layers:
            layer.attention.v_proj.weight.data *= 1e-2
        model = speechmix.load(module)
        inputs = {name: x.float() for name, x in inputs_of(model).items()}
        expected = speechmix.mix(model, inputs, dtype="float64")["value_zeroing", "encoder"].scores
        measure = "value_zeroing:product_dtype=bfloat16"
        found = speechmix.mix(model, inputs, measures=measure)[measure, "encoder"]
        assert np.median(expected) < 1e-7
        assert (np.abs(found.scores - expected) / expected).max() < 5e-3
        assert (found.provenance["product_dtype"], found.provenance["dtype"]) == (
            "bfloat16",
            "float32",
        )

    def test_half_precision_states_take_products_of_any_precision(self):
        model = speechmix.load(build("wav2vec2-stable"), dtype="bfloat16")
        for dtype in ("float32", "bfloat16", "float64"):
            measure = f"value_zeroing:product_dtype={dtype}"
            with pytest.warns(UserWarning, match="bfloat16 states"):
                maps = speechmix.mix(model, inputs_of(model), dtype="bfloat16", measures=measure)
            assert np.isfinite(maps[measure, "encoder"].scores).all()


class TestPieces:
    @pytest.mark.parametrize("size", [1e-8, 1e-3, 1.0, 30.0])
    @pytest.mark.parametrize(
        "norm",
        [nn.LayerNorm(40), nn.LayerNorm(40, elementwise_affine=False), nn.RMSNorm(40, eps=1e-6)],
    )
    def test_norm_of_a_changed_input(self, norm, size):
        norm = norm.double()
        x, dx = (
            torch.randn(2, 40, dtype=torch.double),
            size * torch.randn(5, 2, 40, dtype=torch.double),
        )
        with torch.no_grad():
            found = Norm(norm, x).change(dx)
            torch.testing.assert_close(found, norm(x + dx) - norm(x), rtol=1e-6, atol=1e-14)

    @pytest.mark.parametrize(
        "activation",
        [
            nn.GELU(),
            nn.GELU("tanh"),
            nn.SiLU(),
            ACT2FN["gelu"],
            ACT2FN["gelu_new"],
            ACT2FN["quick_gelu"],
            ACT2FN["gelu_fast"],
        ],
    )
    def test_series_of_an_activation_has_its_derivatives(self, activation):
        assert isinstance(activation, smooth_activations())
        x, dx = torch.linspace(-6, 6, 101, dtype=torch.double), 2.0**-13
        with torch.no_grad():
            first, second, third = taylor_coefficients(activation, x)
            found = dx * (first + dx * (second + dx * third))
            torch.testing.assert_close(
                found, activation(x + dx) - activation(x), rtol=1e-10, atol=3e-16
            )

    def test_relu_has_no_series(self):
        assert not isinstance(ACT2FN["relu"], smooth_activations())

    @pytest.mark.parametrize("name", DISTANCES)
    def test_distance_of_a_change_is_that_of_the_states(self, name):
        x, dx = torch.randn(7, 30, dtype=torch.double), torch.randn(4, 7, 30, dtype=torch.double)
        found, expected = (
            find_distance(name, of_change=True)(x, dx),
            find_distance(name)(x, x + dx),
        )
        torch.testing.assert_close(found, expected)

    def test_cosine_distance_of_a_change_that_turns_it_round_or_lengthens_it(self):
        x = torch.tensor([3.0, 4.0], dtype=torch.double)
        cosine = find_distance("cosine", of_change=True)
        assert cosine(x, -2 * x) == pytest.approx(2.0)
        assert cosine(x, 5 * x) == 0
        assert cosine(x, torch.tensor([-8.0, 0.0], dtype=torch.double)) == pytest.approx(
            1 - (-15 + 16) / (5 * 41**0.5)
        )

    def test_a_table_that_misdescribes_the_layer_is_found_out_at_loading(self, monkeypatch):
        from dataclasses import replace

        from speechmix.adapters.families import wav2vec2

        wrong = replace(wav2vec2.FEED_FORWARD, norm="layer_norm")
        monkeypatch.setattr(wav2vec2, "FEED_FORWARD", wrong)
        module = build("wav2vec2-post")
        module.wav2vec2.encoder.layers[0].layer_norm.weight.data *= 3
        with pytest.raises(ModelError, match="carrying a change"):
            speechmix.load(module)
