"""Compare data files with their recorded checksums when first opened.

In: paths with the marks of their files. Out: a file system of pyarrow, for reading alone. A scan
that needs three files of a thousand compares three: page checksums of Parquet do not cover its
footer, where a flipped bit hides rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from ...errors import InputError
from ...files.file_fingerprints import FileMark
from ...files.parquet_files import read_mark


def checked_files(marks: Mapping[Path, FileMark]) -> pafs.FileSystem:
    """Return a file system that compares each file with its mark before it is read.

    Errors of a damaged file are `InputError`, raised by whatever reads.
    """
    return pafs.PyFileSystem(_CheckedFiles({str(path): mark for path, mark in marks.items()}))


class _CheckedFiles(pafs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """Local files; those with a mark are compared with it once while they stay the same."""

    def __init__(self, marks: Mapping[str, FileMark]):
        self._marks = dict(marks)
        self._seen: dict[str, tuple[int, ...]] = {}
        self._local = pafs.LocalFileSystem()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _CheckedFiles) and self._marks == other._marks

    def __hash__(self) -> int:
        return hash(frozenset(self._marks))

    def __reduce__(self) -> tuple[Any, ...]:
        return _CheckedFiles, (self._marks,)

    def open_input_file(self, path: str) -> Any:
        """Open a file, compared with its mark."""
        mark, now = self._marks.get(path), read_mark(Path(path))
        if mark is not None and self._seen.get(path) != now:
            mark.check(Path(path))
            self._seen[path] = now
        return self._local.open_input_file(path)

    open_input_stream = open_input_file

    def get_type_name(self) -> str:
        """Name of the file system."""
        return "checked"

    def normalize_path(self, path: str) -> str:
        """Return the path as it is."""
        return path

    def get_file_info(self, paths: list[str]) -> list[pafs.FileInfo]:
        """Return what is known of some files."""
        result: list[pafs.FileInfo] = self._local.get_file_info(paths)
        return result

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """Return what is known of the files in a folder."""
        result: list[pafs.FileInfo] = self._local.get_file_info(selector)
        return result

    def _refuse(self, *_: Any) -> Any:
        raise InputError("the files of a run are read, not written, through its data set")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse
