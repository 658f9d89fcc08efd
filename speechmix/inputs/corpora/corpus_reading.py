"""Rows or clips of any corpus: a Common Voice release, a manifest of one's own, or what extensions
read.

In: a path or hub id. Out: an iterator of `Row`s that can be used and `RejectedRow` rows that cannot,
each with a reason, in the corpus's order; or of `Clip`s. Nothing is kept in memory but the row at
hand, and no recording is read: a row says where it is (but for sets that are streamed from the
hub).

Common Voice release folders: which of their tables is read.

In: `cv-corpus-*/fr` with its `*.tsv` tables and `clips/*.mp3`. Out: `Row`s and `RejectedRow` rows. The
columns of a release change from year to year: only `path` and `sentence` are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from os import PathLike
from pathlib import Path

from ...errors import InputError
from ...extension import load_with_places
from ...files.whole_files import whole_file
from ..clips.clip import Clip
from ..clips.corpus_row import RejectedRow, Row, number_duplicates, seeded_uniform
from ..clips.manifests import clip_from_row, is_release_table, read_clips, read_manifest_rows
from .corpus_source import CorpusSource

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


_MANIFEST_SUFFIXES = (".tsv", ".csv", ".jsonl")


def read_corpus(
    source: str | PathLike[str],
    *,
    split: str | None = None,
    sample: float = 1.0,
    seed: int = 0,
    allow_outside: bool = False,
) -> Iterator[Row | RejectedRow]:
    """Read a corpus row by row.

    Parameters
    ----------
    source : path or hub id
        A Common Voice release folder (`cv-corpus-*`, or its `fr`) or one of its .tsv files; a set
        of `datasets`: a folder (`save_to_disk`, Parquet files, audio files with a `metadata.csv`)
        or an id of the hub (`google/fleurs:fr_fr`, the config behind a colon), which is streamed; a
        tar of WebDataset, a folder of them, or `shard-{000000..000010}.tar`; a folder of Lhotse
        Shar; a manifest (.tsv, .csv, .jsonl). Behind each there may be `,split=NAME`, and
        `,text=COLUMN` or `,audio=COLUMN` if it is not plain which columns are meant.
    split : str, optional
        Which table of a release, which split of a data set.
    sample : float
        Read only this share of the rows. Which ones depends on `seed` and their names, not on their
        order.
    allow_outside : bool
        Let a manifest, or a folder of `datasets` or tars, name files outside its folder.

    Raises
    ------
    InputError
        If `source` is no corpus.
    MissingExtraError
        If the library that reads it is not installed.

    Examples
    --------
    >>> for row in read_corpus("cv-corpus-21.0/fr", split="test"):        # doctest: +SKIP
    ...     print(row.name, row.text if isinstance(row, Row) else row.reason)
    """
    rows = _read_rows(
        CorpusSource.parse(source).with_split(split), allow_outside=allow_outside, sentences=True
    )
    return _sample_rows(number_duplicates(rows, where=str(source)), sample, seed)


def read_corpus_clips(
    source: str | PathLike[str],
    *,
    split: str | None = None,
    folder: str | PathLike[str] | None = None,
    allow_outside: bool = False,
    on_error: Callable[[int, str, InputError], None] | None = None,
) -> Iterator[Clip]:
    """Clips of a corpus, one after the other; each reads its sound from its file, when it is
    needed.

    What a row says of words, cue, target, foil and language (a manifest, the JSON of a tar, a cut's
    alignment) the clip has. A clip is small and can be pickled: a process on another machine that
    sees the same files reads the same sound.

    Parameters
    ----------
    source, split, allow_outside
        As for `read_corpus`; a text is not needed.
    folder : path, optional
        Where to write the recordings of a set that is streamed from the hub, which has no file to
        read them from again.
    on_error : callable, optional
        Called with row, name and error for a row that cannot be used; without it such a row is an
        error.

    Raises
    ------
    InputError
        If `source` is no corpus, or a row cannot be used.

    Examples
    --------
    >>> clips = list(read_corpus_clips("shards/shard-{000000..000010}.tar"))        # doctest: +SKIP
    """
    corpus_source = CorpusSource.parse(source).with_split(split)
    for row in number_duplicates(
        _read_rows(corpus_source, allow_outside=allow_outside, sentences=False), where=str(source)
    ):
        try:
            if isinstance(row, RejectedRow):
                raise InputError(row.reason)
            yield clip_from_row(row if row.audio is None else _write_row_audio(row, folder))
        except InputError as error:
            if on_error is None:
                raise
            on_error(row.origin.row, row.origin.name or row.name, error)


def read_clips_or_corpus(
    source: str | PathLike[str],
    *,
    tier: str | None = None,
    alphabet: str | None = None,
    allow_outside: bool = False,
    on_error: Callable[[int, str, InputError], None],
) -> list[Clip]:
    """Clips of a manifest (`speechmix.read_clips`, with its `tier` and `alphabet`) or of any other corpus
    (`read_corpus_clips`). A folder with one `manifest.tsv`, `.csv` or `.jsonl` is that manifest's."""
    path = CorpusSource.parse(source).path
    manifests = [p for p in path.glob("manifest.*") if p.suffix.lower() in _MANIFEST_SUFFIXES]
    if path.is_dir() and len(manifests) == 1:
        source = manifests[0]
    if CorpusSource.parse(source).path.suffix.lower() in _MANIFEST_SUFFIXES:
        return read_clips(
            source, tier=tier, alphabet=alphabet, allow_outside=allow_outside, on_error=on_error
        )
    return list(read_corpus_clips(source, allow_outside=allow_outside, on_error=on_error))


