"""Mixing maps in files: scores in safetensors, labels and provenance in its header.

In and out: a `MixingMap` (its `save` and `load`), whole, or layer by layer while it is computed (`LayerWriter`) and read
lazily from the file afterwards: a frame map of 1,500 x 1,500 frames and 24 layers is 216 MB.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .clips import safe_name
from .errors import InputError
from .mixing import MixingMap
from .spans import Span

if TYPE_CHECKING:
    import torch

_HEADER_VERSION = "1"
_DTYPES = {"float32": "F32", "float64": "F64"}  # as safetensors calls them


def write_map(mixing_map: MixingMap, path: str | Path) -> Path:
    """Write a map; returns where."""
    writer = LayerWriter(path, len(mixing_map.layers))
    for scores in mixing_map.scores:
        writer.append(scores)
    return writer.close(mixing_map)


class LayerWriter:
    """Writes a map's layers as they come, and its labels at the end; until then the file has a .part name.

    Parameters
    ----------
    path : path
    layers : int
        How many will come.
    """

    def __init__(self, path: str | Path, layers: int):
        self.path, self._layers, self._shape = Path(path), layers, ()
        self._scores = self.path.with_name(self.path.name + ".scores.part")
        self._file = self._scores.open("wb")

    def append(self, scores: np.ndarray) -> None:
        """Write the next layer's scores [(H,) W_t, W_s]."""
        self._shape, self._dtype = scores.shape, scores.dtype
        self._file.write(np.ascontiguousarray(scores).tobytes())

    def scores(self) -> np.ndarray:
        """All layers written so far, read from the file when they are used."""
        self._file.flush()
        return np.memmap(self._scores, self._dtype, "r", shape=(self._layers, *self._shape))

    def close(self, mixing_map: MixingMap) -> Path:
        """Finish the file with the map's labels and provenance; its scores are those that were written."""
        self._file.close()
        size = self._scores.stat().st_size
        tensor = {"dtype": _DTYPES[self._dtype.name], "shape": [self._layers, *self._shape], "data_offsets": [0, size]}
        header = json.dumps({"__metadata__": _header(mixing_map), "scores": tensor}).encode()
        header += b" " * (-len(header) % 8)
        partial = self.path.with_name(self.path.name + ".part")
        with partial.open("wb") as file, self._scores.open("rb") as scores:
            file.write(struct.pack("<Q", len(header)) + header)
            shutil.copyfileobj(scores, file, 2**24)
        self._scores.unlink()
        partial.replace(self.path)
        return self.path


def _header(mixing_map: MixingMap) -> dict[str, str]:
    return {
        "format": "speechmix.MixingMap",
        "version": _HEADER_VERSION,
        "measure": mixing_map.measure,
        "stack": mixing_map.stack,
        "layers": json.dumps(mixing_map.layers),
        "targets": json.dumps([asdict(span) for span in mixing_map.targets]),
        "sources": json.dumps([asdict(span) for span in mixing_map.sources]),
        "provenance": json.dumps(mixing_map.provenance),
    }


def read_map(path: str | Path, *, lazy: bool = False) -> MixingMap:
    """Read a map written by `write_map`.

    Parameters
    ----------
    lazy : bool
        Leave the scores in the file until they are used (a memory map).

    Raises
    ------
    InputError
        If the file is not one.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="numpy") as file:
            header = file.metadata() or {}
            scores = _mapped(Path(path)) if lazy else file.get_tensor("scores")
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path}: expected a map written by MixingMap.save, found {error}") from error
    if header.get("format") != "speechmix.MixingMap":
        raise InputError(f"{path}: a safetensors file, but not a MixingMap; found header {sorted(header)}")
    return MixingMap(
        scores=scores,
        targets=tuple(Span(**span) for span in json.loads(header["targets"])),
        sources=tuple(Span(**span) for span in json.loads(header["sources"])),
        measure=header["measure"],
        stack=header["stack"],
        layers=tuple(json.loads(header["layers"])),
        provenance=json.loads(header["provenance"]),
    )


def _mapped(path: Path) -> np.ndarray:
    """Scores of a safetensors file as a memory map: its header gives type, shape and place."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        tensor = json.loads(file.read(length))["scores"]
    dtype = {code: name for name, code in _DTYPES.items()}[tensor["dtype"]]
    return np.memmap(path, dtype, "r", offset=8 + length + tensor["data_offsets"][0], shape=tuple(tensor["shape"]))


class ScoresByLayer:
    """Layers' scores as they come: kept on the device until the pass is over, or written to files at once."""

    def __init__(self, layers: Mapping[str, Sequence[int]], folder: Path | None):
        self._layers, self._folder = layers, folder
        self._scores: dict[tuple[str, str], list[torch.Tensor]] = defaultdict(list)
        self._writers: dict[tuple[str, str], LayerWriter] = {}

    def append(self, key: tuple[str, str], scores: torch.Tensor) -> None:
        if self._folder is None:
            self._scores[key].append(scores)
            return
        if key not in self._writers:
            path = self._folder / f"{key[0]}.{key[1]}.safetensors"
            self._writers[key] = LayerWriter(path, len(self._layers[key[1]]))
        self._writers[key].append(scores.cpu().numpy())

    def map_of(self, key: tuple[str, str], labelled: Callable[[np.ndarray], MixingMap]) -> MixingMap:
        if self._folder is None:
            import torch

            return labelled(torch.stack(self._scores[key]).cpu().numpy())
        writer = self._writers[key]
        return MixingMap.load(writer.close(labelled(writer.scores())), lazy=True)


def folders_of(out: str | PathLike | None, clips: Sequence[Any]) -> list[Path | None]:
    """Where each clip's maps are written: a folder of its own for clips with names, `out` itself for prepared inputs."""
    if out is None:
        return [None] * len(clips)
    names = [getattr(clip, "name", None) for clip in clips]
    folders = [Path(out) / safe_name(name) if name else Path(out) for name in names]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
    return folders
