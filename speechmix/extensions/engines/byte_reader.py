"""Read a file of numbers, texts and arrays one after the other, never past its end.

In: a path. Out: values; arrays are views of the mapped file, so nothing is allocated for a length
that the file does not hold.
"""

from __future__ import annotations

import struct
import zipfile
from pathlib import Path

import numpy as np

from ...errors import ModelError

READ_ERRORS = (struct.error, ValueError, KeyError, IndexError, OverflowError, OSError)


class ByteReader:
    """A position in a mapped file, little-endian."""

    def __init__(self, path: Path) -> None:
        self.path, self.position = path, 0
        self._data = np.memmap(path, dtype=np.uint8, mode="r")
        self._bytes = self._data.data

    @property
    def is_at_end(self) -> bool:
        return self.position >= len(self._data)

    def take(self, count: int) -> np.ndarray:
        """Return a view of the next bytes; a ValueError past the end."""
        start = self._advance(count)
        return self._data[start : start + count]

    def text(self, count: int) -> bytes:
        """Return a copy of the next bytes."""
        start = self._advance(count)
        return bytes(self._bytes[start : start + count])

    def _advance(self, count: int) -> int:
        start, end = self.position, self.position + count
        if count < 0 or end > len(self._data):
            raise ValueError(f"{count} bytes at {start}, but the file has {len(self._data)}")
        self.position = end
        return start

    def numbers(self, code: str, count: int) -> tuple[int, ...]:
        """Return `count` integers of a type of `struct`."""
        layout = f"<{count}{code}"
        return struct.unpack_from(layout, self._bytes, self._advance(struct.calcsize(layout)))

    def number(self, code: str) -> int:
        return self.numbers(code, 1)[0]


def read_start(path: Path, count: int) -> bytes:
    """Return the first bytes of a file, to recognise it; none of what is no file."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        return file.read(count)


def check_stored_archive(path: Path) -> None:
    """Raise a ModelError for an archive that would unpack to more than it holds."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise ModelError(f"{path}: damaged archive ({error})") from error
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries) or (
        sum(entry.file_size for entry in entries) > path.stat().st_size
    ):
        raise ModelError(f"{path}: damaged archive: its parts are longer than the file")


def damaged_file_error(path: Path, what: str, error: Exception) -> ModelError:
    """Return the error to raise for a file that cannot be read to its end."""
    return ModelError(f"{path}: damaged, or no {what} ({str(error)[:200]})")
