"""Results of a run: what one model says of many clips, kept while it is computed, found again by a
later start.

In: results, one for each clip and kind (a measure, "ablation", "transcripts", "states", ...), each
with the hash of everything that went into it (its *question*). Out: part files (part_files.py) and
the files of scores that belong to them:

    results/<model>/<part>.parquet                             rows that become the run's tables, labels of maps
    scores/model=.../stack=.../trained.<part>.parquet          score_files.py
    maps/<model>/<part>.parquet, .safetensors                  map_files.py

What is new is written every half minute or so, and when a block of code ends, however it ends; what
was written is found again if its question is still the same. At the end of a model `settled` puts
all that the run wants into one part (a large run: few), in the run's order: it is the same, to the
byte, whether the run was stopped on the way or not.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ...adapters import Model
from ...errors import InputError
from ...files.json_files import Json, JsonObject
from ...files.shards import Shard
from ...files.timing import phase
from ...files.versions import versions
from ...inputs.clips.clip import Clip
from ...mixing.maps.map_set import Maps
from ...mixing.maps.mixing_map import MixingMap
from .map_files import MAPS, MapFiles
from .part_files import (
    KEY,
    RESULTS,
    ROWS_PER_GROUP,
    Owner,
    Part,
    part_name,
    part_paths,
    table_of,
    write_part,
)
from .run_folder import RunFolder
from .run_parts import checked_part, remove_part
from .run_state import RunState
from .score_copies import CopiedScores, RowGroups
from .score_files import ScoreFiles
from .stored_maps import maps_of_row

Report = Callable[[str], None]
_SECONDS, _SHARE = (
    30.0,
    0.1,
)  # what is new is written after so long, and after so much of the time that has gone by
_MOST_WAITING = 2**26  # bytes of results in memory
_LARGE = 2**26  # bytes of scores; what is made of smaller parts is made again when one is added


class Key(NamedTuple):
    """What a result is of."""

    clip: str
    kind: str
    question: str


class _Place(NamedTuple):
    part: int  # -1: waits to be written
    row: int


class Results:
    """Results of clips by one model, as they lie in a run's folder; a context manager that writes
    what is new.

    Parameters
    ----------
    folder : RunFolder
    owner : Owner
        The model; or the clips themselves.
    shard : Shard
        Which shard of the run this process does.
    report : callable
        Gets a line for what is damaged.
    paths : iterable of Path, optional
        Part files to know of; all that are there by default.
    own_kinds : collection of str, optional
        Kinds of results that `settled` may remove: it leaves parts that hold others; all by default.
    """

    def __init__(
        self,
        folder: RunFolder,
        owner: Owner,
        shard: Shard,
        report: Report,
        *,
        paths: Iterable[Path] | None = None,
        own_kinds: Collection[str] | None = None,
    ):
        self.folder, self._owner, self._shard, self._report = folder, owner, shard, report
        self._own_kinds = None if own_kinds is None else frozenset(own_kinds)
        self._place = folder.results_dir(owner.label)
        self._standing = RunState(folder).table_parts()
        self._parts: list[Part] = []
        self._places: dict[Key, _Place] = {}
        self._rows: list[int] = []  # of each part
        self._read: dict[tuple[int, int], pa.Table] = {}
        self._new: list[JsonObject] = []
        self._new_bytes = 0
        self._scores, self._maps = ScoreFiles(folder.scores_dir), self._map_files()
        for path in part_paths(self._place) if paths is None else paths:
            self._add_part_file(path)
        self._began = self._written = time.monotonic()

    def go_over_to(self, shard: Shard) -> None:
        """From now on do another shard, whose parts are then known, too; what is new of the former
        is written."""
        self.write()
        self._shard = shard
        stored_paths = {part.path for part in self._parts}
        for path in part_paths(self._place):
            if path.name.startswith(shard.prefix) and path not in stored_paths:
                self._add_part_file(path)

    def _map_files(self) -> MapFiles:
        return MapFiles(self.folder.maps_dir, self._place.name)

    def _add_part_file(self, path: Path) -> None:
        """Know the rows of a part that is there; one that is damaged, or whose scores or maps are,
        is none."""
        if self._shard.is_anothers(path.name):
            return
        try:
            part = checked_part(self.folder, path, self._standing.get(path))
            names = part.read(KEY)
        except InputError as error:
            self._report(f"{path} is damaged and made again ({error})")
            path.unlink(missing_ok=True)
            return
        self._index_part(part, names)

    def _index_part(self, part: Part, names: pa.Table) -> None:
        number = len(self._parts)
        self._parts.append(part)
        self._rows.append(names.num_rows)
        columns = (names[name].to_pylist() for name in KEY)
        for row, key in enumerate(zip(*columns, strict=True)):
            self._places[Key(*key)] = _Place(number, row)

    def __contains__(self, key: Key) -> bool:
        return key in self._places

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
        """Keep a result; it is on the disk after the next `write`.

        Scores are of word maps; `tensors` the scores of frame maps, each with the type they are
        kept in, and `map_rows` word maps in Parquet (map_files.py).
        """
        for name, (of_map, dtype) in (tensors or {}).items():
            self._maps.append_scores(name, of_map, dtype)
        if map_rows is not None:
            self._maps.append_rows(map_rows)
        self._places[key] = _Place(-1, len(self._new))
        row = {
            **key._asdict(),
            "contributions": list(contributions),
            "content": content,
            "vectors": vectors,
        }
        self._new.append(row)
        self._new_bytes += len(content) + len(vectors) + 200 * len(contributions)
        if scores is not None:
            with phase("writing"):
                self._scores.append(*scores)

    def write_if_due(self) -> None:
        """Write what is new if it is much, or some time has gone by."""
        now = time.monotonic()
        wait = max(_SECONDS, _SHARE * (now - self._began))
        if now - self._written > wait or self._new_bytes > _MOST_WAITING:
            self.write()

    def write(self) -> None:
        """Write what is new as a part: its scores first, its rows last."""
        if not self._new:
            return
        with phase("writing"):
            keys, table = (
                [Key(row["clip"], row["kind"], row["question"]) for row in self._new],
                table_of(self._new),
            )
            part = self._written_part(keys, [table], self._scores, self._maps, [versions()])
            self._index_part(part, table)
        self._new, self._new_bytes, self._written = [], 0, time.monotonic()

    def _written_part(
        self,
        keys: Iterable[Key],
        tables: Iterable[pa.Table],
        scores: ScoreFiles,
        maps: MapFiles,
        computed_by: Iterable[str],
    ) -> Part:
        name = self._shard.prefix + part_name(keys)
        files = scores.close(name), maps.close(name)
        return write_part(
            self._place / f"{name}.parquet",
            tables,
            self._owner,
            self._shard.label,
            *files,
            computed_by,
        )

    def row(self, key: Key) -> JsonObject:
        """One result, as `put` takes it."""
        place = self._places[key]
        if place.part < 0:
            return self._new[place.row]
        result: JsonObject = (
            self._group(place.part, place.row // ROWS_PER_GROUP)
            .slice(place.row % ROWS_PER_GROUP, 1)
            .to_pylist()[0]
        )
        return result

    def _group(self, part: int, group: int) -> pa.Table:
        """A row group; the few that were read last are kept."""
        if (part, group) not in self._read:
            if len(self._read) >= 8:
                del self._read[next(iter(self._read))]
            self._read[part, group] = self._parts[part].read(RESULTS.names, [group])
        return self._read[part, group]

    def tables(self, keys: Sequence[Key]) -> Iterator[pa.Table]:
        """Results in the order of the keys, some thousand at a time."""
        for start in range(0, len(keys), ROWS_PER_GROUP):
            wanted: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
            for position, key in enumerate(keys[start : start + ROWS_PER_GROUP]):
                part, row = self._places[key]
                wanted[part, row // ROWS_PER_GROUP].append((position, row % ROWS_PER_GROUP))
            tables, positions = [], []
            for place, rows in wanted.items():
                tables.append(self._group(*place).take([row for _, row in rows]))
                positions += [position for position, _ in rows]
            order = sorted(range(len(positions)), key=positions.__getitem__)
            yield pa.concat_tables(tables).take(order)

    def contents(self, kind: str) -> Iterator[str]:
        """What is kept of one kind, by earlier starts too; of a clip that has changed since, all of
        it."""
        for part in self._parts:
            rows = part.read(("kind", "content"))
            yield from rows.filter(pc.equal(rows["kind"], kind))["content"].to_pylist()

    def contributions(self, keys: Sequence[Key]) -> list[JsonObject]:
        """Rows of cue contributions of some results."""
        return [share for key in keys for share in self.row(key)["contributions"]]

    def maps(self, keys: Iterable[Key]) -> dict[tuple[str, str], MixingMap]:
        """Maps of some results, by (measure, stack)."""
        maps: dict[tuple[str, str], MixingMap] = {}
        for key in keys:
            if self._places[key].part < 0:
                self.write()
            part = self._parts[self._places[key].part]
            for mixing_map in maps_of_row(self.folder, part, key.clip, self.row(key)["content"]):
                maps[mixing_map.measure, mixing_map.stack] = mixing_map
        return maps

    def settled(self, keys: Sequence[Key]) -> list[Part]:
        """Put these results, and no others, into as few parts as may be, in this order, and return
        them.

        A large part stays as it is if all of it is wanted, in its order; all others become one.
        Parts of this shard that are not needed any more are removed, but those that the run's
        tables are made of stand until there are others.
        """
        self.write()
        counts = Counter(self._places[key].part for key in keys)
        whole = {
            number
            for number, count in counts.items()
            if self._is_large(number)
            and count == self._rows[number]
            and self._is_in_order(number, keys)
        }
        others = [key for key in keys if self._places[key].part not in whole]
        settled = [self._parts[number] for number in sorted(whole)] + (
            [self._one_part(others)] if others else []
        )
        needed = {part.path for part in settled} | RunState(self.folder).needed_parts()
        for other in self._parts:
            is_own = self._shard.count == 1 or other.shard == self._shard.label
            if is_own and other.path not in needed and self._may_remove(other):
                remove_part(self.folder, other)
        return settled

    def _may_remove(self, part: Part) -> bool:
        """Whether a part holds nothing but kinds that are this job's."""
        if self._own_kinds is None or not part.path.is_file():
            return self._own_kinds is None
        return self._own_kinds.issuperset(part.read(("kind",))["kind"].unique().to_pylist())

    def _is_in_order(self, number: int, keys: Sequence[Key]) -> bool:
        """Whether a part holds its results in the order of these keys."""
        rows = [place.row for key in keys if (place := self._places[key]).part == number]
        return all(former < row for former, row in pairwise(rows))

    def _is_large(self, number: int) -> bool:
        return sum(mark.size for mark in self._parts[number].scores.values()) >= _LARGE

    def _one_part(self, keys: Sequence[Key]) -> Part:
        """The part that holds just these results: it is there, or made now of what is there."""
        path = self._place / f"{self._shard.prefix}{part_name(keys)}.parquet"
        part = next((part for part in self._parts if part.path == path), None)
        if part is None:
            with (
                phase("writing"),
                ScoreFiles(self.folder.scores_dir) as scores,
                self._map_files() as maps,
            ):
                self._copy_scores(keys, scores)
                self._copy_maps(keys, maps)
                sources = [
                    self._parts[number] for number in {self._places[key].part for key in keys}
                ]
                computed_by = {version for source in sources for version in source.versions}
                part = self._written_part(keys, self.tables(keys), scores, maps, computed_by)
            self._index_part(part, part.read(KEY))
        return part

    def _copy_scores(self, keys: Sequence[Key], scores: ScoreFiles) -> None:
        """Scores of some results, in their order, from the parts that they lie in."""
        of_measure: dict[tuple[Path, str], list[tuple[int, str]]] = defaultdict(list)
        files: dict[tuple[Path, str, int], list[Path]] = defaultdict(list)
        for number, part in enumerate(self._parts):
            for name in part.scores:
                place = Path(name).parent
                files[place, Path(name).name.partition(".")[0], number].append(
                    self.folder.scores_dir / name
                )
        places = {(place, start) for place, start, _ in files}
        for key in keys:
            for place, start in places:
                if place.parent.name == f"measure={key.kind}":
                    of_measure[place, start].append((self._places[key].part, key.clip))
        for (place, start), wanted in sorted(of_measure.items()):
            copied: dict[int, CopiedScores] = {}
            groups = RowGroups()
            for number, clip in wanted:
                if number not in copied:
                    copied[number] = CopiedScores(files.get((place, start, number), ()), groups)
                rows = copied[number].rows_of(clip)
                if rows is not None and rows.num_rows:
                    scores.append_rows(place / f"{start}.", rows)

    def _copy_maps(self, keys: Sequence[Key], maps: MapFiles) -> None:
        """Files of maps of some results, in their order, from the parts that they lie in."""
        copied: dict[int, CopiedScores] = {}
        groups = RowGroups()
        for key in keys:
            number = self._places[key].part
            part = self._parts[number]
            if not part.maps:
                continue
            if key.kind != MAPS:
                maps.append_copies(part, key.clip, self.row(key)["content"])
                continue
            if number not in copied:
                copied[number] = maps.copied_rows(part, groups)
            rows = copied[number].rows_of(key.clip)
            if rows is not None:
                maps.append_rows(rows)

    def __enter__(self) -> Results:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            with suppress(KeyboardInterrupt):
                self.write()
        finally:
            self._scores.discard()
            self._maps.discard()
