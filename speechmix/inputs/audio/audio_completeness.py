"""Check that a compressed audio file is whole.

In: an open OGG or MP3 file. Out: whether an OGG's last page is whole, the length of an MP3 by its
frames. Nothing is decoded. The lengths of other files are those of `container_lengths`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO

from .frame_grid import Seconds

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
