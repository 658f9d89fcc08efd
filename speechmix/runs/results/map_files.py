"""Files of a run's maps: frame maps in shards, word maps in Parquet.

In: maps, clip by clip. Out: files that belong to a part of the run (clip_result_files.py), whose name is in
theirs, as scores do:

    maps/<model>/<part>.safetensors    maps of frames, a tensor <clip>/<measure>/<stack> each [layer, (head,) target, source]
    maps/<model>/<part>.parquet        maps of words, a row each, in plain columns (`COLUMNS`)

Labels of frame maps, and the digest of each of their layers, are in the rows of the part.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from ...errors import InputError
from ...files.file_fingerprints import FileMark
from ...files.json_files import JsonObject
from ...inputs.clips.clip import Clip
from ...mixing.maps.mixing_map import MixingMap
from ...mixing.passes.request import MixRequest
from .clip_result_files import Part
from .map_shards import ShardWriter, find_shard, read_tensor
from .score_files import UnfinishedFiles
from .score_reuse import CopiedScores, RowGroups

if TYPE_CHECKING:
    from ...adapters import Model

MAPS = "maps"  # folder; and kind of result: a clip whose maps are in Parquet
DTYPES = ("float32", "float16")
_CELLS_PER_GROUP = 2**22  # of Parquet files

_LIST_COLUMNS = [("layers", pa.int32()), ("shape", pa.int32()), ("scores", pa.float32())]
_LIST_COLUMNS += [
    (f"{side}_{name}", kind)
    for side in ("target", "source")
    for name, kind in (
        ("labels", pa.string()),
        ("kinds", pa.string()),
        ("onsets", pa.float64()),
        ("offsets", pa.float64()),
    )
]
COLUMNS = pa.schema(
    [
        ("clip", pa.string()),
        ("fingerprint", pa.string()),
        ("model", pa.string()),
        ("init", pa.string()),
    ]
    + [("seed", pa.int64()), ("measure", pa.string()), ("stack", pa.string())]
    + [(name, pa.list_(kind)) for name, kind in _LIST_COLUMNS]
    + [("mixing_strength", pa.list_(pa.float32()))]
)


def is_stored_in_shards(mix_request: MixRequest) -> bool:
    """Whether maps are too large for a table with a row for each cell: those of frames are."""
    return mix_request.units == "frame"


def check_maps_dtype(dtype: str | None, mix_request: MixRequest) -> None:
    """Raise an `InputError` unless maps can be kept in this type."""
    if dtype is None:
        return
    if dtype not in DTYPES:
        raise InputError(f"maps_dtype must be one of {DTYPES}, found {dtype!r}")
    if not is_stored_in_shards(mix_request):
        raise InputError(
            "maps_dtype is for maps of frames (units='frame'); maps of words are small, and kept "
            "in float32, which every "
            "reader of Parquet knows: leave it out"
        )


def tensor_name(clip: str, measure: str, stack: str) -> str:
    """Name of a map in its shard."""
    return f"{clip}/{measure}/{stack}"


class MapFiles:
    """Maps that become files of one part of a run; nothing has its name before `close`.

    The folder is ``maps`` in a run's folder, `model` a folder in it. As a context manager, it
    removes what is unfinished.
    """

    def __init__(self, folder: Path, model: str):
        self._folder, self._place = folder, folder / model
        self._shards = ShardWriter(self._place)
        self._tables = UnfinishedFiles(self._place, COLUMNS)
        self._waiting: list[pa.Table] = []
        self._cells = 0

    def append_scores(self, name: str, scores: np.ndarray, dtype: str) -> None:
        """Add the scores of a frame map [L, (H,) W_t, W_s] under its `tensor_name`."""
        self._shards.append(name, scores, dtype)

    def append_rows(self, rows: pa.Table) -> None:
        """Add rows of word maps (`list_map_rows`)."""
        self._waiting.append(rows)
        self._cells += len(rows["scores"].combine_chunks().flatten())
        if self._cells >= _CELLS_PER_GROUP:
            self._write_rows()

    def append_copies(self, part: Part, clip: str, content: str) -> None:
        """Add the frame maps that a row of a part speaks of, compared with their digests."""
        for name, digests in _common_entries(clip, content):
            scores = read_tensor(
                find_shard(name, list_shards(self._folder, part), str(part.path)), name, digests
            )
            self.append_scores(name, scores, scores.dtype.name)

    def copied_rows(self, part: Part, groups: RowGroups) -> CopiedScores:
        """Rows of word maps of a part, to be taken out clip by clip."""
        return CopiedScores(
            [self._folder / name for name in part.maps if name.endswith(".parquet")], groups
        )

    def _write_rows(self) -> None:
        if self._waiting:
            self._tables.write(pa.concat_tables(self._waiting).cast(COLUMNS).combine_chunks())
        self._waiting, self._cells = [], 0

    def close(self, part_name: str) -> dict[str, FileMark]:
        """Finish the files of a part, whose name is in theirs; returns their paths below the
        folder, with their marks."""
        self._write_rows()
        paths = [*self._shards.close(part_name), *self._tables.close(part_name)]
        return {path.relative_to(self._folder).as_posix(): FileMark.of(path) for path in paths}

    def discard(self) -> None:
        """Remove what is unfinished."""
        self._shards.discard()
        self._tables.discard()
        self._waiting, self._cells = [], 0

    def __enter__(self) -> MapFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


def list_map_rows(maps: Mapping[tuple[str, str], MixingMap], clip: Clip, model: Model) -> pa.Table:
    """Maps of one clip in plain columns, a row each; scores are flat, in the order of `shape`,
    mixing strengths by layer."""
    about: JsonObject = {"clip": clip.name, "fingerprint": clip.fingerprint}
    about |= {"model": model.name, "init": model.init, "seed": model.seed}
    rows: list[JsonObject] = []
    for (measure, stack), mixing_map in maps.items():
        row: JsonObject = {
            **about,
            "measure": measure,
            "stack": stack,
            "layers": mixing_map.layers,
        }
        row |= {
            "shape": mixing_map.scores.shape,
            "scores": np.asarray(mixing_map.scores, np.float32).ravel(),
        }
        strength = mixing_map.mixing_strength
        row["mixing_strength"] = None if strength is None else strength.astype(np.float32).ravel()
        for side, spans in (("target", mixing_map.targets), ("source", mixing_map.sources)):
            for name in ("label", "kind", "onset", "offset"):
                row[f"{side}_{name}s"] = [getattr(span, name) for span in spans]
        rows.append(row)
    return pa.Table.from_pylist(rows, schema=COLUMNS)


def list_shards(folder: Path, part: Part) -> list[Path]:
    """Shards of a part."""
    return [folder / name for name in part.maps if name.endswith(".safetensors")]


def frame_map_scores(folder: Path, part: Part, name: str, digests: Sequence[str]) -> np.ndarray:
    """Return the scores of a frame map, which stay in its shard until they are used.

    float16 becomes float32, to be computed with. InputError if they are not there, or not as they
    were written.
    """
    scores = read_tensor(find_shard(name, list_shards(folder, part), str(part.path)), name, digests)
    if scores.dtype.itemsize == 2 or not scores.dtype.isnative:
        return scores.astype(
            "float32" if scores.dtype.itemsize == 2 else scores.dtype.newbyteorder("=")
        )
    return scores


def _common_entries(clip: str, content: str) -> Iterator[tuple[str, list[str]]]:
    """Name and digests of each map of a row whose scores are in shards."""
    if content.startswith('[{"measure"'):
        for labels in json.loads(content):
            if "digests" in labels:
                yield tensor_name(clip, labels["measure"], labels["stack"]), labels["digests"]
