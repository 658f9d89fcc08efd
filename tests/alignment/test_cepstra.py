"""The quiet level of a recording is that of its noise, whether or not it has a pause to hear it
in."""

from __future__ import annotations

import numpy as np
import pytest

from speechmix.alignment.cepstra import analyse_recording

RATE = 16_000


def speech_like(seconds, seed=0):
    """A tone whose level sways by 30 dB, four times a second, as syllables do."""
    times = np.arange(round(seconds * RATE)) / RATE
    sway = 10 ** (-30 * (0.5 + 0.5 * np.cos(2 * np.pi * 4 * times)) / 20)
    return (0.3 * sway * np.sign(np.sin(2 * np.pi * 150 * times))).astype(np.float32)


def noise(count, level, seed=1):
    return (level * np.random.default_rng(seed).standard_normal(count)).astype(np.float32)


def test_soft_speech_of_a_clip_without_pauses_is_not_its_quiet_level():
    times = np.arange(2 * RATE) / RATE
    depth = -25 - 25 * np.abs(
        np.sin(2 * np.pi * 0.7 * times)
    )  # some syllables fade further than others
    sway = 10 ** (depth * (0.5 + 0.5 * np.cos(2 * np.pi * 4 * times)) / 20)
    speech = (0.3 * sway * np.sign(np.sin(2 * np.pi * 150 * times))).astype(np.float32)
    heard = analyse_recording(speech + noise(len(speech), 1e-5), RATE)
    assert heard.quiet < np.percentile(heard.energy, 1)


def test_steady_noise_is_the_quiet_level_with_and_without_pauses():
    speech = speech_like(2)
    padded = np.pad(speech, RATE)
    tight, wide = (
        analyse_recording(audio + noise(len(audio), 0.03), RATE) for audio in (speech, padded)
    )
    assert tight.quiet == pytest.approx(wide.quiet, abs=2)
    assert wide.quiet == pytest.approx(float(np.median(wide.energy[:200])), abs=2)


def test_noise_is_that_of_the_frames_that_hold_nothing_else():
    padded = np.pad(speech_like(1), RATE)
    hiss = noise(len(padded), 0.003)
    expected = analyse_recording(np.r_[hiss, speech_like(1)], RATE).power[:200].mean(0)
    heard = analyse_recording(padded + hiss, RATE).noise
    assert np.median(np.abs(10 * np.log10(heard / expected))) < 0.5


def test_a_short_faint_run_before_the_speech_is_no_speech():
    rng = np.random.default_rng(0)
    audio = 1e-4 * rng.standard_normal(2 * 16_000)
    audio[1_000:3_000] += 0.02 * rng.standard_normal(2_000)  # a bump
    audio[16_000:28_000] += 0.3 * rng.standard_normal(12_000)
    speech = analyse_recording(audio, 16_000).speech
    assert not speech[:170].any()
    assert speech[205:340].all()
