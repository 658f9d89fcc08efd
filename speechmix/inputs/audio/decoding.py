"""What an audio file really holds: decoded as it is, and refused before memory is taken if its
header cannot be believed.

In: a path. Out: mono float32 samples at the file's own rate; or an `InputError` that calls the file
what it is: empty, a text, cut off, too long, or with a header that promises what is not there.
Decoding is libsndfile's; what it takes on trust (how long a WAV or an MP3 is) is checked against
the bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import TYPE_CHECKING

import numpy as np

from ...errors import InputError
from ...files.bounded_reads import check_regular
from .byte_ranges import location_in_file, open_bytes
from .frame_grid import Seconds
from .truncation import mp3_seconds, ogg_is_whole, share_of_wav

if TYPE_CHECKING:
    from soundfile import SoundFile

# Whisper hears 30 s; in ten minutes another encoder has 30,000 frames, and one head's attention is
# 3.6 GB. So nothing that is scored is longer, and a longer file is one to be cut.
LONGEST: Seconds = 600.0
# Samples per second: below, no speech; above, no recorder.
RATES = (1_000, 384_000)
_AT_ONCE = 2**26  # values decoded in one go: ten minutes of 48 kHz stereo, 230 MB
_SHORT: Seconds = 0.1  # that a decoder may miss of what the header says
_PADDED: Seconds = 0.5  # that an MP3 encoder adds at the ends, and a decoder takes off again


class CutOffAudio(InputError):
    """An audio file that ends before its header says."""


def decode(
    path: str | PathLike[str], start: Seconds = 0.0, stop: Seconds | None = None
) -> tuple[np.ndarray, int]:
    """Return mono samples [samples] (channels averaged) at the file's own rate, and that rate.

    Parameters
    ----------
    path : path of a file, or of a place in one (`speechmix.inputs.audio.byte_ranges`)
    start, stop : float
        Seconds; only what is between is decoded. Default: all.

    Raises
    ------
    InputError
        If it is no audio, longer than `LONGEST` between start and stop, or holds less or more than
        its header promises.
    """
    import soundfile

    try:
        with _opened(path) as file:
            rate = checked_rate(file.samplerate, str(path))
            checked_length(_header_seconds(path, file) if stop is None else stop - start, str(path))
            if start:
                file.seek(min(round(start * rate), file.frames))
            n_expected = (
                file.frames - file.tell()
                if stop is None
                else round(stop * rate) - round(start * rate)
            )
            samples = _read(file, max(n_expected, 0))
    except (soundfile.SoundFileError, TypeError, OSError, MemoryError) as error:
        raise not_audio(path, error) from error
    if stop is None and len(samples) / rate < n_expected / rate - max(
        _SHORT, 0.01 * n_expected / rate
    ):
        raise _cut_off(path, n_expected / rate, len(samples) / rate)
    return samples, rate


@contextmanager
def _opened(path: str | PathLike[str]) -> Iterator[SoundFile]:
    """Open a recording with libsndfile, which reads a file by itself and a part of one through
    Python."""
    import soundfile

    if location_in_file(path) is None:
        check_regular(path)
        with soundfile.SoundFile(str(path)) as file:
            yield file
    else:
        with open_bytes(path) as raw, soundfile.SoundFile(raw) as file:
            yield file


def header_seconds(path: str | PathLike[str]) -> Seconds:
    """Length of a file by its header, as far as the header can be believed.

    Raises
    ------
    InputError
        If it is no audio, or its bytes are fewer or more than its header says.
    """
    import soundfile

    try:
        with _opened(path) as file:
            checked_rate(file.samplerate, str(path))
            return _header_seconds(path, file)
    except (soundfile.SoundFileError, TypeError, OSError, MemoryError) as error:
        raise not_audio(path, error) from error


def checked_rate(rate: int, where: str) -> int:
    """Return the rate of a recording, or say that no recording has it."""
    if not RATES[0] <= rate <= RATES[1]:
        raise InputError(
            f"{where}: expected {RATES[0]:,} to {RATES[1]:,} samples per second, found {rate:,}: "
            "its header is damaged, or its rate was given in another unit"
        )
    return rate


def checked_length(seconds: Seconds, where: str) -> None:
    """Raise if that is too long to be read at once."""
    if seconds > LONGEST:
        raise InputError(
            f"{where}: expected at most {LONGEST / 60:g} minutes of audio, found "
            f"{_duration(seconds)}: cut it, for example "
            "with Clip.cut (--cut); if the recording is shorter, its header is damaged: write it "
            "again with ffmpeg"
        )


def not_audio(path: str | PathLike[str], error: Exception) -> InputError:
    """Say what a file is that libsndfile cannot decode."""
    try:
        with open_bytes(path) as file:
            head = file.read(512)
    except OSError as reason:
        return InputError(f"cannot read {path} as audio ({reason.strerror or reason})")
    kind = _kind_of(head)
    if kind:
        return InputError(
            f"cannot read {path} as audio: it {kind}; expected WAV, FLAC, OGG or MP3: fetch it "
            "again"
        )
    why = re.sub(r" <_io\.[^>]*>", "", str(error)).rstrip(".").replace(f" '{path}'", "")
    if "does not exist" in why:  # so says libsndfile of an MP3 in which it finds no frame
        why = "no audio is found in it"
    if head[:4] in (b"RIFF", b"fLaC", b"OggS"):
        return InputError(
            f"cannot read {path} as audio ({why}): it is damaged or was cut off: fetch it again"
        )
    return InputError(
        f"cannot read {path} as audio ({why}): expected WAV, FLAC, OGG or MP3; "
        "convert other formats first, for example `ffmpeg -i in.m4a out.wav`"
    )


def _kind_of(head: bytes) -> str | None:
    """What a file that is no audio is, from its first bytes; None if that is not plain."""
    if not head:
        return "holds 0 bytes"
    try:
        text = head.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 4:  # else the last letter is only cut in two
            return None
        text = head[: error.start].decode("utf-8-sig")
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


def _read(file: SoundFile, frames: int) -> np.ndarray:
    """Read mono samples: at once, since libsndfile seeks between parts and an MP3 then differs, but
    never without bound."""
    if frames * file.channels <= _AT_ONCE:
        return _averaged(file.read(frames, dtype="float32", always_2d=True))
    parts = []
    while frames > 0 and len(
        part := file.read(min(frames, _AT_ONCE // file.channels), "float32", always_2d=True)
    ):
        parts.append(_averaged(part))
        frames -= len(part)
    return np.concatenate(parts) if parts else np.zeros(0, np.float32)


def _averaged(samples: np.ndarray) -> np.ndarray:
    return samples[:, 0] if samples.shape[1] == 1 else samples.mean(axis=1)


def _header_seconds(path: str | PathLike[str], file: SoundFile) -> Seconds:
    """Length by the header of an open file, compared with the file's bytes where its format lets
    us."""
    promised = file.frames / file.samplerate
    if file.frames >= 2**62:
        raise InputError(
            f"{path}: its header does not say how long it is: write it again, for example with "
            "ffmpeg"
        )
    with open_bytes(path) as raw:
        if file.format in ("WAV", "WAVEX"):
            share = share_of_wav(raw)
            if share == 0 or promised < promised / share - max(_SHORT, 0.01 * promised / share):
                raise _cut_off(path, promised / share if share else np.inf, promised)
        elif file.format == "OGG" and not ogg_is_whole(raw):
            raise _cut_off(path, None, promised)
        elif file.format in ("MP3", "MPEG"):
            held = mp3_seconds(raw)
            if held is None:
                return float(promised)
            if promised > held + max(_SHORT, 0.01 * held):
                raise _cut_off(path, promised, held)
            if promised < held - max(_PADDED, 0.01 * held):
                raise InputError(
                    f"{path}: its header promises {_duration(promised)}, but it holds "
                    f"{_duration(held)}: its header is "
                    "damaged or missing; write it again, for example `ffmpeg -i in.mp3 out.wav`"
                )
    return float(promised)


def _cut_off(path: str | PathLike[str], promised: Seconds | None, held: Seconds) -> CutOffAudio:
    promise = (
        f"its header promises {_duration(promised)}, it"
        if promised is not None
        else "its last page is not whole; it"
    )
    return CutOffAudio(
        f"{path}: {promise} holds {_duration(held)}: it was cut off, or its header is damaged; "
        "fetch it again, "
        "or write what is there anew with `ffmpeg -i in.wav out.wav`"
    )


def _duration(seconds: Seconds) -> str:
    for unit, length, least in (("hours", 3600.0, 2), ("minutes", 60.0, 20)):
        if seconds >= least * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds:.2f} s"
