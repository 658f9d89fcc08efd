"""Voice as frames of the WORLD vocoder (Morise, Yokomori & Ozawa 2016): pitch, envelope, noise.

In: samples. Out: `VoiceFrames`, which can be warped in time, changed and synthesized. pyworld comes as source: a C++ compiler
builds it.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ...errors import MissingExtraError

FRAME_SECONDS = 0.005


@dataclass(frozen=True, eq=False)
class VoiceFrames:
    """Frames of a voice, one every 5 ms."""

    f0: np.ndarray  # [T], Hz; 0 where the frame is unvoiced
    envelope: np.ndarray  # [T, F], natural logarithm of the power, 0 Hz to half the rate
    aperiodicity: np.ndarray  # [T, F], share of noise, from 0 to 1
    sample_rate: int

    @classmethod
    def analyze(cls, samples: np.ndarray, sample_rate: int) -> VoiceFrames:
        """Analyze samples [n]; raises MissingExtraError if pyworld is not installed."""
        return cls(*_analyze_wave(samples.astype(np.float64).tobytes(), sample_rate), sample_rate)

    def read_at(self, seconds: np.ndarray) -> VoiceFrames:
        """Return the frames at times [N], interpolated; pitch is that of the nearest frame."""
        from scipy.interpolate import interp1d

        frames = np.arange(len(self.f0))
        positions = np.clip(seconds / FRAME_SECONDS, 0, frames[-1])
        envelope, noise = (
            interp1d(frames, values, axis=0)(positions)
            for values in (self.envelope, self.aperiodicity)
        )
        f0 = self.f0[np.round(positions).astype(int)]
        return VoiceFrames(f0, envelope, noise, self.sample_rate)

    def synthesize(self, sample_count: int) -> np.ndarray:
        """Return the sound, float32 [sample_count]."""
        parts = (self.f0, np.exp(self.envelope), np.clip(self.aperiodicity, 0, 1))
        arrays = [np.ascontiguousarray(part, np.float64) for part in parts]
        sound = _import_world().synthesize(*arrays, self.sample_rate, 1000 * FRAME_SECONDS)
        padded: np.ndarray = np.pad(sound, (0, max(0, sample_count - len(sound))))
        return padded[:sample_count].astype(np.float32)


def voice_frame_times(sample_count: int, sample_rate: int) -> np.ndarray:
    """Return the times of the frames of a sound [T], in seconds."""
    return FRAME_SECONDS * np.arange(int(sample_count / sample_rate / FRAME_SECONDS) + 1)


@lru_cache(maxsize=2)  # a clip is changed by several amounts, and a continuum has two ends
def _analyze_wave(wave: bytes, sample_rate: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    world, samples = _import_world(), np.frombuffer(wave)
    f0, times = world.harvest(samples, sample_rate, frame_period=1000 * FRAME_SECONDS)
    envelope = np.log(world.cheaptrick(samples, f0, times, sample_rate))
    return f0, envelope, world.d4c(samples, f0, times, sample_rate)


def _import_world() -> Any:
    with warnings.catch_warnings():  # it reads its version by the deprecated pkg_resources
        warnings.simplefilter("ignore", UserWarning)
        try:
            import pyworld
        except ImportError as error:
            raise MissingExtraError("pyworld", "continua", "a change of a voice") from error
    return pyworld
