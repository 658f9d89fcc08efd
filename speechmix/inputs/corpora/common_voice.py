"""Common Voice release folders: which of their tables is read.

In: `cv-corpus-*/fr` with its `*.tsv` tables and `clips/*.mp3`. Out: `Row`s and `RejectedRow` rows. The
columns of a release change from year to year: only `path` and `sentence` are needed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...errors import InputError
from ..clips.corpus_row import RejectedRow, Row
from ..clips.manifest_rows import is_release_table, read_manifest_rows

# Tables that hold no recordings, or those that listeners found wrong or did not judge.
_EXCLUDED_TABLES = ("invalidated", "other", "reported")


def read_release(
    folder: str | Path,
    *,
    split: str | None = None,
    audio: str | None = None,
    text: str | None = None,
) -> Iterator[Row | RejectedRow]:
    """Read the recordings of a release, in the order of the table.

    The folder is that of a language, or one above it that holds no other. A split is the name of a
    table without its ending; by default "validated" if there is one, else all tables with the
    columns path and sentence but invalidated, other and reported. `audio` and `text` name columns
    to read in place of path and sentence. InputError if there is no such table.
    """
    folder = _find_language_dir(Path(folder))
    for table in _choose_tables(folder, split):
        yield from read_manifest_rows(table, sentences=True, audio=audio, text=text)


def is_release(folder: Path) -> bool:
    """True for a folder that holds a table of a release."""
    return any(map(is_release_table, folder.glob("*.tsv")))


def find_releases(folder: Path) -> list[Path]:
    """Folders of releases: this one, else those in it, else those one further down."""
    for level in ("", "*/", "*/*/"):
        if releases := sorted(
            {table.parent for table in folder.glob(f"{level}*.tsv") if is_release_table(table)}
        ):
            return releases
    return []


def _find_language_dir(folder: Path) -> Path:
    """Return the folder that holds the tables: this one, or the only one below it that does."""
    releases = find_releases(folder)
    if len(releases) == 1:
        return releases[0]
    if releases:
        names = ", ".join(str(release.relative_to(folder)) for release in releases[:8])
        raise InputError(f"{folder} holds the releases {names}: name one of them")
    raise InputError(
        f"{folder}: expected a Common Voice release (tables *.tsv with the columns path and "
        "sentence, beside their clips), "
        "a folder of datasets (save_to_disk, Parquet files, metadata.csv beside audio files), tars "
        "of WebDataset, or cuts of "
        "Lhotse Shar; found none of them"
    )


def _choose_tables(folder: Path, split: str | None) -> list[Path]:
    tables = {
        table.stem: table for table in sorted(folder.glob("*.tsv")) if is_release_table(table)
    }
    if split is not None:
        if split not in tables:
            raise InputError(f"{folder} has no table {split!r}: it has {', '.join(tables)}")
        return [tables[split]]
    if "validated" in tables:
        return [tables["validated"]]
    return [table for name, table in tables.items() if name not in _EXCLUDED_TABLES] or list(
        tables.values()
    )
