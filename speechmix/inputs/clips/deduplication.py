"""Number rows of one name, and use a recording that a corpus has twice once.

In: the rows of a corpus, in its order. Out: the same, under names of their own, and the second row
of a recording rejected. What came before is in temporary databases on disk, so 100,000 rows need no
more memory than 1,000.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace

from ...errors import InputError
from ...files.names import Names
from ..audio.byte_ranges import ByteRange, open_bytes, parse_location
from .corpus_row import RejectedRow, Row

_CHUNK_BYTES = 2**20  # bytes


def number_duplicates(
    rows: Iterable[Row | RejectedRow], *, where: str
) -> Iterator[Row | RejectedRow]:
    """Number rows of one name in their order, and reject a recording that a corpus had before.

    A row that is rejected is numbered too, so that the others keep their names when its file is
    there one day. Names that a manifest gives twice are numbered with a warning, which calls the
    table `where`: a long run should not end because of them.
    """
    names, recordings, renamed_names = Names(), _RecordingIndex(), []
    for row in rows:
        if isinstance(row, Row) and not row.allows_duplicates and recordings.add_recording(row):
            recording_label = (
                row.name
                if row.path is None or parse_location(row.path)
                else os.path.normpath(row.path)
            )
            yield RejectedRow(
                row.name, "duplicate", f"{recording_label} occurs in an earlier row", row.origin
            )
            continue
        name = names.unused(row.name, str(row.origin))
        if row.origin.name and name != row.name:
            renamed_names.append(
                f"{row.origin.name[:80]!r} of {row.origin}, as in {names.owner(row.name)}: now "
                f"{name!r}"
            )
            renamed_names[6:] = []
        yield replace(row, name=name) if name != row.name else row
    if renamed_names:
        listing = "\n  ".join([*renamed_names[:5], *(["..."] if len(renamed_names) > 5 else [])])
        warnings.warn(
            f"{where}: names that occur more than once got a number:\n  {listing}", stacklevel=2
        )


class _RecordingIndex:
    """Recordings of a corpus that came before, on disk.

    One in a file of its own is that file. In a larger file two are one if name, sentence and all
    their bytes are the same; the bytes are read only where the rest is.
    """

    def __init__(self) -> None:
        self._database = sqlite3.connect("", isolation_level=None).cursor()
        self._database.executescript(
            "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; CREATE TABLE recordings (key BLOB "
            "PRIMARY KEY, path BLOB); BEGIN"
        )

    def add_recording(self, row: Row) -> bool:
        """Note a row's recording; True if an earlier row had it."""
        path = "" if row.path is None else os.path.normpath(row.root / row.path)
        location = parse_location(path)
        if path and location is None:
            return self._insert_or_find(path, path) is not None
        size = location.size if isinstance(location, ByteRange) else len(row.audio or b"")
        content_key = f"{row.name}\0{row.text}\0{size}"
        if row.audio is not None:
            return (
                self._insert_or_find(f"{content_key}\0{hashlib.blake2b(row.audio).hexdigest()}", "")
                is not None
            )
        first_path = self._insert_or_find(content_key, path)
        if first_path is None:
            return False
        self._insert_or_find(f"{content_key}\0{_bytes_digest(first_path)}", first_path)
        return self._insert_or_find(f"{content_key}\0{_bytes_digest(path)}", path) is not None

    def _insert_or_find(self, key: str, path: str) -> str | None:
        """Path of the first recording of a key; None if this is it."""
        row = (key.encode("utf-8", "surrogatepass"), path.encode("utf-8", "surrogatepass"))
        if (
            self._database.execute("INSERT OR IGNORE INTO recordings VALUES (?, ?)", row).rowcount
            == 1
        ):
            return None
        stored_path: bytes = self._database.execute(
            "SELECT path FROM recordings WHERE key = ?", row[:1]
        ).fetchone()[0]
        return stored_path.decode("utf-8", "surrogatepass")


def _bytes_digest(path: str) -> str:
    """Hash of a recording's bytes; of one that cannot be read, its path."""
    digest = hashlib.blake2b()
    try:
        with open_bytes(path) as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    except (OSError, InputError):
        return path
    return digest.hexdigest()
