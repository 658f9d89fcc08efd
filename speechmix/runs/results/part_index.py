"""Index of the results in one model's part files.

In: part files (clip_result_files.py). Out: `PartIndex`, which finds a result by its key: what it is of,
and the hash of everything that decides it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InputError
from ...files.json_files import JsonObject
from ...files.shard_assignment import Shard
from .clip_result_files import (
    KEY,
    RESULTS,
    ROWS_PER_GROUP,
    Owner,
    Part,
    part_name,
    part_paths,
    write_part,
)
from .map_files import MapFiles
from .part_integrity import checked_part
from .run_folder import RunFolder
from .run_state import RunState
from .score_files import ScoreFiles

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
