"""Parity with the published code: its outputs on three small seeded models
(../shared/golden/speech)."""

from __future__ import annotations

import functools
import json

import numpy as np
import pytest
import torch

import speechmix
from speechmix.inputs.audio.frame_grid import FrameGrid
from speechmix.inputs.words.spans import word_spans

TOLERANCE = {"float64": 1e-8, "float32": 1e-4}  # of a map's largest entry


def _keys() -> list[tuple[str, str]]:
    """(model, stack|measure|distance|pooling) of every golden map, spelled out so that a missing one is noticed."""
    keys = []
    for model, stacks in (
        ("whisper", ("encoder", "decoder", "cross")),
        ("wav2vec2_stable", ("encoder",)),
        ("wav2vec2_post", ("encoder",)),
    ):
        for stack in stacks:
            for distance in ("cosine", "euclidean"):
                for pooling in ("mean", "max") if stack == "encoder" else ("none",):
                    keys.append((model, f"{stack}|value_zeroing|{distance}|{pooling}"))
            for measure in ("attention", "attention_norm_heads", "attention_norm"):
                keys += [(model, f"{stack}|{measure}|-|{pooling}") for pooling in ("mean", "max")]
    return keys


KEYS = _keys()


@functools.cache
def _golden(folder):
    """Expected arrays, meta data, and for each model the loaded model with its inputs."""
    with np.load(folder / "expected.npz") as file:
        expected = dict(file)
    meta = json.loads((folder / "meta.json").read_text())
    cases = {}
    for name in ("whisper", "wav2vec2_stable", "wav2vec2_post"):
        with np.load(folder / f"{name.split('_')[0]}_inputs.npz") as file:
            inputs = {key: torch.as_tensor(value) for key, value in file.items()}
        if "input_values" in inputs:
            inputs["attention_mask"] = torch.ones(inputs["input_values"].shape, dtype=torch.long)
        cases[name] = speechmix.load(folder / name, device="cpu"), inputs
    return expected, meta, cases


@pytest.fixture(scope="module")
def golden(shared):
    return _golden(shared / "golden" / "speech")


def _spans(model, inputs, meta):
    words = [
        speechmix.Word(str(index), start, end) for index, (start, end) in enumerate(meta["words"])
    ]
    n_samples = inputs["input_values"].shape[1] if "input_values" in inputs else 0
    return word_spans(words, model.grid(n_samples), rounding="paper")


MEASURES = {
    "each": ["attention", "attention_norm"],
    "mean": ["value_zeroing", "value_zeroing:distance=euclidean", "attention_norm"],
}  # by what is done with heads


@pytest.fixture(scope="module")
def computed(golden):
    """All maps of a model that one pass gives, computed once for all tests."""
    _, meta, cases = golden

    @functools.cache
    def compute(name, pooling, heads, dtype):
        model, inputs = cases[name]
        return speechmix.mix(
            model,
            inputs,
            measures=MEASURES[heads],
            spans=_spans(model, inputs, meta),
            pooling=pooling,
            heads=heads,
            dtype=dtype,
        )

    return compute


def test_every_golden_map_is_compared(golden):
    expected, _, _ = golden
    assert {f"{model}|{key}" for model, key in KEYS} == {
        key for key in expected if key.count("|") == 4
    }


@pytest.mark.parametrize(
    ("name", "key", "dtype"),
    [
        pytest.param(
            *case,
            dtype,
            marks=[pytest.mark.long] * (dtype == "float32" and not case[1].endswith("|mean")),
        )
        for case in KEYS
        for dtype in TOLERANCE
    ],
)
def test_scores_are_those_of_the_published_code(golden, computed, name, key, dtype):
    expected, _, _ = golden
    stack, measure, distance, pooling = key.split("|")
    heads = "each" if measure in ("attention", "attention_norm_heads") else "mean"
    measure = measure.removesuffix("_heads")
    if distance not in ("-", "cosine"):
        measure = f"{measure}:distance={distance}"
    found = computed(name, "mean" if pooling == "none" else pooling, heads, dtype)[measure, stack]
    golden_map = expected[f"{name}|{key}"]
    assert found.scores.shape == golden_map.shape
    assert found.scores.dtype == dtype
    assert np.abs(found.scores - golden_map).max() <= TOLERANCE[dtype] * np.abs(golden_map).max()


@pytest.mark.parametrize("name", ["whisper", "wav2vec2_stable", "wav2vec2_post"])
def test_last_hidden_states_of_the_plain_forward_pass(golden, name):
    """The goldens and this machine run the same model; otherwise no map could agree."""
    expected, _, cases = golden
    model, inputs = cases[name]
    doubled = {key: x.double() if x.is_floating_point() else x for key, x in inputs.items()}
    with model.in_use(torch.float64), torch.no_grad():
        if name == "whisper":
            output = model.base(**doubled, use_cache=False)
            found = {
                "encoder": output.encoder_last_hidden_state,
                "decoder": output.last_hidden_state,
            }
        else:
            found = {"encoder": model.base(**doubled).last_hidden_state}
    for stack, states in found.items():
        golden_states = expected[f"{name}|{stack}_last_hidden"]
        # Whisper's golden encoder keeps the frames up to the last word's alone.
        states = states.numpy()[:, : golden_states.shape[1]]
        assert np.abs(states - golden_states).max() <= 1e-9 * np.abs(golden_states).max()


@pytest.mark.parametrize("name", ["wav2vec2_stable", "wav2vec2_post"])
def test_number_of_frames_is_that_of_the_convolutions(golden, name):
    expected, meta, cases = golden
    model, inputs = cases[name]
    n_samples = inputs["input_values"].shape[1]
    grid = model.grid(n_samples)
    assert isinstance(grid, FrameGrid)
    assert grid.n_frames == expected[f"{name}|num_frames"]
    assert grid.duration == pytest.approx(meta["secs_wav2vec2"])


def test_whisper_window_is_thirty_seconds(golden):
    _, meta, cases = golden
    grid = cases["whisper"][0].grid(0)
    assert (grid.n_frames, grid.duration) == (1500, meta["secs_whisper"])
