"""What must hold for any model, from the definitions alone (definitions, section 11): no published
number is needed."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

import speechmix
from speechmix.errors import InputError
from speechmix.inputs.words.spans import Span
from speechmix.mixing.measures.measure import Units
from tests.conftest import FAMILIES, WHISPER, build, inputs_of, tiny

SPANS = [(0, 6), (6, 7), (12, 31), (40, 60)]
MEASURES = ("value_zeroing", "attention", "attention_norm")


@pytest.fixture(scope="module", params=FAMILIES)
def scored(request):
    """Model, inputs and all its maps, for each family once."""
    model = speechmix.load(build(request.param).double())
    inputs = inputs_of(model)
    maps = {
        heads: speechmix.mix(
            model,
            inputs,
            spans=SPANS[: 4 if "input_features" in inputs else 3],
            measures=MEASURES,
            heads=heads,
        )
        for heads in ("mean", "each")
    }
    return model, inputs, maps


def all_maps(scored):
    return [(key, found) for maps in scored[2].values() for key, found in maps.items()]


class TestEveryMap:
    def test_scores_are_finite_and_not_negative(self, scored):
        for _, found in all_maps(scored):
            assert np.isfinite(found.scores).all()
            assert (found.scores >= 0).all()

    def test_normalised_rows_sum_to_one(self, scored):
        for _, found in all_maps(scored):
            np.testing.assert_allclose(found.normalized().scores.sum(axis=-1), 1, rtol=1e-12)

    def test_shapes_are_layers_heads_targets_sources(self, scored):
        model, _, maps = scored
        words = 4 if "cross" in model.stacks else 3
        sides = {"encoder": (words, words), "decoder": (7, 7), "cross": (7, words)}
        for heads, some in maps.items():
            for (_, stack), found in some.items():
                assert found.scores.shape == (3, *((4,) if heads == "each" else ()), *sides[stack])

    def test_decoder_does_not_look_ahead(self, scored):
        for (_, stack), found in all_maps(scored):
            rows, columns = np.triu_indices(found.scores.shape[-2], 1, found.scores.shape[-1])
            ahead = found.scores[..., rows, columns]
            assert (ahead == 0).all() if stack == "decoder" else (ahead > 0).all()

    def test_first_token_is_built_from_itself_alone(self, scored):
        for (_, stack), found in all_maps(scored):
            if stack == "decoder":
                first = found.normalized().scores[..., 0, :]
                np.testing.assert_allclose(first[..., 0], 1, rtol=1e-12)
                assert (first[..., 1:] == 0).all()

    def test_attention_over_all_frames_sums_to_one(self, scored):
        model, inputs, _ = scored
        for heads in ("mean", "each"):
            for found in speechmix.mix(model, inputs, measures="attention", heads=heads).values():
                np.testing.assert_allclose(found.scores.sum(axis=-1), 1, rtol=1e-10)

    def test_norm_of_the_sum_is_at_most_the_sum_of_the_norms(self, scored):
        _, _, maps = scored
        for (measure, stack), summed in maps["mean"].items():
            if measure == "attention_norm":
                bound = maps["each"][measure, stack].scores.sum(axis=1)
                assert (summed.scores <= bound * (1 + 1e-12)).all()

    def test_maximum_over_frames_is_at_least_the_mean(self, scored):
        model, inputs, maps = scored
        spans = [(s.start, s.stop) for s in maps["mean"]["attention", "encoder"].targets]
        highest = speechmix.mix(model, inputs, spans=spans, measures=MEASURES, pooling="max")
        for key, found in highest.items():
            assert (found.scores >= maps["mean"][key].scores * (1 - 1e-12)).all()

    def test_scoring_is_not_visible_in_a_later_clean_pass(self, scored):
        """Neither in the model's output nor in a second scoring."""
        model, inputs, maps = scored
        fresh = type(model.module)(model.config).double().eval()
        fresh.load_state_dict(model.module.state_dict())
        options = {"use_cache": False} if "decoder_input_ids" in inputs else {}
        with torch.no_grad():
            assert torch.equal(model.module(**inputs, **options)[0], fresh(**inputs, **options)[0])
        again = speechmix.mix(
            model,
            inputs,
            spans=[(s.start, s.stop) for s in maps["mean"]["attention", "encoder"].targets],
        )
        for key, found in again.items():
            np.testing.assert_array_equal(found.scores, maps["mean"][key].scores)

    def test_finer_sources_add_up_for_attention(self, scored):
        """Mean attention to a word times its length is the sum over its frames."""
        model, inputs, _ = scored
        whole = speechmix.mix(
            model, inputs, spans=[(12, 31)], stacks="encoder", measures="attention"
        )
        frames = speechmix.mix(
            model,
            inputs,
            spans=[(k, k + 1) for k in range(12, 31)],
            stacks="encoder",
            measures="attention",
        )
        np.testing.assert_allclose(
            whole["attention", "encoder"].scores[:, 0, 0],
            frames["attention", "encoder"].scores.mean(axis=(1, 2)),
            rtol=1e-12,
        )


