"""Graded changes of sound: pitch, tempo, formants, intensity, noise, reverberation.

A change is one function and one registration. In: samples [n], samples per second, the amount, a
random generator. Out: changed samples. Pitch, tempo and formants are changed in `VoiceFrames`: by any
amount, the neutral one too, the sound is synthesized, so that all grades have the same quality.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from ..errors import InputError
from .world_vocoder import VoiceFrames, interpolate_rows, voice_frame_times

Samples = np.ndarray
ChangeFunction = Callable[[Samples, int, float, Generator], Samples]


class SoundChange(NamedTuple):
    """A graded change of sound: its function, the unit of its amounts, and their range."""

    function: ChangeFunction
    unit: str
    lowest: float
    highest: float


CHANGES: dict[str, SoundChange] = {}


def register_sound_change(
    name: str, unit: str, *, lowest: float, highest: float
) -> Callable[[ChangeFunction], ChangeFunction]:
    """Register a function as a change for `speechmix.graded_changes`.

    Parameters
    ----------
    name, unit : str
    lowest, highest : float
        Range of the amounts, in the unit.

    Examples
    --------
    >>> @register_sound_change("clipping", "of the peak", lowest=0.01, highest=1)
    ... def limit_samples(samples, rate, amount, generator):
    ...     return samples.clip(-amount * abs(samples).max(), amount * abs(samples).max())
    >>> CHANGES.pop("clipping").unit
    'of the peak'
    """

    def register(function: ChangeFunction) -> ChangeFunction:
        CHANGES[name] = SoundChange(function, unit, lowest, highest)
        return function

    return register


@register_sound_change("pitch", "semitones", lowest=-24, highest=24)
def _scale_pitch(samples: Samples, rate: int, amount: float, generator: Generator) -> Samples:
    voice = VoiceFrames.analyze(samples, rate)
    if not voice.f0.any():
        raise InputError("no frame of the sound is voiced, so it has no pitch to change")
    return replace(voice, f0=voice.f0 * 2 ** (amount / 12)).synthesize(len(samples))


@register_sound_change("tempo", "times as fast", lowest=0.25, highest=4)
def _scale_tempo(samples: Samples, rate: int, amount: float, generator: Generator) -> Samples:
    sample_count = round(len(samples) / amount)
    times = amount * voice_frame_times(sample_count, rate)
    return VoiceFrames.analyze(samples, rate).read_at(times).synthesize(sample_count)


@register_sound_change("formants", "times as high", lowest=0.5, highest=2)
def _scale_formants(samples: Samples, rate: int, amount: float, generator: Generator) -> Samples:
    """Stretch the frequency axis of the envelope; pitch and times stay."""
    voice = VoiceFrames.analyze(samples, rate)
    count = voice.envelope.shape[1]
    bins = np.minimum(np.arange(count) / amount, count - 1)
    stretched = interpolate_rows(voice.envelope.T, bins).T
    return replace(voice, envelope=stretched).synthesize(len(samples))


@register_sound_change("intensity", "dB", lowest=-80, highest=80)
def _scale_samples(samples: Samples, rate: int, amount: float, generator: Generator) -> Samples:
    return samples * 10 ** (amount / 20)


@register_sound_change("noise", "dB SNR", lowest=-40, highest=np.inf)
def _add_noise(samples: Samples, rate: int, amount: float, generator: Generator) -> Samples:
    """Add noise with the long-term spectrum of the sound; the ratio is that of mean powers."""
    spectrum = np.abs(np.fft.rfft(samples.astype(np.float64)))
    phases = generator.uniform(0, 2 * np.pi, len(spectrum))
    noise = np.fft.irfft(spectrum * np.exp(1j * phases), len(samples))
    level = np.linalg.norm(samples.astype(np.float64)) / np.linalg.norm(noise)
    return samples + noise * level * 10 ** (-amount / 20)


@register_sound_change("reverberation", "s T60", lowest=0, highest=10)
def _add_reverberation(samples: Samples, rate: int, amount: float, generator: Generator) -> Samples:
    """Add decaying noise with the energy of the direct sound (Polack 1988); length and level stay."""
    from scipy.signal import fftconvolve

    decay = 10 ** (-3 * np.arange(round(amount * rate)) / max(amount * rate, 1))  # 60 dB
    room = decay * generator.normal(size=len(decay))
    response = np.append(1.0, room / np.sqrt(np.sum(room**2) + 1e-18))
    wet = fftconvolve(samples.astype(np.float64), response)[: len(samples)]
    scaled: Samples = wet * np.sqrt(np.sum(samples.astype(np.float64) ** 2) / np.sum(wet**2))
    return scaled
