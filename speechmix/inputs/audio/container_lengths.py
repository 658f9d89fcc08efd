"""Bytes of sound in an audio file: what its header promises, and what is there.

In: an open WAV (RIFF, RIFX, RF64, BW64), W64, AIFF, CAF, AU or NIST SPHERE file. Out: both counts.
Recorders that stop early, streams and programs that append leave headers that do not fit; decoders
read what the header says and no more. Nothing is decoded.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

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
