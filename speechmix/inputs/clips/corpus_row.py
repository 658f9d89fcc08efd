"""A row of a manifest or of a corpus: one recording that can be used, or the reason why not.

In: what a table says of a recording. Out: `Row`s and `RejectedRow` rows, their sentences and paths
checked; the second half tells their names apart.

Number rows of one name, and use a recording that a corpus has twice once.

In: the rows of a corpus, in its order. Out: the same, under names of their own, and the second row
of a recording rejected. What came before is in temporary databases on disk, so 100,000 rows need no
more memory than 1,000.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import re
import sqlite3
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from ...errors import InputError
from ...files.json_files import JsonObject
from ...files.names import Names, safe_name
from ...files.user_tables import RowError
from ..audio.decoding import ByteRange, open_bytes, parse_location
from ..words.timed_words import Word
from ..words.transcript_accuracy import normalize_text
from ..words.unit_tiers import Tiers

_CONTROL_CHARACTER = re.compile("[\x00-\x1f\x7f-\x9f]")
# Half a minute of speech, all that Whisper hears, has about 500.
MAX_SENTENCE_CHARACTERS = 1000


class Origin(NamedTuple):
    """Position of a row in its table, and the table's name for it.

    The row counts lines of the table, 0 where there is no table; name and path are cells as they
    are, "" if there are none.
    """

    row: int = 0
    name: str = ""
    path: str = ""

    def __str__(self) -> str:
        return f"row {self.row} ({self.path[:200]})"


@dataclass(frozen=True)
class Row:
    """One recording of a corpus, unread.

    The name is unique in the corpus and safe in a file name; the text is in NFC, "" in a manifest
    without one. The sound is a `path` relative to `root` (or a place in a larger file,
    `speechmix.inputs.audio.decoding`), or `audio`: encoded bytes of a data set that is streamed.
    `words` and `tiers` are those that the corpus brings, and `alignment` is the kind of file they
    come from. `pairs` hold cue and target (indices into `words`, or word requests without words);
    `requests` hold what a manifest says of cue, target and foil, be it one of them alone.
    `allows_duplicates` is True in a manifest, which may have several rows of a recording; in a
    corpus they are duplicates.
    """

    name: str
    text: str
    root: Path
    path: str | None = None
    audio: bytes | None = field(default=None, repr=False)
    words: tuple[Word, ...] | None = None
    pairs: tuple[dict[str, object], ...] = ()
    meta: dict[str, str] = field(default_factory=dict)
    requests: JsonObject = field(default_factory=dict, compare=False)
    alignment: str | None = field(default=None, compare=False)
    tiers: Tiers = field(default_factory=dict, compare=False)
    origin: Origin = field(default=Origin(), compare=False)
    allows_duplicates: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class RejectedRow:
    """A row that cannot be used.

    `reason_kind` is a few words, the same for all rows it happens to ("missing clip"); `reason`
    says what was expected and what was found. The name is "" where it is not known.
    """

    name: str
    reason_kind: str
    reason: str
    origin: Origin = field(default=Origin(), compare=False)


def check_sentence(text: object) -> str:
    """Return a sentence in NFC; RowError for none, one too long, or one with control characters.

    Examples
    --------
    >>> check_sentence(" Les livres. ")
    'Les livres.'
    """
    if not isinstance(text, str) or not text.strip():
        raise RowError("empty sentence", "expected a sentence, found none")
    text = normalize_text(text).strip()
    if len(text) > MAX_SENTENCE_CHARACTERS:
        problem = f"found {len(text):,}: {text[:40]!r} ..."
        raise RowError(
            "too long",
            f"expected a sentence of at most {MAX_SENTENCE_CHARACTERS:,} characters, {problem}",
        )
    control_match = _CONTROL_CHARACTER.search(text)
    if control_match:
        raise RowError(
            "control characters",
            f"the sentence holds the control character {control_match.group()!r}",
        )
    return text


def is_missing_number(column: str, cell: object) -> bool:
    """Say whether a cell is NaN, as which tables store a missing number; RowError for infinity.

    Examples
    --------
    >>> is_missing_number("age", float("nan")), is_missing_number("age", 3.5)
    (True, False)
    """
    if isinstance(cell, float) and math.isinf(cell):
        raise RowError(
            "unreadable row",
            f"expected {column} to be finite, found {cell}: correct the cell or leave it empty",
        )
    return isinstance(cell, float) and math.isnan(cell)


def check_path_cell(path: object) -> str:
    """Return a path that a corpus names; RowError if it is not a string."""
    if not isinstance(path, str):
        raise RowError("unreadable row", f"expected a path as a string, found {path!r}"[:400])
    return path


def resolve_path(root: Path, path: object, *, allow_outside: bool = False) -> str:
    """Return the absolute path of a file that a corpus names.

    RowError if it is no path, or leads out of the corpus's folder (links followed).

    Examples
    --------
    >>> resolve_path(Path("clips"), "a.wav").endswith("clips/a.wav")
    True
    """
    path = check_path_cell(path)
    try:
        # Not pathlib: it interns every part of every path, which grows with the corpus.
        root_path = _resolve_folder(os.fspath(root))
        absolute = os.path.join(root_path, path)
        target_path = _resolve_links(absolute)
    except (
        OSError,
        ValueError,
        RuntimeError,
    ) as error:  # a null byte, a name that is too long, a loop of links
        raise RowError(
            "unsafe path", f"not a usable path: {path[:200]!r} ({error})"[:400]
        ) from error
    if (
        not allow_outside
        and target_path != root_path
        and not target_path.startswith(root_path.rstrip(os.sep) + os.sep)
    ):
        raise RowError(
            "unsafe path",
            f"path {path[:200]!r} leads out of the folder {root_path}: move the file there, "
            "or say allow_outside=True (--allow-outside) if you trust this manifest",
        )
    # Not the resolved path: a clip is named after its link, and links may point at names without an
    # ending.
    return absolute


def resolve_audio_path(root: Path, path: object, *, allow_outside: bool = False) -> str:
    """Return the absolute path of an audio file that a corpus names, or of a place in a larger
    file.

    RowError as `resolve_path`, and if there is no such file.
    """
    path = check_path_cell(path)
    location = parse_location(path)
    if location is not None:  # a link must not hide behind the place
        return str(
            replace(
                location, file=resolve_audio_path(root, location.file, allow_outside=allow_outside)
            )
        )
    absolute = resolve_path(root, path, allow_outside=allow_outside)
    if os.path.isfile(absolute):
        return absolute
    if os.path.isdir(absolute):
        raise RowError("missing clip", f"expected an audio file, found a folder: {absolute[:400]}")
    reason = (
        f"no such audio file: {absolute[:400]}. Check the spelling and the folder it is relative to"
    )
    raise RowError("missing clip", reason)


def _resolve_links(path: str) -> str:
    """Follow the links of a path; its folder's are followed once for all files in it."""
    if "\0" in path:
        raise ValueError("embedded null byte")
    folder, name = os.path.split(path)
    if name in ("", os.curdir, os.pardir) or os.path.islink(path):
        return os.path.realpath(path)
    return os.path.join(_resolve_folder(folder), name)


@functools.lru_cache(maxsize=64)
def _resolve_folder(folder: str) -> str:
    return os.path.realpath(folder)


def seeded_uniform(name: str, seed: int) -> float:
    """Return a number from 0 to 1 that only the name and the seed decide: draws do not depend on a
    corpus's order."""
    return (
        int.from_bytes(
            hashlib.sha256(f"{seed} {name}".encode("utf-8", "surrogatepass")).digest()[:6]
        )
        / 2**48
    )


def row_name(path: str, row_number: int, *, name: str = "") -> str:
    """Return what a row is called: its own name, else its audio file's without the ending, else its
    number.

    Examples
    --------
    >>> row_name("common_voice_fr_17299384.mp3", 2), row_name("a.wav", 3, name="les livres"), row_name("", 7)
    ('common_voice_fr_17299384', 'les_livres', 'row_7')
    """
    stem = path.replace("\\", "/").rsplit("/", 1)[-1].rsplit(".", 1)[0]
    candidates = (candidate for candidate in (name, stem) if any(map(str.isalnum, candidate)))
    return safe_name(next(candidates, f"row_{row_number}"))


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
