"""Whether the bytes of an audio file are as many as its header promises: what libsndfile takes on
trust.

In: an open WAV, OGG or MP3 file. Out: the share of a WAV's sound that is there, whether an OGG's
last page is whole, the length of an MP3 by its frames. Nothing is decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO

from .frame_grid import Seconds

_MP3_RATES = {3: (44_100, 48_000, 32_000), 2: (22_050, 24_000, 16_000), 0: (11_025, 12_000, 8_000)}
_KBITS = (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320)
_KBITS_LOW = (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160)


def share_of_wav(file: BinaryIO) -> float:
    """How much of what a WAV's data chunk promises is in the file; 1 if it is not said (a stream,
    another layout)."""
    end = file.seek(0, 2)
    file.seek(0)
    head = file.read(12)
    if head[:4] != b"RIFF" or head[8:] != b"WAVE":
        return 1.0
    streamed = (
        head[4:8] == b"\xff\xff\xff\xff"
    )  # as ffmpeg writes to a pipe: both lengths are unknown
    while len(chunk := file.read(8)) == 8:
        (length,) = struct.unpack("<I", chunk[4:])
        if chunk[:4] == b"data":
            left = end - file.tell()
            return 1.0 if length <= left or (streamed and length == 2**32 - 1) else left / length
        file.seek(length + length % 2, 1)
    return 1.0


def ogg_is_whole(file: BinaryIO) -> bool:
    """Whether the last page of an OGG file is all there."""
    end = file.seek(0, 2)
    file.seek(max(0, end - 2**17))  # a page has at most 65,307 bytes
    tail = file.read()
    place = tail.rfind(b"OggS")
    page = tail[place:]
    if place < 0 or len(page) < 27 or len(page) < 27 + page[26]:
        return False
    return len(page) >= 27 + page[26] + sum(page[27 : 27 + page[26]])


def mp3_seconds(file: BinaryIO) -> Seconds | None:
    """Length of an MP3 by its frames, one after the other; None if the chain breaks before the
    end."""
    end = file.seek(0, 2)
    file.seek(0)
    tag = file.read(10)
    place = 10 + _seven_bits(tag[6:10]) if tag[:3] == b"ID3" and len(tag) == 10 else 0
    seconds, count = 0.0, 0
    for length, duration in _mp3_frames(file, place):
        place, seconds, count = place + length, seconds + duration, count + 1
        if place > end:  # the last one is not whole
            break
    rest = end - place
    # Behind the last frame there may be tags; much more means that this is not the end.
    return seconds if count and rest < 2**16 and rest < max(512, 0.05 * end) else None


def _mp3_frames(file: BinaryIO, place: int) -> Iterator[tuple[int, Seconds]]:
    """Bytes and seconds of each MPEG layer III frame from a place on, the one that holds the header
    (Xing) left out."""
    first = True
    while True:
        file.seek(place)
        head = file.read(4)
        if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE6 != 0xE2:
            return
        version, bits, rate = head[1] >> 3 & 3, head[2] >> 4, head[2] >> 2 & 3
        if version == 1 or bits in (0, 15) or rate == 3:
            return
        samples, kbits = (1152, _KBITS[bits]) if version == 3 else (576, _KBITS_LOW[bits])
        length = samples // 8 * kbits * 1000 // _MP3_RATES[version][rate] + (head[2] >> 1 & 1)
        is_header = first and any(mark in file.read(200) for mark in (b"Xing", b"Info", b"VBRI"))
        yield length, 0.0 if is_header else samples / _MP3_RATES[version][rate]
        first, place = False, place + length


def _seven_bits(size: bytes) -> int:
    return size[0] << 21 | size[1] << 14 | size[2] << 7 | size[3]
