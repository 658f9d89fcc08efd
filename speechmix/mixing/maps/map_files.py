"""Read and write mixing maps as files, whole or layer by layer.

In and out: a `MixingMap` (its `save` and `load`), whole, or layer by layer while it is computed
(`LayerWriter`) and read lazily from the file afterwards: a frame map of 1,500 x 1,500 frames and 24
layers is 216 MB. Scores are in safetensors; labels, provenance and checksums in its header. A file
is written under a name of its own and renamed when it is whole; a damaged byte in it is an error
and never a wrong number.

The header of a map's file: labels, provenance and checksums as text, and back, checked.

In: a `MixingMap` and a digest of each layer's scores; or the entries of a header that somebody else
may have damaged. Out: entries of strings, as safetensors keeps them; or what makes a `MixingMap`
but its scores, or an `InputError`.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import struct
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import fields
from itertools import chain, repeat
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from ...errors import InputError
from ...files.json_files import Json, JsonObject
from ...files.names import file_name_key, safe_name
from ...files.whole_files import clear_dead_writers, path_in_errors, unfinished_name, whole_file
from ...inputs.words.spans import Span
from .mixing_map import MixingMap

if TYPE_CHECKING:
    from .score_map import ScoreMap


FORMAT = "speechmix.MixingMap"
VERSION = "2"


def score_checksum(scores: np.ndarray) -> str:
    """Return the checksum of a layer's bytes (BLAKE2b, 32 hexadecimal digits)."""
    return hashlib.blake2b(np.ascontiguousarray(scores).data, digest_size=16).hexdigest()


def map_header(mixing_map: ScoreMap, tensor: JsonObject, digests: Sequence[str]) -> dict[str, str]:
    """Return the entries that are written beside the scores.

    `tensor` holds "dtype" and "shape" of the scores, as safetensors writes them; `digests` has one
    of each layer. Provenance that JSON cannot hold is an InputError.
    """
    header = {
        "format": FORMAT,
        "version": VERSION,
        **labels_to_text(mixing_map),
        "digests": json.dumps(list(digests)),
    }
    return {**header, "checksum": _checksum(header, tensor)}


def labels_to_text(mixing_map: ScoreMap) -> dict[str, str]:
    """Return all of a map but its scores: measure, stack, layers, units, provenance, mixing
    strength; `labels_from_text` reads it.

    Provenance that JSON cannot hold is an InputError.
    """
    try:
        provenance = json.dumps(mixing_map.provenance)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"the provenance of {mixing_map!r} cannot be written as JSON ({error})"
        ) from error
    return {
        "measure": mixing_map.measure,
        "stack": mixing_map.stack,
        "layers": json.dumps(mixing_map.layers),
        "targets": json.dumps([_span_to_entry(span) for span in mixing_map.targets]),
        "sources": json.dumps([_span_to_entry(span) for span in mixing_map.sources]),
        "provenance": provenance,
        **_strength_entry(mixing_map.mixing_strength),
    }


def _strength_entry(strength: np.ndarray | None) -> dict[str, str]:
    """Mixing strengths [L, W_t] as text, which holds them to the last bit; no entry where there are
    none."""
    if strength is None:
        return {}
    dtype = "float32" if strength.dtype == np.float32 else "float64"
    return {"mixing_strength": json.dumps([dtype, strength.tolist()])}


def parse_header(header: Json, tensor: JsonObject, where: str) -> tuple[JsonObject, list[str]]:
    """Return what a header says of a map: the arguments of `MixingMap` but scores, and the digest
    of each layer.

    A header that is not one of a map, or not as it was written, is an InputError.
    """
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        found_keys = sorted(map(str, header)) if isinstance(header, dict) else header
        raise InputError(
            f"{where}: a safetensors file, but not a MixingMap; found header {str(found_keys)[:200]}"
        )
    version = header.get("version")
    if version != VERSION:
        raise InputError(
            f"{where}: a map in the format {str(version)[:20]!r}, expected {VERSION!r}: compute "
            "the map again, or update "
            "speechmix if a newer version wrote it"
        )
    if header.get("checksum") != _checksum(header, tensor):
        raise InputError(
            f"{where}: its labels or provenance are not as they were written: {_DAMAGE_ADVICE}"
        )
    try:
        labels = labels_from_text(header)
        digests = json.loads(header["digests"])
    except (KeyError, TypeError, ValueError, RecursionError, OverflowError) as error:
        raise InputError(
            f"{where}: a map with labels that cannot be read ({error!r:.200}): {_DAMAGE_ADVICE}"
        ) from error
    shape = [len(labels[name]) for name in ("layers", "targets", "sources")]
    if [tensor["shape"][0], *tensor["shape"][-2:]] != shape or len(digests) != shape[0]:
        raise InputError(
            f"{where}: scores of shape {tensor['shape']}, labels for {shape}: {_DAMAGE_ADVICE}"
        )
    strength = labels["mixing_strength"]
    if strength is not None and list(strength.shape) != shape[:2]:
        raise InputError(
            f"{where}: mixing strengths of shape {strength.shape}, labels for {shape}: {_DAMAGE_ADVICE}"
        )
    return labels, digests


