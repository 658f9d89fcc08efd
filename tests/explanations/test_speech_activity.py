"""Whether somebody speaks: the clips of the package, soft and in noise; noise, tones and silence, whose
level varies as that of speech or does not."""

import numpy as np
import pytest
import torch

from speechmix import Clip
from speechmix.extensions.explain.source_words import describe_missing_speech
from speechmix.inputs import bundled

RATE = 16_000
TIMES = np.arange(2 * RATE) / RATE
RANDOM = np.random.default_rng(0)


def says_why(samples) -> str | None:
    return describe_missing_speech(Clip.from_array(np.asarray(samples, np.float32), RATE, name="a"))


def melody() -> np.ndarray:
    pitches = np.repeat([262.0, 330, 392, 523, 440, 349, 294, 262], RATE // 4)
    decay = np.exp(-(np.arange(len(pitches)) % (RATE // 4)) / 1_500)
    return 0.3 * decay * np.sin(2 * np.pi * np.cumsum(pitches) / RATE)


SOUNDS = {
    "silence": np.zeros(2 * RATE),
    "noise": RANDOM.normal(0, 0.1, 2 * RATE),
    "gusts": RANDOM.normal(0, 0.1, 2 * RATE) * np.repeat(RANDOM.uniform(0, 1, 8), RATE // 4),
    "hum": 0.2 * np.sin(2 * np.pi * 50 * TIMES) + 0.1 * np.sin(2 * np.pi * 100 * TIMES),
    "beeps": 0.3 * np.sin(2 * np.pi * 880 * TIMES) * (TIMES % 0.5 < 0.2),
    "melody": melody(),
}


@pytest.mark.parametrize("name", SOUNDS)
def test_sounds_without_speech(name):
    assert ("silence" if name == "silence" else "hears none") in str(says_why(SOUNDS[name]))


@pytest.mark.parametrize("decibels", [0, -50])
def test_speech_loud_or_soft(decibels):
    for clip in bundled.clips()[:8]:
        assert says_why(clip.audio(RATE) * 10 ** (decibels / 20)) is None, clip.name


def test_speech_in_steady_noise_as_loud_as_itself():
    """Its level varies by less than 8 dB."""
    audio = np.concatenate([clip.audio(RATE) for clip in bundled.clips()[:4]])
    noise = np.random.default_rng(1).normal(0, np.sqrt(np.mean(audio**2)), len(audio))
    assert says_why(audio + noise) is None


def test_the_detector_leaves_torch_as_it_was_and_remembers_nothing():
    threads = torch.get_num_threads()
    told = [says_why(SOUNDS["beeps"])]
    assert says_why(bundled.clips()[0].audio(RATE)) is None
    told.append(says_why(SOUNDS["beeps"]))
    assert told[0] == told[1]
    assert torch.get_num_threads() == threads
