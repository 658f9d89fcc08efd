"""A manifest lists many clips: one row a clip, with its audio, text, words, cue and target.

In: a .tsv, .csv or .jsonl file. Out: a list of `Clip`s whose audio is read when it is needed (of a
clip with words, the header at once). Everything that would stop a long run later (missing files, a
cue that is no word, words past the end of the audio) is reported while the manifest is read.

Read rows of a manifest or of a corpus release's table.

In: a .tsv, .csv or .jsonl file with the audio's path and what else is known (see data_templates/).
Out: `Row`s that can be used and `RejectedRow` rows, each with its reason, in the table's order.
Everything that would stop a long run later (missing files, word times that cannot be right, a cue
that is no word) is found here; audio is not read.
"""

from __future__ import annotations

import difflib
import json
import os
import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from os import PathLike
from pathlib import Path

from ...errors import InputError
from ...files.json_files import JsonObject
from ...files.user_tables import Cells, RowError, column_key, read_table, table_columns
from ..audio.decoding import ByteRange, parse_location
from ..bundled import manifest_path
from ..corpora.corpus_source import CorpusSource
from ..words.multipart_words import resolve_words_and_roles
from ..words.timed_words import Word
from ..words.unit_tiers import Tiers, check_tiers, word_requests
from ..words.word_checks import check_words
from .clip import Clip, check_text, given_units, usable_tiers
from .corpus_row import (
    Origin,
    RejectedRow,
    Row,
    check_path_cell,
    check_sentence,
    is_missing_number,
    number_duplicates,
    resolve_audio_path,
    resolve_path,
    row_name,
)

TEXT_COLUMNS = ("text", "sentence", "transcription")
NAMED_COLUMNS_ADVICE = "name others behind the table: clips.tsv,audio=COLUMN,text=COLUMN"
ROLE_COLUMNS = ("cue", "target", "foil")


def read_manifest_rows(
    table: str | PathLike[str],
    *,
    tier: str | None = None,
    alphabet: str | None = None,
    allow_outside: bool = False,
    sentences: bool = False,
    audio: str | None = None,
    text: str | None = None,
) -> Iterator[Row | RejectedRow]:
    """Read the rows of one table (.tsv, .csv or .jsonl).

    The path of the audio is in the column `path` (or `file_name`). It counts from the table's
    folder; in a release's table from the folder `clips_dir` beside it. Paths may lead out of it
    only with `allow_outside`. `sentences` rejects rows without a sentence, with one of more than
    1,000 characters, or with control characters. Names may occur more than once: see
    `speechmix.inputs.clips.corpus_row.number_duplicates`. `tier` names the word tier of
    TextGrids; without `alphabet`, phones are in the one that all labels of a tier fit. InputError
    if the table cannot be read, or lacks the column of the audio or (with `sentences`) of the
    sentence.
    """
    table = Path(table)
    table_dir = table.parent
    clips_dir = table_dir / "clips"
    is_release = is_release_table(table) and clips_dir.is_dir()
    audio, text = audio and column_key(table, audio), text and column_key(table, text)
    required = [audio or "path|file_name"]
    if sentences or text:
        required.append(text or "|".join(TEXT_COLUMNS))
    rows = read_table(table, required=tuple(required), advice=NAMED_COLUMNS_ADVICE)
    for row_index, (row_number, cells) in enumerate(rows):
        if isinstance(cells, dict):
            _rename_columns(cells, audio, text)
            if row_index == 0:
                _warn_of_misspelt_roles(table, cells)
        readable_cells = {} if isinstance(cells, RowError) else cells
        name, path = (
            cell if isinstance(cell := readable_cells.get(column), str) else ""
            for column in ("name", "path")
        )
        origin = Origin(row_number, name, path)
        clip_name = row_name(path or getattr(cells, "sound", ""), row_number, name=name)
        try:
            if isinstance(cells, RowError):
                raise cells
            root = clips_dir if is_release and not path.startswith("clips/") else table_dir
            yield row_from_cells(
                clip_name,
                cells,
                root,
                origin=origin,
                tier=tier,
                alphabet=alphabet,
                allow_outside=allow_outside,
                sentences=sentences,
                allows_duplicates=not is_release,
            )
        except InputError as error:
            reason_kind = getattr(error, "reason_kind", "unreadable row")
            yield RejectedRow(clip_name, reason_kind, f"{table}, row {row_number}: {error}", origin)


