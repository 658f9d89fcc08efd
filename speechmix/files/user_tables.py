"""Tables that a user brings, one row at a time: .tsv, .csv and .jsonl, of any length.

In: a path. Out: cells by column, or a `RowError`: a line that is not in its encoding, too long, or
has too many cells costs one row and not the table. UTF-8 with or without a byte-order mark and
UTF-16 with one are read. TSV knows no quoting, as in Common Voice, where a sentence may start with
a quotation mark; CSV has the usual quoting. Nothing is kept in memory but the row at hand.

Rows of a .csv whose quoted cells run over several lines, put together line by line.

In: the lines of a table. Out: its rows, and what is wrong with one whose quotation mark stays open.
As RFC 4180 has it, a quotation mark opens a cell only as its first character; within an unquoted
cell it is a character like any other. An open one costs its own row alone: the lines behind it are
read as rows again.
"""

from __future__ import annotations

import csv
import json
import re
from collections import deque
from collections.abc import Iterator
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TextIO

from ..errors import InputError
from .text_files import open_regular_file

NumberedLine = tuple[int, str]

_MAX_QUOTED_CHARACTERS = 65_536  # of lines put together because a quotation mark is open
_OPENING = re.compile(r'(?:^|,)"')
_CLOSING = re.compile(r'(?:[^"]|"")*+"')  # a doubled quotation mark stands for one


def join_quoted_lines(
    lines: Iterator[NumberedLine], column_count: int
) -> Iterator[tuple[int, str, str]]:
    """Join the lines of quoted cells.

    The lines come with their numbers and without their ends. Yields the number of the row's first
    line, the row, and a problem, "" for a row that can be split. A line within quotation marks that
    has `column_count` cells is most likely a row by itself, which an open quotation mark would
    swallow.

    Examples
    --------
    >>> list(join_quoted_lines(iter([(2, 'a.wav,"les'), (3, 'livres"'), (4, 'b.wav,un "ami')]), 2))
    [(2, 'a.wav,"les\\nlivres"', ''), (4, 'b.wav,un "ami', '')]
    """
    waiting: deque[NumberedLine] = deque()  # lines that were read behind an open quotation mark

    def next_line() -> NumberedLine | None:
        return waiting.popleft() if waiting else next(lines, None)

    while (numbered := next_line()) is not None:
        row, line = numbered
        following: list[NumberedLine] = []
        length, is_open, swallowed_row = len(line), _ends_in_quotes(line, False), None
        while is_open and length <= _MAX_QUOTED_CHARACTERS and swallowed_row is None:
            if (continuation := next_line()) is None:
                break
            following.append(continuation)
            length += len(continuation[1])
            is_open = _ends_in_quotes(continuation[1], True)
            if continuation[1].count(",") + 1 >= column_count:
                swallowed_row = continuation[0]
        if is_open or swallowed_row is not None:
            waiting.extendleft(reversed(following))
            yield row, line, _describe_open_quotation(swallowed_row)
        else:
            yield row, "\n".join([line, *(text for _, text in following)]), ""


def _ends_in_quotes(line: str, in_quotes: bool) -> bool:
    """Whether a line ends within a quoted cell."""
    position = 0
    while match := (_CLOSING.match if in_quotes else _OPENING.search)(line, position):
        in_quotes, position = not in_quotes, match.end()
    return in_quotes


def _describe_open_quotation(swallowed_row: int | None) -> str:
    end = (
        f"is still open in row {swallowed_row}, which looks like a row of its own"
        if swallowed_row is not None
        else "is not closed"
    )
    return (
        f"not a readable row: a quotation mark that opens a cell {end}. Close it; if it belongs to the "
        "text, put the cell into quotation marks and double those within it, or save the table as "
        ".tsv, which knows no quoting"
    )


# Characters of a line: one of Common Voice has about 500, words with times of an hour 400,000.
MAX_CELL_CHARACTERS = 1_000_000
_AUDIO_SUFFIXES = (".mp3", ".wav", ".flac", ".ogg")

Cells = dict[str, object]