class TestZeroing:
    def test_empty_set_cannot_be_asked_for(self):
        model = tiny("wav2vec2-stable")
        with pytest.raises(InputError, match="half-open"):
            speechmix.mix(model, inputs_of(model), spans=[(4, 4)])

    def test_source_that_gets_no_attention_contributes_nothing(self):
        """Frames behind the attention mask are no part of anybody."""
        model = tiny("wav2vec2-stable")
        inputs = inputs_of(model)
        inputs["attention_mask"] = (torch.arange(19_280) < 12_000).long()[None]
        for measure, found in (
            (m, speechmix.mix(model, inputs, spans=[(0, 20), (45, 60)], measures=m))
            for m in MEASURES
        ):
            scores = found[measure, "encoder"].scores
            assert (scores[:, 0, 1] == 0).all()
            assert (scores[:, 0, 0] > 0).all()

    def test_source_whose_value_is_null_contributes_nothing(self):
        module = build("wav2vec2-stable").double()
        for layer in module.encoder.layers:
            for name in ("weight", "bias"):  # of the first head
                getattr(layer.attention.v_proj, name).data[:8] = 0
        model = speechmix.load(module)
        found = speechmix.mix(
            model, inputs_of(model), spans=SPANS[:3], measures=MEASURES, heads="each"
        )
        for measure in ("value_zeroing", "attention_norm"):
            scores = found[measure, "encoder"].scores
            assert (scores[:, 0] <= 1e-30).all()
            assert (scores[:, 1:] > 0).all()
        assert (found["attention", "encoder"].scores > 0).all()

    def test_zeroing_everything_at_once_is_one_source(self):
        model = tiny("whisper-80")
        found = speechmix.mix(model, inputs_of(model), spans=[(0, 60)])
        assert found["value_zeroing", "encoder"].scores.shape == (3, 1, 1)
        assert found["value_zeroing", "cross"].scores.shape == (3, 7, 1)


class TestAttentionNorm:
    def explicit(self, model, inputs, name):
        """[H, T, T, D] vectors of every layer, from the model's own projections."""
        attention = speechmix.mix(
            model, inputs, stacks="encoder", measures="attention", heads="each"
        )
        modules = [getattr(layer.module, name) for layer in model.stacks["encoder"].layers]
        values = []
        handles = [
            m.v_proj.register_forward_hook(lambda m, a, out: values.append(out[0])) for m in modules
        ]
        with torch.no_grad():
            model.family.run(model.base, inputs, ("encoder",))
        for handle in handles:
            handle.remove()
        for alpha, module, value in zip(
            attention["attention", "encoder"].scores, modules, values, strict=True
        ):
            heads = len(alpha)
            projected = torch.stack(
                [
                    v @ w.T
                    for v, w in zip(
                        value.chunk(heads, dim=1),
                        module.out_proj.weight.chunk(heads, dim=1),
                        strict=True,
                    )
                ]
            )  # [H, T, D]
            yield torch.tensor(alpha)[..., None] * projected[:, None]

    @pytest.mark.parametrize(
        ("name", "part"), [("wav2vec2-post", "attention"), ("whisper-80", "self_attn")]
    )
    def test_gram_form_is_the_norm_of_the_explicit_vectors(self, name, part):
        model = tiny(name)
        inputs = inputs_of(model)
        options = {"stacks": "encoder", "measures": "attention_norm"}
        summed = speechmix.mix(model, inputs, **options)["attention_norm", "encoder"].scores
        each = speechmix.mix(model, inputs, heads="each", **options)[
            "attention_norm", "encoder"
        ].scores
        for layer, vectors in enumerate(self.explicit(model, inputs, part)):
            np.testing.assert_allclose(summed[layer], vectors.sum(0).norm(dim=-1), rtol=1e-7)
            np.testing.assert_allclose(each[layer], vectors.norm(dim=-1), rtol=1e-10)

    def test_one_head_alone_is_the_length_of_its_vector(self):
        model = speechmix.load(build("wav2vec2-stable", num_attention_heads=1).double())
        inputs = inputs_of(model)
        summed = speechmix.mix(model, inputs, measures="attention_norm")[
            "attention_norm", "encoder"
        ].scores
        each = speechmix.mix(model, inputs, measures="attention_norm", heads="each")[
            "attention_norm", "encoder"
        ].scores
        np.testing.assert_allclose(summed, each[:, 0], rtol=1e-9)
        for layer, vectors in enumerate(self.explicit(model, inputs, "attention")):
            np.testing.assert_allclose(summed[layer], vectors[0].norm(dim=-1), rtol=1e-9)

    def test_value_bias_is_in_and_output_bias_is_out(self):
        module = build("wav2vec2-stable").double()
        inputs = inputs_of(speechmix.load(module))
        options = {"spans": SPANS[:3], "measures": "attention_norm", "layers": [0]}
        before = speechmix.mix(speechmix.load(module), inputs, **options)[
            "attention_norm", "encoder"
        ].scores
        module.encoder.layers[0].attention.out_proj.bias.data += 3
        after = speechmix.mix(speechmix.load(module), inputs, **options)[
            "attention_norm", "encoder"
        ].scores
        np.testing.assert_allclose(after, before, rtol=1e-12)
        module.encoder.layers[0].attention.v_proj.bias.data += 3
        after = speechmix.mix(speechmix.load(module), inputs, **options)[
            "attention_norm", "encoder"
        ].scores
        assert np.abs(after - before).max() > 0.1 * before.max()


