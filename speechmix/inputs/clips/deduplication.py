"""Rows of one name are told apart, and a recording that a corpus has twice is used once.

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
from ..audio.byte_ranges import Stretch, location_in_file, open_bytes
from .rows import Rejected, Row

_AT_ONCE = 2**20  # bytes


def number_duplicates(rows: Iterable[Row | Rejected], *, where: str) -> Iterator[Row | Rejected]:
    """Tell rows of one name apart by a number, in their order, and reject a recording that a corpus
    had before.

    A row that is rejected has its name too, so that the others keep theirs when its file is there
    one day. Names that a manifest itself gives twice are told apart like others, with a warning: a
    long run should not end because of them.

    Parameters
    ----------
    rows : iterable of Row or Rejected
    where : str
        What to call the table in the warning.
    """
    names, recordings, doubled = Names(), _Recordings(), []
    for row in rows:
        if isinstance(row, Row) and not row.repeatable and recordings.has_had(row):
            occurs = (
                row.name
                if row.path is None or location_in_file(row.path)
                else os.path.normpath(row.path)
            )
            yield Rejected(row.name, "duplicate", f"{occurs} occurs in an earlier row", row.origin)
            continue
        name = names.unused(row.name, str(row.origin))
        if row.origin.name and name != row.name:
            doubled.append(
                f"{row.origin.name[:80]!r} of {row.origin}, as in {names.owner(row.name)}: now "
                f"{name!r}"
            )
            doubled[6:] = []
        yield replace(row, name=name) if name != row.name else row
    if doubled:
        shown = "\n  ".join([*doubled[:5], *(["..."] if len(doubled) > 5 else [])])
        warnings.warn(
            f"{where}: names that occur more than once got a number:\n  {shown}", stacklevel=2
        )


class _Recordings:
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

    def has_had(self, row: Row) -> bool:
        """Note a row's recording; True if an earlier row had it."""
        path = "" if row.path is None else os.path.normpath(row.root / row.path)
        place = location_in_file(path)
        if path and place is None:
            return self._first_of(path, path) is not None
        size = place.size if isinstance(place, Stretch) else len(row.audio or b"")
        likeness = f"{row.name}\0{row.text}\0{size}"
        if row.audio is not None:
            return (
                self._first_of(f"{likeness}\0{hashlib.blake2b(row.audio).hexdigest()}", "")
                is not None
            )
        first = self._first_of(likeness, path)
        if first is None:
            return False
        self._first_of(f"{likeness}\0{_bytes_digest(first)}", first)
        return self._first_of(f"{likeness}\0{_bytes_digest(path)}", path) is not None

    def _first_of(self, key: str, path: str) -> str | None:
        """Path of the first recording of a key; None if this is it."""
        row = (key.encode("utf-8", "surrogatepass"), path.encode("utf-8", "surrogatepass"))
        if (
            self._database.execute("INSERT OR IGNORE INTO recordings VALUES (?, ?)", row).rowcount
            == 1
        ):
            return None
        stored: bytes = self._database.execute(
            "SELECT path FROM recordings WHERE key = ?", row[:1]
        ).fetchone()[0]
        return stored.decode("utf-8", "surrogatepass")


def _bytes_digest(path: str) -> str:
    """Hash of a recording's bytes; of one that cannot be read, its path."""
    digest = hashlib.blake2b()
    try:
        with open_bytes(path) as file:
            while part := file.read(_AT_ONCE):
                digest.update(part)
    except (OSError, InputError):
        return path
    return digest.hexdigest()
