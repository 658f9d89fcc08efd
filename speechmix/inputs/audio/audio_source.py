"""Audio of a clip, from a file or from samples in memory.

In: a path, or an array with its sample rate. Out: length in seconds, a hash of the sound, and
samples, all or a part. A file is read anew each time, so that a replaced one is noticed;
`speechmix.inputs.audio.audio_source` remembers what was read last.

Load audio from a file or array as mono float32 at a given rate.

In: a path (or a place in a larger file) or an array, and a sample rate. Out: ``[samples]`` float32,
channels averaged, resampled by soxr. Silence (all zeros) is legitimate audio; no samples at all,
NaN and infinity are not.

Samples in memory, as mono float32 at a rate.
"""

from __future__ import annotations

import functools
import hashlib
import operator
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path

import numpy as np

from ...errors import InputError
from ...files.timing import phase
from .decoding import (
    MAX_AUDIO_SECONDS,
    average_channels,
    check_length,
    check_recording_rate,
    containing_file,
    decode_audio,
    file_signature,
    header_seconds,
)
from .frame_grid import Seconds
from .spectrograms import resample


def to_mono(samples: np.ndarray, source_rate: int, *, sample_rate: int, where: str) -> np.ndarray:
    """Average the channels of [samples] or [samples, channels] and resample to float32 [samples].

    Integers are divided by their full scale (int16: 32,768). InputError, which calls the audio
    `where`, for another shape or type, no samples, more than `MAX_AUDIO_SECONDS` seconds, a rate
    that no recording has, samples that are NaN or infinite, or channels that cancel each other.
    """
    samples = np.asarray(samples)
    source_rate, sample_rate = check_sample_rate(source_rate), check_sample_rate(sample_rate)
    if samples.ndim not in (1, 2) or (
        samples.ndim == 2 and samples.shape[1] > max(samples.shape[0], 1)
    ):
        raise InputError(
            f"{where}: expected audio of shape [samples] or [samples, channels], found "
            f"{list(samples.shape)}: "
            "transpose it if its channels come first"
        )
    check_length(len(samples) / check_recording_rate(source_rate, where), where)
    samples = _float32(samples, where)
    if samples.ndim == 2 and len(samples):
        samples = average_channels(samples, where)
    if not len(samples):
        raise InputError(
            f"{where}: expected audio, found 0 samples: leave this clip out or record it again"
        )
    nonfinite_count = int(np.count_nonzero(~np.isfinite(samples)))
    if nonfinite_count:
        raise InputError(
            f"{where}: expected finite samples, found {nonfinite_count} of {len(samples)} that are NaN or "
            "infinite: "
            "write the file again from its source"
        )
    return resample_float32(samples, source_rate, sample_rate)


def resample_float32(samples: np.ndarray, source_rate: int, sample_rate: int) -> np.ndarray:
    return np.ascontiguousarray(resample(samples, source_rate, sample_rate), dtype=np.float32)


def check_sample_rate(sample_rate: int) -> int:
    """Return a sample rate as an int; InputError if it is not a positive whole number."""
    try:
        rate = operator.index(sample_rate)
    except TypeError:
        rate = 0
    if rate < 1:
        raise InputError(
            "sample_rate must be a positive whole number of samples per second, found "
            f"{sample_rate!r}"
        )
    return rate


def _float32(samples: np.ndarray, where: str) -> np.ndarray:
    if samples.dtype.kind == "f":
        return samples.astype(np.float32)
    if samples.dtype.kind in "iu":
        full_scale = 2.0 ** (8 * samples.dtype.itemsize - 1)
        offset = full_scale if samples.dtype.kind == "u" else 0.0
        return ((samples.astype(np.float64) - offset) / full_scale).astype(np.float32)
    raise InputError(f"{where}: expected samples as floats or integers, found {samples.dtype}")


def check_audio_path(path: str | PathLike[str]) -> Path:
    """Return `path` if it is a file, or names a place in one
    (`speechmix.inputs.audio.decoding`); nothing is read.

    InputError if there is no such file, or it is a folder.
    """
    path = Path(path)
    try:
        file = Path(containing_file(path))
        is_folder, is_file = file.is_dir(), file.is_file()
    except (OSError, ValueError) as error:  # a name longer than the file system takes, a null byte
        raise InputError(f"not a usable path of an audio file: {str(path)!r} ({error})") from error
    if is_folder:
        raise InputError(
            f"expected an audio file, found a folder: {path}. Give the path of one file in it"
        )
    if not is_file:
        raise InputError(
            f"no such audio file: {file}. Check the spelling and the folder it is relative to"
        )
    return path