class TestRollout:
    def map_of(self, scores, measure="value_zeroing"):
        spans = tuple(Span(i, i + 1, str(i)) for i in range(scores.shape[-1]))
        return speechmix.MixingMap(
            scores, spans, spans, measure, "encoder", tuple(range(len(scores)))
        )

    @pytest.mark.parametrize("residual", [False, True, None])
    def test_identity_maps_roll_out_to_the_identity(self, residual):
        scores = np.stack([np.eye(5)] * 4)
        np.testing.assert_allclose(self.map_of(scores).rollout(residual=residual).scores, scores)

    @given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 6), st.booleans())
    @settings(max_examples=40, deadline=None)
    def test_rows_stay_stochastic(self, seed, n_layers, n_units, residual):
        scores = np.random.default_rng(seed).random((n_layers, n_units, n_units)) + 1e-6
        rolled = self.map_of(scores).rollout(residual=residual).scores
        np.testing.assert_allclose(rolled.sum(axis=-1), 1, rtol=1e-12)
        assert (rolled >= 0).all()

    def test_two_layers_by_hand(self):
        a, b = np.array([[0.5, 0.5], [0.0, 1.0]]), np.array([[1.0, 0.0], [0.5, 0.5]])
        rolled = self.map_of(np.stack([a, b])).rollout(residual=False).scores
        np.testing.assert_allclose(rolled, [a, b @ a])
        rolled = self.map_of(np.stack([a, b]), "attention").rollout().scores
        a, b = (a + np.eye(2)) / 2, (b + np.eye(2)) / 2
        np.testing.assert_allclose(rolled, [a, b @ a])

    def test_default_adds_the_residual_where_the_measure_leaves_it_out(self):
        scores = np.random.default_rng(0).random((3, 4, 4))
        for measure, residual in (
            ("value_zeroing", False),
            ("attention", True),
            ("attention_norm", True),
        ):
            found = self.map_of(scores, measure)
            np.testing.assert_array_equal(
                found.rollout().scores, found.rollout(residual=residual).scores
            )

    def test_causal_maps_stay_causal(self):
        model = tiny("whisper-80")
        for found in speechmix.mix(
            model, inputs_of(model), stacks="decoder", measures=MEASURES
        ).values():
            rolled = found.rollout().scores
            assert (np.triu(rolled, 1) == 0).all()
            np.testing.assert_allclose(rolled.sum(axis=-1), 1, rtol=1e-12)

    def test_cross_attention_cannot_be_rolled_out(self):
        model = tiny("whisper-80")
        maps = speechmix.mix(model, inputs_of(model), spans=SPANS)
        with pytest.raises(InputError, match=r"same units.*cross"):
            maps["value_zeroing", "cross"].rollout()