def write_recording(row: Row, folder: Path) -> Path:
    """Write the recording that a row carries into a folder, whole or not at all, and return its
    path."""
    suffix_by_signature = {b"RIFF": ".wav", b"fLaC": ".flac", b"OggS": ".ogg"}
    path = folder / f"{row.name}{suffix_by_signature.get((row.audio or b'')[:4], '.mp3')}"
    if not (path.is_file() and path.read_bytes() == row.audio):
        with whole_file(path) as partial_path:
            partial_path.write_bytes(row.audio or b"")
    return path.absolute()


def _write_row_audio(row: Row, folder: str | PathLike[str] | None) -> Row:
    if folder is None:
        raise InputError(
            f"{row.name}: the recordings of this set are streamed and lie in no file: say where to "
            "write them (folder=), or "
            "download the set and give its folder"
        )
    path = write_recording(row, Path(folder))
    return replace(row, root=path.parent, path=path.name, audio=None)


def _read_rows(
    source: CorpusSource, *, allow_outside: bool, sentences: bool
) -> Iterator[Row | RejectedRow]:
    """Rows as the kind of corpus has them, their names not yet told apart."""
    for _, open_corpus in sorted(load_with_places("corpora", Callable), key=lambda pair: pair[0]):
        rows: Iterator[Row | RejectedRow] | None = open_corpus(
            source, sentences=sentences, allow_outside=allow_outside
        )
        if rows is not None:
            return rows
    path = source.path
    if path.is_file():
        source.refuse_options("config", "split", kind="a table")
        return read_manifest_rows(
            path,
            allow_outside=allow_outside,
            sentences=sentences,
            audio=source.audio,
            text=source.text,
        )
    if path.is_dir():
        source.refuse_options("config", kind="a release of Common Voice")
        return read_release(path, split=source.split, audio=source.audio, text=source.text)
    raise InputError(
        f"no such corpus: {source.location}. Expected a folder, a table (.tsv, .csv, .jsonl), tars "
        "or a hub id"
    )


def _sample_rows(
    rows: Iterable[Row | RejectedRow], sample: float, seed: int
) -> Iterator[Row | RejectedRow]:
    if not 0 < sample <= 1:
        raise InputError(
            f"sample is the share of rows to read, more than 0 and at most 1, found {sample}"
        )
    return (row for row in rows if sample == 1 or seeded_uniform(row.name, seed) < sample)
