"""Where samples come from: a file (WAV, FLAC, OGG, MP3, ...) or an array -> mono float32 at the rate a model wants.

In: a path or an array, and a sample rate. Out: ``[samples]`` float32, channels averaged, resampled by soxr.
Silence (all zeros) is legitimate audio; no samples at all, NaN and infinity are not.
"""

from __future__ import annotations

import functools
import operator
from os import PathLike
from pathlib import Path

import numpy as np

from .errors import InputError
from .frames import Seconds


def audio_file(path: str | PathLike) -> Path:
    """Return `path` if it is a file; nothing is read.

    Raises
    ------
    InputError
        If there is no such file, or it is a folder.
    """
    path = Path(path)
    try:
        is_folder, is_file = path.is_dir(), path.is_file()
    except (OSError, ValueError) as error:  # a name longer than the file system takes, a null byte
        raise InputError(f"not a usable path of an audio file: {str(path)!r} ({error})") from error
    if is_folder:
        raise InputError(f"expected an audio file, found a folder: {path}. Give the path of one file in it")
    if not is_file:
        raise InputError(f"no such audio file: {path}. Check the spelling and the folder it is relative to")
    return path


def read_audio(path: str | PathLike, *, sample_rate: int = 16_000) -> np.ndarray:
    """Read a file as mono float32 at the wanted rate.

    Parameters
    ----------
    path : path of a WAV, FLAC, OGG or MP3 file (whatever libsndfile decodes)
    sample_rate : int
        Samples per second of the result.

    Returns
    -------
    np.ndarray, [samples]
        A fresh array, free to change.

    Raises
    ------
    InputError
        If the file is missing, cannot be decoded, or holds no samples, NaN or infinity.
    """
    path = audio_file(path)
    status = path.stat()
    # A copy, so that a caller who writes into the result does not change what the next call gets.
    return _decoded(str(path), status.st_mtime_ns, status.st_size, positive_rate(sample_rate)).copy()


@functools.lru_cache(maxsize=16)  # validate() and the model read the same clip, and the next ones are read ahead
def _decoded(path: str, modified: int, size: int, sample_rate: int) -> np.ndarray:
    import soundfile

    try:
        samples, found_rate = soundfile.read(path, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, TypeError, OSError) as error:
        raise _undecodable(path, error) from error
    return mono(samples, found_rate, sample_rate=sample_rate, where=path)


def audio_seconds(path: str | PathLike) -> Seconds:
    """Length of an audio file in seconds, from its header.

    Raises
    ------
    InputError
        If the file is missing or is no audio.
    """
    import soundfile

    path = audio_file(path)
    try:
        header = soundfile.info(str(path))
    except (soundfile.SoundFileError, TypeError, OSError) as error:
        raise _undecodable(path, error) from error
    return header.frames / header.samplerate


def mono(samples: np.ndarray, found_rate: int, *, sample_rate: int, where: str) -> np.ndarray:
    """Average the channels and resample.

    Parameters
    ----------
    samples : array, [samples] or [samples, channels]
        Floats as they are; integers are divided by their full scale (int16: 32,768).
    found_rate, sample_rate : int
        Samples per second now, and wanted.
    where : str
        What to call the audio in an error.

    Returns
    -------
    np.ndarray, float32 [samples]

    Raises
    ------
    InputError
        For another shape or type, no samples, or samples that are NaN or infinite.

    Examples
    --------
    >>> stereo = np.stack([np.ones(441), np.zeros(441)], axis=1)
    >>> halved = mono(stereo, 44_100, sample_rate=44_100, where="example")
    >>> halved.shape, float(halved[0])
    ((441,), 0.5)
    >>> mono(stereo, 44_100, sample_rate=16_000, where="example").shape
    (160,)
    """
    samples = np.asarray(samples)
    found_rate, sample_rate = positive_rate(found_rate), positive_rate(sample_rate)
    if samples.ndim not in (1, 2) or (samples.ndim == 2 and samples.shape[1] > max(samples.shape[0], 1)):
        raise InputError(
            f"{where}: expected audio of shape [samples] or [samples, channels], found {list(samples.shape)}: "
            "transpose it if its channels come first"
        )
    samples = _float32(samples, where)
    if samples.ndim == 2:
        samples = samples.mean(axis=1)
    if not len(samples):
        raise InputError(f"{where}: expected audio, found 0 samples: leave this clip out or record it again")
    broken = int(np.count_nonzero(~np.isfinite(samples)))
    if broken:
        raise InputError(
            f"{where}: expected finite samples, found {broken} of {len(samples)} that are NaN or infinite: "
            "write the file again from its source"
        )
    if found_rate != sample_rate:
        import librosa

        samples = librosa.resample(samples, orig_sr=found_rate, target_sr=sample_rate, res_type="soxr_hq")
    return np.ascontiguousarray(samples, dtype=np.float32)


def positive_rate(sample_rate: int) -> int:
    """Return a sample rate as an int.

    Raises
    ------
    InputError
        If it is not a positive whole number.
    """
    try:
        rate = operator.index(sample_rate)
    except TypeError:
        rate = 0
    if rate < 1:
        raise InputError(f"sample_rate must be a positive whole number of samples per second, found {sample_rate!r}")
    return rate


def _float32(samples: np.ndarray, where: str) -> np.ndarray:
    if samples.dtype.kind == "f":
        return samples.astype(np.float32)
    if samples.dtype.kind in "iu":
        full_scale = 2.0 ** (8 * samples.dtype.itemsize - 1)
        offset = full_scale if samples.dtype.kind == "u" else 0.0
        return ((samples.astype(np.float64) - offset) / full_scale).astype(np.float32)
    raise InputError(f"{where}: expected samples as floats or integers, found {samples.dtype}")


def _undecodable(path: str | PathLike, error: Exception) -> InputError:
    return InputError(
        f"cannot read {path} as audio ({error}): expected WAV, FLAC, OGG or MP3; "
        "convert other formats first, for example `ffmpeg -i in.m4a out.wav`"
    )