class TestLastLayer:
    """States of the last layer are compared behind the stack's final norm, on both sides
    (definitions 2.9, 3.9)."""

    @pytest.mark.parametrize(
        ("name", "stack", "norm"),
        [
            ("wav2vec2-stable", "encoder", "encoder.layer_norm"),
            ("whisper-128", "encoder", "encoder.layer_norm"),
            ("whisper-128", "decoder", "decoder.layer_norm"),
            pytest.param(  # test_golden.py has Value Zeroing of a Whisper's last cross-attention
                *("whisper-128", "cross", "decoder.layer_norm"), marks=pytest.mark.long
            ),
        ],
    )
    def test_final_norm_acts_on_the_last_layer_alone(self, name, stack, norm):
        """A final norm that keeps one direction only changes the last layer's scores, and no
        other's."""
        module = build(name).double()
        inputs = inputs_of(speechmix.load(module))
        before = speechmix.mix(speechmix.load(module), inputs, spans=SPANS[:3], stacks=stack)[
            "value_zeroing", stack
        ].scores
        weight = module.base_model.get_submodule(norm).weight
        weight.data[:16] *= 0.05
        after = speechmix.mix(speechmix.load(module), inputs, spans=SPANS[:3], stacks=stack)[
            "value_zeroing", stack
        ].scores
        # the norm of the encoder is also part of what cross-attention sees; it does not change here
        np.testing.assert_allclose(after[:-1], before[:-1], rtol=1e-10, atol=1e-16)
        assert np.abs(after[-1] - before[-1]).max() > 0.01 * before[-1].max()

    def test_norm_on_one_side_only_would_drown_the_last_row(self):
        """With one side only, a source that contributes nothing would still score high."""
        module = build("wav2vec2-stable").double()
        module.encoder.layer_norm.weight.data.uniform_(
            0.2, 3, generator=torch.Generator().manual_seed(0)
        )
        module.encoder.layers[-1].attention.v_proj.weight.data *= 1e-6
        module.encoder.layers[-1].attention.v_proj.bias.data *= 1e-6
        model = speechmix.load(module, check=False)
        scores = speechmix.mix(model, inputs_of(model), spans=SPANS[:3])[
            "value_zeroing", "encoder"
        ].scores
        assert scores[-1].max() < 1e-9
        assert scores[0].max() > 1e-6

    def test_post_norm_stack_has_none(self):
        """wav2vec2-base's encoder.layer_norm comes before layer 1."""
        assert tiny("wav2vec2-post", torch.float32).stacks["encoder"].final_norm is None


class TestPlantedSignal:
    """One attention layer with weights set by hand.

    Sixteen of the 32 directions of the state are hidden from the values, so that a position can be
    loud for keys and silent for values. The cue draws attention and has a value; the decoy draws
    more attention, but its value is null; the others draw little, and their values are null too.
    """

    cue, decoy, length = 3, 5, 8

    def plant(self, attention, gain=40.0):
        """Keys see direction 0 (cue) and 1 (decoy); values see directions 16 to 31 alone. One head
        matters."""
        width = attention.q_proj.in_features
        for linear in (attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj):
            linear.weight.data.zero_()
            if linear.bias is not None:
                linear.bias.data.zero_()
        attention.q_proj.bias.data[::8] = gain  # every target asks the same, in all four heads
        for head in range(4):
            attention.k_proj.weight.data[8 * head, 0] = 0.12
            attention.k_proj.weight.data[8 * head, 1] = 0.14
        attention.v_proj.weight.data[:16, 16:] = torch.eye(16, dtype=torch.double)
        attention.v_proj.weight.data[16:, 16:] = torch.eye(16, dtype=torch.double)
        attention.out_proj.weight.data.copy_(torch.eye(width, dtype=torch.double))

    def states(self, length):
        """Embeddings whose layer norm keeps which directions are loud."""
        x = torch.zeros(length, 32, dtype=torch.double)
        x[:, 2:16:2], x[:, 3:16:2] = 1.0, -1.0  # what all positions share, out of the values' sight
        x[self.cue, :16], x[self.decoy, :16] = 0, 0
        x[self.cue, 0], x[self.decoy, 1] = 4.0, 4.0
        x[self.cue, 16:24], x[self.cue, 24:] = 1.0, -1.0
        x[self.decoy, 2] = -4.0
        x[:, 15] -= x.sum(dim=1)  # zero mean
        return x

    def decoder_model(self):
        """Whisper with one decoder layer; the planted states are its token embeddings."""
        options = {**WHISPER, "encoder_layers": 1, "decoder_layers": 1, "num_mel_bins": 80}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            module = transformers.WhisperForConditionalGeneration(
                transformers.WhisperConfig(**options)
            ).double()
        decoder = module.model.decoder
        decoder.embed_positions.weight.data.zero_()
        decoder.embed_tokens.weight.data[: self.length] = self.states(self.length)
        self.plant(decoder.layers[0].self_attn)
        return speechmix.load(module)

    def test_decoder_cue_tops_value_zeroing_and_attention_norm_and_the_decoy_only_attention(self):
        model = self.decoder_model()
        inputs = inputs_of(model)
        inputs["decoder_input_ids"] = torch.arange(self.length)[None]
        maps = speechmix.mix(model, inputs, stacks="decoder", measures=MEASURES)
        for measure in MEASURES:
            row = maps[measure, "decoder"].scores[0, self.length - 1]
            self.assert_planted(measure, row)

    def assert_planted(self, measure, row):
        if measure == "attention":
            assert row.argmax() == self.decoy
            assert (
                row[self.decoy]
                > 1.2 * row[self.cue]
                > 5 * np.delete(row, [self.cue, self.decoy]).max()
            )
        else:
            assert row.argmax() == self.cue
            assert np.delete(row, self.cue).max() <= 1e-9 * row[self.cue]
            assert row[self.decoy] <= 1e-12 * row[self.cue] + 1e-30

    @pytest.mark.parametrize("stable", [True, False], ids=["pre-norm", "post-norm"])
    def test_encoder_cue_tops_value_zeroing_and_attention_norm_and_the_decoy_only_attention(
        self, stable
    ):
        """wav2vec2 with one layer; the planted states are put where the encoder's dropout (idle)
        stands."""
        module = build(
            "wav2vec2-stable" if stable else "wav2vec2-post", num_hidden_layers=1
        ).double()
        self.plant(module.base_model.encoder.layers[0].attention)
        states = self.states(60)

        module.base_model.encoder.dropout.register_forward_hook(
            lambda m, a, out: states[None, : out.shape[1]]
        )
        model = speechmix.load(module)
        maps = speechmix.mix(model, inputs_of(model), measures=MEASURES)
        for measure in MEASURES:
            for target in (0, 20, 59):
                self.assert_planted(measure, maps[measure, "encoder"].scores[0, target])

    def test_words_that_hold_the_cue_top_the_map(self):
        module = build("wav2vec2-stable", num_hidden_layers=1).double()
        self.plant(module.encoder.layers[0].attention)
        states = self.states(60)
        module.encoder.dropout.register_forward_hook(lambda m, a, out: states[None, : out.shape[1]])
        model = speechmix.load(module)
        spans = [
            (0, 2),
            (2, 5),
            (5, 7),
            (10, 30),
            (30, 60),
        ]  # word 1 holds the cue, word 2 the decoy
        maps = speechmix.mix(model, inputs_of(model), spans=spans, measures=MEASURES)
        for measure, top in (("attention", 2), ("value_zeroing", 1), ("attention_norm", 1)):
            assert (maps[measure, "encoder"].scores[0].argmax(axis=1)[[0, 3, 4]] == top).all()


