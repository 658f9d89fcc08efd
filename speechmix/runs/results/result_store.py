"""Store of a model's results in a run's folder, reused by later starts.

In: results, one for each clip and kind (a measure, "ablation", "transcripts", "states", ...), each
with a key that has the hash of everything that decides it. Out: part files (clip_result_files.py) and the
files of scores and maps that belong to them:

    results/<model>/<part>.parquet                             rows that become the run's tables, labels of maps
    scores/model=.../stack=.../trained.<part>.parquet          score_files.py
    maps/<model>/<part>.parquet, .safetensors                  map_files.py

What is new is written every half minute or so, and when a block of code ends, however it ends. At
the end of a model `compact` puts all that the run wants into one part (a large run: few).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from ...adapters import Model
from ...files.json_files import Json, JsonObject
from ...files.shard_assignment import Shard
from ...files.timing import phase
from ...files.versions import versions
from ...inputs.clips.clip import Clip
from ...mixing.maps.map_set import Maps
from ...mixing.maps.mixing_map import MixingMap
from .clip_result_files import Owner, Part, rows_table
from .compaction import compact_parts, remove_unneeded_parts
from .map_files import MapFiles
from .part_index import Key, PartIndex
from .run_folder import RunFolder
from .score_files import ScoreFiles
from .stored_maps import read_row_maps

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
