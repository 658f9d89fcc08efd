"""Common Voice release folders and manifests of one's own, row by row.

In: `cv-corpus-*/fr` with its `*.tsv` tables and `clips/*.mp3`, or a manifest. Out: `Row`s and `Rejected` rows. The
columns of a release change from year to year: only `path` and `sentence` are needed. A manifest may also name words
with times, cue, target and foil (see data_templates/); such a row is used as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..errors import InputError
from ..spans import Word
from .rows import Rejected, Row, checked_text, located, row_name
from .tables import Cells, table_columns, table_rows

# Tables that hold no recordings, or those that listeners found wrong or did not judge.
_SET_ASIDE = ("invalidated", "other", "reported")
_TEXTS = ("sentence", "text", "transcription")
_OWN = ("path", "words", "cue", "target", "foil", "name", *_TEXTS)


def read_release(folder: str | Path, *, split: str | None = None) -> Iterator[Row | Rejected]:
    """Read the recordings of a release.

    Parameters
    ----------
    folder : path
        The language's folder, or a folder above it that holds no other.
    split : str, optional
        Name of a table without its ending ("test"). Default: "validated" if there is one, else all tables with the
        columns path and sentence but invalidated, other and reported.

    Yields
    ------
    Row or Rejected
        In the order of the table.

    Raises
    ------
    InputError
        If there is no such table.

    Examples
    --------
    >>> for row in read_release("cv-corpus-21.0-2025-03-14/fr", split="test"):        # doctest: +SKIP
    ...     print(row)
    """
    folder = _language_folder(Path(folder))
    for table in _tables(folder, split):
        yield from read_table_rows(table)


def read_table_rows(table: str | Path, *, allow_outside: bool = False) -> Iterator[Row | Rejected]:
    """Read the recordings of one table: of a release, or a manifest (.tsv, .csv, .jsonl).

    Parameters
    ----------
    table : path
        Paths in it count from the folder `clips` beside it if there is one and the table is a release's, else from
        its own folder.
    allow_outside : bool
        Let paths lead out of that folder.

    Raises
    ------
    InputError
        If the table has no column for the audio's path or the sentence.
    """
    table = Path(table)
    root = table.parent
    if is_release_table(table) and (root / "clips").is_dir():
        root = root / "clips"
    if table.suffix.lower() != ".jsonl":
        columns = table_columns(table)
        if "path" not in columns or not set(_TEXTS) & set(columns):
            raise InputError(f"{table}: expected the columns path and one of {', '.join(_TEXTS)}, found {columns}")
    for number, cells in table_rows(table):
        where = f"{table.name}, row {number}"
        yield cells if isinstance(cells, Rejected) else _row(cells, root, number, where, allow_outside)


def is_release_table(path: Path) -> bool:
    """True for a .tsv with the columns path and sentence."""
    return path.suffix == ".tsv" and path.is_file() and {"path", "sentence"} <= set(table_columns(path))


def _language_folder(folder: Path) -> Path:
    """Return the folder that holds the tables: this one, or the only one below it that does."""
    for level in ("", "*/", "*/*/"):
        found = sorted({table.parent for table in folder.glob(f"{level}*.tsv") if is_release_table(table)})
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(str(one.relative_to(folder)) for one in found[:8])
            raise InputError(f"{folder} holds the releases {names}: name one of them")
    raise InputError(
        f"{folder}: expected a Common Voice release (tables *.tsv with the columns path and sentence, beside the folder "
        "clips) or a folder written by datasets' save_to_disk, found neither"
    )


def _tables(folder: Path, split: str | None) -> list[Path]:
    found = {table.stem: table for table in sorted(folder.glob("*.tsv")) if is_release_table(table)}
    if split is not None:
        if split not in found:
            raise InputError(f"{folder} has no table {split!r}: it has {', '.join(found)}")
        return [found[split]]
    if "validated" in found:
        return [found["validated"]]
    return [table for name, table in found.items() if name not in _SET_ASIDE] or list(found.values())


def _row(cells: Cells, root: Path, number: int, where: str, allow_outside: bool) -> Row | Rejected:
    path = str(cells.get("path", ""))
    name = row_name(str(cells.get("name") or path), number)
    if not path:
        return Rejected(name, "unreadable row", f"{where}: expected the path of a clip, found none")
    if root.name == "clips" and "." not in path:
        path += ".mp3"  # so in the oldest releases
    sentence = checked_text(name, next((cells[column] for column in _TEXTS if column in cells), None))
    rejected = sentence if isinstance(sentence, Rejected) else located(root, path, name, allow_outside=allow_outside)
    if rejected is not None:
        return Rejected(name, rejected.why, f"{where}: {rejected.reason}")
    meta = {
        column: cell if isinstance(cell, str) else repr(cell) for column, cell in cells.items() if column not in _OWN
    }
    try:
        words = _words(cells, root, name, allow_outside)
    except InputError as error:
        return Rejected(name, "unreadable words", f"{where}: {error}")
    pair = {role: cells[role] for role in ("cue", "target", "foil") if role in cells}
    return Row(name, sentence, root, path, None, words, (pair,) if {"cue", "target"} <= set(pair) else (), meta)


def _words(cells: Cells, root: Path, name: str, allow_outside: bool) -> tuple[Word, ...] | None:
    """Word times that a manifest's row brings: a list, or a file."""
    given = cells.get("words")
    if given is None:
        return None
    from ..alignment.readers import read_words, words_from_items  # a later room: only when there are words to read

    if isinstance(given, list):
        return tuple(words_from_items(given))
    rejected = located(root, str(given), name, allow_outside=allow_outside)
    if rejected is not None:
        raise InputError(rejected.reason)
    return tuple(read_words(root / str(given), utterance=name))
