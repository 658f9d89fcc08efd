"""Frames against the sound itself: where a stretch of noise falls silent, those frames change that
the grid puts there."""

from __future__ import annotations

import pytest
import torch

import speechmix
from speechmix.adapters.capture.forward_pass import hidden_states
from tests.models import audio_language_models, shared_models, speech_recognisers

RATE = 16_000


def omni(folder):
    module, processor = audio_language_models.qwen2_5_omni()
    return speechmix.load(module, processor=processor)


def recogniser(name):
    return lambda folder: speechmix.load(speech_recognisers.saved(name, folder), device="cpu")


MODELS = {"qwen2.5-omni": omni, **{name: recogniser(name) for name in speech_recognisers.MODELS}}


@pytest.fixture(params=MODELS)
def model(request, tmp_path):
    if request.param != "qwen2.5-omni":
        pytest.importorskip("sentencepiece")
    return shared_models.shared(("in time", request.param), lambda: MODELS[request.param](tmp_path))


def entering(model, clip):
    """States [T, D] that enter the first layer of the encoder."""
    inputs = model.family.prepare(model, clip, ("encoder",)).inputs
    return hidden_states(model, inputs, lambda stack, states: states[0], stacks=["encoder"])[
        "encoder"
    ][0]


def noise(seconds, silent=None):
    audio = (
        0.1 * torch.randn(round(RATE * seconds), generator=torch.Generator().manual_seed(3)).numpy()
    )
    if silent is not None:
        audio[round(RATE * (silent - 0.03)) : round(RATE * (silent + 0.03))] = 0
    return speechmix.Clip.from_array(audio, RATE, text="le chat dort ici")


@pytest.mark.parametrize(
    "seconds", [0.31, 0.7999, 0.8, 1.234, 1.6]
)  # chunks of this Omni are 0.8 s
def test_a_clip_has_as_many_frames_as_the_grid_says(model, seconds):
    assert len(entering(model, noise(seconds))) == model.grid(round(RATE * seconds)).n_frames


@pytest.mark.parametrize("time", [0.2, 0.79, 1.3])
def test_frames_lie_where_the_grid_puts_them(model, time):
    change = (entering(model, noise(1.6, silent=time)) - entering(model, noise(1.6))).norm(dim=-1)
    centre = (change > 0.5 * change.max()).nonzero()[:, 0].float().mean().item()
    grid = model.grid(round(RATE * 1.6))
    assert grid.centre(0) + centre * grid.stride == pytest.approx(time, abs=1.5 * grid.stride)
