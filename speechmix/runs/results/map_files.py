"""Files of a run's maps: frame maps in shards, word maps in Parquet.

In: maps, clip by clip. Out: files that belong to a part of the run (clip_result_files.py), whose name is in
theirs, as scores do:

    maps/<model>/<part>.safetensors    maps of frames, a tensor <clip>/<measure>/<stack> each [layer, (head,) target, source]
    maps/<model>/<part>.parquet        maps of words, a row each, in plain columns (`COLUMNS`)

Labels of frame maps, and the digest of each of their layers, are in the rows of the part.

Shards of maps: safetensors files of about a gigabyte that hold many maps, written and read layer
by layer.

In: names of tensors and their layers. Out: files that any reader of safetensors opens; a tensor is
read back as a memory map, after its layers were compared with their digests, which whoever wrote it
keeps. The place of the header at a file's beginning is left free and filled in at the end, so that
scores are written once, and no more than a layer of them is in memory.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np
import pyarrow as pa

from ...errors import InputError
from ...files.cache_keys import FileMark
from ...files.json_files import JsonObject
from ...files.whole_files import unfinished_name
from ...inputs.clips.clip import Clip
from ...mixing.maps.map_files import score_checksum
from ...mixing.maps.mixing_map import MixingMap
from ...mixing.passes.request import MixRequest
from .clip_result_files import Part
from .score_files import CopiedScores, RowGroups, UnfinishedFiles

if TYPE_CHECKING:
    from ...adapters import Model


_MAX_SHARD_BYTES = 2**30  # bytes of scores; a larger map has a shard of its own
_HEADER = 2**18  # bytes for the header and its length; safetensors allows blanks behind it
_CODES = {"float16": "F16", "float32": "F32", "float64": "F64"}  # as safetensors calls them


class ShardWriter:
    """Tensors that become shards of one folder; nothing has its name before `close`."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._paths: list[Path] = []
        self._file: BinaryIO | None = None
        self._entries: dict[str, JsonObject] = {}
        self._header_bytes = self._bytes = 0

    def append(self, name: str, scores: np.ndarray, dtype: str) -> None:
        """Write a tensor [L, ...], layer by layer, as numbers of a type; it is there whole, or not
        at all."""
        size = scores.size * np.dtype(dtype).itemsize
        byte_range = [self._bytes, self._bytes + size]
        entry = {"dtype": _CODES[dtype], "shape": list(scores.shape), "data_offsets": byte_range}
        header_bytes = len(json.dumps({name: entry})) + 2
        too_large = (
            self._bytes + size > _MAX_SHARD_BYTES
            or self._header_bytes + header_bytes > _HEADER - 64
        )
        if too_large and self._entries:
            self._end_file()
            entry["data_offsets"] = [0, size]
        file = self._opened()
        begin = _HEADER + self._bytes
        try:
            for layer in scores:
                file.write(cast_layer(layer, dtype).data)
        except BaseException:
            with suppress(OSError):
                file.seek(begin)
                file.truncate()
            raise
        self._entries[name] = entry
        self._bytes += size
        self._header_bytes += header_bytes

    def _opened(self) -> BinaryIO:
        """The file that is being written."""
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._paths.append(unfinished_name(self._folder / "maps"))
            self._file = self._paths[-1].open("wb")
            self._file.write(bytes(_HEADER))
            self._entries, self._header_bytes, self._bytes = {}, 0, 0
        return self._file

    def _end_file(self) -> None:
        if self._file is None:
            return
        header = json.dumps(self._entries).encode().ljust(_HEADER - 8)
        self._file.seek(0)
        self._file.write(struct.pack("<Q", len(header)) + header)
        self._file.close()
        self._file, self._entries, self._header_bytes, self._bytes = None, {}, 0, 0

    def close(self, stem: str) -> list[Path]:
        """Give the files their names: "<stem>.safetensors", and "<stem>-1.safetensors", ... where
        there are more."""
        self._end_file()
        named = [
            self._folder / f"{stem}{f'-{number}' if number else ''}.safetensors"
            for number in range(len(self._paths))
        ]
        for unfinished, path in zip(self._paths, named, strict=True):
            os.replace(unfinished, path)
        self._paths = []
        return named

    def discard(self) -> None:
        """Remove what has no name yet."""
        if self._file is not None:
            self._file.close()
        self._file, self._entries, self._header_bytes, self._bytes = None, {}, 0, 0
        for path in self._paths:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        self._paths = []


def cast_layer(layer: np.ndarray, dtype: str) -> np.ndarray:
    """Return a layer's scores as they are written: little-endian, contiguous.

    InputError if a score is too large for float16.
    """
    with np.errstate(over="ignore"):
        stored = np.ascontiguousarray(layer, np.dtype(dtype).newbyteorder("<"))
    if dtype == "float16" and np.isfinite(layer).all() and not np.isfinite(stored).all():
        raise InputError(
            f"expected scores up to 65,504, which float16 holds, found {np.abs(layer).max():.6g}: "
            "leave out maps_dtype"
        )
    return stored


def score_digests(scores: np.ndarray, dtype: str) -> list[str]:
    """Digest of each layer as `ShardWriter` writes it; raises what `cast_layer` raises."""
    return [score_checksum(cast_layer(layer, dtype)) for layer in scores]


def find_shard(tensor_name: str, shards: Sequence[Path], where: str) -> Path:
    """Return the shard that holds a tensor.

    InputError if none does, or one of them cannot be read.
    """
    for path in shards:
        if tensor_name in _entries(path)[1]:
            return path
    raise InputError(
        f"{where}: expected the scores {tensor_name!r} in {', '.join(map(str, shards)) or 'a shard'}: "
        "make the run again"
    )


def read_tensor(path: Path, tensor_name: str, digests: Sequence[str]) -> np.ndarray:
    """Return a tensor of a shard as a memory map.

    It is read through once and compared with the digest of each layer; InputError if it is not as
    it was written.
    """
    start, entries = _entries(path)
    entry = entries[tensor_name]
    shape, begin = tuple(entry["shape"]), start + entry["data_offsets"][0]
    dtype = np.dtype(
        next(dtype_name for dtype_name, code in _CODES.items() if code == entry["dtype"])
    ).newbyteorder("<")
    scores = (
        np.memmap(path, dtype, "r", offset=begin, shape=shape)
        if math.prod(shape)
        else np.zeros(shape, dtype)
    )
    if len(digests) != shape[0] or any(
        score_checksum(layer) != digest for layer, digest in zip(scores, digests, strict=True)
    ):
        raise InputError(
            f"{path}: the scores {tensor_name!r} are not as they were written: the file is damaged, make "
            "it again"
        )
    return scores


def _entries(path: Path) -> tuple[int, dict[str, JsonObject]]:
    """Where the scores of a shard begin, and what its header says of each tensor."""
    try:
        stat = path.stat()
    except OSError as error:
        raise InputError(f"{path}: expected a shard of maps, found: {error.strerror}") from error
    return _read_entries(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=256)
def _read_entries(path: Path, size: int, changed: int) -> tuple[int, dict[str, JsonObject]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "np"):  # which compares the header with the file's size
            pass
        with path.open("rb") as file:
            length = struct.unpack("<Q", file.read(8))[0]
            entries = json.loads(file.read(length))
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(
            f"{path}: expected a shard of maps, found: {error!s:.200}: it is damaged, make it again"
        ) from error
    entries.pop("__metadata__", None)
    return 8 + length, entries


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
