"""Samples in memory, as mono float32 at a rate."""

from __future__ import annotations

import operator

import numpy as np

from ...errors import InputError
from .channels import average_channels
from .decoding import check_length, check_recording_rate
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
