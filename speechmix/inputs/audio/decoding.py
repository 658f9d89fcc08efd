"""Decode audio files, and refuse those with an implausible header.

In: a path. Out: mono float32 samples at the file's own rate; or an `InputError` that calls the file
what it is: empty, a text, cut off, too long, or with a header that promises what is not there.
Decoding is libsndfile's; what it takes on trust is checked against the bytes, without decoding: how many bytes of
sound the header of a WAV (RIFF, RIFX, RF64, BW64), W64, AIFF, CAF, AU or NIST SPHERE file promises (recorders that
stop early, streams and programs that append leave headers that do not fit), whether an OGG's last page is whole, how
long an MP3 is by its frames. Several channels become their average, unless they cancel each other, as those of a
microphone do whose two lines were joined the wrong way round.

A recording may also be a byte range of a file, tar, Arrow or Parquet table:

    set/000123.flac                            a file
    set/shard-000000.tar::20480+51234          51,234 bytes of a file, from byte 20,480 on
    set/train-00000.parquet::audio#17          the column `audio` in row 17 (from 0) of a Parquet file

Nothing is unpacked or copied: a process on another machine that sees the file reads the same bytes. Whether the
file is still what it was, `file_signature` tells.
"""

from __future__ import annotations

import functools
import io
import os
import re
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from ...errors import InputError
from ...files.parquet_files import readable_parquet
from ...files.text_files import check_regular_file, open_regular_file
from .frame_grid import Seconds

if TYPE_CHECKING:
    from soundfile import SoundFile

# Bytes of a Parquet row group's recordings that are kept for the next row; more are read row by row.
_MAX_ROW_GROUP_BYTES = 2**28


@dataclass(frozen=True)
class ByteRange:
    """Some bytes of a file: offset and size count bytes."""

    file: str
    offset: int
    size: int

    def __str__(self) -> str:
        return f"{self.file}::{self.offset}+{self.size}"


@dataclass(frozen=True)
class ParquetCell:
    """A cell of a Parquet file that holds an encoded recording; rows count from 0."""

    file: str
    column: str
    row: int

    def __str__(self) -> str:
        return f"{self.file}::{self.column}#{self.row}"


_STRETCH = re.compile(r"(.+)::(\d{1,18})\+(\d{1,18})", re.DOTALL)
_CELL = re.compile(r"(.+\.parquet)::([^/#]+)#(\d{1,18})", re.DOTALL)


open_unbuffered = io.FileIO  # what is passed over is not read


def parse_location(path: str | PathLike[str]) -> ByteRange | ParquetCell | None:
    """Return the place that a path names in a larger file; None if it names a file.

    Examples
    --------
    >>> parse_location("shard-000000.tar::20480+51234")
    ByteRange(file='shard-000000.tar', offset=20480, size=51234)
    >>> parse_location("train.parquet::audio#17")
    ParquetCell(file='train.parquet', column='audio', row=17)
    >>> parse_location("a.wav") is None
    True
    """
    text = os.fspath(path)
    if "::" not in text:
        return None
    if match := _STRETCH.fullmatch(text):
        return ByteRange(match[1], int(match[2]), int(match[3]))
    if match := _CELL.fullmatch(text):
        return ParquetCell(match[1], match[2], int(match[3]))
    return None


def containing_file(path: str | PathLike[str]) -> str:
    """Return the file that holds a recording.

    Examples
    --------
    >>> containing_file("set/shard-000000.tar::20480+51234"), containing_file("a.wav")
    ('set/shard-000000.tar', 'a.wav')
    """
    location = parse_location(path)
    return os.fspath(path) if location is None else location.file


def file_signature(path: str | PathLike[str]) -> list[int | str]:
    """Return what changes when the file that holds a recording is written again.

    A list of its size, its times of change (nanoseconds), its place on the disk and, of a part of a
    file, which part. OSError if there is no such file.
    """
    location = parse_location(path)
    status = os.stat(containing_file(path))
    signature: list[int | str] = [
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_ino,
    ]
    if isinstance(location, ByteRange):
        return [*signature, location.offset, location.size]
    return signature if location is None else [*signature, location.column, location.row]