class RowError(InputError):
    """A row that cannot be read or used.

    `reason_kind` is a few words, the same for all rows it happens to ("missing clip"); `reason`
    says what was expected, what was found and what to do. `sound` is what looks like an audio file
    in a row that could not be split.
    """

    def __init__(self, reason_kind: str, reason: str, *, sound: str = ""):
        super().__init__(reason)
        self.reason_kind, self.sound = reason_kind, sound


def read_table(
    path: str | PathLike[str], *, required: tuple[str, ...] = (), advice: str = ""
) -> Iterator[tuple[int, Cells | RowError]]:
    """Yield the rows of a .tsv or .csv file with a header, or of a .jsonl file; empty cells are
    left out.

    A row comes with its line as an editor counts (the header of a table is row 1), as column ->
    cell: spaces at the edges are removed, and names of a table's columns are in lower case. In
    place of a row that cannot be read comes a RowError: the caller knows whether to stop or to go
    on. `required` are columns that a header must have; "word|text" means one of the two, and
    `advice` says what to do if one is missing. InputError if the file cannot be read, is no table,
    or a column is missing or given twice.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in _PARSERS:
        raise InputError(
            f"{path}: expected a table ending in .tsv, .csv or .jsonl, found {suffix!r}"
        )
    try:
        with _open_table(path) as file:
            lines = enumerate(_lines(file), start=1)
            columns = (
                []
                if suffix == ".jsonl"
                else _header(path, next(lines, (1, ""))[1], required, advice)
            )
            rows = (
                join_quoted_lines(lines, len(columns))
                if suffix == ".csv"
                else ((row, line, "") for row, line in lines)
            )
            for row, line, problem in rows:
                if not line.strip():
                    continue
                cells = _parse_line(line, partial(_PARSERS[suffix], line, columns), problem)
                if cells or suffix == ".jsonl":
                    yield row, cells
    except InputError:
        raise
    except UnicodeDecodeError as error:  # of UTF-16; a byte that is not UTF-8 costs its row alone
        raise InputError(
            f"{path}: expected UTF-16 text, as its first two bytes say, found {error}"
        ) from error
    except (
        OSError,
        ValueError,
    ) as error:  # missing, a folder, not permitted; a null byte in the path
        raise InputError(f"cannot read {path} ({error}): expected a text file") from error


def column_key(path: Path, column: str) -> str:
    """Return what `read_table` calls a column: names in a header are in lower case, those in .jsonl
    as they are written."""
    return column if path.suffix.lower() == ".jsonl" else column.strip().lower()


def table_columns(path: Path) -> list[str]:
    """Return the column names of a .tsv or .csv, in lower case; none if its first line cannot be
    read."""
    try:
        with _open_table(path) as file:
            return _cells(path, next(_lines(file), ""))
    except (OSError, ValueError):
        return []


def _open_table(path: Path) -> TextIO:
    """Open a table for reading; bytes that are not UTF-8 become surrogates, so that only their row
    is lost."""
    with open_regular_file(path) as file:
        is_utf16 = file.read(2) in (b"\xff\xfe", b"\xfe\xff")
    encoding, errors = ("utf-16", "strict") if is_utf16 else ("utf-8-sig", "surrogateescape")
    with path.open(encoding=encoding, errors=errors, newline="") as file:
        first = file.readline(MAX_CELL_CHARACTERS)
    # One kind of line end per file: a stray carriage return within a cell does not cut its row in
    # two.
    line_end = "\r" if first.endswith("\r") else "\n"
    return path.open(encoding=encoding, errors=errors, newline=line_end)


def _lines(file: TextIO) -> Iterator[str]:
    """Lines without their ends; one that is too long is cut behind the most and one more
    character."""
    while line := file.readline(MAX_CELL_CHARACTERS + 1):
        end = line[-1]
        while end not in "\r\n" and (continuation := file.readline(MAX_CELL_CHARACTERS)):
            end = continuation[-1]
        yield line.rstrip("\r\n")


def _header(path: Path, line: str, required: tuple[str, ...], advice: str) -> list[str]:
    if "\0" in line:
        raise InputError(
            f"{path}: expected text, found null characters (audio, or UTF-16 without a byte-order "
            "mark?)"
        )
    try:
        line.encode("utf-8")
        columns = _cells(path, line)
    except UnicodeEncodeError as error:
        raise InputError(f"{path}, row 1: {_utf8_error(line, error)}") from error
    except csv.Error as error:
        raise InputError(f"{path}, row 1: not a readable row ({error})") from error
    missing = [column for column in required if not set(column.split("|")) & set(columns)]
    if missing:
        hint = advice and f": {advice}"
        if not line:
            hint = ": the file is empty"
        elif any(";" in column for column in columns):
            hint = "; the columns of a .csv are separated by commas"
        elif len(columns) == 1 and "," in columns[0]:
            hint = "; the columns of a .tsv are separated by tabs: is it a .csv?"
        expected, present = (
            ", ".join(column.replace("|", " or ") for column in missing),
            columns[:50] if line else [],
        )
        raise InputError(
            f"{path}: expected a first row with the column {expected}, found columns "
            f"{present}{hint}"
        )
    doubled = sorted({column for column in columns if column and columns.count(column) > 1})
    if doubled:
        raise InputError(f"{path}: column {', '.join(doubled)} occurs more than once: keep one")
    return columns


def _cells(path: Path, line: str) -> list[str]:
    cells = (
        line.split("\t")
        if path.suffix.lower() == ".tsv"
        else next(csv.reader([line]), [])
        if line
        else []
    )
    return [cell.strip().lower() for cell in cells]


def _parse_line(line: str, parse: partial[Cells], problem: str) -> Cells | RowError:
    """Take a line apart, or say what is wrong with it."""
    try:
        if problem:
            raise RowError("unreadable row", problem)
        if len(line) > MAX_CELL_CHARACTERS:
            raise RowError(
                "too long",
                f"expected a line of at most {MAX_CELL_CHARACTERS:,} characters, found more",
            )
        line.encode("utf-8")
        return parse()
    except UnicodeEncodeError as error:
        reason_kind, reason = "invalid UTF-8", _utf8_error(line, error)
    except RowError as error:
        reason_kind, reason = error.reason_kind, str(error)
    except RecursionError:
        reason_kind, reason = (
            "unreadable row",
            "expected a row of plain values, found brackets nested too deeply",
        )
    except (ValueError, csv.Error) as error:
        reason_kind, reason = "unreadable row", f"not a readable row ({error})"
    cells = re.split("[\t,]", line[:500])
    guess = next((cell for cell in cells if cell.endswith(_AUDIO_SUFFIXES)), "")
    return RowError(reason_kind, reason, sound=guess.encode("utf-8", "replace").decode())


def _utf8_error(line: str, error: UnicodeEncodeError) -> str:
    byte = ord(error.object[error.start]) - 0xDC00
    bad = (
        f"byte 0x{byte:02x}"
        if 0x80 <= byte <= 0xFF and error.object is line
        else "half a character (a surrogate)"
    )
    return (
        f"expected UTF-8 or UTF-16 text, found {bad} at position {error.start} of the row: save "
        "the file as UTF-8"
    )


def _parse_tabs(line: str, columns: list[str]) -> Cells:
    return _name_cells(line.split("\t"), columns)


def _parse_commas(line: str, columns: list[str]) -> Cells:
    return _name_cells(next(csv.reader([line], strict=True)), columns)


def _name_cells(cells: list[str], columns: list[str]) -> Cells:
    cells = [cell.strip() for cell in cells]
    if len(cells) > len(columns):
        raise RowError(
            "unreadable row",
            f"expected at most {len(columns)} cells, found {len(cells)}: {cells[:20]}"[:400],
        )
    # A row may be shorter: spreadsheets drop empty cells at its end.
    return {column: cell for column, cell in zip(columns, cells, strict=False) if cell and column}


def _parse_json_line(line: str, _: list[str]) -> Cells:
    try:
        cells = json.loads(line)
    except ValueError as error:
        raise RowError("unreadable row", f"not valid JSON ({error})") from error
    if not isinstance(cells, dict):
        raise RowError("unreadable row", f"expected a JSON object, found {type(cells).__name__}")
    json.dumps(cells, ensure_ascii=False).encode("utf-8")  # "\ud800" is legal JSON and no text
    return {key: value for key, value in cells.items() if value is not None and value != ""}


_PARSERS = {".tsv": _parse_tabs, ".csv": _parse_commas, ".jsonl": _parse_json_line}
