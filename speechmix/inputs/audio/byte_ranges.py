"""Byte range of a recording inside its file, tar, Arrow or Parquet table.

In: a path, or a path with a place behind it, as a string that fits wherever a path does:

    set/000123.flac                            a file
    set/shard-000000.tar::20480+51234          51,234 bytes of a file, from byte 20,480 on
    set/train-00000.parquet::audio#17          the column `audio` in row 17 (from 0) of a Parquet file

Out: the bytes, as an open file. Nothing is unpacked or copied: a process on another machine that
sees the file reads the same bytes. Whether the file is still what it was, `file_signature` tells.
"""

from __future__ import annotations

import functools
import io
import os
import re
from dataclasses import dataclass
from itertools import islice
from os import PathLike
from typing import Any, BinaryIO

from ...errors import InputError
from ...files.parquet_files import readable_parquet
from ...files.text_files import open_regular_file

_MAX_ROW_GROUP_BYTES = (
    2**28
    # bytes of a Parquet row group's recordings that are kept for the next row; more are read row by row
)


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