def open_bytes(path: str | PathLike[str]) -> BinaryIO:
    """Open the bytes of a recording for reading; only what is read of a tar or an Arrow file is
    taken into memory.

    InputError if the file ends before the place that is named, or has no such row or column;
    OSError if it cannot be opened.
    """
    location = parse_location(path)
    if location is None:
        return open_regular_file(path)
    if isinstance(location, ByteRange):
        file = open_unbuffered(location.file)
        file_bytes = os.fstat(file.fileno()).st_size
        if file_bytes >= location.offset + location.size:
            return io.BufferedReader(_ByteRangeReader(file, location))
        file.close()
        raise InputError(
            f"{location.file}: expected a recording in its bytes {location.offset:,} to "
            f"{location.offset + location.size:,}, but the file "
            f"has {file_bytes:,}: it was cut off or replaced; read the corpus again"
        )
    return io.BytesIO(_read_cell(location))


class _ByteRangeReader(io.RawIOBase):
    """Some bytes of an open file, as if they were one; closes it."""

    def __init__(self, file: io.FileIO, location: ByteRange):
        self._file, self._start, self._size, self._position = (
            file,
            location.offset,
            location.size,
            0,
        )

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), max(0, self._size - self._position))
        self._file.seek(self._start + self._position)
        n_read = self._file.readinto(memoryview(buffer)[:count]) or 0
        self._position += n_read
        return n_read

    def close(self) -> None:
        self._file.close()
        super().close()