def read_audio(
    path: str | PathLike[str],
    *,
    sample_rate: int = 16_000,
    start: Seconds = 0.0,
    stop: Seconds | None = None,
) -> np.ndarray:
    """Read a file, or a part of it, as mono float32 [samples] at the wanted rate.

    The path names a file that libsndfile decodes (WAV, FLAC, OGG, MP3), or a place in a larger
    file. `start` and `stop` are seconds: the only way to read a file longer than
    `MAX_AUDIO_SECONDS`. The array is the caller's to change. InputError if the file is missing,
    cannot be decoded, is too long, holds less than its header promises, or has no samples, NaN or
    infinity.
    """
    sample_rate = check_sample_rate(sample_rate)
    if start or stop is not None:
        stop = MAX_AUDIO_SECONDS + start if stop is None else stop
        samples, source_rate = decode_audio(check_audio_path(path), start, stop)
        return to_mono(
            samples,
            source_rate,
            sample_rate=sample_rate,
            where=f"{path} from {start:g} to {stop:g} s",
        )
    # A copy, so that a caller who writes into the result does not change what the next call gets.
    return _read_cached(path, sample_rate)[0].copy()


def audio_fingerprint(path: str | PathLike[str], *, sample_rate: int = 16_000) -> str:
    """Return a hash of the sound of a file: 32 hexadecimal digits.

    It is BLAKE2b of the file's rate and of its samples as they are decoded, channels averaged,
    before they are resampled: a copy under another name has the same. The samples at `sample_rate`
    are cached, so that `read_audio` at this rate does not decode the file again. It raises what
    `read_audio` raises.
    """
    recording = cached_recording(path)
    return recording[0] if recording else _read_cached(path, check_sample_rate(sample_rate))[1]


def samples_fingerprint(samples: np.ndarray, sample_rate: int) -> str:
    """Return the fingerprint of samples in memory: that of a file that holds them.

    Samples and errors are those of `to_mono`.
    """
    rate = check_sample_rate(sample_rate)
    return mono_fingerprint(to_mono(samples, rate, sample_rate=rate, where="samples"), rate)


def mono_fingerprint(samples: np.ndarray, sample_rate: int) -> str:
    """Fingerprint of samples [samples] that are mono, checked, and not resampled."""
    digest = hashlib.blake2b(f"{sample_rate} ".encode(), digest_size=16)
    digest.update(np.ascontiguousarray(samples, dtype="<f4").data)
    return digest.hexdigest()


_recording_cache: dict[tuple[str, tuple[object, ...]], tuple[str, Seconds]] = {}


def cache_recording(
    path: str | PathLike[str], signature: Sequence[object], fingerprint: str, seconds: Seconds
) -> None:
    """Store fingerprint and length of a recording that was read before.

    They hold as long as the file has this signature
    (`speechmix.inputs.audio.decoding.file_signature`), so that a resumed run of many clips reads
    no recording of which nothing is missing. Times of change cannot be set by hand.
    """
    _recording_cache[os.fspath(path), _to_strings(signature)] = fingerprint, seconds


def cached_recording(path: str | PathLike[str]) -> tuple[str, Seconds] | None:
    """Fingerprint and length of a recording, if they are known and its file is still the same; it
    is not read."""
    if not _recording_cache:
        return None
    try:
        return _recording_cache.get((os.fspath(path), _to_strings(file_signature(path))))
    except OSError:
        return None


def _to_strings(signature: Sequence[object]) -> tuple[object, ...]:
    return tuple(str(mark) for mark in signature)


def _read_cached(path: str | PathLike[str], sample_rate: int) -> tuple[np.ndarray, str]:
    path = check_audio_path(path)
    return _decode_cached(str(path), tuple(file_signature(path)), sample_rate)


@functools.lru_cache(
    maxsize=16
)  # validate() and the model read the same clip, and the next ones are read ahead
def _decode_cached(
    path: str, signature: tuple[object, ...], sample_rate: int
) -> tuple[np.ndarray, str]:
    with phase("reading"):
        samples, source_rate = decode_audio(path)
        samples = to_mono(samples, source_rate, sample_rate=source_rate, where=path)
        return resample_float32(samples, source_rate, sample_rate), mono_fingerprint(
            samples, source_rate
        )


def audio_seconds(path: str | PathLike[str]) -> Seconds:
    """Return the length of an audio file, from its header.

    InputError if the file is missing or no audio, or plainly holds less or more than its header
    says.
    """
    if recording := cached_recording(path):
        return recording[1]
    path = check_audio_path(path)
    return _cached_header_seconds(str(path), tuple(file_signature(path)))


@functools.lru_cache(maxsize=4096)  # asked for at every use of a clip's duration
def _cached_header_seconds(path: str, signature: tuple[object, ...]) -> Seconds:
    return header_seconds(path)


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
