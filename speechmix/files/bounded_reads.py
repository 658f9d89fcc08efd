"""Read user files with limits on kind and size.

In: a path. Out: its bytes or lines, never more of them than a file of its kind may have.
"""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import suppress
from os import PathLike
from pathlib import Path
from typing import BinaryIO

from ..errors import InputError

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
