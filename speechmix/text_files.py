"""The text files a user brings: which encoding, which columns.

In: a path. Out: its text with ``\\n`` line ends, or its rows. UTF-8 with or without a byte-order mark and UTF-16 with
one are read; anything else is an error, because a wrong guess would turn "é" into another letter without a word.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import InputError
from .whole_files import whole_file

if TYPE_CHECKING:
    import pandas as pd

# What a spreadsheet would compute instead of showing: =1+1, @SUM, +cmd, -cmd; behind apostrophes it is text.
_FORMULA = re.compile(r"'*(?:[=+@\t\r]|-[^\W\d_])")


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


def write_csv(table: pd.DataFrame, path: str | PathLike) -> None:
    """Write a table whole or not at all; a cell that a spreadsheet would compute gets an apostrophe before it.

    Such cells start with ``=``, ``+``, ``@``, a tab, or ``-`` before a letter; `read_csv` takes the apostrophe off again.

    Examples
    --------
    >>> import tempfile, pandas as pd
    >>> path = Path(tempfile.mkdtemp()) / "clips.csv"
    >>> write_csv(pd.DataFrame({"clip": ["=1+1", "-t-il", "les"], "share": [-0.5, 0.25, 1.0]}), path)
    >>> path.read_text().split()
    ['clip,share', "'=1+1,-0.5", "'-t-il,0.25", 'les,1.0']
    >>> read_csv(path)["clip"].tolist()
    ['=1+1', '-t-il', 'les']
    """
    with whole_file(path) as unfinished:
        neutral(table).to_csv(unfinished, index=False, encoding="utf-8")


def neutral(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with cells and column names that a spreadsheet would compute turned into text."""
    texts = [
        name for name in table.columns if table[name].dtype == object or str(table[name].dtype) in ("str", "string")
    ]
    return table.assign(**{name: table[name].map(_quoted) for name in texts}).rename(columns=_quoted)


def _quoted(cell: object) -> object:
    return f"'{cell}" if isinstance(cell, str) and _FORMULA.match(cell) else cell


def read_csv(path: str | PathLike) -> pd.DataFrame:
    """Read a table that `write_csv` wrote; every cell as text, an empty one as "".

    Raises
    ------
    InputError
        If the file is missing or no such table.
    """
    import pandas as pd

    text = read_text(path)
    try:
        table = pd.read_csv(io.StringIO(text), keep_default_na=False, dtype=str)
    except (ValueError, csv.Error) as error:  # pandas' own errors are ValueErrors
        raise InputError(f"{path}: expected a table as speechmix writes it, found {error}") from error
    plain = {name: [_unquoted(cell) for cell in table[name]] for name in table.columns if table[name].dtype == object}
    return table.assign(**plain).rename(columns=_unquoted)


def _unquoted(cell: object) -> object:
    return cell[1:] if isinstance(cell, str) and cell.startswith("'") and _FORMULA.match(cell) else cell
