"""Text files: those a user brings, in which encoding; and tables as CSV, as this package writes and
reads them.

In: a path. Out: its text with ``\\n`` line ends. UTF-8 with or without a byte-order mark and UTF-16
with one are read; anything else is an error, because a wrong guess would turn "é" into another
letter without a word. Tables are written whole or not at all, and hold nothing that a spreadsheet
would compute.

Read user files with limits on kind and size.

In: a path. Out: its bytes or lines, never more of them than a file of its kind may have.
"""

from __future__ import annotations

import csv
import gzip
import io
import os
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from ..errors import InputError
from .whole_files import check_recorded, whole_file

if TYPE_CHECKING:
    import pandas as pd


MAX_TEXT_BYTES = 2**28  # bytes of a text file of a user: words of some thousand hours
MAX_TABLE_BYTES = 2**32  # bytes of a table that this package wrote
MAX_LINE_BYTES = 2**24
_CHUNK_BYTES = 2**20
_GZIP = b"\x1f\x8b"


def open_regular_file(path: str | PathLike[str]) -> BinaryIO:
    """Open a file for reading.

    InputError if it is a pipe, a device or a socket, which may never end; OSError if it cannot be
    opened.
    """
    number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(number).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(21, "Is a directory", str(path))
        if not stat.S_ISREG(mode):
            raise InputError(
                f"{path}: expected a file, found {_describe_file_kind(mode)}: save its content as a file, and "
                "give that"
            )
        return os.fdopen(number, "rb")
    except BaseException:
        with suppress(OSError):
            os.close(number)
        raise


def check_regular_file(path: str | PathLike[str]) -> None:
    """Refuse what `open_regular_file` refuses, where a library opens the file by its path; what is not
    there is its business."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InputError(
            f"{path}: expected a file, found {_describe_file_kind(mode)}: save its content as a file, and give "
            "that"
        )


def _describe_file_kind(mode: int) -> str:
    names = {
        stat.S_IFIFO: "a pipe",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFSOCK: "a socket",
    }
    return names.get(stat.S_IFMT(mode), "something else")


def read_bounded(path: str | PathLike[str], *, most: int = MAX_TEXT_BYTES) -> bytes:
    """Return the bytes of a file.

    InputError if it is no file, or has more than `most` bytes; OSError if it cannot be read.
    """
    with open_regular_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        data = file.read(size) if size <= most else b""
        while size <= most and (
            chunk := file.read(_CHUNK_BYTES)
        ):  # a file that grows, or whose size the system does not know
            data += chunk
            size = len(data)
    if size > most:
        raise InputError(f"{path}: expected a file of at most {most:,} bytes, found more")
    return data


def decompress_bounded(
    data: bytes, *, where: str | PathLike[str], most: int = MAX_TEXT_BYTES
) -> bytes:
    """Unpack gzip; return data of another kind as they are.

    InputError if the data are damaged, or unpack to more than `most` bytes.
    """
    if data[:2] != _GZIP:
        return data
    unpacker = zlib.decompressobj(wbits=31)
    try:
        content = unpacker.decompress(data, most + 1)
    except zlib.error as error:
        raise InputError(
            f"{where}: what gzip packed is damaged ({error}): fetch it again"
        ) from error
    if len(content) > most:
        raise InputError(f"{where}: expected at most {most:,} bytes behind gzip, found more")
    if not unpacker.eof:
        raise InputError(f"{where}: what gzip packed is cut off: fetch it again")
    return content


def bounded_lines(path: str | PathLike[str], *, most: int = MAX_LINE_BYTES) -> Iterator[bytes]:
    """Yield the lines of a file, unpacked if gzip packed it, without their ends.

    InputError if a line has more than `most` bytes; OSError, EOFError or zlib.error if the file
    cannot be read.
    """
    packed = Path(path).suffix.lower() == ".gz"
    with open_regular_file(path) as file, gzip.open(file) if packed else file as lines:
        number = 0
        while line := lines.readline(most + 1):
            number += 1
            if len(line) > most:
                raise InputError(
                    f"{path}: expected lines of at most {most:,} bytes, found a longer one (line "
                    f"{number})"
                )
            yield line.rstrip(b"\r\n")


# What a spreadsheet would compute instead of showing: =1+1, @SUM, +cmd, -cmd, -2+3; behind
# apostrophes it is text, and a negative number is one.
_FORMULA_START = re.compile(r"'*(?:[=+@\t\r]|-(?!$|[0-9]*[.,]?[0-9]+(?:[eE][+-]?[0-9]+)?$))")
_APOSTROPHE_FIRST = re.compile(r"(?:^|[,\r\n\"])'")  # of a cell of CSV


def read_text(path: str | PathLike[str]) -> str:
    """Return the text of a UTF-8 or UTF-16 file, line ends as ``\\n``.

    InputError if there is no such file, it is larger than any text file that is read, or it is in
    another encoding.
    """
    return _decode(Path(path), most=MAX_TEXT_BYTES).replace("\r\n", "\n").replace("\r", "\n")


def _decode(path: Path, *, most: int) -> str:
    try:
        data = read_bounded(path, most=most)
    except InputError:
        raise
    except (
        OSError,
        ValueError,
    ) as error:  # missing, a folder, not permitted; a null byte in the path
        raise InputError(f"cannot read {path} ({error}): expected a text file") from error
    check_recorded(path, data)
    encoding = "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: expected UTF-8 or UTF-16 text, found byte 0x{data[error.start]:02x} at "
            f"position {error.start}: "
            "save the file as UTF-8"
        ) from error
    if "\0" in text:
        raise InputError(
            f"{path}: expected text, found null characters (audio, or UTF-16 without a byte-order "
            "mark?)"
        )
    return text


def write_csv(table: pd.DataFrame, path: str | PathLike[str]) -> None:
    """Write a table whole or not at all; a cell that a spreadsheet would compute gets an apostrophe
    before it.

    Such cells start with ``=``, ``+``, ``@``, a tab, or a ``-`` that is not a number's; `read_csv`
    takes the apostrophe off again.
    """
    table = quote_formulas(table)
    # A carriage return within a cell is only put in quotation marks where it is part of the line's
    # end.
    returns = any(
        table[name].map(lambda cell: isinstance(cell, str) and "\r" in cell).any()
        for name in _text_columns(table)
    )
    line_end = "\r\n" if returns else "\n"
    with whole_file(path) as unfinished:
        table.to_csv(
            unfinished,
            index=False,
            encoding="utf-8",
            errors="backslashreplace",
            lineterminator=line_end,
        )


def write_table(table: pd.DataFrame, path: Path) -> None:
    """Write a table whole or not at all: as Parquet where the path ends so, else by `write_csv`."""
    if path.suffix.lower() != ".parquet":
        write_csv(table, path)
        return
    with whole_file(path) as unfinished:
        table.to_parquet(unfinished, index=False, write_page_checksum=True)


def quote_formulas(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with cells and column names that a spreadsheet would compute turned into
    text."""
    import pandas as pd

    quoted = {}
    for name in _text_columns(table):
        cells = {
            cell: _quote_formula(cell) for cell in table[name].unique()
        }  # mostly few, and nearly always as they are
        if any(cell is not text for cell, text in cells.items()):
            # of the same type: a column of strings cannot hold half a character, one of objects can
            quoted[name] = pd.Series(
                [_quote_formula(cell) for cell in table[name]], table.index, table[name].dtype
            )
    return table.assign(**quoted).rename(columns=_quote_formula)


