"""Rows of any corpus, one after the other: a Common Voice release, a `datasets` folder, a manifest of one's own.

In: a path or hub id. Out: an iterator of `Row`s that can be used and `Rejected` rows that cannot, each with a reason,
in the corpus's order. Nothing is kept in memory but the row at hand: what was seen before (duplicates) is in a
temporary database on disk, so 100,000 rows need no more memory than 1,000.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
import sqlite3
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path

from ..clips import safe_name
from ..errors import InputError
from ..spans import Word

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
MOST_CHARACTERS = 1000  # of a sentence; half a minute of speech, all that Whisper hears, is about 500


@dataclass(frozen=True)
class Row:
    """One recording of a corpus, unread.

    Parameters
    ----------
    name : str
        Unique in the corpus and safe in a file name.
    text : str
        The sentence, as it is written, in NFC.
    root : Path
        The corpus's folder.
    path : str, optional
        Audio file, relative to `root`.
    audio : bytes, optional
        The encoded audio, where the corpus holds it itself.
    words : tuple of Word, optional
        Word times that the corpus brings.
    pairs : tuple of dict
        Cue and target (indices into `words`, or word requests if there are none), where the corpus names them.
    meta : dict of str
    """

    name: str
    text: str
    root: Path
    path: str | None = None
    audio: bytes | None = field(default=None, repr=False)
    words: tuple[Word, ...] | None = None
    pairs: tuple[dict, ...] = ()
    meta: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Rejected:
    """A row that cannot be used.

    Parameters
    ----------
    name : str
        As far as it is known.
    why : str
        Kind of reason, a few words, the same for all rows it happens to ("missing clip").
    reason : str
        What was expected, what was found.
    """

    name: str
    why: str
    reason: str


def read_corpus(
    source: str | PathLike, *, split: str | None = None, sample: float = 1.0, seed: int = 0, allow_outside: bool = False
) -> Iterator[Row | Rejected]:
    """Read a corpus row by row.

    Parameters
    ----------
    source : path or hub id
        A Common Voice release folder (`cv-corpus-*`, or its `fr`) or one of its .tsv files; a folder written by
        `datasets` (`save_to_disk`) or the id of a data set on the hub; a manifest (.tsv, .csv, .jsonl).
    split : str, optional
        Which table of a release, which split of a data set.
    sample : float
        Read only this share of the rows. Which ones depends on `seed` and their names, not on their order.
    allow_outside : bool
        Let a manifest name files outside its folder.

    Raises
    ------
    InputError
        If `source` is no corpus.

    Examples
    --------
    >>> for row in read_corpus("cv-corpus-21.0/fr", split="test"):        # doctest: +SKIP
    ...     print(row.name, row.text if isinstance(row, Row) else row.reason)
    """
    from . import common_voice, hub_datasets

    path = Path(source)
    if hub_datasets.is_dataset_folder(path) or (not path.exists() and str(source).count("/") == 1 and not path.suffix):
        rows = hub_datasets.read_dataset(source, split=split)
    elif path.is_dir():
        rows = common_voice.read_release(path, split=split)
    elif path.is_file():
        rows = common_voice.read_table_rows(path, allow_outside=allow_outside)
    else:
        raise InputError(f"no such corpus: {source}. Expected a folder, a table (.tsv, .csv, .jsonl) or a hub id")
    return _sampled(_unique(rows), sample, seed)


def checked_text(name: str, text: object) -> str | Rejected:
    """Return a sentence in NFC, or why it cannot be used.

    Examples
    --------
    >>> checked_text("a", " Les livres. "), checked_text("a", "le\\x07").why
    ('Les livres.', 'control characters')
    """
    if not isinstance(text, str) or not text.strip():
        return Rejected(name, "empty sentence", "expected a sentence, found none")
    text = unicodedata.normalize("NFC", text.strip())
    if len(text) > MOST_CHARACTERS:
        found = f"found {len(text):,}: {text[:40]!r} ..."
        return Rejected(name, "too long", f"expected a sentence of at most {MOST_CHARACTERS:,} characters, {found}")
    control = _CONTROL.search(text)
    if control:
        return Rejected(name, "control characters", f"the sentence holds the control character {control.group()!r}")
    return text


def located(root: Path, path: str, name: str, *, allow_outside: bool = False) -> Rejected | None:
    """Return the rejection of a row whose file leads out of the corpus's folder (links followed) or is not there.

    Examples
    --------
    >>> located(Path("."), "../../etc/passwd", "a").why
    'unsafe path'
    """
    try:
        # Not pathlib: it interns every part of every path, which grows with the corpus.
        found, inside = os.path.realpath(os.path.join(root, path)), _real(root)
        if not allow_outside and not found.startswith(inside + os.sep):
            return Rejected(name, "unsafe path", f"{path[:200]!r} leads out of the corpus's folder {root}: refused")
        if os.path.isfile(found):
            return None
    except (OSError, ValueError) as error:  # a null byte, a name that is too long, a loop of links
        return Rejected(name, "unsafe path", f"{path[:200]!r} is no usable path ({error})"[:400])
    return Rejected(name, "missing clip", f"expected the file {path[:200]!r} in {root}, found none")


@functools.lru_cache(maxsize=8)
def _real(folder: Path) -> str:
    return os.path.realpath(folder)


def _unique(rows: Iterable[Row | Rejected]) -> Iterator[Row | Rejected]:
    """Reject a recording that was there before; tell two recordings of one name apart."""
    seen = sqlite3.connect("")  # an anonymous database on disk
    seen.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; CREATE TABLE seen (key TEXT PRIMARY KEY)")
    seen.isolation_level = None
    seen.execute("BEGIN")

    def first(key: str) -> bool:
        return seen.execute("INSERT OR IGNORE INTO seen VALUES (?)", (key,)).rowcount == 1

    try:
        for row in rows:
            if isinstance(row, Row):
                identity = os.path.normpath(row.path) if row.path is not None else f"{row.name}\0{row.text}"
                if not first(f"path {identity}"):
                    row = Rejected(row.name, "duplicate", f"{identity.split(chr(0))[0]} occurs in an earlier row")
                elif not first(f"name {row.name.casefold()}"):
                    row = replace(row, name=f"{row.name[:140]}-{hashlib.sha1(identity.encode()).hexdigest()[:8]}")
            yield row
    finally:
        seen.close()


def _sampled(rows: Iterable[Row | Rejected], sample: float, seed: int) -> Iterator[Row | Rejected]:
    if not 0 < sample <= 1:
        raise InputError(f"sample is the share of rows to read, more than 0 and at most 1, found {sample}")
    return (row for row in rows if sample == 1 or lot(row.name, seed) < sample)


def lot(name: str, seed: int) -> float:
    """Return a number from 0 to 1 that only the name and the seed decide: draws do not depend on a corpus's order.

    Examples
    --------
    >>> 0 <= lot("clip", 1) < 1 and lot("clip", 1) != lot("clip", 2)
    True
    """
    return int.from_bytes(hashlib.sha256(f"{seed} {name}".encode("utf-8", "surrogatepass")).digest()[:6]) / 2**48


def row_name(path: str, number: int) -> str:
    """Return the name of a row: its audio file's without the ending, else its number.

    Examples
    --------
    >>> row_name("common_voice_fr_17299384.mp3", 2), row_name("", 7)
    ('common_voice_fr_17299384', 'row_7')
    """
    stem = path.replace("\\", "/").rsplit("/", 1)[-1].rsplit(".", 1)[0]
    return safe_name(stem) if stem.strip("._ ") else f"row_{number}"