def _read_cell(location: ParquetCell) -> bytes:
    import pyarrow.parquet as pq

    with readable_parquet(location.file), pq.ParquetFile(location.file) as file:
        group, row = _locate_row(
            location, [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        )
        column = f"{location.column}.bytes"
        chunks = file.metadata.row_group(group)
        sizes = {
            chunk.path_in_schema: chunk.total_uncompressed_size
            for chunk in map(chunks.column, range(chunks.num_columns))
        }
        if column not in sizes:
            raise InputError(
                f"{location.file}: expected the column {column} with encoded recordings, found "
                f"{list(sizes)[:20]}"
            )
        if sizes[column] <= _MAX_ROW_GROUP_BYTES:
            content: bytes | None = _read_row_group(
                location.file, tuple(file_signature(location.file)), location.column, group
            )[row].as_py()
        else:
            batches = file.iter_batches(1, row_groups=[group], columns=[column])
            content = next(islice(batches, row, None)).column(0).field("bytes")[0].as_py()
    if content is None:
        raise InputError(f"{location}: expected an encoded recording in this cell, found none")
    return content


def _locate_row(location: ParquetCell, row_counts: list[int]) -> tuple[int, int]:
    """Which row group of a file a row is in, and which of its rows."""
    row = location.row
    for group, row_count in enumerate(row_counts):
        if row < row_count:
            return group, row
        row -= row_count
    raise InputError(
        f"{location.file}: expected a row {location.row}, found {sum(row_counts)} rows: read the corpus again"
    )


@functools.lru_cache(maxsize=2)  # the rows of a group are asked for one after the other
def _read_row_group(file: str, signature: tuple[object, ...], column: str, group: int) -> Any:
    """Encoded recordings of a row group, as an Arrow array."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as opened:
        table = opened.read_row_group(group, columns=[f"{column}.bytes"])
    return table.column(0).combine_chunks().field("bytes")


_UNKNOWN_32, _UNKNOWN_64 = 2**32 - 1, 2**64 - 1  # lengths that streams write: up to the end
_ID3V1_BYTES = 128  # a tag that some programs write behind the sound


class SoundBytes(NamedTuple):
    """Bytes of sound that a header promises, and that are in the file."""

    promised: int
    present: int


@dataclass(frozen=True)
class _ChunkLayout:
    """How a container of chunks writes the name and the length of each."""

    first: int  # byte at which the first chunk begins
    header: str  # `struct` format of name and length
    data_id: bytes  # name of the chunk with the sound
    data_prefix: int = 0  # bytes in that chunk before the sound
    alignment: int = 2
    counts_header: bool = False  # whether a length counts the chunk's own header


_RIFF = _ChunkLayout(12, "<4sI", b"data")
_LAYOUTS = {
    b"RIFF": _RIFF,
    b"RF64": _RIFF,
    b"BW64": _RIFF,
    b"RIFX": _ChunkLayout(12, ">4sI", b"data"),
    b"FORM": _ChunkLayout(12, ">4sI", b"SSND", data_prefix=8),
    b"caff": _ChunkLayout(8, ">4sQ", b"data", data_prefix=4, alignment=1),
    b"riff": _ChunkLayout(  # W64, whose names are GUIDs
        40,
        "<16sQ",
        bytes.fromhex("64617461f3acd3118cd100c04f8edb8a"),
        alignment=8,
        counts_header=True,
    ),
}


def sound_bytes(file: BinaryIO) -> SoundBytes | None:
    """Bytes of sound that an audio file promises and has; None for another container, and where the
    header says nothing of them.

    Behind the sound there may be other chunks, a tag, or zeros that fill a sector: they are no sound.
    """
    end = file.seek(0, 2)
    file.seek(0)
    head = file.read(1024)
    if head[:4] in (b".snd", b"dns."):
        return _au_bytes(file, head, end)
    if head[:7] == b"NIST_1A":
        return _nist_bytes(head, end)
    layout = _LAYOUTS.get(head[:4])
    return None if layout is None else _chunk_bytes(file, layout, head, end)


def _chunk_bytes(file: BinaryIO, layout: _ChunkLayout, head: bytes, end: int) -> SoundBytes | None:
    header_size = struct.calcsize(layout.header)
    position, long_length, frame_length = layout.first, None, None
    while position + header_size <= end:
        file.seek(position)
        name, length = struct.unpack(layout.header, file.read(header_size))
        start = position + header_size
        if name == b"ds64":  # where RF64 has the lengths that 32 bits cannot hold
            long_length = struct.unpack("<8xQ", file.read(16).ljust(16, b"\0"))[0]
        if name == b"COMM" and head[8:12] == b"AIFF":  # which counts the frames, too
            channels, frames, bits = struct.unpack(">HIH", file.read(8).ljust(8, b"\0"))
            frame_length = frames * channels * ((bits + 7) // 8)
        if layout.counts_header:
            length = max(0, length - header_size)
        if name == layout.data_id:
            start += layout.data_prefix
            length = max(0, length - layout.data_prefix)
            if long_length is not None and length == _UNKNOWN_32:
                length = long_length
            elif _is_stream(head, length + layout.data_prefix):
                return None
            present = end - start
            if length < present:
                rest = start + length + -length % layout.alignment
                present = length + _extra_bytes(file, layout, rest, end)
            return SoundBytes(length if frame_length is None else frame_length, present)
        position = start + length + -length % layout.alignment
    return None


def _is_stream(head: bytes, length: int) -> bool:
    """Whether a length says that the sound goes on to the end, as ffmpeg writes to a pipe."""
    return (head[4:8] == b"\xff" * 4 and length == _UNKNOWN_32) or length == _UNKNOWN_64


def _extra_bytes(file: BinaryIO, layout: _ChunkLayout, rest: int, end: int) -> int:
    """Bytes behind the sound that are neither chunks nor filling."""
    header_size = struct.calcsize(layout.header)
    position = rest
    while position + header_size <= end:
        file.seek(position)
        name, length = struct.unpack(layout.header, file.read(header_size))
        length += 0 if layout.counts_header else header_size
        if not _is_chunk_name(name[:4]) or length < header_size or position + length > end:
            break
        position += length + -length % layout.alignment
    return 0 if _is_filling(file, position) else end - rest


def _is_filling(file: BinaryIO, position: int) -> bool:
    """Whether there are only zeros, or an ID3 tag, from a position on."""
    file.seek(position)
    first_bytes = file.read(_ID3V1_BYTES + 1)
    if first_bytes[:3] == b"TAG" and len(first_bytes) == _ID3V1_BYTES:
        return True
    file.seek(position)
    return not any(block.strip(b"\0") for block in iter(lambda: file.read(2**20), b""))


def _is_chunk_name(name: bytes) -> bool:
    return re.fullmatch(rb"[A-Za-z0-9 _(\-]{3}[A-Za-z0-9 _)\-]", name) is not None


def _au_bytes(file: BinaryIO, head: bytes, end: int) -> SoundBytes | None:
    """AU: two numbers say where the sound begins and how long it is."""
    if len(head) < 12:
        return None
    start, length = struct.unpack(">II" if head[:4] == b".snd" else "<II", head[4:12])
    if length == _UNKNOWN_32:
        return None
    present = max(0, end - start)
    if length < present and _is_filling(file, start + length):
        present = length
    return SoundBytes(length, present)


def _nist_bytes(head: bytes, end: int) -> SoundBytes | None:
    """NIST SPHERE, as TIMIT has it: a text says how many samples there are."""
    fields = {name: int(value) for name, value in re.findall(rb"(\w+) -i (\d{1,18})\b", head)}
    size = re.match(rb"NIST_1A\n *(\d{1,9})\n", head)
    if size is None or not {b"sample_count", b"sample_n_bytes"} <= fields.keys():
        return None
    frame_bytes = fields[b"sample_n_bytes"] * fields.get(b"channel_count", 1)
    return SoundBytes(fields[b"sample_count"] * frame_bytes, max(0, end - int(size[1])))


_MP3_RATES = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
_MPEG1_KBITS = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_MPEG2_KBITS = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)


def is_ogg_complete(file: BinaryIO) -> bool:
    """Whether the last page of an OGG file is all there."""
    end = file.seek(0, 2)
    file.seek(max(0, end - 2**17))  # a page has at most 65,307 bytes
    tail = file.read()
    offset = tail.rfind(b"OggS")
    last_page = tail[offset:]
    if offset < 0 or len(last_page) < 27 or len(last_page) < 27 + last_page[26]:
        return False
    return len(last_page) >= 27 + last_page[26] + sum(last_page[27 : 27 + last_page[26]])


def mp3_seconds(file: BinaryIO) -> Seconds | None:
    """Length of an MP3 by its frames, one after the other; None if the chain breaks before the
    end."""
    end = file.seek(0, 2)
    file.seek(0)
    tag = file.read(10)
    offset = 10 + _decode_tag_size(tag[6:10]) if tag[:3] == b"ID3" and len(tag) == 10 else 0
    seconds, count = 0.0, 0
    for length, duration in _mp3_frames(file, offset):
        offset, seconds, count = offset + length, seconds + duration, count + 1
        if offset > end:  # the last one is not whole
            break
    remaining_bytes = end - offset
    # Behind the last frame there may be tags; much more means that this is not the end.
    return (
        seconds
        if count and remaining_bytes < 2**16 and remaining_bytes < max(512, 0.05 * end)
        else None
    )


def _mp3_frames(file: BinaryIO, offset: int) -> Iterator[tuple[int, Seconds]]:
    """Bytes and seconds of each MPEG layer III frame from a place on, the one that holds the header
    (Xing) left out."""
    is_first_frame = True
    while True:
        file.seek(offset)
        first_bytes = file.read(4)
        if len(first_bytes) < 4 or first_bytes[0] != 0xFF or first_bytes[1] & 0xE6 != 0xE2:
            return
        version, bitrate_index, rate = (
            first_bytes[1] >> 3 & 3,
            first_bytes[2] >> 4,
            first_bytes[2] >> 2 & 3,
        )
        if version == 1 or bitrate_index in (0, 15) or rate == 3:
            return
        samples, kbits = (
            (1152, _MPEG1_KBITS[bitrate_index])
            if version == 3
            else (576, _MPEG2_KBITS[bitrate_index])
        )
        length = samples // 8 * kbits * 1000 // _MP3_RATES[version][rate] + (
            first_bytes[2] >> 1 & 1
        )
        is_header = is_first_frame and any(
            tag in file.read(200) for tag in (b"Xing", b"Info", b"VBRI")
        )
        yield length, 0.0 if is_header else samples / _MP3_RATES[version][rate]
        is_first_frame, offset = False, offset + length


def _decode_tag_size(size: bytes) -> int:
    return size[0] << 21 | size[1] << 14 | size[2] << 7 | size[3]


# Of channels that have nothing in common, the average has 1/channels of their power. With an eighth of
# that the correlation of two is below -0.87: most of the speech is lost.
_MIN_POWER_SHARE = 1 / 8


def average_channels(samples: np.ndarray, where: str) -> np.ndarray:
    """Average the channels of [samples, channels] to [samples].

    InputError if the channels are in opposite phase, so that little remains of the sound; `where`
    names the audio in it.

    Examples
    --------
    >>> tone = np.sin(np.arange(100))
    >>> average_channels(np.stack([tone, 0 * tone], axis=1), "example").shape
    (100,)
    """
    if samples.shape[1] == 1:
        return samples[:, 0]
    average: np.ndarray = samples.mean(axis=1)
    power = float(samples.var(axis=0, dtype=np.float64).mean())
    if float(average.var(dtype=np.float64)) < power * _MIN_POWER_SHARE / samples.shape[1]:
        raise InputError(
            f"{where}: its {samples.shape[1]} channels cancel each other (they are in opposite phase), so "
            "that their average has next to no sound: keep one of them, for example "
            "`ffmpeg -i in.wav -af pan=mono|c0=c0 out.wav`"
        )
    return average


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
