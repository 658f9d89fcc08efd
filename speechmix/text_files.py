"""The text files a user brings: which encoding, which columns.

In: a path. Out: its text with ``\\n`` line ends, or its rows. UTF-8 with or without a byte-order mark and UTF-16 with
one are read; anything else is an error, because a wrong guess would turn "é" into another letter without a word.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

from .errors import InputError


def read_text(path: str | PathLike) -> str:
    """Text of a UTF-8 or UTF-16 file, line ends as ``\\n``.

    Raises
    ------
    InputError
        If there is no such file, or it is in another encoding.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # missing, a folder, not permitted; a null byte in the path
        raise InputError(f"cannot read {path} ({error}): expected a text file") from error
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: expected UTF-8 or UTF-16 text, found byte 0x{data[error.start]:02x} at position {error.start}: "
            "save the file as UTF-8"
        ) from error
    if "\0" in text:
        raise InputError(f"{path}: expected text, found null characters (audio, or UTF-16 without a byte-order mark?)")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def read_table(path: str | PathLike, *, required: tuple[str, ...]) -> Iterator[tuple[int, dict[str, str] | InputError]]:
    """Rows of a .tsv or .csv file with a header, empty cells left out.

    TSV knows no quoting (as in Common Voice: a sentence may start with a quotation mark); CSV has the usual quoting.

    Parameters
    ----------
    path : path ending in .tsv or .csv
    required : tuple of str
        Columns that must be there; "word|text" means one of the two.

    Yields
    ------
    row : int
        As an editor or spreadsheet counts: the header is row 1.
    cells : dict of str, or InputError
        Column -> cell, spaces at the edges removed; column names are in lower case. For a row with more cells than
        the header, the error: the caller knows whether to stop or to go on with the next row.

    Raises
    ------
    InputError
        If the file cannot be read, or a column is missing or doubled.
    """
    path = Path(path)
    rows = enumerate(_rows(path), start=1)
    header = [column.strip().lower() for column in next(rows, (1, []))[1]]
    missing = [column for column in required if not set(column.split("|")) & set(header)]
    if missing:
        hint = "; the columns of a .csv are separated by commas" if any(";" in column for column in header) else ""
        wanted = ", ".join(column.replace("|", " or ") for column in missing)
        raise InputError(f"{path}: expected a first row with the column {wanted}, found columns {header}{hint}")
    doubled = sorted({column for column in header if column and header.count(column) > 1})
    if doubled:
        raise InputError(f"{path}: column {', '.join(doubled)} occurs more than once: keep one")
    for row, cells in rows:
        cells = [cell.strip() for cell in cells]
        if not any(cells):
            continue
        if len(cells) > len(header):
            yield row, InputError(f"expected at most {len(header)} cells, found {len(cells)}: {cells}")
            continue
        # A row may be shorter: spreadsheets drop empty cells at its end.
        yield row, {column: cell for column, cell in zip(header, cells, strict=False) if cell and column}


def _rows(path: Path) -> Iterator[list[str]]:
    stream = io.StringIO(read_text(path), newline="")
    if path.suffix.lower() == ".tsv":
        reader = csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE)
    else:
        reader = csv.reader(stream, strict=True)
    try:
        yield from reader
    except csv.Error as error:
        raise InputError(f"{path}, line {reader.line_num}: not a readable table ({error})") from error
