"""Tables that may be longer than the memory: .tsv, .csv and .jsonl, one row at a time.

In: a path. Out: cells by column, or a `Rejected` row: a line that is not UTF-8, too long, or has too many cells costs
one row and not the table. TSV knows no quoting, as in Common Voice, where a sentence may start with a quotation mark.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO

from ..errors import InputError
from .rows import Rejected, row_name

MOST_BYTES = 65_536  # of a line; one of Common Voice has about 500

Cells = dict[str, object]


def table_columns(path: Path) -> list[str]:
    """Return the column names of a .tsv or .csv, in lower case; none if the first line is no UTF-8 text."""
    try:
        with path.open("rb") as file:
            line = file.readline(MOST_BYTES).decode("utf-8-sig").rstrip("\r\n")
        cells = line.split("\t") if path.suffix.lower() == ".tsv" else next(csv.reader([line]), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return []
    return [cell.strip().lower() for cell in cells]


def table_rows(path: Path) -> Iterator[tuple[int, Cells | Rejected]]:
    """Read rows with their numbers as an editor counts them: the header of a .tsv or .csv is row 1.

    Empty cells are left out, spaces at the edges of others removed.

    Raises
    ------
    InputError
        For another ending.
    """
    suffix = path.suffix.lower()
    if suffix not in _PARSERS:
        raise InputError(f"{path}: expected a table ending in .tsv, .csv or .jsonl, found {suffix!r}")
    with path.open("rb") as file:
        lines = enumerate(_lines(file), start=1)
        columns: list[str] = []
        if suffix != ".jsonl":
            columns = table_columns(path)
            next(lines, None)
        for number, line in lines if suffix != ".csv" else _joined(lines):
            if not line.strip():
                continue
            parse = partial(_PARSERS[suffix], line, columns)
            yield number, _checked(line, number, f"{path.name}, row {number}", parse)


def _lines(file: BinaryIO) -> Iterator[str]:
    """Decode lines; bytes that are not UTF-8 become surrogates. A line too long is cut behind the most."""
    first = True
    while line := file.readline(MOST_BYTES + 1):
        rest = line
        while rest and not rest.endswith(b"\n"):
            rest = file.readline(MOST_BYTES)
        yield line.decode("utf-8-sig" if first else "utf-8", "surrogateescape").rstrip("\r\n")
        first = False


def _joined(lines: Iterator[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Put the lines of a quoted cell together again: as long as the quotes are odd and the row is not too long."""
    for number, line in lines:
        while line.count('"') % 2 and len(line) <= MOST_BYTES and (more := next(lines, None)) is not None:
            line = f"{line}\n{more[1]}"
        yield number, line


def _checked(line: str, number: int, where: str, parse) -> Cells | Rejected:
    """Parse a line, or say what is wrong with it."""
    why = found = None
    cells: Cells = {}
    if len(line.encode("utf-8", "surrogateescape")) > MOST_BYTES:
        why, found = "too long", f"expected a line of at most {MOST_BYTES:,} bytes, found more"
    else:
        try:
            line.encode("utf-8")
            cells = parse()
        except UnicodeEncodeError as error:
            why, found = "invalid UTF-8", f"found byte 0x{ord(line[error.start]) - 0xDC00:02x}"
        except (ValueError, csv.Error, RecursionError) as error:
            why, found = "unreadable row", str(error)
    if why is None:
        return cells
    guess = next((cell for cell in line[:500].split("\t") if cell.endswith((".mp3", ".wav", ".flac", ".ogg"))), "")
    return Rejected(row_name(guess.encode("utf-8", "replace").decode(), number), why, f"{where}: {found}")


def _tab_separated(line: str, columns: list[str]) -> Cells:
    return _named(line.split("\t"), columns)


def _comma_separated(line: str, columns: list[str]) -> Cells:
    return _named(next(csv.reader([line], strict=True)), columns)


def _named(cells: list[str], columns: list[str]) -> Cells:
    if len(cells) > len(columns):
        raise ValueError(f"expected at most {len(columns)} cells, found {len(cells)}")
    return {column: cell.strip() for column, cell in zip(columns, cells, strict=False) if cell.strip() and column}


def _json_object(line: str, _: list[str]) -> Cells:
    cells = json.loads(line)
    if not isinstance(cells, dict):
        raise ValueError(f"expected a JSON object, found {type(cells).__name__}")
    json.dumps(cells, ensure_ascii=False).encode("utf-8")  # "\ud800" is legal JSON and no text
    return {key: value for key, value in cells.items() if value is not None and value != ""}


_PARSERS = {".tsv": _tab_separated, ".csv": _comma_separated, ".jsonl": _json_object}
