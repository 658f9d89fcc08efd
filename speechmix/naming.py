"""Which name a recording goes by: doubled names are told apart, in the order in which they come.

In: names, one after the other. Out: the same names, the second of one kind with "-2" behind it. Two names are one if
files called so could be: after `safe_name`, whatever their capitals and their form of accents. What is taken is kept in
a temporary database on disk, so 100,000 names need no more memory than 1,000.
"""

from __future__ import annotations

import sqlite3
import unicodedata

from .clips import safe_name

MOST_CHARACTERS, MOST_BYTES = 150, 200  # as `safe_name` keeps them: a file system takes 255 bytes, endings included


class Names:
    """Names that are taken, each with who took it first.

    Examples
    --------
    >>> names = Names()
    >>> [names.unused(name) for name in ("a", "A", "a", "é", "e\\u0301")]
    ['a', 'A-2', 'a-3', 'é', 'é-2']
    """

    def __init__(self):
        self._taken = sqlite3.connect("", isolation_level=None).cursor()  # an anonymous database on disk
        self._taken.executescript(
            "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;"
            "CREATE TABLE taken (name TEXT PRIMARY KEY, count INTEGER, owner TEXT); BEGIN"
        )

    def unused(self, name: str, owner: str = "") -> str:
        """Return the name, safe in a file name, with a number behind it if it is taken; now it is."""
        name = safe_name(name)
        if self._take(name, owner):
            return name
        key = _key(name)
        number = self._taken.execute("SELECT count FROM taken WHERE name = ?", (key,)).fetchone()[0] + 1
        while not self._take(numbered(name, number), owner):
            number += 1
        # The next one starts behind this number: a thousand recordings called "audio" are not a million look-ups.
        self._taken.execute("UPDATE taken SET count = ? WHERE name = ?", (number, key))
        return numbered(name, number)

    def owner(self, name: str) -> str:
        """Who took a name first; "" if it is free."""
        row = self._taken.execute("SELECT owner FROM taken WHERE name = ?", (_key(safe_name(name)),)).fetchone()
        return row[0] if row else ""

    def _take(self, name: str, owner: str) -> bool:
        row = (_key(name), owner)
        return self._taken.execute("INSERT OR IGNORE INTO taken VALUES (?, 1, ?)", row).rowcount == 1


def numbered(name: str, number: int) -> str:
    """Return a name with a number behind it, no longer than a name may be.

    Examples
    --------
    >>> numbered("clip", 2), len(numbered("é" * 100, 12).encode())
    ('clip-2', 199)
    """
    ending = f"-{number}"
    stem = name[: MOST_CHARACTERS - len(ending)].encode("utf-8")[: MOST_BYTES - len(ending)]
    return stem.decode("utf-8", "ignore") + ending


def _key(name: str) -> str:
    """Form of a safe name (in NFC already) in which all that are one are the same."""
    return unicodedata.normalize("NFC", name.casefold())
