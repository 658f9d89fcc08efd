"""Audio of a clip, from a file or from samples in memory.

In: a path, or an array with its sample rate. Out: length in seconds, a hash of the sound, and
samples, all or a part. A file is read anew each time, so that a replaced one is noticed;
`speechmix.inputs.audio.loading` remembers what was read last.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from .decoding import MAX_AUDIO_SECONDS
from .frame_grid import Seconds
from .loading import (
    audio_fingerprint,
    audio_seconds,
    cached_recording,
    mono_fingerprint,
    read_audio,
)
from .samples import to_mono


@dataclass(frozen=True)
class AudioFile:
    """A recording in a file."""

    path: Path

    # At which a part is cut out.
    sample_rate = 16_000

    @property
    def seconds(self) -> Seconds:
        """Length, from the header."""
        return audio_seconds(self.path)

    @property
    def audio_hash(self) -> str:
        """Hash of the decoded samples."""
        return audio_fingerprint(self.path)

    def samples(self, sample_rate: int) -> np.ndarray:
        """All samples, float32 mono [samples]."""
        return read_audio(self.path, sample_rate=sample_rate)

    def validate(self) -> None:
        """Raise an `InputError` if the file cannot be decoded, or holds no samples, NaN or
        infinity."""
        if cached_recording(self.path) is None:  # else it was decoded before, and is still the same
            self.samples(self.sample_rate)

    def segment(self, start: Seconds, end: Seconds) -> np.ndarray:
        """Samples between two times, at `sample_rate`; of a file that is too long to be read as a whole,
        too."""
        if self.seconds > MAX_AUDIO_SECONDS:
            return read_audio(
                self.path, sample_rate=self.sample_rate, start=start, stop=min(end, self.seconds)
            )
        return self.samples(self.sample_rate)[
            round(start * self.sample_rate) : round(end * self.sample_rate)
        ]


@dataclass(frozen=True, eq=False)
class AudioInMemory:
    """A recording in memory: float32 mono [samples], checked when they came."""

    waveform: np.ndarray
    sample_rate: int

    # It has no file.
    path = None

    @property
    def seconds(self) -> Seconds:
        """Length."""
        return len(self.waveform) / self.sample_rate

    @cached_property
    def audio_hash(self) -> str:
        """Hash of the samples."""
        return mono_fingerprint(self.waveform, self.sample_rate)

    def samples(self, sample_rate: int) -> np.ndarray:
        """All samples, float32 mono [samples]; a fresh array."""
        return to_mono(
            self.waveform, self.sample_rate, sample_rate=sample_rate, where="samples"
        ).copy()

    def validate(self) -> None:
        """Nothing to do: samples in memory were checked when they came."""

    def segment(self, start: Seconds, end: Seconds) -> np.ndarray:
        """Samples between two times, at `sample_rate`."""
        return self.samples(self.sample_rate)[
            round(start * self.sample_rate) : round(end * self.sample_rate)
        ]


@dataclass(frozen=True)
class AudioPart:
    """A part of a recording in a file, which is read when it is needed."""

    file: Path
    start: Seconds
    end: Seconds

    sample_rate = 16_000
    path = None  # no file has this sound alone

    @property
    def seconds(self) -> Seconds:
        """Length."""
        return self.end - self.start

    @cached_property
    def audio_hash(self) -> str:
        """Hash of the decoded samples."""
        return mono_fingerprint(self.samples(self.sample_rate), self.sample_rate)

    def samples(self, sample_rate: int) -> np.ndarray:
        """All samples of the part, float32 mono [samples]."""
        return read_audio(self.file, sample_rate=sample_rate, start=self.start, stop=self.end)

    def validate(self) -> None:
        """Raise an `InputError` if the part cannot be decoded."""
        self.samples(self.sample_rate)

    def segment(self, start: Seconds, end: Seconds) -> np.ndarray:
        """Samples between two times of the part, at `sample_rate`."""
        stop = min(self.start + end, self.end)
        return read_audio(
            self.file, sample_rate=self.sample_rate, start=self.start + start, stop=stop
        )


Recording = AudioFile | AudioInMemory | AudioPart