_DAMAGE_ADVICE = "the file is damaged; compute the map again"


def _checksum(header: JsonObject, tensor: JsonObject) -> str:
    """Digest of all other entries, and of type and shape of the scores."""
    entries = sorted((name, text) for name, text in header.items() if name != "checksum")
    content = json.dumps([entries, tensor["dtype"], tensor["shape"]]).encode()
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def labels_from_text(header: JsonObject) -> JsonObject:
    """What makes a `MixingMap` but its scores; raises what JSON and wrong types raise (KeyError,
    TypeError, ValueError)."""
    layers, provenance = json.loads(header["layers"]), json.loads(header["provenance"])
    if not isinstance(provenance, dict):
        raise TypeError(f"provenance is {type(provenance).__name__}")
    if not isinstance(layers, list) or not all(_is_nonnegative_integer(layer) for layer in layers):
        raise TypeError(f"layers are {layers!r}")
    return {
        "targets": tuple(_span_from_entry(entry) for entry in json.loads(header["targets"])),
        "sources": tuple(_span_from_entry(entry) for entry in json.loads(header["sources"])),
        "measure": str(header["measure"]),
        "stack": str(header["stack"]),
        "layers": tuple(layers),
        "provenance": provenance,
        "mixing_strength": _parse_strength(header["mixing_strength"], layers)
        if "mixing_strength" in header
        else None,
    }


def _parse_strength(text: str, layers: list[int]) -> np.ndarray:
    """Mixing strengths [L, W_t] of `_strength_entry`."""
    dtype, numbers = json.loads(text)
    if dtype not in ("float32", "float64"):
        raise TypeError(f"mixing strengths are {dtype!r:.40}")
    strength = np.array(numbers, dtype=dtype)
    if strength.ndim != 2 or len(strength) != len(layers):
        raise ValueError(f"mixing strengths of shape {strength.shape} for {len(layers)} layers")
    return strength


def _span_to_entry(span: Span) -> JsonObject:
    """A unit as it is written: pieces only where there are some, so that all other files are as
    they always were."""
    return {
        name: value
        for name in _SPAN_NAMES  # not asdict, which copies each value
        if (value := getattr(span, name)) or name not in ("pieces", "times")
    }


_SPAN_NAMES = tuple(field.name for field in fields(Span))


def _span_from_entry(entry: Json) -> Span:
    span = Span(**entry)
    has_texts = isinstance(span.label, str) and isinstance(span.kind, str)
    has_times = all(
        time is None or isinstance(time, (int, float)) for time in (span.onset, span.offset)
    )
    has_positions = (
        all(
            _is_nonnegative_integer(index)
            for index in (span.start, span.stop, *chain(*span.pieces))
        )
        and span.start <= span.stop
    )
    if not (
        has_texts
        and has_times
        and has_positions
        and (span.word is None or _is_nonnegative_integer(span.word))
    ):
        raise TypeError(f"a unit is {entry!r}")
    return span


def _is_nonnegative_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_DTYPES = {"float32": "F32", "float64": "F64"}  # as safetensors calls them
_MAX_HEADER_BYTES = 100_000_000  # bytes, as safetensors has it


def write_map(mixing_map: MixingMap, path: str | Path) -> Path:
    """Write a map; returns where."""
    with LayerWriter(path, len(mixing_map.layers)) as writer:
        for scores in mixing_map.scores:
            writer.append(scores)
        return writer.close(mixing_map)