def _text_columns(table: pd.DataFrame) -> list[str]:
    return [
        name
        for name in table.columns
        if table[name].dtype == object or str(table[name].dtype) in ("str", "string")
    ]


def _quote_formula(cell: object) -> object:
    if not isinstance(cell, str):
        return cell
    cell = cell.replace("\0", "\ufffd") if "\0" in cell else cell  # no table may hold it
    return f"'{cell}" if _FORMULA_START.match(cell) else cell


def read_csv(path: str | PathLike[str]) -> pd.DataFrame:
    """Read a table that `write_csv` wrote, every cell as text, an empty one as "".

    InputError if the file is missing or no such table.
    """
    import pandas as pd

    text = _decode(Path(path), most=MAX_TABLE_BYTES)
    try:
        table = pd.read_csv(io.StringIO(text, newline=""), keep_default_na=False, dtype=str)
    except (ValueError, csv.Error) as error:  # pandas' own errors are ValueErrors
        raise InputError(
            f"{path}: expected a table as speechmix writes it, found {error}"
        ) from error
    if not isinstance(table.index, pd.RangeIndex):
        raise InputError(
            f"{path}: expected a table as speechmix writes it, found rows of more cells than its "
            "header"
        )
    if _APOSTROPHE_FIRST.search(text):  # in few tables, and few of their columns
        for name in table:
            if table[name].str.startswith("'").any():
                table[name] = table[name].map(_unquote_formula)
    return table.rename(columns=_unquote_formula)


def _unquote_formula(cell: object) -> object:
    return (
        cell[1:]
        if isinstance(cell, str) and cell.startswith("'") and _FORMULA_START.match(cell)
        else cell
    )
