"""Store of a model's results in a run's folder, reused by later starts.

In: results, one for each clip and kind (a measure, "ablation", "transcripts", "states", ...), each
with a key that has the hash of everything that decides it. Out: part files (clip_result_files.py) and the
files of scores and maps that belong to them:

    results/<model>/<part>.parquet                             rows that become the run's tables, labels of maps
    scores/model=.../stack=.../trained.<part>.parquet          score_files.py
    maps/<model>/<part>.parquet, .safetensors                  map_files.py

What is new is written every half minute or so, and when a block of code ends, however it ends. At
the end of a model `compact` puts all that the run wants into one part (a large run: few).

Many part files become one, in the order of the run; those that no table needs are removed.

In: the part files of a model, and the keys of the results that the run wants. Out: as few parts as
may be: the same, to the byte, whether the run was stopped on the way or not.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from ...adapters import Model
from ...files.cache_keys import versions
from ...files.json_files import Json, JsonObject
from ...files.shard_assignment import Shard
from ...files.timing import phase
from ...inputs.clips.clip import Clip
from ...mixing.maps.map_set import Maps
from ...mixing.maps.mixing_map import MixingMap
from .clip_result_files import KEY, Owner, Part, part_name, rows_table
from .map_files import MAPS, MapFiles
from .part_index import Key, PartIndex, remove_part
from .run_folder import RunFolder, RunState
from .score_files import CopiedScores, RowGroups, ScoreFiles, folder_value
from .stored_maps import read_row_maps

_LARGE_PART_BYTES = 2**26  # of scores; smaller parts are made again when one is added


def compact_parts(index: PartIndex, keys: Sequence[Key], shard: Shard) -> list[Part]:
    """Put these results, and no others, into as few parts as may be, in this order.

    A large part stays as it is if all of it is wanted, in its order; all others become one.
    """
    counts = Counter(index[key].part_index for key in keys)
    unchanged = {
        part_index
        for part_index, count in counts.items()
        if _is_large(index.parts[part_index])
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


def _is_large(part: Part) -> bool:
    return sum(mark.size for mark in part.scores.values()) >= _LARGE_PART_BYTES


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
        """Write what is new as a part."""
        if not self._new or self._is_broken_off:
            return
        # Files of scores that are finished cannot be finished again: a second try after a full disk
        # would write the part without them, and the run would go on without these scores.
        self._is_broken_off = True
        with phase("writing"):
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
            with suppress(KeyboardInterrupt):
                self.write()
        finally:
            self._scores.discard()
            self._maps.discard()
