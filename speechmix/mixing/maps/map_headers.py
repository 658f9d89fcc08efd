"""The header of a map's file: labels, provenance and checksums as text, and back, checked.

In: a `MixingMap` and a digest of each layer's scores; or the entries of a header that somebody else
may have damaged. Out: entries of strings, as safetensors keeps them; or what makes a `MixingMap`
but its scores, or an `InputError`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import fields
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from ...errors import InputError
from ...files.json_files import Json, JsonObject
from ...inputs.words.spans import Span

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