class LayerWriter:
    """Writes a map's layers as they come, and its labels at the end; nothing has the file's name
    before it is whole.

    As a context manager, it removes what it has written when the block ends without `close`.
    `layers` says how many will come.
    """

    def __init__(self, path: str | Path, layer_count: int):
        self.path, self._layer_count, self._shape = Path(path), layer_count, ()
        self._digests: list[str] = []
        self.path.parent.mkdir(parents=True, exist_ok=True)
        clear_dead_writers(self.path.parent.absolute())
        self._scores_path = unfinished_name(self.path)
        with path_in_errors(self.path, self._scores_path):
            self._file = self._scores_path.open("wb")

    def append(self, scores: np.ndarray) -> None:
        """Write the next layer's scores [(H,) W_t, W_s]."""
        if scores.dtype.name not in _DTYPES:
            raise InputError(
                f"{self.path}: expected scores in float32 or float64, found {scores.dtype}"
            )
        self._shape, self._dtype = scores.shape, np.dtype(scores.dtype.name).newbyteorder("<")
        scores = np.ascontiguousarray(scores, self._dtype)
        self._digests.append(score_checksum(scores))
        self._file.write(scores.data)

    def scores(self) -> np.ndarray:
        """All layers written so far, read from the file when they are used."""
        self._file.flush()
        return _memory_map(self._scores_path, self._dtype, (self._layer_count, *self._shape), 0)

    def close(self, mixing_map: MixingMap) -> Path:
        """Finish the file with the map's labels and provenance; its scores are those that were
        written."""
        self._file.close()
        if len(self._digests) != self._layer_count:
            raise InputError(
                f"{self.path}: expected {self._layer_count} layers, {len(self._digests)} were written"
            )
        tensor = {"dtype": _DTYPES[self._dtype.name], "shape": [self._layer_count, *self._shape]}
        entries = map_header(mixing_map, tensor, self._digests)
        tensor["data_offsets"] = [0, self._scores_path.stat().st_size]
        header = json.dumps({"__metadata__": entries, "scores": tensor}).encode()
        header += b" " * (-len(header) % 8)
        with (
            whole_file(self.path) as temporary_path,
            temporary_path.open("wb") as file,
            self._scores_path.open("rb") as scores,
        ):
            file.write(struct.pack("<Q", len(header)) + header)
            shutil.copyfileobj(scores, file, 2**24)
        self.discard()
        return self.path

    def discard(self) -> None:
        """Remove the scores of a file that was not finished."""
        self._file.close()
        with suppress(OSError):
            self._scores_path.unlink(missing_ok=True)

    def __enter__(self) -> LayerWriter:
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.discard()


def read_map(path: str | Path, *, lazy: bool = False) -> MixingMap:
    """Read a map written by `write_map`, and compare it with its checksums.

    With `lazy`, the scores stay in the file until they are used (a memory map): they are read
    through once, layer by layer, to be compared, and not kept. A file that is no map, or not as it
    was written, is an InputError.
    """
    return _read_map_file(Path(path), lazy=lazy, verify=True)


def reopen_map(path: Path) -> MixingMap:
    """Return a map that was just written, with its scores in the file."""
    return _read_map_file(path, lazy=True, verify=False)


def _read_map_file(path: Path, *, lazy: bool, verify: bool) -> MixingMap:
    try:
        with path.open("rb") as file:
            header, tensor, data_offset = _read_header(file, str(path))
            labels, digests = parse_header(header, tensor, str(path))
            dtype = np.dtype(
                next(name for name, code in _DTYPES.items() if code == tensor["dtype"])
            ).newbyteorder("<")
            shape = tuple(tensor["shape"])
            scores = (
                _memory_map(path, dtype, shape, data_offset) if lazy else np.empty(shape, dtype)
            )
            layer_buffer = np.empty(shape[1:], dtype)
            file.seek(data_offset)
            for index in range(shape[0]) if verify or not lazy else ():
                layer = layer_buffer if lazy else scores[index]
                file.readinto(layer.reshape(-1).view(np.uint8).data)
                if score_checksum(layer) != digests[index]:
                    raise InputError(
                        f"{path}: the scores of layer {labels['layers'][index]} are not as they "
                        "were written: "
                        "the file is damaged; compute the map again"
                    )
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{path}: expected a map written by MixingMap.save, found: {reason}"
        ) from error
    return MixingMap(
        scores=scores if dtype.isnative else scores.astype(dtype.newbyteorder("=")), **labels
    )


