"""Mixing strengths through the steps of a map, and composed maps that are weighted by them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.inputs.words.spans import Span
from speechmix.mixing.maps.composition import compose, roll_out
from speechmix.mixing.maps.map_set import Maps
from speechmix.mixing.maps.mixing_map import MixingMap
from tests.conftest import build, inputs_of, maps_of, tiny

SPANS = [(3, 9), (9, 10), (12, 31), (40, 59)]


def a_map(
    n_layers=3,
    measure="value_zeroing",
    stack="encoder",
    seed=0,
    heads=False,
    causal=False,
    n_sources=4,
):
    random = np.random.default_rng(seed)
    spans = [Span(i, i + 1, str(i), "silence" if i == 1 else "word", i // 2) for i in range(4)]
    scores = random.random((n_layers, 2, 4, n_sources) if heads else (n_layers, 4, n_sources))
    scores = np.tril(scores) if causal else scores
    layers = tuple(range(n_layers))
    return MixingMap(
        scores,
        tuple(spans),
        tuple(spans[:n_sources]),
        measure,
        stack,
        layers,
        {},
        random.random((n_layers, 4)),
    )


def test_steps_that_keep_layers_and_targets_keep_the_strengths():
    found = a_map(heads=True)
    expected = found.mixing_strength
    for step in (found.normalized(), found.mean_heads(), found.head(1), found.with_identity()):
        np.testing.assert_array_equal(step.mixing_strength, expected)
    np.testing.assert_array_equal(found.without("silence").mixing_strength, expected[:, [0, 2, 3]])
    np.testing.assert_array_equal(found.last_layer().mixing_strength, expected[-1:])
    np.testing.assert_allclose(
        found.mean_layers().mixing_strength, expected.mean(axis=0, keepdims=True)
    )


def test_pooled_targets_have_the_mean_over_their_positions():
    units = tuple(
        Span(start, stop, label) for start, stop, label in ((0, 1, "a"), (1, 4, "b"), (4, 5, "c"))
    )
    found = MixingMap(
        np.ones((1, 3, 3)),
        units,
        units,
        "attention",
        "encoder",
        (0,),
        {},
        np.array([[1.0, 5.0, 7.0]]),
    )
    np.testing.assert_allclose(
        found.pooled([(0, 4), (4, 5)], sources="mean").mixing_strength, [[4.0, 7.0]]
    )
    np.testing.assert_array_equal(
        found.pooled([(0, 4), (4, 5)], sources="sum", side="sources").mixing_strength, [[1, 5, 7]]
    )


def test_what_is_of_several_layers_at_once_has_none():
    found = a_map()
    for step in (found.rollout(), found.rollout(residual="strength"), found.flow()):
        assert step.mixing_strength is None
    with pytest.raises(InputError, match="has no mixing strengths"):
        found.rollout().rollout(residual="strength")
    with pytest.raises(InputError, match=r"should be \[L, targets\] = \(3, 4\)"):
        replace(found, mixing_strength=np.ones((3, 3)))


def test_a_file_whose_strengths_do_not_fit_is_damaged(tmp_path):
    from speechmix.mixing.maps import map_files as headers

    whole = a_map()
    assert (
        headers.labels_from_text(headers.labels_to_text(whole))["mixing_strength"].tolist()
        == whole.mixing_strength.tolist()
    )
    for text in (
        "null",
        '["float16", [[1]]]',
        '["float32", [[1], [2]]]',
        '["float32", [[1], [2, 3], [4]]]',
        "[1, 2, 3]",
    ):
        with pytest.raises((TypeError, ValueError)):
            headers.labels_from_text({**headers.labels_to_text(whole), "mixing_strength": text})


class TestRollout:
    def test_is_the_equation_written_out(self):
        found = a_map(measure="attention")
        expected = np.eye(4)
        for scores, strength in zip(found.scores, found.mixing_strength, strict=True):
            w = np.diag(strength / (1 + strength))
            expected = (w @ (scores / scores.sum(axis=1, keepdims=True)) + np.eye(4) - w) @ expected
        rolled = found.rollout(residual="strength")
        np.testing.assert_allclose(rolled.scores[-1], expected, rtol=1e-12)
        np.testing.assert_allclose(rolled.scores.sum(axis=-1), 1, rtol=1e-12)
        assert rolled.provenance["steps"] == ["rollout (residual=strength)"]
        with pytest.raises(InputError, match="normalize=False"):
            found.rollout(residual="strength", normalize=False)

    def test_strengths_of_nothing_one_and_without_end(self):
        found = a_map(n_layers=1)
        still = replace(found, mixing_strength=np.zeros((1, 4))).rollout(residual="strength")
        np.testing.assert_array_equal(still.scores[0], np.eye(4))
        even = replace(found, mixing_strength=np.ones((1, 4))).rollout(residual="strength")
        np.testing.assert_allclose(even.scores, found.rollout(residual=True).scores, rtol=1e-12)
        alone = replace(found, mixing_strength=np.full((1, 4), np.inf)).rollout(residual="strength")
        np.testing.assert_allclose(alone.scores, found.rollout(residual=False).scores, rtol=1e-12)
        empty = replace(found, scores=found.scores * np.array([0, 1, 1, 1])[:, None]).rollout(
            residual="strength"
        )
        np.testing.assert_array_equal(empty.scores[0, 0], np.eye(4)[0])

    @pytest.mark.parametrize("measure", ["value_zeroing", "attention", "alti"])
    def test_the_published_options_do_not_see_them(self, measure):
        found = a_map(measure=measure)
        bare = replace(found, mixing_strength=None)
        for options in (
            {},
            {"residual": True},
            {"residual": False},
            {"residual": False, "normalize": False},
        ):
            np.testing.assert_array_equal(
                found.rollout(**options).scores, bare.rollout(**options).scores
            )

    def test_layers_are_weighted_where_the_maps_do_not_hold_the_size_of_the_residual_stream(self):
        for measure in (
            "value_zeroing",
            "attention",
            "attention_norm",
            "random",
            "mute (zeros)",
        ):
            found = a_map(measure=measure)
            np.testing.assert_array_equal(
                roll_out(found).scores, found.rollout(residual="strength").scores
            )
            np.testing.assert_array_equal(
                roll_out(found, weighted=False).scores, found.rollout().scores
            )
        for measure in ("alti", "alti_l2", "globenc", "hta", "attention_norm_residual"):
            found = a_map(measure=measure)
            np.testing.assert_array_equal(roll_out(found).scores, found.rollout().scores)
            by_strength = found.rollout(residual="strength").scores
            np.testing.assert_array_equal(roll_out(found, weighted=True).scores, by_strength)
        bare = replace(a_map(), mixing_strength=None)
        np.testing.assert_array_equal(roll_out(bare).scores, bare.rollout().scores)


class TestCompose:
    def maps(self, measure="value_zeroing"):
        encoder, decoder = a_map(2, measure), a_map(3, measure, "decoder", seed=1, causal=True)
        cross = a_map(3, measure, "cross", seed=2)
        return {"encoder": encoder, "cross": cross, "decoder": decoder}

    @pytest.mark.parametrize("share", [None, 0.3])
    def test_is_the_equation_written_out(self, share):
        maps = self.maps()
        x, p = np.zeros((4, 4)), np.eye(4)
        e = maps["encoder"].rollout(residual="strength").scores[-1]
        for layer in range(3):
            g, s = (maps[stack].normalized().scores[layer] for stack in ("cross", "decoder"))
            w, v = (maps[stack].mixing_strength[layer][:, None] for stack in ("decoder", "cross"))
            w, v = w / (1 + w), v / (1 + v) if share is None else share
            s = w * s + (1 - w) * np.eye(4)
            x, p = v * (g @ e) + (1 - v) * (s @ x), (1 - v) * (s @ p)
        found = compose(**maps, share=share)
        np.testing.assert_allclose(found.scores[-1], np.concatenate([x, p], axis=1), rtol=1e-12)
        np.testing.assert_allclose(found.scores.sum(axis=-1), 1, rtol=1e-12)
        name = "mixing strength" if share is None else "0.3"
        assert found.provenance["steps"][-1].endswith(
            f"share {name}, layers weighted by mixing strength, prefix=True)"
        )
        assert found.mixing_strength is None

    @pytest.mark.parametrize("measure", ["value_zeroing", "attention", "alti"])
    def test_unweighted_it_is_as_published(self, measure):
        maps = self.maps(measure)
        bare = {
            stack: replace(mixing_map, mixing_strength=None) for stack, mixing_map in maps.items()
        }
        expected = compose(**bare)
        found = compose(**maps, weighted=False)
        np.testing.assert_array_equal(found.scores, expected.scores)
        assert found.provenance["steps"] == expected.provenance["steps"]
        if measure == "alti":
            np.testing.assert_array_equal(compose(**maps).scores, expected.scores)
            assert "strength" not in compose(**maps).provenance["steps"][-1]
        with pytest.raises(InputError, match="has no mixing strengths"):
            compose(**bare, weighted=True)

    def test_all_maps_are_weighted_or_none(self):
        maps = self.maps()
        for stack in maps:
            some = {**maps, stack: replace(maps[stack], mixing_strength=None)}
            np.testing.assert_array_equal(
                compose(**some).scores, compose(**maps, weighted=False).scores
            )
        rolled = {**maps, "encoder": maps["encoder"].rollout(residual="strength")}
        np.testing.assert_allclose(compose(**rolled).scores, compose(**maps).scores, rtol=1e-12)


def with_idle_layer():
    """The tiny wav2vec 2.0 with a fourth layer put in behind the first, whose outputs are scaled
    down."""
    module, deeper = (
        build("wav2vec2-stable").double(),
        build("wav2vec2-stable", num_hidden_layers=4, seed=5).double(),
    )
    states = deeper.state_dict()
    for name, tensor in module.state_dict().items():
        if "encoder.layers." in name:
            prefix, _, rest = name.partition("encoder.layers.")
            number, _, part = rest.partition(".")
            name = f"{prefix}encoder.layers.{int(number) + (int(number) > 0)}.{part}"
        states[name] = tensor
    for name, tensor in states.items():
        if "encoder.layers.1." in name and any(
            part in name for part in ("out_proj", "output_dense")
        ):
            states[name] = 1e-3 * tensor
    deeper.load_state_dict(states)
    return speechmix.load(deeper, check=False)


def test_an_idle_layer_hardly_changes_what_is_rolled_out():
    shallow, deep = tiny("wav2vec2-stable"), with_idle_layer()
    moved = {}
    for measure in ("value_zeroing", "attention"):
        before, after = (
            speechmix.mix(model, inputs_of(model), measures=measure, spans=SPANS)[
                measure, "encoder"
            ]
            for model in (shallow, deep)
        )
        for name, way in (("weighted", roll_out), ("published", MixingMap.rollout)):
            moved[measure, name] = np.abs(way(after).scores[-1] - way(before).scores[-1]).max()
    assert moved["value_zeroing", "weighted"] < 0.005
    assert moved["attention", "weighted"] < 0.005
    assert moved["value_zeroing", "published"] > 0.05
    assert moved["attention", "published"] > 0.02


def test_a_decoder_that_does_not_hear_gets_nothing_from_the_sound():
    module = build("whisper-80").double()
    for name, weight in module.named_parameters():
        if "encoder_attn.out_proj" in name:
            weight.mul_(1e-3)
    deaf = speechmix.load(module, check=False)
    maps = speechmix.mix(deaf, inputs_of(deaf), spans=SPANS)
    assert maps.composed("value_zeroing").scores[-1][:, : len(SPANS)].sum(axis=-1).max() < 0.01
    assert (
        maps.composed("value_zeroing", weighted=False)
        .scores[-1][:, : len(SPANS)]
        .sum(axis=-1)
        .min()
        > 0.8
    )
    hearing = maps_of("whisper-80", ("value_zeroing",), spans=tuple(SPANS))
    assert hearing.composed("value_zeroing").scores[-1][:, : len(SPANS)].sum(axis=-1).min() > 0.1


def test_maps_of_one_call_are_composed_by_strength():
    maps = maps_of("whisper-80", ("value_zeroing", "alti"), spans=tuple(SPANS))
    assert isinstance(maps, Maps)
    assert "weighted by mixing strength" in maps.composed("value_zeroing").provenance["steps"][-1]
    assert "weighted" not in maps.composed("alti").provenance["steps"][-1]
