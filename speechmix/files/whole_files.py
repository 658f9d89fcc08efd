"""Write files and folders atomically.

In: where a result belongs, and a function that writes it. Out: the finished file or folder. A
process that dies in the middle leaves the old one as it was, and beside it a leftover whose name
starts with ``.unfinished-``, which nobody reads. The next process that writes into that folder removes
it. No two processes ever write to one name (`one_writer` is the caller's word for it).
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from pathlib import Path

from .recorded_checksums import replace_recorded
from .unfinished_files import clear_dead_writers, unfinished_name


@contextmanager
def whole_file(path: str | PathLike[str], *, one_writer: bool = False) -> Iterator[Path]:
    """Yield a name in the same folder to write to; it becomes `path` when the block ends without
    error.

    With `one_writer`, no other process writes this file, but others may write into the same folder,
    so that leftovers of dead processes cannot be removed there. The name is then always the same,
    and what a killed process has left is overwritten.
    """
    path = Path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        what = f"its folder {path.parent} cannot be made ({error.strerror})"
        raise OSError(error.errno, what, str(path)) from error
    clear_dead_writers(path.parent.absolute())
    unfinished = unfinished_name(path, one_writer=one_writer)
    try:
        with path_in_errors(path, unfinished):
            yield unfinished
            replace_recorded(unfinished, path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        raise


@contextmanager
def path_in_errors(path: Path, unfinished: Path) -> Iterator[None]:
    """Have errors of the system name the path that was asked for, not that of the unfinished file."""
    try:
        yield
    except OSError as error:
        if str(unfinished) not in str(error):
            raise
        what = (error.strerror or str(error)).replace(str(unfinished), str(path))
        if not path.parent.is_dir():
            what = f"its folder {path.parent} does not exist"
        raise OSError(error.errno, what, str(path)) from error  # of the kind that errno says


@contextmanager
def whole_folder(path: str | PathLike[str]) -> Iterator[Path]:
    """Yield a new folder beside `path` to write into; it takes the place of `path` when the block
    ends without an error.

    A folder cannot be exchanged for another in one step: a process that dies between the two
    renames leaves none, never a mixture of old and new.
    """
    unfinished = unfinished_name(Path(path))
    with path_in_errors(Path(path), unfinished):
        unfinished.mkdir(parents=True)
    clear_dead_writers(unfinished.parent.absolute())
    try:
        with path_in_errors(Path(path), unfinished):
            yield unfinished
            move_into_place(unfinished, path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def move_into_place(unfinished: Path, path: str | PathLike[str]) -> None:
    """Let a finished folder take the place of another, or of none."""
    path = Path(path)
    former = unfinished_name(path)
    try:
        with suppress(FileNotFoundError):
            os.replace(path, former)
        os.replace(unfinished, path)
    except BaseException:
        if former.exists() and not path.exists():
            os.replace(former, path)
        raise
    shutil.rmtree(former, ignore_errors=True)


def write_text(path: str | PathLike[str], text: str) -> None:
    """Write a text file (UTF-8) whole or not at all."""
    with whole_file(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def write_json(path: str | PathLike[str], content: object) -> None:
    """Write a JSON file whole or not at all."""
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False))
