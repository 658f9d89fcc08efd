"""Make safe, short and distinct file names for clips and models.

In: names as users and files have them. Out: names for files; where two clips would share one, an
error, or names told apart, by a number in the order in which they come, or by their folders. Two
names are one where a file system may take them for one: capitals and accents' form count not.
"""

from __future__ import annotations

import re
import sqlite3
import unicodedata
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from ..errors import InputError
from .cache_keys import digest

# File systems take 255 bytes; endings, and the numbers that tell doubled names apart, come on top.
_CHARACTERS, _BYTES = 150, 200
_SAFE, _UNSAFE = re.compile(r"[\w.\-]*"), re.compile(r"[^\w.\-]+")


def safe_name(name: str) -> str:
    """Return a name that is safe as part of a file name: letters, digits, ``_``, ``-`` and inner
    dots.

    At most 150 characters and 200 bytes (UTF-8); what is longer is cut and ends in a hash of the
    whole name, so that two long names stay two.

    Examples
    --------
    >>> safe_name("../speaker 1/été.wav")
    'speaker_1_été.wav'
    >>> len(safe_name("あ" * 300).encode()) <= 200, safe_name("あ" * 300) == safe_name("あ" * 301)
    (True, False)
    """
    safe = str(name)
    if not (safe.isascii() and _SAFE.fullmatch(safe)):
        safe = _UNSAFE.sub("_", unicodedata.normalize("NFC", safe))
    safe = safe.strip("._")
    if len(safe) > _CHARACTERS or len(safe.encode()) > _BYTES:
        mark = f"-{digest(safe)[:8]}"
        start = (
            safe[: _CHARACTERS - len(mark)].encode()[: _BYTES - len(mark)].decode(errors="ignore")
        )
        safe = start.rstrip("._") + mark
    return safe or "clip"


def file_name_key(name: str) -> str:
    """Return what is equal for two names that may be one file: on some systems capitals do not
    count.

    Examples
    --------
    >>> file_name_key("tiny Model") == file_name_key("tiny_model")
    True
    """
    return fold_name(safe_name(name))


def fold_name(safe: str) -> str:
    """Equal for two safe names that may be one file."""
    return unicodedata.normalize("NFC", safe.casefold())


class Names:
    """Names that are taken, each with who took it first; kept on disk, so 100,000 need no more
    memory than 1,000.

    Examples
    --------
    >>> names = Names()
    >>> [names.unused(name) for name in ("a", "A", "a", "é", "e\\u0301")]
    ['a', 'A-2', 'a-3', 'é', 'é-2']
    """

    def __init__(self) -> None:
        self._taken = sqlite3.connect(
            "", isolation_level=None
        ).cursor()  # an anonymous database on disk
        self._taken.executescript(
            "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;"
            "CREATE TABLE taken (name TEXT PRIMARY KEY, count INTEGER, owner TEXT); BEGIN"
        )

    def unused(self, name: str, owner: str = "") -> str:
        """Return the name, safe in a file name, with a number behind it if it is taken; now it
        is."""
        name = safe_name(name)
        if self._take(name, owner):
            return name
        key = file_name_key(name)
        number = (
            self._taken.execute("SELECT count FROM taken WHERE name = ?", (key,)).fetchone()[0] + 1
        )
        while not self._take(numbered_name(name, number), owner):
            number += 1
        # The next one starts behind this number: a thousand recordings called "audio" are not a
        # million look-ups.
        self._taken.execute("UPDATE taken SET count = ? WHERE name = ?", (number, key))
        return numbered_name(name, number)

    def owner(self, name: str) -> str:
        """Who took a name first; "" if it is free."""
        row = self._taken.execute(
            "SELECT owner FROM taken WHERE name = ?", (file_name_key(name),)
        ).fetchone()
        return row[0] if row else ""

    def _take(self, name: str, owner: str) -> bool:
        row = (fold_name(name), owner)
        return (
            self._taken.execute("INSERT OR IGNORE INTO taken VALUES (?, 1, ?)", row).rowcount == 1
        )


def numbered_name(name: str, number: int) -> str:
    """Return a name with a number behind it, no longer than a name may be.

    Examples
    --------
    >>> numbered_name("clip", 2), len(numbered_name("é" * 100, 12).encode())
    ('clip-2', 199)
    """
    ending = f"-{number}"
    stem = name[: _CHARACTERS - len(ending)].encode("utf-8")[: _BYTES - len(ending)]
    return stem.decode("utf-8", "ignore") + ending


def distinct_file_names(names: Iterable[str]) -> dict[str, str]:
    """Return a safe part of a file name for each of some names, no two of which are one file.

    Examples
    --------
    >>> distinct_file_names(["a/b", "a_b", "../.."])
    {'a/b': 'a_b', 'a_b': 'a_b-2', '../..': 'clip'}
    """
    taken = Names()
    return {name: taken.unused(name) for name in dict.fromkeys(map(str, names))}


def path_within(folder: Path, name: str, *, where: str | Path) -> Path:
    """Return the path of a file below a folder, from a relative path in the file `where`.

    InputError if the path leads out of the folder.
    """
    pure = PurePosixPath(name.replace("\\", "/"))
    if (
        pure.is_absolute()
        or ".." in pure.parts
        or not pure.parts
        or ":" in pure.parts[0]
        or "\0" in name
    ):
        raise InputError(
            f"{where}: expected the path of a file below {folder}, found {name!r:.200}: the file "
            "is damaged"
        )
    return folder / name


def refuse_duplicate_label(labels: dict[str, str], label: str) -> None:
    """Add a model's label to those of a run; InputError if another model has the same."""
    file = file_name_key(label)
    if file in labels:
        labels_of_both = " and ".join(repr(name) for name in dict.fromkeys((labels[file], label)))
        raise InputError(
            f"two models are called {labels_of_both}, one name in files: give them runs, or "
            "folders, of their own names"
        )
    labels[file] = label