def _warn_of_misspelt_roles(table: Path, columns: Collection[str]) -> None:
    """Ask whether a column is meant as that of the cue or the target, where a table has none."""
    for role in ("cue", "target"):
        near = [name for name in columns if sorted(name.lower()) == sorted(role)]
        near = near or difflib.get_close_matches(role, columns, n=1, cutoff=0.75)
        if role not in columns and near:
            warnings.warn(
                f"{table} has no column {role!r}; is {near[0]!r} meant? It is kept with the clips and "
                "not used",
                stacklevel=2,
            )


def _rename_columns(cells: Cells, audio: str | None, text: str | None) -> None:
    """Call the columns of audio and text as a manifest does; of those that are named, no other
    counts."""
    if audio is not None:
        path = cells.pop(audio, None)
        cells.pop("path", None)
        if path is not None:
            cells["path"] = path
    elif "path" not in cells and "file_name" in cells:  # an AudioFolder of `datasets`
        cells["path"] = cells.pop("file_name")
    if text is not None:
        sentence = cells.pop(text, None)
        for column in TEXT_COLUMNS:
            cells.pop(column, None)
        if sentence is not None:
            cells["text"] = sentence


def is_release_table(path: Path) -> bool:
    """True for a .tsv with the columns path and sentence."""
    return (
        path.suffix == ".tsv"
        and path.is_file()
        and {"path", "sentence"} <= set(table_columns(path))
    )


def row_from_cells(
    name: str,
    cells: Cells,
    root: Path,
    *,
    origin: Origin,
    tier: str | None = None,
    alphabet: str | None = None,
    allow_outside: bool = False,
    sentences: bool = False,
    allows_duplicates: bool = False,
    recording: ByteRange | None = None,
    utterance: str | None = None,
) -> Row:
    """Return the row that cells with the columns of a manifest describe, checked.

    Options are those of `read_manifest_rows`. `recording` is the place of the sound in a file in
    `root` that its reader has open, instead of a path in the cells; where a link to that file leads
    is not checked. `utterance` is what a word file of several recordings calls this one: by default
    the name of its audio file, or of the row. RowError if the row cannot be used, InputError if its
    text is empty.
    """
    if recording is None and "path" not in cells:
        raise RowError(
            "unreadable row",
            f"expected a path, found only {sorted(cells)}"[:400] + f": {NAMED_COLUMNS_ADVICE}",
        )
    text_column = next((column for column in TEXT_COLUMNS if column in cells), "text")
    sentence = check_sentence(cells.get(text_column)) if sentences else None
    string_cells = {
        column: _string_cell(cells, column)
        for column in (text_column, "foil", "language", "translation", "name")
    }
    path = (
        _find_audio_path(cells, root, allows_duplicates, allow_outside)
        if recording is None
        else _relative_location(recording)
    )
    words = alignment = file_text = None
    tiers: Tiers = {}
    if cells.get("words") is not None:
        file_name = (
            os.path.splitext(os.path.basename(path))[0] if parse_location(path) is None else name
        )
        words, tiers, file_text, alignment = _read_word_cell(
            cells["words"], root, utterance or file_name, tier, alphabet, allow_outside
        )
    if cells.get("tiers") is not None:
        tiers = _read_tiers_cell(cells["tiers"], words, alphabet)
    requests: JsonObject = {role: cells[role] for role in ROLE_COLUMNS if role in cells}
    where = f"clip {name!r}"
    text = check_text(sentence or string_cells[text_column], where=where) or file_text
    if words is not None:
        try:
            resolve_words_and_roles(words, word_requests(requests), where=where)
        except InputError as error:
            raise RowError("pair not found", str(error)) from error
    field_columns = ("path", "words", "tiers", "name", text_column, *ROLE_COLUMNS)
    return Row(
        name,
        text or "",
        root,
        path,
        words=words,
        pairs=(requests,) if {"cue", "target"} <= set(requests) else (),
        meta={
            column: _to_text(cell)
            for column, cell in cells.items()
            if column not in field_columns and not is_missing_number(column, cell)
        },
        requests=requests,
        alignment=alignment,
        tiers=tiers,
        origin=origin,
        allows_duplicates=allows_duplicates,
    )


