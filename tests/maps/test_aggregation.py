"""Aggregation over layers, heads, positions and stacks: what each step keeps, and what composing
gives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import speechmix
from speechmix.errors import InputError
from speechmix.inputs.words.spans import Span
from speechmix.mixing.maps.composition import compose
from speechmix.mixing.maps.map_set import Maps
from speechmix.mixing.maps.mixing_map import flow
from tests.conftest import inputs_of, tiny

SPANS = [(3, 9), (9, 10), (12, 31), (40, 59)]


def units(n, **options):
    return tuple(Span(i, i + 1, str(i), **options) for i in range(n))


def map_of(scores, measure="value_zeroing", stack="encoder", **provenance):
    scores = np.asarray(scores)
    return speechmix.MixingMap(
        scores,
        units(scores.shape[-2]),
        units(scores.shape[-1]),
        measure,
        stack,
        tuple(range(len(scores))),
        provenance,
    )


def stochastic(seed, *shape):
    return np.random.default_rng(seed).dirichlet(np.ones(shape[-1]), size=shape[:-1])


class TestLayers:
    def test_rollout_with_the_identity_is_that_of_maps_with_the_identity(self):
        found = map_of(np.random.default_rng(0).random((4, 5, 5)))
        np.testing.assert_allclose(
            found.rollout(residual=True).scores,
            found.with_identity().rollout(residual=False).scores,
            rtol=1e-12,
        )
        np.testing.assert_allclose(
            np.diagonal(map_of(stochastic(0, 2, 4, 4) * 0 + 0.25).with_identity().scores[0]), 0.625
        )

    def test_raw_product(self):
        scores = np.random.default_rng(0).random((3, 4, 4))
        found = map_of(scores).rollout(normalize=False)
        np.testing.assert_allclose(
            found.scores, [scores[0], scores[1] @ scores[0], scores[2] @ scores[1] @ scores[0]]
        )
        assert found.provenance["steps"] == ["rollout (residual=False, normalize=False)"]
        with pytest.raises(InputError, match="residual=False"):
            map_of(scores, "attention").rollout(normalize=False)

    def test_mean_and_last_layer(self):
        found = map_of(np.random.default_rng(0).random((3, 4, 4)))
        np.testing.assert_allclose(found.mean_layers().scores, found.scores.mean(axis=0)[None])
        np.testing.assert_array_equal(found.last_layer().scores, found.scores[2:])
        assert found.mean_layers().layers == found.last_layer().layers == (2,)
        assert found.rollout().last_layer().provenance["steps"] == [
            "rollout (residual=False)",
            "layer 2 alone",
        ]

    def test_order_of_heads_is_noted_and_matters(self):
        found = map_of(np.random.default_rng(0).random((2, 3, 4, 4)))
        first, after = (
            found.normalized().mean_heads().rollout(),
            found.mean_heads().normalized().rollout(),
        )
        assert first.provenance["steps"] == [
            "normalized",
            "mean over heads",
            "rollout (residual=False)",
        ]
        assert after.provenance["steps"] == [
            "mean over heads",
            "normalized",
            "rollout (residual=False)",
        ]
        assert found.rollout().provenance["steps"] == [
            "mean over heads",
            "rollout (residual=False)",
        ]
        assert np.abs(first.scores - after.scores).max() > 1e-3
        np.testing.assert_allclose(found.rollout().scores, after.scores, rtol=1e-12)

    def test_causal_maps_stay_causal_in_every_step(self):
        found = map_of(np.tril(np.random.default_rng(0).random((3, 5, 5))), stack="decoder")
        for step in (
            found.rollout(),
            found.flow(),
            found.with_identity(),
            found.mean_layers(),
            found.rollout(residual=True),
        ):
            assert (np.triu(step.scores, 1) == 0).all()


class TestFlow:
    def test_is_the_optimum_of_the_linear_programme(self):
        maps = stochastic(0, 3, 4, 4)
        found = flow(maps)
        for layer in range(3):
            for i, j in ((0, 0), (1, 3), (2, 1)):
                assert found[layer, i, j] == pytest.approx(
                    _max_flow(maps[: layer + 1], i, j), abs=1e-7
                )

    @given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 5))
    @settings(max_examples=20, deadline=None)
    def test_no_more_than_the_cuts_at_both_ends(self, seed, n_layers, n_units):
        maps = stochastic(seed, n_layers, n_units, n_units)
        found = flow(maps)
        out_of_state, into_input = maps.sum(axis=2), maps[0].sum(axis=0)
        assert (found <= out_of_state[:, :, None] + 1e-7).all()
        assert (found <= into_input + 1e-7).all()
        np.testing.assert_allclose(found[0], maps[0], atol=1e-8)
        rolled = map_of(maps).rollout().scores
        assert (found >= rolled - 1e-7).all()  # what rollout sends along fits through the pipes

    def test_identity_stays_identity_and_rows_sum_to_one(self):
        np.testing.assert_allclose(
            map_of(np.stack([np.eye(4)] * 3)).flow().scores, np.stack([np.eye(4)] * 3)
        )
        found = map_of(np.random.default_rng(1).random((3, 5, 5)), "attention").flow()
        np.testing.assert_allclose(found.scores.sum(axis=-1), 1, rtol=1e-12)
        assert found.provenance["steps"] == ["flow (residual=True)"]

    def test_long_inputs_and_cross_maps_are_refused(self):
        with pytest.raises(InputError, match="at most 64 units, this map has 65"):
            map_of(np.ones((2, 65, 65))).flow()
        with pytest.raises(InputError, match="same units"):
            map_of(np.ones((2, 3, 3)), stack="cross").flow()


def _max_flow(maps, i, j):
    """Maximum flow as a linear programme over edges (layer, upper, lower)."""
    n_layers, n = maps.shape[:2]

    def edge(layer, k, m):
        return (layer * n + k) * n + m

    gain = np.zeros(maps.size)
    gain[[edge(0, k, j) for k in range(n)]] = -1
    kept, nothing = [], np.zeros(maps.size)
    for layer in range(n_layers - 1):
        for k in range(n):
            row = nothing.copy()
            row[[edge(layer + 1, m, k) for m in range(n)]] = 1
            row[[edge(layer, k, m) for m in range(n)]] -= 1
            kept.append(row)
    bounds = [
        (0, c if layer < n_layers - 1 or k == i else 0) for (layer, k, m), c in np.ndenumerate(maps)
    ]
    for m in range(n):
        if m != j:
            for k in range(n):
                bounds[edge(0, k, m)] = (0, 0)
    solved = linprog(
        gain,
        A_eq=np.array(kept) if kept else None,
        b_eq=np.zeros(len(kept)) if kept else None,
        bounds=bounds,
    )
    return -solved.fun


class TestPooling:
    @pytest.mark.parametrize("name", ["wav2vec2-stable", "bert"])
    def test_pooled_positions_are_the_measure_at_words(self, name):
        model = tiny(name)
        inputs, measures = inputs_of(model), ["attention", "attention_norm"]
        spans = [(0, 3), (3, 4), (6, 11)]
        whole = speechmix.mix(model, inputs, measures=measures)
        for key, expected in speechmix.mix(model, inputs, measures=measures, spans=spans).items():
            found = whole[key].pooled(spans, sources="mean")
            np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-10)
            assert found.provenance["steps"] == ["pooled to 3 spans (targets mean, sources mean)"]

    def test_in_two_steps_as_in_one(self):
        found = map_of(np.random.default_rng(0).random((2, 8, 8)))
        for how in ("mean", "sum"):
            twice = found.pooled([(0, 2), (2, 5), (5, 8)], sources=how).pooled(
                [(0, 5), (5, 8)], sources=how
            )
            np.testing.assert_allclose(
                twice.scores, found.pooled([(0, 5), (5, 8)], sources=how).scores, rtol=1e-12
            )

    def test_sum_keeps_rows_and_commutes_with_normalising(self):
        found = map_of(stochastic(0, 2, 3, 6, 6))
        pooled = found.pooled([(0, 4), (4, 6)], sources="sum")
        np.testing.assert_allclose(pooled.scores.sum(axis=-1), 1, rtol=1e-12)
        assert pooled.scores.shape == (2, 3, 2, 2)

    def test_units_of_a_word_are_put_together(self):
        labels = [
            ("[CLS]", None),
            ("un", 0),
            ("##real", 0),
            ("dogs", 1),
            ("[SEP]", None),
            ("x", None),
        ]
        spans = tuple(
            Span(i, i + 1, label, "special" if label[0] == "[" else "token", word)
            for i, (label, word) in enumerate(labels)
        )
        scores = np.random.default_rng(0).random((1, 6, 6))
        found = speechmix.MixingMap(scores, spans, spans, "attention", "encoder", (0,)).pooled(
            sources="sum"
        )
        assert [span.label for span in found.targets] == ["[CLS]", "unreal", "dogs", "[SEP]", "x"]
        assert [span.kind for span in found.targets] == [
            "special",
            "word",
            "word",
            "special",
            "token",
        ]
        assert (found.sources[1].start, found.sources[1].stop, found.sources[1].word) == (1, 3, 0)
        np.testing.assert_allclose(found.scores[0, 1, 2], scores[0, 1:3, 3].mean())
        np.testing.assert_allclose(found.scores[0, 2, 1], scores[0, 3, 1:3].sum())
        assert found.without("special", "token").scores.shape == (1, 2, 2)

    def test_one_side_of_a_cross_map(self):
        found = speechmix.MixingMap(
            np.ones((1, 3, 6)), units(3), units(6), "attention", "cross", (0,)
        )
        pooled = found.pooled([(0, 2), (2, 6)], sources="sum", side="sources")
        np.testing.assert_array_equal(pooled.scores, [[[2, 4]] * 3])
        assert pooled.targets == found.targets

    @pytest.mark.parametrize(
        ("spans", "options", "message"),
        [
            ([(0, 1), (1, 4)], {"sources": "mean"}, "across its edge"),
            ([(0, 2), (9, 12)], {"sources": "mean"}, "no unit of the map lies in it"),
            (None, {"sources": "max"}, "one of"),
            (None, {"sources": "sum", "side": "rows"}, "side must be"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, spans, options, message):
        wide = tuple(Span(2 * i, 2 * i + 2, str(i)) for i in range(3))
        with pytest.raises(InputError, match=message):
            speechmix.MixingMap(
                np.ones((1, 3, 3)), wide, wide, "attention", "encoder", (0,)
            ).pooled(spans, **options)


class TestMixingRatio:
    def test_share_that_is_not_a_targets_own(self):
        found = map_of([[[3.0, 1.0], [0.0, 2.0]]])
        np.testing.assert_allclose(found.mixing_ratio(), [[0.25, 0.0]])
        np.testing.assert_allclose(found.with_identity().mixing_ratio(), [[0.125, 0.0]])
        with pytest.raises(InputError, match="among the sources"):
            map_of(np.ones((1, 2, 2)), stack="cross").mixing_ratio()


class TestCompose:
    def maps(self, seed=0, measure="value_zeroing", n_words=4, n_tokens=3):
        random = np.random.default_rng(seed)
        encoder = map_of(random.random((2, n_words, n_words)), measure)
        decoder = map_of(np.tril(random.random((3, n_tokens, n_tokens))), measure, "decoder")
        cross = replace(
            decoder,
            scores=random.random((3, n_tokens, n_words)) / n_words,
            sources=encoder.sources,
            stack="cross",
        )
        return {"encoder": encoder, "cross": cross, "decoder": decoder}

    @given(
        st.integers(0, 2**32 - 1),
        st.sampled_from(["value_zeroing", "attention", "alti"]),
        st.none() | st.floats(0, 1),
    )
    @settings(max_examples=30, deadline=None)
    def test_rows_sum_to_one_and_tokens_hear_no_later_ones(self, seed, measure, share):
        found = compose(**self.maps(seed, measure), share=share)
        assert found.scores.shape == (3, 3, 7)
        np.testing.assert_allclose(found.scores.sum(axis=-1), 1, rtol=1e-12)
        assert (found.scores >= 0).all()
        assert (np.triu(found.scores[..., 4:], 1) == 0).all()

    def test_is_the_equation_written_out(self):
        maps = self.maps()
        e = maps["encoder"].rollout().scores[-1]
        g, s = maps["cross"].normalized().scores, maps["decoder"].normalized().scores
        x, p = np.zeros((3, 4)), np.eye(3)
        for layer in range(3):
            x, p = 0.3 * g[layer] @ e + 0.7 * s[layer] @ x, 0.7 * s[layer] @ p
        found = compose(**maps, share=0.3)
        np.testing.assert_allclose(found.scores[-1], np.concatenate([x, p], axis=1), rtol=1e-12)
        heard = compose(**maps, share=0.3, prefix=False)
        np.testing.assert_allclose(heard.scores[-1], x / x.sum(axis=1, keepdims=True), rtol=1e-12)
        assert "share 0.3" in found.provenance["steps"][-1]
        assert [span.label for span in found.sources] == ["0", "1", "2", "3", "0", "1", "2"]

    def test_nothing_and_everything_through_cross_attention(self):
        maps = self.maps()
        none, alone = compose(**maps, share=0), compose(**maps, share=1)
        assert (none.scores[..., :4] == 0).all()
        np.testing.assert_allclose(
            none.scores[..., 4:], maps["decoder"].rollout().scores, rtol=1e-12
        )
        assert (alone.scores[..., 4:] == 0).all()

    def test_rolled_out_encoder_is_taken_as_it_is(self):
        maps = self.maps()
        rolled = {**maps, "encoder": maps["encoder"].rollout()}
        np.testing.assert_allclose(compose(**rolled).scores, compose(**maps).scores, rtol=1e-12)
        flowing = {**maps, "encoder": maps["encoder"].flow()}
        assert np.abs(compose(**flowing).scores - compose(**maps).scores).max() > 1e-4

    @pytest.mark.parametrize("name", ["whisper-80", "bart", "mbart"])
    def test_alti_of_a_model_with_its_own_shares(self, name):
        model = tiny(name)
        spans = SPANS if name == "whisper-80" else [(0, 4), (4, 11)]
        maps = speechmix.mix(
            model, inputs_of(model), measures=["alti", "value_zeroing"], spans=spans
        )
        for measure in ("alti", "value_zeroing"):
            found = maps.composed(measure)
            assert found.scores.shape == (3, 7, len(spans) + 7)
            np.testing.assert_allclose(found.scores.sum(axis=-1), 1, rtol=1e-10)
            assert (np.triu(found.scores[..., len(spans) :], 1) == 0).all()
        first = maps.composed("alti").scores[0, :, : len(spans)].sum(axis=-1)
        np.testing.assert_allclose(first, maps["alti", "cross"].scores[0].sum(axis=-1), rtol=1e-10)

    def test_what_does_not_fit_is_refused(self):
        maps = self.maps()
        for changed, message in (
            ({"encoder": maps["decoder"]}, "should be a map of the encoder"),
            ({"encoder": map_of(np.ones((2, 5, 5)))}, "sources of encoder and cross"),
            (
                {"cross": replace(maps["cross"], scores=maps["cross"].scores[:2], layers=(0, 1))},
                "has layers",
            ),
            ({"decoder": replace(maps["decoder"], provenance={"clip": "b"})}, "maps of one clip"),
            ({"share": 1.5}, "between 0 and 1"),
        ):
            with pytest.raises(InputError, match=message):
                compose(**{**maps, **changed})
        alti = self.maps(measure="alti")
        with pytest.raises(InputError, match="give the raw map"):
            compose(**{**alti, "cross": alti["cross"].normalized()})
        with pytest.raises(
            InputError,
            match=r"no map of encoder, cross, decoder for .*mix\(model, item, measures='alti'\)",
        ):
            Maps({}).composed("alti")
