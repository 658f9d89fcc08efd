"""Load audio from a file or array as mono float32 at a given rate.

In: a path (or a place in a larger file) or an array, and a sample rate. Out: ``[samples]`` float32,
channels averaged, resampled by soxr. Silence (all zeros) is legitimate audio; no samples at all,
NaN and infinity are not.
"""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from ...errors import InputError
from ...files.timing import phase
from .byte_ranges import containing_file, file_signature
from .decoding import MAX_AUDIO_SECONDS, decode_audio, header_seconds
from .frame_grid import Seconds
from .samples import check_sample_rate, resample_float32, to_mono


def check_audio_path(path: str | PathLike[str]) -> Path:
    """Return `path` if it is a file, or names a place in one
    (`speechmix.inputs.audio.byte_ranges`); nothing is read.

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
    (`speechmix.inputs.audio.byte_ranges.file_signature`), so that a resumed run of many clips reads
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