@st.composite
def groups(draw, length):
    """One to five non-empty ranges within a length."""
    edges = st.tuples(st.integers(0, length - 1), st.integers(1, length)).filter(
        lambda edge: edge[0] < edge[1]
    )
    return [Span(start, stop) for start, stop in draw(st.lists(edges, min_size=1, max_size=5))]


class TestPooling:
    @given(
        st.data(),
        st.sampled_from(["mean", "max"]),
        st.integers(1, 12),
        st.integers(1, 12),
        st.booleans(),
    )
    @settings(max_examples=80, deadline=None)
    def test_pooling_is_a_loop_over_frames(self, data, pooling, n_targets, n_sources, with_heads):
        targets, sources = data.draw(groups(n_targets)), data.draw(groups(n_sources))
        units = Units(targets, sources, pooling=pooling, device="cpu")
        shape = (3, n_targets, n_sources) if with_heads else (n_targets, n_sources)
        generator = torch.Generator().manual_seed(data.draw(st.integers(0, 1000)))
        scores = torch.rand(shape, generator=generator, dtype=torch.double)
        pool = (
            (lambda x, axis: x.mean(axis)) if pooling == "mean" else (lambda x, axis: x.max(axis))
        )

        rows = [
            position
            for position in range(n_targets)
            if any(t.start <= position < t.stop for t in targets)
        ]
        assert units.rows.tolist() == rows

        by_source = units.pool_sources(scores)
        expected = np.stack(
            [pool(scores[..., s.start : s.stop].numpy(), -1) for s in sources], axis=-1
        )
        np.testing.assert_allclose(by_source, expected, rtol=1e-12)

        both = units.pool_targets(by_source[..., units.rows, :])
        expected = np.stack(
            [pool(expected[..., t.start : t.stop, :], -2) for t in targets], axis=-2
        )
        np.testing.assert_allclose(both, expected, rtol=1e-12)

    def test_unknown_pooling(self):
        with pytest.raises(InputError, match=r"mean.*max.*'median'"):
            Units([Span(0, 1)], [Span(0, 1)], pooling="median", device="cpu")
