"""Where the bytes of a recording lie: in a file of their own, or in one that holds many (a tar, an
Arrow or Parquet table).

In: a path, or a path with a place behind it, as a string that fits wherever a path does:

    set/000123.flac                            a file
    set/shard-000000.tar::20480+51234          51,234 bytes of a file, from byte 20,480 on
    set/train-00000.parquet::audio#17          the column `audio` in row 17 (from 0) of a Parquet file

Out: the bytes, as an open file. Nothing is unpacked or copied: a process on another machine that
sees the file reads the same bytes. Whether the file is still what it was, `file_marks` tells.
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
from ...files.bounded_reads import open_regular
from ...files.parquet_files import readable_parquet

_MOST_KEPT = (
    2**28
    # bytes of a Parquet row group's recordings that are kept for the next row; more are read row by row
)


@dataclass(frozen=True)
class Stretch:
    """Some bytes of a file.

    Parameters
    ----------
    file : str
    offset, size : int
        Bytes.
    """

    file: str
    offset: int
    size: int

    def __str__(self) -> str:
        return f"{self.file}::{self.offset}+{self.size}"


@dataclass(frozen=True)
class Cell:
    """A cell of a Parquet file that holds an encoded recording.

    Parameters
    ----------
    file, column : str
    row : int
        Counted from 0.
    """

    file: str
    column: str
    row: int

    def __str__(self) -> str:
        return f"{self.file}::{self.column}#{self.row}"


_STRETCH = re.compile(r"(.+)::(\d{1,18})\+(\d{1,18})", re.DOTALL)
_CELL = re.compile(r"(.+\.parquet)::([^/#]+)#(\d{1,18})", re.DOTALL)


open_unbuffered = io.FileIO  # what is passed over is not read


def location_in_file(path: str | PathLike[str]) -> Stretch | Cell | None:
    """Return the place that a path names in a larger file; None if it names a file.

    Examples
    --------
    >>> location_in_file("shard-000000.tar::20480+51234")
    Stretch(file='shard-000000.tar', offset=20480, size=51234)
    >>> location_in_file("train.parquet::audio#17")
    Cell(file='train.parquet', column='audio', row=17)
    >>> location_in_file("a.wav") is None
    True
    """
    text = os.fspath(path)
    if "::" not in text:
        return None
    if match := _STRETCH.fullmatch(text):
        return Stretch(match[1], int(match[2]), int(match[3]))
    if match := _CELL.fullmatch(text):
        return Cell(match[1], match[2], int(match[3]))
    return None


def file_of(path: str | PathLike[str]) -> str:
    """Return the file that holds a recording.

    Examples
    --------
    >>> file_of("set/shard-000000.tar::20480+51234"), file_of("a.wav")
    ('set/shard-000000.tar', 'a.wav')
    """
    place = location_in_file(path)
    return os.fspath(path) if place is None else place.file


def file_marks(path: str | PathLike[str]) -> list[int | str]:
    """What changes when the file that holds a recording is written again, and where in it the
    recording is.

    Returns
    -------
    list
        Size, times of change (nanoseconds), place on the disk; of a part of a file, also which
        part.

    Raises
    ------
    OSError
        If there is no such file.
    """
    place = location_in_file(path)
    status = os.stat(file_of(path))
    marks: list[int | str] = [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
    if isinstance(place, Stretch):
        return [*marks, place.offset, place.size]
    return marks if place is None else [*marks, place.column, place.row]


def open_bytes(path: str | PathLike[str]) -> BinaryIO:
    """Open the bytes of a recording for reading; only what is read of a tar or an Arrow file is
    taken into memory.

    Raises
    ------
    InputError
        If the file ends before the place that is named, or has no such row or column.
    OSError
        If it cannot be opened.
    """
    place = location_in_file(path)
    if place is None:
        return open_regular(path)
    if isinstance(place, Stretch):
        file = open_unbuffered(place.file)
        held = os.fstat(file.fileno()).st_size
        if held >= place.offset + place.size:
            return io.BufferedReader(_Window(file, place))
        file.close()
        raise InputError(
            f"{place.file}: expected a recording in its bytes {place.offset:,} to "
            f"{place.offset + place.size:,}, but the file "
            f"has {held:,}: it was cut off or replaced; read the corpus again"
        )
    return io.BytesIO(_cell_bytes(place))


class _Window(io.RawIOBase):
    """Some bytes of an open file, as if they were one; closes it."""

    def __init__(self, file: io.FileIO, place: Stretch):
        self._file, self._start, self._size, self._position = file, place.offset, place.size, 0

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


def _cell_bytes(place: Cell) -> bytes:
    import pyarrow.parquet as pq

    with readable_parquet(place.file), pq.ParquetFile(place.file) as file:
        group, row = _group_and_row(
            place, [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        )
        column = f"{place.column}.bytes"
        chunks = file.metadata.row_group(group)
        sizes = {
            chunk.path_in_schema: chunk.total_uncompressed_size
            for chunk in map(chunks.column, range(chunks.num_columns))
        }
        if column not in sizes:
            raise InputError(
                f"{place.file}: expected the column {column} with encoded recordings, found "
                f"{list(sizes)[:20]}"
            )
        if sizes[column] <= _MOST_KEPT:
            content: bytes | None = _row_group(
                place.file, tuple(file_marks(place.file)), place.column, group
            )[row].as_py()
        else:
            batches = file.iter_batches(1, row_groups=[group], columns=[column])
            content = next(islice(batches, row, None)).column(0).field("bytes")[0].as_py()
    if content is None:
        raise InputError(f"{place}: expected an encoded recording in this cell, found none")
    return content


def _group_and_row(place: Cell, n_rows: list[int]) -> tuple[int, int]:
    """Which row group of a file a row is in, and which of its rows."""
    row = place.row
    for group, n_of_group in enumerate(n_rows):
        if row < n_of_group:
            return group, row
        row -= n_of_group
    raise InputError(
        f"{place.file}: expected a row {place.row}, found {sum(n_rows)} rows: read the corpus again"
    )


@functools.lru_cache(maxsize=2)  # the rows of a group are asked for one after the other
def _row_group(file: str, marks: tuple[object, ...], column: str, group: int) -> Any:
    """Encoded recordings of a row group, as an Arrow array."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as opened:
        table = opened.read_row_group(group, columns=[f"{column}.bytes"])
    return table.column(0).combine_chunks().field("bytes")
