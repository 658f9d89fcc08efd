"""Rows of a manifest or of a release's table: the one reader of both, for `read_clips` and for
`read_corpus`.

In: a .tsv, .csv or .jsonl file with the audio's path and what else is known (see data_templates/).
Out: `Row`s that can be used and `Rejected` rows, each with its reason, in the table's order.
Everything that would stop a long run later (missing files, word times that cannot be right, a cue
that is no word) is found here; audio is not read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from os import PathLike
from pathlib import Path

from ...errors import InputError
from ...files.json_files import JsonObject
from ...files.table_files import Cells, RowError, read_table, table_columns
from ..audio.byte_ranges import Stretch, location_in_file
from ..words.multipart_words import words_and_roles
from ..words.timed_words import Word
from ..words.word_checks import check_words
from .clip_metadata import checked_text
from .rows import (
    Origin,
    Rejected,
    Row,
    checked_sentence,
    located,
    located_audio,
    path_cell,
    row_name,
)

TEXTS = ("text", "sentence", "transcription")
ROLES = ("cue", "target", "foil")


def manifest_rows(
    table: str | PathLike[str],
    *,
    tier: str | None = None,
    allow_outside: bool = False,
    sentences: bool = False,
) -> Iterator[Row | Rejected]:
    """Read the rows of one table.

    Parameters
    ----------
    table : path ending in .tsv, .csv or .jsonl
        The audio's path is in the column `path` (or `file_name`). It counts from the table's own
        folder; in a release's table from the folder `clips` beside it.
    tier : str, optional
        Which tier of the TextGrids holds the words.
    allow_outside : bool
        Let paths lead out of that folder.
    sentences : bool
        Reject rows without a sentence, with one of more than 1,000 characters, or with control
        characters in it.

    Yields
    ------
    Row or Rejected
        Names may occur more than once: see `speechmix.inputs.clips.deduplication.number_duplicates`.

    Raises
    ------
    InputError
        If the table cannot be read, or has no column for the audio's path or (with `sentences`) for
        the sentence.
    """
    table = Path(table)
    folder = table.parent
    clips = folder / "clips"
    from_release = is_release_table(table) and clips.is_dir()
    required = ("path|file_name", "|".join(TEXTS)) if sentences else ("path|file_name",)
    for number, cells in read_table(table, required=required):
        if (
            isinstance(cells, dict) and "path" not in cells and "file_name" in cells
        ):  # an AudioFolder of `datasets`
            cells["path"] = cells.pop("file_name")
        readable_cells = {} if isinstance(cells, RowError) else cells
        name, path = (
            cell if isinstance(cell := readable_cells.get(column), str) else ""
            for column in ("name", "path")
        )
        origin = Origin(number, name, path)
        called = row_name(path or getattr(cells, "sound", ""), number, name=name)
        try:
            if isinstance(cells, RowError):
                raise cells
            root = clips if from_release and not path.startswith("clips/") else folder
            yield row_of_cells(
                called,
                cells,
                root,
                origin=origin,
                tier=tier,
                allow_outside=allow_outside,
                sentences=sentences,
                repeatable=not from_release,
            )
        except InputError as error:
            why = getattr(error, "why", "unreadable row")
            yield Rejected(called, why, f"{table}, row {number}: {error}", origin)


def is_release_table(path: Path) -> bool:
    """True for a .tsv with the columns path and sentence."""
    return (
        path.suffix == ".tsv"
        and path.is_file()
        and {"path", "sentence"} <= set(table_columns(path))
    )


def row_of_cells(
    name: str,
    cells: Cells,
    root: Path,
    *,
    origin: Origin,
    tier: str | None = None,
    allow_outside: bool = False,
    sentences: bool = False,
    repeatable: bool = False,
    recording: Stretch | None = None,
    utterance: str | None = None,
) -> Row:
    """Return the row that cells say, checked; `cells` has the columns of a manifest.

    Parameters
    ----------
    name, cells, root, origin
        Of the row.
    tier, allow_outside, sentences, repeatable
        As in `manifest_rows`, and of the row.
    recording : Stretch, optional
        Where the sound is, in a file in `root` that its reader has open, instead of a path that the
        cells name: it is not asked where a link to that file leads.
    utterance : str, optional
        What a word file of several recordings calls this one; by default as its audio file is
        called, or else the row.

    Raises
    ------
    RowError
        If it cannot be used.
    InputError
        If its text is empty.
    """
    if recording is None and "path" not in cells:
        raise RowError("unreadable row", f"expected a path, found only {sorted(cells)}")
    text_column = next((column for column in TEXTS if column in cells), "text")
    sentence = checked_sentence(cells.get(text_column)) if sentences else None
    strings = {
        column: _string(cells, column)
        for column in (text_column, "foil", "language", "translation", "name")
    }
    path = (
        _path_of(cells, root, repeatable, allow_outside)
        if recording is None
        else _within(recording)
    )
    words = alignment = None
    if cells.get("words") is not None:
        file_name = (
            os.path.splitext(os.path.basename(path))[0] if location_in_file(path) is None else name
        )
        words, alignment = _words(cells["words"], root, utterance or file_name, tier, allow_outside)
    requests: JsonObject = {role: cells[role] for role in ROLES if role in cells}
    where = f"clip {name!r}"
    text = checked_text(sentence or strings[text_column], where=where)
    if words is not None:
        try:
            words_and_roles(words, requests, where=where)
        except InputError as error:
            raise RowError("pair not found", str(error)) from error
    own = ("path", "words", "name", text_column, *ROLES)
    return Row(
        name,
        text or "",
        root,
        path,
        words=words,
        pairs=(requests,) if {"cue", "target"} <= set(requests) else (),
        meta={column: _as_text(cell) for column, cell in cells.items() if column not in own},
        asked=requests,
        alignment=alignment,
        origin=origin,
        repeatable=repeatable,
    )


def _path_of(cells: Cells, root: Path, repeatable: bool, outside: bool) -> str:
    """Path of the audio file, which is there, as the cells have it."""
    path = path_cell(cells["path"])
    if root.name == "clips" and not repeatable and "." not in path:
        path += ".mp3"  # so in the oldest releases
    located_audio(root, path, allow_outside=outside)
    return path


def _within(recording: Stretch) -> str:
    """A place, relative to the folder of its file."""
    return str(replace(recording, file=os.path.basename(recording.file)))


def _string(cells: Cells, column: str) -> str | None:
    cell = cells.get(column)
    if cell is not None and not isinstance(cell, str):
        raise RowError("unreadable row", f"expected {column} to be a string, found {cell!r}"[:400])
    return cell


def _words(
    word_cell: object, root: Path, utterance: str, tier: str | None, outside: bool
) -> tuple[tuple[Word, ...], str]:
    """Word times that a row brings, as a list or in a file, and which kind of file that is."""
    from ..formats.word_files import (
        read_words,
        word_file_kind,
        words_from_items,
    )  # only when there are words to read

    try:
        if isinstance(word_cell, list):
            return check_words(words_from_items(word_cell, where="words")), "given"
        file = located(root, word_cell, allow_outside=outside)
        return tuple(read_words(file, tier=tier, utterance=utterance)), word_file_kind(file)
    except InputError as error:
        raise RowError("unreadable words", str(error)) from error


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
