"""Shards of maps: safetensors files of about a gigabyte that hold many maps, written and read layer
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
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ...errors import InputError
from ...files.json_files import JsonObject
from ...files.unfinished_files import unfinished_name
from ...mixing.maps.map_headers import score_checksum

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
