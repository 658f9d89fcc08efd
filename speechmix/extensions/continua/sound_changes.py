"""Graded changes of sound: pitch, tempo, formants, intensity, noise, reverberation.

A change is one function and one entry of `CHANGES`. In: samples [n], samples per second, the amount, a random generator. Out:
changed samples. Pitch, tempo and formants are changed in `VoiceFrames`: by any amount, the neutral one too, the sound is
synthesized, so that all grades have the same quality.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from ...errors import InputError
from ...interventions.removals import random_phase_noise
from .world_vocoder import VoiceFrames, voice_frame_times

Samples = np.ndarray


class SoundChange(NamedTuple):
    """A graded change of sound: its function, the unit of its amounts, and their range."""

    function: Callable[[Samples, int, float, Generator], Samples]
    unit: str
    lowest: float
    highest: float


def _scale_pitch(samples: Samples, rate: int, amount: float, generator: Generator) -> Samples:
    voice = VoiceFrames.analyze(samples, rate)
    if not voice.f0.any():
        raise InputError("no frame of the sound is voiced, so it has no pitch to change")
    return replace(voice, f0=voice.f0 * 2 ** (amount / 12)).synthesize(len(samples))


def _scale_tempo(samples: Samples, rate: int, amount: float, generator: Generator) -> Samples:
    sample_count = round(len(samples) / amount)
    times = amount * voice_frame_times(sample_count, rate)
    return VoiceFrames.analyze(samples, rate).read_at(times).synthesize(sample_count)


def _scale_formants(samples: Samples, rate: int, amount: float, generator: Generator) -> Samples:
    """Stretch the frequency axis of the envelope; pitch and times stay."""
    from scipy.interpolate import interp1d

    voice = VoiceFrames.analyze(samples, rate)
    bins = np.arange(voice.envelope.shape[1])
    stretched = interp1d(bins, voice.envelope)(np.minimum(bins / amount, bins[-1]))
    return replace(voice, envelope=stretched).synthesize(len(samples))


def _add_noise(samples: Samples, rate: int, amount: float, generator: Generator) -> Samples:
    """Add noise with the long-term spectrum of the sound; the ratio is that of mean powers."""
    noise = random_phase_noise(samples.astype(np.float64), generator)
    level = float(np.linalg.norm(samples.astype(np.float64)) / np.linalg.norm(noise))
    return samples + noise * level * 10 ** (-amount / 20)


def _add_reverberation(samples: Samples, rate: int, amount: float, generator: Generator) -> Samples:
    """Add decaying noise with the energy of the direct sound (Polack 1988); length and level stay."""
    from scipy.signal import fftconvolve

    decay = 10 ** (-3 * np.arange(round(amount * rate)) / max(amount * rate, 1))  # 60 dB
    room = decay * generator.normal(size=len(decay))
    response = np.append(1.0, room / np.sqrt(np.sum(room**2) + 1e-18))
    wet = fftconvolve(samples.astype(np.float64), response)[: len(samples)]
    return np.asarray(wet * np.sqrt(np.sum(samples.astype(np.float64) ** 2) / np.sum(wet**2)))


CHANGES = {
    "pitch": SoundChange(_scale_pitch, "semitones", -24, 24),
    "tempo": SoundChange(_scale_tempo, "times as fast", 0.25, 4),
    "formants": SoundChange(_scale_formants, "times as high", 0.5, 2),
    "intensity": SoundChange(lambda x, rate, dB, rng: x * 10 ** (dB / 20), "dB", -80, 80),
    "noise": SoundChange(_add_noise, "dB SNR", -40, np.inf),
    "reverberation": SoundChange(_add_reverberation, "s T60", 0, 10),
}
