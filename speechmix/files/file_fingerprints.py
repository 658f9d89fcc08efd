"""Fingerprint of a file's bytes, to detect later changes.

In: a path. Out: a `FileMark`, which those who know of the file keep elsewhere. Checksums within a
file do not cover all of it: a flipped bit in the header of a Parquet page is a wrong number without
a complaint.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ..errors import InputError
from .cache_keys import file_digest


class FileMark(NamedTuple):
    """Size (bytes) and hash of a file; the digest is empty where it was not recorded."""

    size: int
    digest: str = ""

    @classmethod
    def of(cls, path: Path) -> FileMark:
        return cls(path.stat().st_size, file_digest(path))

    @classmethod
    def read(cls, stored: object) -> FileMark:
        """Return a mark as JSON has it: size and hash, or the size alone; InputError if it is none."""
        match stored:
            case [int(size), str(checksum)]:
                return cls(size, checksum)
            case int():
                return cls(stored)
        raise InputError(f"expected the size of a file and its hash, found {stored!r:.100}")

    def check(self, path: Path, *, most: int | None = None) -> None:
        """Compare a file with its mark; if it has more than `most` bytes, the size alone.

        InputError if it is not the same, or not there.
        """
        size = path.stat().st_size if path.is_file() else 0
        if size != self.size:
            raise InputError(f"{path}: expected {self.size:,} bytes, found {size:,}")
        if self.digest and (most is None or size <= most) and file_digest(path) != self.digest:
            raise InputError(f"{path} is damaged: its bytes are not those that were written")
