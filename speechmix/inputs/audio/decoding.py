"""Decode audio files, and refuse those with an implausible header.

In: a path. Out: mono float32 samples at the file's own rate; or an `InputError` that calls the file
what it is: empty, a text, cut off, too long, or with a header that promises what is not there.
Decoding is libsndfile's; what it takes on trust (how long a WAV or an MP3 is) is checked against
the bytes.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np

from ...errors import InputError
from ...files.bounded_reads import check_regular_file
from .audio_completeness import is_ogg_complete, mp3_seconds
from .byte_ranges import open_bytes, parse_location
from .channels import average_channels
from .container_lengths import SoundBytes, sound_bytes
from .frame_grid import Seconds

if TYPE_CHECKING:
    from soundfile import SoundFile

# Whisper hears 30 s; in ten minutes another encoder has 30,000 frames, and one head's attention is
# 3.6 GB. So nothing that is scored is longer, and a longer file is one to be cut.
MAX_AUDIO_SECONDS: Seconds = 600.0
# Samples per second: below, no speech; above, no recorder.
SAMPLE_RATE_RANGE = (1_000, 384_000)
_MAX_DECODED_VALUES = 2**26  # values decoded in one go: ten minutes of 48 kHz stereo, 230 MB
_DECODER_TOLERANCE: Seconds = 0.1  # that a decoder may miss of what the header says
_WAV_FORMATS = ("WAV", "WAVEX", "RF64")
_CONTAINER_FORMATS = (*_WAV_FORMATS, "W64", "AIFF", "CAF", "AU", "NIST")
_UNBOUNDED_FORMATS = ("W64", "NIST")  # libsndfile reads chunks behind the sound as samples, too
_SAMPLE_BYTES = {"PCM_S8": 1, "PCM_U8": 1, "ULAW": 1, "ALAW": 1, "PCM_16": 2, "PCM_24": 3}
_SAMPLE_BYTES |= {"PCM_32": 4, "FLOAT": 4, "DOUBLE": 8}
_MP3_PADDING: Seconds = 0.5  # that an MP3 encoder adds at the ends, and a decoder takes off again


class TruncatedAudioError(InputError):
    """An audio file that ends before its header says."""


def decode_audio(
    path: str | PathLike[str], start: Seconds = 0.0, stop: Seconds | None = None
) -> tuple[np.ndarray, int]:
    """Return mono samples [samples] (channels averaged) at the file's own rate, and that rate.

    Only what lies between `start` and `stop` (seconds) is decoded; the path may name a place in a
    larger file. InputError if it is no audio, is longer than `MAX_AUDIO_SECONDS` between them, or
    holds less or more than its header promises.
    """
    import soundfile

    try:
        with _open_audio(path) as file:
            rate = check_recording_rate(file.samplerate, str(path))
            seconds, total_frames = None if stop is None else stop - start, file.frames
            if seconds is None or file.format in _CONTAINER_FORMATS:
                header_length = _check_header_seconds(path, file)
                total_frames = round(header_length * rate)
                seconds = header_length if seconds is None else seconds
            check_length(seconds, str(path))
            if start:
                file.seek(min(round(start * rate), total_frames))
            expected_frames = total_frames - file.tell()
            if stop is not None:
                expected_frames = min(round(stop * rate) - round(start * rate), expected_frames)
            samples = _read_mono(file, max(expected_frames, 0), str(path))
    except (soundfile.SoundFileError, TypeError, OSError, MemoryError) as error:
        raise unreadable_audio_error(path, error) from error
    if stop is None and len(samples) / rate < expected_frames / rate - max(
        _DECODER_TOLERANCE, 0.01 * expected_frames / rate
    ):
        raise _truncation_error(path, expected_frames / rate, len(samples) / rate)
    return samples, rate


@contextmanager
def _open_audio(path: str | PathLike[str]) -> Iterator[SoundFile]:
    """Open a recording with libsndfile, which reads a file by itself and a part of one through
    Python."""
    import soundfile

    if parse_location(path) is None:
        check_regular_file(path)
        with soundfile.SoundFile(str(path)) as file:
            yield file
    else:
        with open_bytes(path) as raw, soundfile.SoundFile(raw) as file:
            yield file


def header_seconds(path: str | PathLike[str]) -> Seconds:
    """Length of a file by its header, as far as the header can be believed.

    InputError if it is no audio, or its bytes are fewer or more than its header says.
    """
    import soundfile

    try:
        with _open_audio(path) as file:
            check_recording_rate(file.samplerate, str(path))
            return _check_header_seconds(path, file)
    except (soundfile.SoundFileError, TypeError, OSError, MemoryError) as error:
        raise unreadable_audio_error(path, error) from error


def check_recording_rate(rate: int, where: str) -> int:
    """Return the rate of a recording, or say that no recording has it."""
    if not SAMPLE_RATE_RANGE[0] <= rate <= SAMPLE_RATE_RANGE[1]:
        raise InputError(
            f"{where}: expected {SAMPLE_RATE_RANGE[0]:,} to {SAMPLE_RATE_RANGE[1]:,} samples per second, found {rate:,}: "
            "its header is damaged, or its rate was given in another unit"
        )
    return rate


def check_length(seconds: Seconds, where: str) -> None:
    """Raise if that is too long to be read at once."""
    if seconds > MAX_AUDIO_SECONDS:
        raise InputError(
            f"{where}: expected at most {MAX_AUDIO_SECONDS / 60:g} minutes of audio, found "
            f"{_format_duration(seconds)}: cut it, for example "
            "with Clip.cut (--cut); if the recording is shorter, its header is damaged: write it "
            "again with ffmpeg"
        )


def unreadable_audio_error(path: str | PathLike[str], error: Exception) -> InputError:
    """Say what a file is that libsndfile cannot decode."""
    try:
        with open_bytes(path) as file:
            first_bytes = file.read(512)
    except OSError as os_error:
        return InputError(f"cannot read {path} as audio ({os_error.strerror or os_error})")
    content = _describe_content(first_bytes)
    if content:
        return InputError(
            f"cannot read {path} as audio: it {content}; expected WAV, FLAC, OGG or MP3: fetch it "
            "again"
        )
    reason = re.sub(r" <_io\.[^>]*>", "", str(error)).rstrip(".").replace(f" '{path}'", "")
    if "does not exist" in reason:  # so says libsndfile of an MP3 in which it finds no frame
        reason = "no audio is found in it"
    if first_bytes[:4] in (b"RIFF", b"fLaC", b"OggS"):
        return InputError(
            f"cannot read {path} as audio ({reason}): it is damaged or was cut off: fetch it again"
        )
    return InputError(
        f"cannot read {path} as audio ({reason}): expected WAV, FLAC, OGG or MP3; "
        "convert other formats first, for example `ffmpeg -i in.m4a out.wav`"
    )


def _describe_content(first_bytes: bytes) -> str | None:
    """What a file that is no audio is, from its first bytes; None if that is not plain."""
    if not first_bytes:
        return "holds 0 bytes"
    try:
        text = first_bytes.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(first_bytes) - 4:  # else the last letter is only cut in two
            return None
        text = first_bytes[: error.start].decode("utf-8-sig")
    if not text.isprintable() and any(
        not (letter.isprintable() or letter.isspace()) for letter in text
    ):
        return None
    start = text.lstrip().lower()
    if start.startswith(("<!doctype html", "<html", "<head", "<body")):
        return "is an HTML page"
    if start.startswith(("{", "[")):
        return "is a JSON text"
    if start.startswith("version https://git-lfs"):
        return "is a pointer of Git LFS, not the file itself"
    return "is a text"


def _read_mono(file: SoundFile, frames: int, where: str) -> np.ndarray:
    """Read mono samples: at once, since libsndfile seeks between parts and an MP3 then differs, but
    never without bound."""
    if frames * file.channels <= _MAX_DECODED_VALUES:
        return average_channels(file.read(frames, dtype="float32", always_2d=True), where)
    chunks = []
    while frames > 0 and len(
        chunk := file.read(
            min(frames, _MAX_DECODED_VALUES // file.channels), "float32", always_2d=True
        )
    ):
        chunks.append(average_channels(chunk, where))
        frames -= len(chunk)
    return np.concatenate(chunks) if chunks else np.zeros(0, np.float32)


def _check_header_seconds(path: str | PathLike[str], file: SoundFile) -> Seconds:
    """Length by the header of an open file, compared with the file's bytes where its format lets
    us."""
    promised_seconds = file.frames / file.samplerate
    if file.frames >= 2**62:
        raise InputError(
            f"{path}: its header does not say how long it is: write it again, for example with "
            "ffmpeg"
        )
    with open_bytes(path) as raw:
        if file.format in _CONTAINER_FORMATS:
            if (byte_counts := sound_bytes(raw)) is not None:
                return float(_check_sound_bytes(path, file, byte_counts) / file.samplerate)
        elif file.format == "OGG" and not is_ogg_complete(raw):
            raise _truncation_error(path, None, promised_seconds)
        elif file.format in ("MP3", "MPEG"):
            present_seconds = mp3_seconds(raw)
            if present_seconds is None:
                return float(promised_seconds)
            if promised_seconds > present_seconds + max(_DECODER_TOLERANCE, 0.01 * present_seconds):
                raise _truncation_error(path, promised_seconds, present_seconds)
            if promised_seconds < present_seconds - max(_MP3_PADDING, 0.01 * present_seconds):
                raise InputError(
                    f"{path}: its header promises {_format_duration(promised_seconds)}, but it holds "
                    f"{_format_duration(present_seconds)}: its header is "
                    "damaged or missing; write it again, for example `ffmpeg -i in.mp3 out.wav`"
                )
    return float(promised_seconds)


def _check_sound_bytes(path: str | PathLike[str], file: SoundFile, byte_counts: SoundBytes) -> int:
    """Compare what a header promises with what is there, and with what libsndfile would read; returns the
    frames of sound."""
    width = _SAMPLE_BYTES.get(file.subtype)
    if width is None:  # compressed: as long as libsndfile says, for all that the header promises
        read_bytes = min(byte_counts.promised, byte_counts.present)
        bytes_per_second = read_bytes * file.samplerate / max(1, file.frames)
    else:
        bytes_per_second = float(width * file.channels * file.samplerate)
        read_bytes = file.frames * width * file.channels
        if file.format in _WAV_FORMATS:  # where samples of 24 bits may lie in 32
            read_bytes = max(read_bytes, min(byte_counts.promised, byte_counts.present))
    tolerance = max(_DECODER_TOLERANCE * bytes_per_second, 0.01 * byte_counts.promised)
    if byte_counts.promised > byte_counts.present + tolerance:
        raise _truncation_error(
            path,
            byte_counts.promised / bytes_per_second if bytes_per_second else np.inf,
            byte_counts.present / bytes_per_second if bytes_per_second else 0.0,
        )
    frame_bytes = (width or 1) * file.channels
    is_missed = byte_counts.present - read_bytes >= frame_bytes
    promised = min(byte_counts.promised, read_bytes) if is_missed else byte_counts.promised
    what = f"{path}: its header " + (
        f"promises {promised / bytes_per_second:.3f} s, but it holds "
        f"{byte_counts.present / bytes_per_second:.3f} s"
        if promised and bytes_per_second
        else f"says that it holds no sound, but {byte_counts.present:,} bytes of sound follow"
    )
    if is_missed:
        remedy = "`sox --ignore-length IN out.wav`"
        if file.format in _WAV_FORMATS:
            remedy = "`ffmpeg -ignore_length 1 -i in.wav out.wav`"
        elif file.format == "CAF":  # for which neither of them has such an option
            remedy = "a sound editor that imports raw data (Audacity)"
        raise InputError(
            f"{what}: the recording was not finished, or was appended to; write all of it anew with "
            f"{remedy}"
        )
    # A few samples too few, or W64, of which libsndfile reads all for all that its header says.
    if abs(byte_counts.promised - byte_counts.present) >= frame_bytes:
        warnings.warn(f"{what}: all of it is read", stacklevel=2)
    frames = int(file.frames)
    if width is not None and file.format in _UNBOUNDED_FORMATS:
        frames = min(frames, byte_counts.present // frame_bytes)
    return frames


def _truncation_error(
    path: str | PathLike[str], promised_seconds: Seconds | None, present_seconds: Seconds
) -> TruncatedAudioError:
    promise = (
        f"its header promises {_format_duration(promised_seconds)}, it"
        if promised_seconds is not None
        else "its last page is not whole; it"
    )
    return TruncatedAudioError(
        f"{path}: {promise} holds {_format_duration(present_seconds)}: it was cut off, or its header is damaged; "
        "fetch it again, "
        "or write what is there anew with `ffmpeg -i in.wav out.wav`"
    )


def _format_duration(seconds: Seconds) -> str:
    for unit, length, min_count in (("hours", 3600.0, 2), ("minutes", 60.0, 20)):
        if seconds >= min_count * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.2f} s"