def _read_header(file: BinaryIO, where: str) -> tuple[Json, JsonObject, int]:
    """Entries of a safetensors file with one tensor "scores", that tensor's type and shape, and
    where its bytes start."""
    size = file.seek(0, 2)
    file.seek(0)
    length = struct.unpack("<Q", file.read(8))[0] if size >= 8 else None
    if length is None or not 2 <= length <= min(size - 8, _MAX_HEADER_BYTES):
        raise InputError(
            f"{where}: expected a map written by MixingMap.save, found {size:,} bytes that are none"
        )
    try:
        header = json.loads(file.read(length))
        tensor = header["scores"]
        start, stop = tensor["data_offsets"]
        shape = tensor["shape"]
        has_valid_counts = all(
            type(count) is int and 0 <= count < 2**31 for count in (*shape, len(header) - 1)
        )
        width = {"F32": 4, "F64": 8}[tensor["dtype"]]
        is_consistent = (
            has_valid_counts
            and len(shape) in (3, 4)
            and (start, stop) == (0, math.prod(shape) * width)
        )
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"{where}: expected a map written by MixingMap.save, found {error!r:.200}"
        ) from error
    if not is_consistent or set(header) - {"scores", "__metadata__"} or size != 8 + length + stop:
        raise InputError(
            f"{where}: expected scores [L, (H,) targets, sources] that fill the file, found shape "
            f"{str(shape)[:80]} in "
            f"{size:,} bytes: the file is damaged or was cut off"
        )
    return header.get("__metadata__", {}), tensor, 8 + length


def _memory_map(path: Path, dtype: np.dtype, shape: tuple[int, ...], offset: int) -> np.ndarray:
    if not math.prod(shape):  # an empty file cannot be mapped
        return np.zeros(shape, dtype)
    return np.memmap(path, dtype, "r", offset=offset, shape=shape)


def write_and_reopen(folder: Path | None, mixing_map: MixingMap) -> MixingMap:
    """Write a finished map and return it with its scores in the file; without a folder, as it
    is."""
    if folder is None:
        return mixing_map
    path = write_map(mixing_map, map_path(folder, (mixing_map.measure, mixing_map.stack)))
    return reopen_map(path)


def map_path(folder: Path, key: tuple[str, str]) -> Path:
    """File of the map of a measure and stack."""
    return folder / f"{safe_name(key[0])}.{safe_name(key[1])}.safetensors"


def map_folders(out: str | PathLike[str] | None, clips: Sequence[object]) -> Iterator[Path | None]:
    """Yield where each clip's maps are written, one after the other: a folder named like the clip.

    Without `out`, None for every clip. A single one without a name (prepared inputs) has `out`
    itself; several are numbered, ``inputs_0``, ``inputs_1``, ... An InputError says that `out` is a
    file, or that two clips would share a folder (capitals do not tell two folders apart
    everywhere).
    """
    if out is None:
        return repeat(None)
    out = Path(out)
    if out.exists() and not out.is_dir():
        raise InputError(f"out={str(out)!r}: expected a folder to write maps to, found a file")
    names = [clip if isinstance(clip, str) else getattr(clip, "name", None) for clip in clips]
    if names == [None]:
        return iter([out])
    folders = [safe_name(name) if name else f"inputs_{index}" for index, name in enumerate(names)]
    first_index: dict[str, int] = {}
    for index, folder in enumerate(folders):
        other_index = first_index.setdefault(file_name_key(folder), index)
        if other_index != index:
            raise InputError(
                f"out={str(out)!r}: two clips would be written to {folder!r}: "
                f"{_describe_clip(clips[other_index])} and "
                f"{_describe_clip(clips[index])}: give them different names (name=)"
            )
    return iter([out / folder for folder in folders])


def _describe_clip(clip: object) -> str:
    if isinstance(clip, str):
        return repr(clip)
    path = getattr(clip, "path", None)
    kind = str(path) if path else "samples in memory" if hasattr(clip, "audio") else "a text"
    return f"{getattr(clip, 'name', 'inputs')!r} ({kind})"
