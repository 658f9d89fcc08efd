"""A table lists many sentences: one row a sentence, with its text, cue, target and whatever else is
known.

In: a .tsv, .csv or .jsonl file. Out: a list of `Sentence`s, in its order. A row that cannot be used
is an error, or is left out and reported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path

from ...errors import InputError
from ...files.json_files import JsonObject
from ...files.user_tables import Cells, RowError, column_key, read_table
from ..clips.corpus_row import is_missing_number
from ..corpora.corpus_source import CorpusSource
from .sentence import Sentence

_FIELD_COLUMNS = ("pair", "translation", "cue", "target", "foil", "name")
_TEXT_COLUMNS = ("text", "sentence")


def read_sentences(
    table: str | PathLike[str], *, on_error: Callable[[int, InputError], None] | None = None
) -> list[Sentence]:
    """Sentences of a table.

    Columns: text (or sentence; required), pair, translation, cue, target, foil, name; others are
    kept in `Sentence.meta`, as ``label`` of a classified text. cue and target are a word, a word
    and which of its occurrences ("the:2"), or an index.

    Parameters
    ----------
    table : path ending in .tsv, .csv or .jsonl
        Another column of texts is named behind it: "sentences.tsv,text=COLUMN".
    on_error : callable, optional
        What to do with a row that cannot be used, as ``on_error(row, error)``, with the row as an
        editor counts it; it is then left out. By default its error is raised.

    Raises
    ------
    InputError
        If the table cannot be read, has no column of texts or no rows; without `on_error`, for the
        first unusable row.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "sentences.tsv"
    >>> _ = path.write_text("text\\ttarget\\tlabel\\nthe keys are here\\tare\\tplural\\n")
    >>> (sentence,) = read_sentences(path)
    >>> sentence.target, dict(sentence.meta)
    (2, {'label': 'plural'})
    """
    source = CorpusSource.parse(table)
    source.refuse_options("config", "split", "audio", kind="a table of sentences")
    path = Path(source.location)
    text_columns = (column_key(path, source.text),) if source.text else _TEXT_COLUMNS
    sentences, row_count = [], 0
    for row_number, cells in read_table(path, required=("|".join(text_columns),)):
        row_count += 1
        try:
            sentences.append(_sentence_from_cells(cells, text_columns))
        except (InputError, RowError) as error:
            row_error = InputError(f"{path}, row {row_number}: {error}")
            if on_error is None:
                raise row_error from error
            on_error(row_number, row_error)
    if not row_count:
        raise InputError(f"{path}: expected at least one row with a text, found none")
    return sentences


def _sentence_from_cells(cells: Cells | RowError, text_columns: Sequence[str]) -> Sentence:
    if isinstance(cells, RowError):
        raise cells
    text = next((cells[name] for name in text_columns if name in cells), None)
    if not isinstance(text, str):
        raise InputError(f"expected a text, found {text!r}")
    meta = {
        name: str(cell)
        for name, cell in cells.items()
        if name not in (*_FIELD_COLUMNS, *_TEXT_COLUMNS, *text_columns)
        and not is_missing_number(name, cell)
    }
    fields: JsonObject = {name: cells[name] for name in _FIELD_COLUMNS if name in cells}
    return Sentence(text, **fields, meta=meta)
