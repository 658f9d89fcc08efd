"""Index of the results in one model's part files.

In: part files (clip_result_files.py). Out: `PartIndex`, which finds a result by its key: what it is of,
and the hash of everything that decides it.

Check and remove part files together with their scores and maps.

In: a run's folder and its part files (clip_result_files.py). Out: a part that is as it was written, or why
it is not; a folder in which nothing is left that its tables are not made of.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InputError
from ...files.cache_keys import FileMark
from ...files.json_files import JsonObject
from ...files.parquet_files import compare_pages
from ...files.shard_assignment import Shard
from .clip_result_files import (
    KEY,
    RESULTS,
    ROWS_PER_GROUP,
    Owner,
    Part,
    open_part,
    part_name,
    part_paths,
    write_part,
)
from .map_files import MapFiles
from .run_folder import RunFolder, RunState
from .score_files import ScoreFiles

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


_MAX_GROUPS = 8  # row groups in memory


class Key(NamedTuple):
    """What a result is of, and the hash of everything that decides it (the column `question`)."""

    clip: str
    kind: str
    question: str


class Location(NamedTuple):
    """Where a result is."""

    part_index: int
    row_index: int


class PartIndex:
    """The part files of one model, or of the clips themselves.

    `report` gets a line for a part that is damaged; `row_counts` count the rows of each part.
    """

    def __init__(self, folder: RunFolder, owner: Owner, report: Callable[[str], None]):
        self.folder, self.owner, self._report = folder, owner, report
        self.dir = folder.results_dir(owner.label)
        self.parts: list[Part] = []
        self.row_counts: list[int] = []
        self._table_parts = RunState(folder).table_parts()
        self._locations: dict[Key, Location] = {}
        self._groups: dict[tuple[int, int], pa.Table] = {}

    def part_paths(self) -> list[Path]:
        """All part files that are there."""
        return part_paths(self.dir)

    def add_file(self, path: Path) -> None:
        """Add a part file; a damaged one, or one whose scores or maps are damaged, is removed."""
        try:
            part = checked_part(self.folder, path, self._table_parts.get(path))
            keys = part.read(KEY)
        except InputError as error:
            self._report(f"{path} is damaged and made again ({error})")
            path.unlink(missing_ok=True)
            return
        self.add(part, keys)

    def add(self, part: Part, keys: pa.Table) -> None:
        """Add a part whose keys are known."""
        part_index = len(self.parts)
        self.parts.append(part)
        self.row_counts.append(keys.num_rows)
        columns = (keys[name].to_pylist() for name in KEY)
        for row_index, key in enumerate(zip(*columns, strict=True)):
            self._locations[Key(*key)] = Location(part_index, row_index)

    def write(
        self,
        keys: Iterable[Key],
        tables: Iterable[pa.Table],
        scores: ScoreFiles,
        maps: MapFiles,
        shard: Shard,
        computed_by: Iterable[str],
    ) -> Part:
        """Write a part: its scores and maps first, its rows last. It is not added."""
        name = shard.prefix + part_name(keys)
        files = scores.close(name), maps.close(name)
        path = self.dir / f"{name}.parquet"
        return write_part(path, tables, self.owner, shard.label, *files, computed_by)

    def __contains__(self, key: Key) -> bool:
        return key in self._locations

    def __getitem__(self, key: Key) -> Location:
        return self._locations[key]

    def part(self, key: Key) -> Part:
        """Return the part that holds a result."""
        return self.parts[self._locations[key].part_index]

    def row(self, key: Key) -> JsonObject:
        """Return the row of a result."""
        part_index, row_index = self._locations[key]
        group = self._group(part_index, row_index // ROWS_PER_GROUP)
        row: JsonObject = group.slice(row_index % ROWS_PER_GROUP, 1).to_pylist()[0]
        return row

    def _group(self, part_index: int, group_index: int) -> pa.Table:
        """Return a row group; the few that were read last are in memory."""
        group_key = (part_index, group_index)
        if group_key not in self._groups:
            if len(self._groups) >= _MAX_GROUPS:
                del self._groups[next(iter(self._groups))]
            self._groups[group_key] = self.parts[part_index].read(RESULTS.names, [group_index])
        return self._groups[group_key]

    def tables(self, keys: Sequence[Key]) -> Iterator[pa.Table]:
        """Yield results in the order of the keys, some thousand at a time."""
        for start in range(0, len(keys), ROWS_PER_GROUP):
            rows_of_group: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
            for position, key in enumerate(keys[start : start + ROWS_PER_GROUP]):
                part_index, row_index = self._locations[key]
                group_index, row = divmod(row_index, ROWS_PER_GROUP)
                rows_of_group[part_index, group_index].append((position, row))
            tables, positions = [], []
            for group_key, rows in rows_of_group.items():
                tables.append(self._group(*group_key).take([row for _, row in rows]))
                positions += [position for position, _ in rows]
            order = sorted(range(len(positions)), key=positions.__getitem__)
            yield pa.concat_tables(tables).take(order)

    def contents(self, kind: str) -> Iterator[str]:
        """Yield what all parts hold of one kind; of a clip that has changed since, all of it."""
        for part in self.parts:
            rows = part.read(("kind", "content"))
            yield from rows.filter(pc.equal(rows["kind"], kind))["content"].to_pylist()