def _find_audio_path(cells: Cells, root: Path, allows_duplicates: bool, allow_outside: bool) -> str:
    """Path of the audio file, which is there, as the cells have it."""
    path = check_path_cell(cells["path"])
    if root.name == "clips" and not allows_duplicates and "." not in path:
        path += ".mp3"  # so in the oldest releases
    resolve_audio_path(root, path, allow_outside=allow_outside)
    return path


def _relative_location(recording: ByteRange) -> str:
    """A place, relative to the folder of its file."""
    return str(replace(recording, file=os.path.basename(recording.file)))


def _string_cell(cells: Cells, column: str) -> str | None:
    cell = cells.get(column)
    if cell is not None and not isinstance(cell, str):
        raise RowError("unreadable row", f"expected {column} to be a string, found {cell!r}"[:400])
    return cell


def _read_word_cell(
    word_cell: object,
    root: Path,
    utterance: str,
    tier: str | None,
    alphabet: str | None,
    allow_outside: bool,
) -> tuple[tuple[Word, ...] | None, Tiers, str | None, str]:
    """Word times that a row brings, as a list or in a file with its tiers and text, and which kind of
    file that is."""
    from ..formats.word_files import (  # only when there are words to read
        read_word_file,
        word_file_kind,
        words_from_items,
    )

    try:
        if isinstance(word_cell, list):
            return check_words(words_from_items(word_cell, where="words")), {}, None, "given"
        word_path = resolve_path(root, word_cell, allow_outside=allow_outside)
        words, tiers, text = read_word_file(
            word_path, tier=tier, utterance=utterance, alphabet=alphabet
        )
        usable = usable_tiers(tiers, words, where=word_path) if tiers else {}
        return tuple(words) or None, usable, text, word_file_kind(word_path)
    except InputError as error:
        raise RowError("unreadable words", str(error)) from error


def _read_tiers_cell(cell: object, words: tuple[Word, ...] | None, alphabet: str | None) -> Tiers:
    """Phones and syllables that a row brings itself."""
    from ..formats.word_items import words_from_items

    try:
        if not isinstance(cell, dict):
            raise InputError(
                f'expected tiers as {{"phone": [[label, start, end], ...]}}, found {cell!r:.80}'
            )
        tiers = {
            unit: given_units(
                words_from_items(items, where=f"tier {unit!r}"),
                unit,
                alphabet=alphabet,
                where=f"tier {unit!r}",
            )
            for unit, items in cell.items()
        }
        return check_tiers(tiers, words)
    except InputError as error:
        raise RowError("unreadable words", str(error)) from error


def _to_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


OnError = str | Callable[[int, str, InputError], None]


