"""Rows of the long table of scores, made of maps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from ...errors import InputError
from ...files.file_fingerprints import FileMark
from ...files.parquet_files import readable_parquet
from ...inputs.clips.clip import Clip
from ...inputs.words.spans import Span
from ...mixing.maps.mixing_map import MixingMap
from ...mixing.maps.numerics import normalize_rows
from .data_file_check import checked_files

_SIDE = [
    ("label", pa.string()),
    ("kind", pa.string()),
    ("onset", pa.float64()),
    ("offset", pa.float64()),
]


COLUMNS = pa.schema(
    [("clip", pa.string()), ("fingerprint", pa.string()), ("seed", pa.int64())]
    + [("layer", pa.int32()), ("head", pa.int32())]
    + [("target", pa.int32()), ("source", pa.int32())]
    + [(f"{side}_{name}", kind) for side in ("target", "source") for name, kind in _SIDE]
    + [("score", pa.float64()), ("share", pa.float32())]  # which follows from the scores
)


_CELLS_PER_BATCH = 100_000  # of a map


_FOLDERS = pa.schema([(name, pa.string()) for name in ("model", "init", "measure", "stack")])


def list_score_rows(mixing_map: MixingMap, clip: Clip, seed: int | None) -> Iterator[pa.Table]:
    """Every cell of a map, some layers a table; labels are indices into a dictionary, so a row
    takes about 60 bytes."""
    targets, sources = len(mixing_map.targets), len(mixing_map.sources)
    heads = mixing_map.scores.shape[1] if mixing_map.has_heads else 1
    at_once = max(_CELLS_PER_BATCH // max(heads * targets * sources, 1), 1)
    for start in range(0, len(mixing_map.layers), at_once):
        layers = np.asarray(mixing_map.layers[start : start + at_once], dtype=np.int32)
        scores = np.asarray(mixing_map.scores[start : start + at_once], dtype=np.float64)
        shape = (len(layers), heads, targets, sources)
        layer, head, target, source = (axis.ravel() for axis in np.indices(shape, dtype=np.int32))
        count = len(layer)
        columns = {
            "layer": pa.array(layers[layer]),
            "target": pa.array(target),
            "source": pa.array(source),
        }
        columns["seed"] = (
            pa.nulls(count, pa.int64()) if seed is None else pa.array(np.full(count, seed))
        )
        columns["head"] = pa.array(head) if mixing_map.has_heads else pa.nulls(count, pa.int32())
        columns |= {
            "clip": _repeat_text(clip.name, count),
            "fingerprint": _repeat_text(clip.fingerprint, count),
        }
        for side, spans, index in (
            ("target", mixing_map.targets, target),
            ("source", mixing_map.sources, source),
        ):
            columns |= {
                f"{side}_{name}": column for name, column in _span_texts(spans, index).items()
            }
        columns["score"] = pa.array(scores.ravel())
        columns["share"] = pa.array(normalize_rows(scores).ravel().astype(np.float32))
        yield pa.table({name: columns[name] for name in COLUMNS.names})


def _repeat_text(text: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(count, dtype=np.int32)), pa.array([text])
    )


def _span_texts(spans: Sequence[Span], index: np.ndarray) -> dict[str, pa.Array]:
    """Label, kind and times of the unit of each row; times are missing where they are not known."""
    columns: dict[str, pa.Array] = {}
    for name in ("label", "kind"):
        texts = pa.array([getattr(span, name) for span in spans], pa.string()).dictionary_encode()
        columns[name] = pa.DictionaryArray.from_arrays(
            texts.indices.take(pa.array(index)), texts.dictionary
        )
    for name in ("onset", "offset"):
        columns[name] = pa.array([getattr(span, name) for span in spans], pa.float64()).take(
            pa.array(index)
        )
    return columns


def read_scores(folder: Path, files: Mapping[str, FileMark] | None) -> ds.Dataset:
    """Open scores lazily: nothing is read before it is needed.

    `files` are paths below ``scores`` of parts that are up to date, with their marks; None for all
    that are there. InputError if there are none, or they cannot be opened. A file that is damaged
    raises it when it is read.
    """
    if not folder.is_dir():
        raise InputError(
            f"{folder.parent} has no scores: expected the folder {folder.name}, as `speechmix "
            "score` leaves it"
        )
    with readable_parquet(folder):
        by_name = ds.partitioning(_FOLDERS, flavor="hive")
        checked = ds.ParquetFileFormat(
            default_fragment_scan_options=ds.ParquetFragmentScanOptions(
                page_checksum_verification=True
            )
        )
        if files is not None:
            marks = {(folder / file).absolute(): mark for file, mark in files.items()}
            return ds.dataset(
                list(map(str, marks)),
                format=checked,
                filesystem=checked_files(marks),
                partitioning=by_name,
                partition_base_dir=str(folder.absolute()),
            )
        return ds.dataset(folder, format=checked, partitioning=by_name)
