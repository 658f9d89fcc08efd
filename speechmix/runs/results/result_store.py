"""Store of a model's results in a run's folder, reused by later starts.

In: results, one for each clip and kind (a measure, "ablation", "transcripts", "states", ...), each
with a key that has the hash of everything that decides it. Out: part files (clip_result_files.py) and the
files of scores and maps that belong to them:

    results/<model>/<part>.parquet                             rows that become the run's tables, labels of maps
    scores/model=.../stack=.../trained.<part>.parquet          score_files.py
    maps/<model>/<part>.parquet, .safetensors                  map_files.py

What is new is written every half minute or so, and when a block of code ends, however it ends. `PartIndex` finds
a result by its key. At the end of a model `compact` puts all that the run wants into one part (a large run: few):
the same, to the byte, whether the run was stopped on the way or not. Parts that no table needs, or that are not as
they were written, are removed with their scores and maps.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from ...errors import InputError
from ...files.cache_keys import FileMark, versions
from ...files.json_files import Json, JsonObject
from ...files.parquet_files import compare_pages
from ...files.shard_assignment import Shard
from ...files.timing import phase
from ...files.whole_files import delay_interrupts
from ...inputs.clips.clip import Clip
from ...mixing.maps.map_set import Maps
from ...mixing.maps.mixing_map import MixingMap
from .clip_result_files import (
    KEY,
    RESULTS,
    ROWS_PER_GROUP,
    Owner,
    Part,
    open_part,
    part_name,
    part_paths,
    rows_table,
    write_part,
)
from .map_files import MAPS, MapFiles
from .run_folder import RunFolder, RunState
from .score_files import CopiedScores, RowGroups, ScoreFiles, folder_value
from .stored_maps import read_row_maps

if TYPE_CHECKING:
    from ...adapters import Model

_MAX_COMPARED_BYTES = 2**25  # bytes of a file that is compared with its checksums when it is found


def checked_part(folder: RunFolder, path: Path, recorded_mark: FileMark | None = None) -> Part:
    """Open a part file, and compare it, its scores and its maps with what was written.

    Of large files (32 MiB) the size is compared here, their pages when they are read.
    `recorded_mark` is that of the part file, where `run.json` has it. InputError if it is damaged,
    or one of the files that belong to it is, or is not there.
    """
    part = open_part(path)
    if recorded_mark is not None:
        recorded_mark.check(path, most=_MAX_COMPARED_BYTES)
    if not (recorded_mark and recorded_mark.digest) and path.stat().st_size <= _MAX_COMPARED_BYTES:
        compare_pages(path)
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
            yield from part.contents(kind)


_LARGE_PART_BYTES = 2**26  # of scores; smaller parts are made again when one is added


def compact_parts(index: PartIndex, keys: Sequence[Key], shard: Shard) -> list[Part]:
    """Put these results, and no others, into as few parts as may be, in this order.

    A large part stays as it is if all of it is wanted, in its order; all others become one.
    """
    counts = Counter(index[key].part_index for key in keys)
    unchanged = {
        part_index
        for part_index, count in counts.items()
        if sum(mark.size for mark in index.parts[part_index].scores.values()) >= _LARGE_PART_BYTES
        and count == index.row_counts[part_index]
        and _is_in_order(index, part_index, keys)
    }
    other_keys = [key for key in keys if index[key].part_index not in unchanged]
    parts = [index.parts[part_index] for part_index in sorted(unchanged)]
    return parts + ([_merge_parts(index, other_keys, shard)] if other_keys else [])


def remove_unneeded_parts(
    index: PartIndex, parts: Sequence[Part], shard: Shard, own_kinds: Collection[str] | None
) -> None:
    """Remove parts of a shard that are neither among `parts` nor needed by a table.

    `own_kinds` are the kinds of results that may be removed, None for all.
    """
    needed = {part.path for part in parts} | RunState(index.folder).needed_parts()
    for part in index.parts:
        is_own = shard.count == 1 or part.shard == shard.label
        if is_own and part.path not in needed and _has_only_kinds(part, own_kinds):
            remove_part(index.folder, part)


def _has_only_kinds(part: Part, kinds: Collection[str] | None) -> bool:
    """Whether a part holds nothing but these kinds."""
    if kinds is None or not part.path.is_file():
        return kinds is None
    return set(kinds).issuperset(part.read(("kind",))["kind"].unique().to_pylist())


def _is_in_order(index: PartIndex, part_index: int, keys: Sequence[Key]) -> bool:
    """Whether a part holds its results in the order of these keys."""
    locations = map(index.__getitem__, keys)
    rows = [location.row_index for location in locations if location.part_index == part_index]
    return all(former < row for former, row in pairwise(rows))


def _merge_parts(index: PartIndex, keys: Sequence[Key], shard: Shard) -> Part:
    """Return the part that holds just these results: it is there, or made now of what is there."""
    path = index.dir / f"{shard.prefix}{part_name(keys)}.parquet"
    part = next((part for part in index.parts if part.path == path), None)
    if part is None:
        with (
            phase("writing"),
            ScoreFiles(index.folder.scores_dir) as scores,
            MapFiles(index.folder.maps_dir, index.dir.name) as maps,
        ):
            _copy_scores(index, keys, scores)
            _copy_maps(index, keys, maps)
            versions = {version for key in keys for version in index.part(key).versions}
            part = index.write(keys, index.tables(keys), scores, maps, shard, versions)
        index.add(part, part.read(KEY))
    return part


def _copy_scores(index: PartIndex, keys: Sequence[Key], scores: ScoreFiles) -> None:
    """Copy the scores of some results, in their order, from the parts that hold them."""
    copies: dict[tuple[Path, str], list[tuple[int, str]]] = defaultdict(list)
    files: dict[tuple[Path, str, int], list[Path]] = defaultdict(list)
    for part_index, part in enumerate(index.parts):
        for name in part.scores:
            partition, stem = Path(name).parent, Path(name).name.partition(".")[0]
            files[partition, stem, part_index].append(index.folder.scores_dir / name)
    targets = {(partition, stem) for partition, stem, _ in files}
    for key in keys:
        for partition, stem in targets:
            if partition.parent.name == f"measure={folder_value(key.kind)}":
                copies[partition, stem].append((index[key].part_index, key.clip))
    for (partition, stem), clips in sorted(copies.items()):
        copied: dict[int, CopiedScores] = {}
        groups = RowGroups()
        for part_index, clip in clips:
            if part_index not in copied:
                paths = files.get((partition, stem, part_index), ())
                copied[part_index] = CopiedScores(paths, groups)
            rows = copied[part_index].rows_of(clip)
            if rows is not None and rows.num_rows:
                scores.append_rows(partition / f"{stem}.", rows)


def _copy_maps(index: PartIndex, keys: Sequence[Key], maps: MapFiles) -> None:
    """Copy the files of maps of some results, in their order, from the parts that hold them."""
    copied: dict[Path, CopiedScores] = {}
    groups = RowGroups()
    for key in keys:
        part = index.part(key)
        if not part.maps:
            continue
        if key.kind != MAPS:
            maps.append_copies(part, key.clip, index.row(key)["content"])
            continue
        if part.path not in copied:
            copied[part.path] = maps.copied_rows(part, groups)
        rows = copied[part.path].rows_of(key.clip)
        if rows is not None:
            maps.append_rows(rows)


__all__ = ["Key", "Results"]

_MIN_SECONDS = 30.0  # what is new is written after so long,
_MIN_SHARE = 0.1  # and after so much of the time that has gone by
_MAX_NEW_BYTES = 2**26  # of results in memory


class Results:
    """Results of clips by one model in a run's folder; a context manager that writes what is new.

    The owner is the model, or the clips themselves; the shard is the one that this process does.
    `report` gets a line for what is damaged. `paths` are the part files to read, by default all.
    `own_kinds` are the kinds of results that `compact` may remove, by default all: it leaves parts
    that hold others.
    """

    def __init__(
        self,
        folder: RunFolder,
        owner: Owner,
        shard: Shard,
        report: Callable[[str], None],
        *,
        paths: Iterable[Path] | None = None,
        own_kinds: Collection[str] | None = None,
    ):
        self.folder, self._shard, self._own_kinds = folder, shard, own_kinds
        self._index = PartIndex(folder, owner, report)
        self._new: dict[Key, JsonObject] = {}
        self._new_bytes = 0
        self._is_broken_off = False
        self._scores = ScoreFiles(folder.scores_dir)
        self._maps = MapFiles(folder.maps_dir, self._index.dir.name)
        for path in self._index.part_paths() if paths is None else paths:
            if not shard.is_anothers(path.name):
                self._index.add_file(path)
        self._start_time = self._write_time = time.monotonic()

    def change_shard(self, shard: Shard) -> None:
        """Write what is new, and go on with another shard, whose parts are then read, too."""
        self.write()
        self._shard = shard
        read_paths = {part.path for part in self._index.parts}
        for path in self._index.part_paths():
            if path.name.startswith(shard.prefix) and path not in read_paths:
                self._index.add_file(path)

    def __contains__(self, key: Key) -> bool:
        return key in self._new or key in self._index

    def put(
        self,
        key: Key,
        *,
        contributions: Sequence[Mapping[str, Json]] = (),
        content: str = "",
        vectors: bytes = b"",
        scores: tuple[Maps, Clip, Model] | None = None,
        tensors: Mapping[str, tuple[np.ndarray, str]] | None = None,
        map_rows: pa.Table | None = None,
    ) -> None:
        """Store a result; it is on the disk after the next `write`.

        Scores are of word maps; `tensors` the scores of frame maps, each with the type that they are
        stored in, and `map_rows` word maps in Parquet (map_files.py).
        """
        for name, (map_scores, dtype) in (tensors or {}).items():
            self._maps.append_scores(name, map_scores, dtype)
        if map_rows is not None:
            self._maps.append_rows(map_rows)
        row = {"contributions": list(contributions), "content": content, "vectors": vectors}
        self._new[key] = {**key._asdict(), **row}
        self._new_bytes += len(content) + len(vectors) + 200 * len(contributions)
        if scores is not None:
            with phase("writing"):
                self._scores.append(*scores)

    def write_if_due(self) -> None:
        """Write what is new if it is much, or some time has gone by."""
        now = time.monotonic()
        interval = max(_MIN_SECONDS, _MIN_SHARE * (now - self._start_time))
        if now - self._write_time > interval or self._new_bytes > _MAX_NEW_BYTES:
            self.write()

    def write(self) -> None:
        """Write what is new as a part; an interrupt waits until it is written."""
        if self._new and not self._is_broken_off:
            with phase("writing"), delay_interrupts():
                # Files of scores that are finished cannot be finished again: a second try after a
                # full disk would write the part without them, and the run would go on without these
                # scores.
                self._is_broken_off = True
                table = rows_table([*self._new.values()])
                files = self._scores, self._maps
                part = self._index.write([*self._new], [table], *files, self._shard, [versions()])
                self._index.add(part, table)
                self._is_broken_off = False
                self._new, self._new_bytes, self._write_time = {}, 0, time.monotonic()

    def row(self, key: Key) -> JsonObject:
        """Return one result, as `put` takes it."""
        return self._new[key] if key in self._new else self._index.row(key)

    def contents(self, kind: str) -> Iterator[str]:
        """Yield what is stored of one kind, by earlier starts too."""
        return self._index.contents(kind)

    def contributions(self, keys: Sequence[Key]) -> list[JsonObject]:
        """Return the rows of cue contributions of some results."""
        return [share for key in keys for share in self.row(key)["contributions"]]

    def maps(self, keys: Iterable[Key]) -> dict[tuple[str, str], MixingMap]:
        """Return the maps of some results, by (measure, stack)."""
        maps: dict[tuple[str, str], MixingMap] = {}
        for key in keys:
            if key in self._new:
                self.write()
            part, content = self._index.part(key), self.row(key)["content"]
            for mixing_map in read_row_maps(self.folder, part, key.clip, content):
                maps[mixing_map.measure, mixing_map.stack] = mixing_map
        return maps

    def compact(self, keys: Sequence[Key]) -> list[Part]:
        """Put these results, and no others, into as few parts as may be, and return them.

        Parts of this shard that are not needed any more are removed, but those that the run's
        tables are made of stay until there are others.
        """
        self.write()
        parts = compact_parts(self._index, keys, self._shard)
        remove_unneeded_parts(self._index, parts, self._shard, self._own_kinds)
        return parts

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.write()
        finally:
            self._scores.discard()
            self._maps.discard()
