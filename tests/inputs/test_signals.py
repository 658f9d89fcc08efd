"""Resampling and mel spectrograms are those of librosa, without what it compiles when it is first
imported."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from speechmix.inputs.audio.spectrograms import mel_spectrogram, resample

RATES = [(44_100, 16_000), (48_000, 16_000), (22_050, 16_000), (8_000, 16_000), (16_000, 44_100)]


@pytest.mark.parametrize(("found", "wanted"), RATES)
@pytest.mark.parametrize("samples", [5, 100, 22_051])
def test_a_tone_is_the_tone_at_another_rate(found, wanted, samples):
    tone = np.sin(2 * np.pi * 500 * np.arange(samples) / found).astype(np.float32)
    heard = resample(tone, found, wanted)
    assert (heard.dtype, len(heard)) == (np.float32, int(np.ceil(samples * wanted / found)))
    middle = slice(len(heard) // 4, 3 * len(heard) // 4)
    if samples > 10_000:
        expected = np.sin(2 * np.pi * 500 * np.arange(len(heard)) / wanted)
        np.testing.assert_allclose(heard[middle], expected[middle], atol=1e-3)


def test_samples_at_the_rate_that_is_wanted_are_given_back():
    samples = np.zeros(10, np.float32)
    assert resample(samples, 16_000, 16_000) is samples


def test_a_tone_is_in_its_band():
    tone = np.sin(2 * np.pi * 2_000 * np.arange(16_000) / 16_000)
    power = mel_spectrogram(
        tone, 16_000, n_fft=512, window=400, hop=80, n_mels=40, fmin=60, fmax=7600
    )
    assert power.shape == (201, 40)
    (band,) = set(power[10:-10].argmax(axis=1))
    mel = 15 + 27 * np.log(np.array([2_000, 7_600]) / 1_000) / np.log(
        6.4
    )  # Slaney's scale above 1 kHz
    lowest = 60 * 3 / 200
    assert (
        abs(band + 1 - 41 * (mel[0] - lowest) / (mel[1] - lowest)) < 0.6
    )  # 40 bands between 42 edges


@pytest.mark.long  # imports librosa's signal functions, which numba compiles for half a minute
def test_they_are_librosas():
    import librosa

    rng = np.random.default_rng(0)
    for found, wanted in RATES:
        for length in (5, 100, 44_100, 48_001):
            noise = rng.standard_normal(length).astype(np.float32)
            expected = librosa.resample(noise, orig_sr=found, target_sr=wanted, res_type="soxr_hq")
            np.testing.assert_array_equal(resample(noise, found, wanted), expected)
    for length in (300, 800, 16_001, 48_077):
        noise = rng.standard_normal(length).astype(np.float32)
        expected = librosa.feature.melspectrogram(
            y=noise,
            sr=16_000,
            n_fft=512,
            win_length=400,
            hop_length=80,
            n_mels=40,
            fmin=60,
            fmax=7600,
        )
        power = mel_spectrogram(
            noise, 16_000, n_fft=512, window=400, hop=80, n_mels=40, fmin=60, fmax=7600
        )
        np.testing.assert_allclose(power, expected.T, rtol=2e-6)


@pytest.mark.long
def test_aligning_and_drawing_compile_nothing_of_librosa():
    program = """
import sys, numpy as np, speechmix, matplotlib; matplotlib.use("Agg")
from matplotlib.figure import Figure
from speechmix.inputs import bundled
from speechmix.reporting.plots.clip_overview import draw_spectrogram
clip = next(clip for clip in bundled.clips() if clip.text).replace(words=None)
speechmix.align(clip, method="synthesis")
figure = Figure()
draw_spectrogram(figure, figure.subplots(), clip.audio(), clip.duration)
speechmix.Clip.from_array(np.ones(8_000), 8_000).audio(16_000)
compiled = {"librosa.util.utils", "librosa.core.audio", "librosa.core.pitch"} & set(sys.modules)
sys.exit(f"imported {compiled}" if compiled else 0)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-1_000:]