def read_clips(
    manifest: str | PathLike[str],
    *,
    tier: str | None = None,
    alphabet: str | None = None,
    allow_outside: bool = False,
    on_error: OnError = "raise",
) -> list[Clip]:
    """Clips of a manifest, in its order; the audio is read lazily.

    Columns: path (required), text, words, cue, target, foil, language, translation, name; others
    are kept in `Clip.meta`. Relative paths count from the manifest's folder. `words` is the path of
    a word file, with its phones and syllables if it has tiers of them, or in JSONL also a list of
    [text, start, end]; `tiers` is then ``{"phone": [[label, start, end], ...]}``.
    `cue` and `target` are a word ("les"), a word and which of its occurrences ("les:2"), or an
    index from 0 ("3", unless there is a word "3"); a cue of several words is "le club" or, in
    JSONL, a list. Of two clips of one name the second gets "-2" behind it, with a warning if the
    manifest itself names both so; names are one if files called so could be (capitals, forms of
    accents, "a b" and "a_b"). A release table of Common Voice is read too; `text` may be called
    sentence or transcription. Other columns of audio and text are named behind the manifest:
    "clips.jsonl,audio=audio_filepath,text=transcript".

    Parameters
    ----------
    manifest : path ending in .tsv, .csv or .jsonl, or "bundled:clips"
    tier : str, optional
        Which tier of the TextGrids holds the words.
    alphabet : {"ipa", "arpabet", "x-sampa", "praat"}, optional
        Of the phones. Default: the one that all labels of a tier fit.
    allow_outside : bool
        Let paths lead out of the manifest's folder (links followed). Off, because a manifest may
        come from others.
    on_error : "raise", "skip" or callable
        What to do with a row that cannot be used: stop; leave it out and warn once with the count
        and the first reasons; or leave it out and call ``on_error(row, name, error)``, with the row
        as an editor counts it (the header of a table is row 1) and the name or path of the clip as
        far as it is known.

    Raises
    ------
    InputError
        If the manifest cannot be read, has no path column or no rows; with "raise", for the first
        unusable row.
    """
    source = CorpusSource.parse(manifest_path(manifest))
    source.refuse_options("config", "split", kind="a manifest")
    manifest = source.path
    if not (callable(on_error) or on_error in ("raise", "skip")):
        raise InputError(
            'on_error must be "raise", "skip" or a function of row, name and error, found '
            f"{on_error!r}"
        )
    clips: list[Clip] = []
    skip_reasons: list[str] = []
    row_count = 0
    for row in number_duplicates(
        read_manifest_rows(
            manifest,
            tier=tier,
            alphabet=alphabet,
            allow_outside=allow_outside,
            audio=source.audio,
            text=source.text,
        ),
        where=str(manifest),
    ):
        row_count += 1
        try:
            if isinstance(row, Row):
                clips.append(clip_from_row(row))
                continue
            error = InputError(row.reason)
        except (
            InputError
        ) as row_error:  # the words do not fit the audio, or its header cannot be read
            error = InputError(f"{manifest}, row {row.origin.row}: {row_error}")
        if on_error == "raise":
            raise error
        skip_reasons.append(str(error))
        if callable(on_error):
            on_error(row.origin.row, row.origin.name or row.origin.path, error)
    if not row_count:
        raise InputError(f"{manifest}: expected at least one row with a clip, found none")
    if skip_reasons and on_error == "skip":
        reasons = "\n  ".join(skip_reasons[:5])
        warnings.warn(
            f"{manifest}: {len(skip_reasons)} of {row_count} rows left out:\n  {reasons}",
            stacklevel=2,
        )
    return clips


def clip_from_row(row: Row) -> Clip:
    """Return the clip of a row that has a file or a place in one; its audio is not read, but for
    the header if it has words."""
    meta = dict(row.meta)
    clip = Clip.from_file(
        row.root.resolve() / (row.path or ""),
        text=row.text or None,
        language=meta.pop("language", None),
        name=row.name,
        translation=meta.pop("translation", None),
        meta=meta,
        **row.requests,
    )
    if row.words is not None:
        clip = clip.replace(words=row.words, alignment=row.alignment)
    return clip.replace(tiers=row.tiers) if row.tiers else clip
