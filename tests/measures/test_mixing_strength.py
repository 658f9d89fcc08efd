"""Mixing strength against the slow oracle: the layer run again with hooks that zero all values but
the target's own."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import speechmix
from speechmix.mixing.maps.mixing_map import MixingMap
from tests import oracle, oracle_by_path
from tests.conftest import build, inputs_of, maps_of, tiny
from tests.models import shared_models
from tests.models.more_families import MORE_FAMILIES, built

FRAMES = [(3, 9), (9, 10), (12, 31), (28, 40)]  # the last two overlap
TOKENS = [(0, 2), (2, 3), (4, 8)]
# Llama's RMS norm computes in float32 whatever the model's precision.
TOLERANCES = {
    "wav2vec2-post": 1e-10,
    "wav2vec2-stable": 1e-10,
    "wavlm-stable": 1e-10,
    "whisper-80": 1e-10,
    "bert": 1e-10,
    "gpt2": 1e-10,
    "bart": 1e-10,
    "llama": 1e-6,
    "gemma": 1e-6,
}
CONFORMERS = {
    "wav2vec2-bert": 1,
    "seamless-m4t-v2, in chunks": 1,
    "parakeet": 8,
}  # rows of features for a position


def targets_of(model, stack, spans):
    """Rows of a stack as lists of positions."""
    words = [
        [position for start, stop in span for position in range(start, stop)] for span in spans
    ]
    if stack == "encoder" or "cross" not in model.stacks:
        return words
    return [[position] for position in range(7)]


def strengths_of(maps):
    return {stack: mixing_map.mixing_strength for (_, stack), mixing_map in maps.items()}


def conformer(name):
    return shared_models.shared(("more", name), lambda: speechmix.load(built(name)))


def features(name, length, *, padding=0, seed=0):
    """Features of so many positions of a Conformer, and a mask that leaves out what is padded
    behind them."""
    each = CONFORMERS[name]
    sound = torch.randn(
        1, each * length, 16, dtype=torch.double, generator=torch.Generator().manual_seed(seed)
    )
    mask = (torch.arange(each * (length + padding)) < each * length)[None]
    padded = torch.nn.functional.pad(sound, (0, 0, 0, each * padding))
    return {"input_features": padded, "attention_mask": mask if name == "parakeet" else mask.long()}


@pytest.mark.parametrize("engine", ["delta", "replay"])
@pytest.mark.parametrize("name", TOLERANCES)
def test_strength_is_rerunning_the_layer_without_the_values_of_others(name, engine):
    model = tiny(name)
    inputs, ranges = inputs_of(model), FRAMES if model.hears else TOKENS
    measures = [f"value_zeroing:engine={engine}", "attention"]
    maps = speechmix.mix(model, inputs, measures=measures, spans=ranges)
    for stack in model.stacks:
        targets = targets_of(model, stack, [[span] for span in ranges])
        expected = oracle.mixing_strength(model.module, inputs, stack, targets)
        assert expected.min() >= 0
        for measure in measures:
            found = maps[measure, stack].mixing_strength
            np.testing.assert_allclose(
                found, expected, rtol=TOLERANCES[name], atol=TOLERANCES[name]
            )


@pytest.mark.every_family
@pytest.mark.parametrize("name", [name for name, entry in MORE_FAMILIES.items() if not entry.heard])
def test_so_it_is_in_further_families(name):
    entry, model = MORE_FAMILIES[name], conformer(name)
    spans = [
        [(start, min(stop, entry.length)) for start, stop in span]
        for span in ([(1, 4)], [(12, 14), (5, 9)])
    ]
    names = {"hidden_states": "input_features"}
    inputs = {names.get(key, key): tensor for key, tensor in entry.inputs(entry.length).items()}
    for engine in ("delta", "replay"):
        measures = ["attention", f"value_zeroing:engine={engine}"]
        maps = speechmix.mix(model, inputs, measures=measures, spans=spans)
        for stack, where in entry.stacks.items():
            targets = [[*span.positions] for span in maps["attention", stack].targets]
            asked = (model.module, entry.inputs(entry.length), where, targets)
            expected = oracle_by_path.mixing_strength(*asked, cross=stack == "cross")
            np.testing.assert_allclose(
                maps["attention", stack].mixing_strength,
                expected,
                rtol=max(entry.tolerance, 1e-10),
                atol=1e-7,
            )


@pytest.mark.parametrize("engine", ["delta", "replay"])
@pytest.mark.parametrize("name", CONFORMERS)
def test_in_a_conformer_the_changes_of_a_window_of_rows_count(name, engine, set_pair_batches):
    model, inputs = conformer(name), features(name, 41, padding=9)
    where, spans = MORE_FAMILIES[name].stacks["encoder"], [(0, 1), (3, 9), (8, 20), (30, 41)]
    expected = oracle_by_path.mixing_strength(
        model.module, inputs, where, [list(range(*span)) for span in spans]
    )
    measures = ["attention", f"value_zeroing:engine={engine}"]
    for batch_size in (7, 100_000):  # one by one, the model of another test is
        set_pair_batches(batch_size)
        maps = speechmix.mix(model, inputs, measures=measures, spans=spans)
        np.testing.assert_allclose(
            maps["attention", "encoder"].mixing_strength, expected, rtol=1e-10
        )


@pytest.mark.parametrize("name", CONFORMERS)
def test_frames_of_a_conformer_and_clips_of_a_batch(name):
    model, items = conformer(name), [features(name, 41), features(name, 57, seed=1)]
    together = speechmix.mix(model, items, measures="attention", clips_at_once=2)
    where = MORE_FAMILIES[name].stacks["encoder"]
    for item, maps, length in zip(items, together, (41, 57), strict=True):
        expected = oracle_by_path.mixing_strength(
            model.module, item, where, [[frame] for frame in range(0, length, 4)]
        )
        found = maps["attention", "encoder"].mixing_strength
        assert found.shape[1] == length
        np.testing.assert_allclose(found[:, ::4], expected, rtol=1e-10)


@pytest.mark.parametrize("name", ["wav2vec2-stable", "whisper-80", "bert"])
def test_frames_and_tokens_as_units_and_chosen_targets(name):
    model = tiny(name)
    inputs, maps = inputs_of(model), maps_of(name, ("attention",))
    rows = {"encoder": [5, 2], "decoder": [6, 0], "cross": [3]}
    rows = {stack: rows[stack] for stack in model.stacks}
    some = strengths_of(speechmix.mix(model, inputs, measures="attention", targets=rows))
    for stack, found in strengths_of(maps).items():
        targets = [[position] for position in range(found.shape[1])]
        np.testing.assert_allclose(
            found, oracle.mixing_strength(model.module, inputs, stack, targets), rtol=1e-10
        )
        np.testing.assert_allclose(some[stack], found[:, rows[stack]], rtol=1e-12)


def test_padding_and_positions_outside_all_units_are_sources_too():
    model = tiny("wav2vec2-stable")
    inputs = {**inputs_of(model), "attention_mask": (torch.arange(19_280) < 12_000).long()[None]}
    targets = [list(range(3, 9)), list(range(12, 31))]
    [found] = strengths_of(
        speechmix.mix(model, inputs, spans=[(3, 9), (12, 31)], measures="attention")
    ).values()
    expected = oracle.mixing_strength(model.module, inputs, "encoder", targets)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("name", ["wav2vec2-stable", "bert", "gpt2"])
def test_items_of_a_batch_are_those_alone(name):
    model, spans = tiny(name), [(0, 2), (4, 8)]
    items = [inputs_of(model), inputs_of(model, seed=2)]
    if not model.hears:
        items[1] = {key: tensor[:, :8] for key, tensor in items[1].items()}
    together = speechmix.mix(model, items, spans=spans, measures="attention", clips_at_once=2)
    for item, maps in zip(items, together, strict=True):
        for stack, strength in strengths_of(speechmix.mix(model, item, spans=spans)).items():
            np.testing.assert_allclose(
                maps["attention", stack].mixing_strength, strength, rtol=1e-10
            )


@pytest.mark.parametrize("batch_size", [1, 7, 100_000])
def test_batch_size_pooling_and_heads_change_nothing(batch_size, set_pair_batches):
    expected = strengths_of(maps_of("whisper-80", ("value_zeroing",), spans=tuple(FRAMES)))
    set_pair_batches(batch_size)
    model = tiny("whisper-80")
    for measure in ("value_zeroing:distance=euclidean", "attention"):
        options = {"spans": FRAMES, "pooling": "max", "heads": "each"}
        maps = speechmix.mix(model, inputs_of(model), measures=measure, **options)
        for stack, strength in strengths_of(maps).items():
            assert maps[measure, stack].has_heads
            np.testing.assert_allclose(strength, expected[stack], rtol=1e-12)


def test_one_number_of_the_output_has_no_strengths_and_the_jacobian_has():
    model = tiny("bert")
    maps = speechmix.mix(
        model,
        inputs_of(model),
        measures=["gradient_input", "hta_input", "random"],
        objective=(3, 5),
    )
    assert maps["gradient_input", "encoder"].mixing_strength is None
    for measure in ("hta_input", "random"):
        found = maps[measure, "encoder"].mixing_strength
        np.testing.assert_array_equal(
            found, maps_of("bert", ("attention",))["attention", "encoder"].mixing_strength
        )
    only = speechmix.mix(model, inputs_of(model), measures="gradient_input", objective=(3, 5))
    assert only["gradient_input", "encoder"].mixing_strength is None


def scaled(name, paths, factor=1e-3):
    """A tiny model with the weights and biases of some projections multiplied."""
    module = build(name).double()
    for path, part in module.named_modules():
        if path.endswith(tuple(paths)) and hasattr(part, "weight"):
            part.weight.mul_(factor)
            if part.bias is not None:
                part.bias.mul_(factor)
    return speechmix.load(module, check=False)


@pytest.mark.parametrize("engine", ["delta", "replay"])
def test_an_idle_layer_moves_its_targets_a_thousandth_as_much(engine):
    """Weights of the outputs of attention and feed-forward times 1e-3, in layer 1 alone; its shares
    stay what they are."""
    name, outputs = (
        "wav2vec2-stable",
        ("layers.1.attention.out_proj", "layers.1.feed_forward.output_dense"),
    )
    before, idle = tiny(name), scaled(name, outputs)
    measure = f"value_zeroing:engine={engine}"
    active, quiet = (
        speechmix.mix(m, inputs_of(m), spans=FRAMES, measures=measure)[measure, "encoder"]
        for m in (before, idle)
    )
    ratio = quiet.mixing_strength[1] / active.mixing_strength[1]
    assert ratio.min() > 2e-4
    assert ratio.max() < 5e-3
    np.testing.assert_allclose(quiet.mixing_strength[0], active.mixing_strength[0], rtol=1e-12)
    shares = [m.normalized().scores[1] for m in (active, quiet)]
    assert np.abs(shares[0] - shares[1]).max() < 0.3  # normalised rows hardly tell


def test_ten_orders_of_magnitude_come_out_as_they_are():
    """The change itself is carried: of a layer scaled to 1e-12, which rounding of the states would
    hide, and in float32."""
    name, output = (
        "wav2vec2-stable",
        ("layers.1.attention.out_proj", "layers.1.feed_forward.output_dense"),
    )
    strengths = {
        factor: speechmix.mix(model, inputs_of(model), spans=FRAMES)[
            "value_zeroing", "encoder"
        ].mixing_strength[1]
        for factor in (1e-3, 1e-6, 1e-12)
        for model in [scaled(name, output, factor)]
    }
    np.testing.assert_allclose(strengths[1e-6] * 1e-6, strengths[1e-12], rtol=1e-4)
    np.testing.assert_allclose(strengths[1e-3] * 1e-3, strengths[1e-6], rtol=0.05)
    single = speechmix.load(scaled(name, output, 1e-6).module.float(), check=False)
    inputs = {key: tensor.float() for key, tensor in inputs_of(single).items()}
    found = speechmix.mix(single, inputs, spans=FRAMES)["value_zeroing", "encoder"].mixing_strength[
        1
    ]
    np.testing.assert_allclose(found, strengths[1e-6], rtol=1e-3)


def test_deaf_cross_attention_moves_a_thousandth_as_much_and_its_shares_do_not_tell():
    deaf = scaled("whisper-80", ("encoder_attn.out_proj",))
    model = tiny("whisper-80")
    maps, quiet = (speechmix.mix(m, inputs_of(m), spans=FRAMES) for m in (model, deaf))
    first = [found["value_zeroing", "cross"].mixing_strength[0] for found in (maps, quiet)]
    assert (first[1] / first[0]).min() > 2e-4
    assert (first[1] / first[0]).max() < 5e-3
    assert quiet["value_zeroing", "cross"].mixing_strength.max() < 0.01
    np.testing.assert_allclose(quiet["value_zeroing", "cross"].normalized().scores.sum(-1), 1)
    encoder = [found["value_zeroing", "encoder"].mixing_strength for found in (maps, quiet)]
    np.testing.assert_allclose(*encoder, rtol=1e-12)


def test_permuted_heads_change_nothing():
    model, order = tiny("wav2vec2-stable"), [2, 0, 3, 1]
    module = build("wav2vec2-stable").double()
    for layer in module.encoder.layers:
        rows = torch.arange(32).unflatten(0, (4, 8))[order].flatten()
        for projection in (layer.attention.q_proj, layer.attention.k_proj, layer.attention.v_proj):
            projection.weight.copy_(projection.weight[rows].clone())
            projection.bias.copy_(projection.bias[rows].clone())
        layer.attention.out_proj.weight.copy_(layer.attention.out_proj.weight[:, rows].clone())
    permuted = speechmix.load(module)
    found, expected = (
        speechmix.mix(m, inputs_of(m), spans=FRAMES)["value_zeroing", "encoder"].mixing_strength
        for m in (permuted, model)
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_maps_in_files_keep_their_strengths(tmp_path):
    model = tiny("whisper-80")
    maps = speechmix.mix(
        model, inputs_of(model), spans=FRAMES, measures=["attention", "value_zeroing"]
    )
    written = speechmix.mix(
        model,
        inputs_of(model),
        spans=FRAMES,
        measures=["attention", "value_zeroing"],
        out=tmp_path / "maps",
    )
    for number, (key, mixing_map) in enumerate(maps.items()):
        np.testing.assert_array_equal(written[key].mixing_strength, mixing_map.mixing_strength)
        for dtype in ("float32", "float64"):
            one = replace(mixing_map, mixing_strength=mixing_map.mixing_strength.astype(dtype))
            path = one.save(tmp_path / f"{number}.safetensors")
            for lazy in (False, True):
                read = MixingMap.load(path, lazy=lazy)
                assert read.mixing_strength.dtype == dtype
                np.testing.assert_array_equal(read.mixing_strength, one.mixing_strength)
    without = replace(mixing_map, mixing_strength=None)
    assert MixingMap.load(without.save(tmp_path / "without.safetensors")).mixing_strength is None
