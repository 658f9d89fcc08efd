"""Check and remove part files together with their scores and maps.

In: a run's folder and its part files (clip_result_files.py). Out: a part that is as it was written, or why
it is not; a folder in which nothing is left that its tables are not made of.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from ...files.file_fingerprints import FileMark
from ...files.parquet_files import compare_pages
from .clip_result_files import Part, open_part
from .run_folder import RunFolder
from .run_state import RunState

_MAX_COMPARED_BYTES = 2**25  # bytes of a file that is compared with its checksums when it is found


def checked_part(folder: RunFolder, path: Path, recorded_mark: FileMark | None = None) -> Part:
    """Open a part file, and compare it, its scores and its maps with what was written.

    Of large files (32 MiB) the size is compared here, their pages when they are read.
    `recorded_mark` is that of the part file, where `run.json` has it. InputError if it is damaged,
    or one of the files that belong to it is, or is not there.
    """
    part = open_part(path)
    if path.stat().st_size <= _MAX_COMPARED_BYTES:
        compare_pages(path)
    if recorded_mark is not None:
        recorded_mark.check(path, most=_MAX_COMPARED_BYTES)
    for files_dir, marks in ((folder.scores_dir, part.scores), (folder.maps_dir, part.maps)):
        for name, mark in marks.items():
            mark.check(files_dir / name, most=_MAX_COMPARED_BYTES)
    return part


def remove_part(folder: RunFolder, part: Part) -> None:
    """Remove a part: its rows first, so that scores and maps which are there are all or
    nobody's."""
    part.path.unlink(missing_ok=True)
    for path in _list_part_files(folder, part):
        path.unlink(missing_ok=True)


def remove_unlisted_parts(folder: RunFolder) -> None:
    """Remove parts that the tables are not made of, and scores and maps of no part."""
    needed, owned = RunState(folder).needed_parts(), set()
    for path in folder.part_files():
        if path in needed:
            owned |= _list_part_files(folder, open_part(path))
        else:  # its scores and maps are nobody's then, and go below
            path.unlink()
    maps = [path for path in folder.maps_dir.rglob("*") if path.is_file()]
    for path in (*folder.scores_dir.rglob("*.parquet"), *maps):
        if path not in owned:
            path.unlink()
    for tree in (folder.scores_dir, folder.maps_dir, folder.path / "results"):
        _remove_empty(tree)


def _list_part_files(folder: RunFolder, part: Part) -> set[Path]:
    """Files of scores and maps that belong to a part."""
    return {folder.scores_dir / name for name in part.scores} | {
        folder.maps_dir / name for name in part.maps
    }


def _remove_empty(tree: Path) -> None:
    """Remove the folders of a tree that hold nothing."""
    for folder in sorted((path for path in tree.rglob("*") if path.is_dir()), reverse=True):
        with suppress(OSError):
            folder.rmdir()
    with suppress(OSError):
        tree.rmdir()
