"""Rows of a data set in files on this machine, without its recordings: where each is, is enough.

In: Arrow files that `datasets` wrote (save_to_disk), or Parquet files. Out: `Stored` rows: their other columns, and the place
of the recording in the file (`speechmix.inputs.audio_places`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from ..files.parquet_files import readable_parquet
from ..inputs.audio_places import Cell, Stretch, place_of

_BATCH = 500


@dataclass(frozen=True)
class Stored:
    """A row as it is stored.

    Parameters
    ----------
    cells : dict
        All columns but the recording.
    path : str
        What the data set calls the recording's file; "" if it does not say.
    content : bytes, optional
        The encoded recording, where it has no place.
    place : str
        Where it is in a file; "" if it is `content`, or a file of its own.
    """

    cells: dict[str, Any]
    path: str
    content: bytes | None = None
    place: str = ""


def arrow_rows(data: Any, audio: str) -> Iterator[Stored]:
    """Rows of a data set that was loaded from disk.

    Arrow keeps the bytes of a recording as they are, so that a place in the file is a place in the recording.

    Parameters
    ----------
    data : datasets.Dataset
    audio : str
        Column of the recordings.
    """
    import pyarrow as pa

    for entry in data.cache_files:
        file = os.path.abspath(entry["filename"])
        with readable_parquet(file, kind="Arrow"), pa.memory_map(file) as source:
            whole = source.read_buffer()
            for batch in pa.ipc.open_stream(whole):
                batch.validate(full=True)
                recordings = batch.column(audio)
                names = recordings.field("path").to_pylist()
                others = batch.drop_columns([audio]).to_pylist()
                encoded = recordings.field("bytes")
                places = _places(encoded, whole)
                for row, (cells, name) in enumerate(zip(others, names, strict=True)):
                    if not encoded[row].is_valid:
                        yield Stored(cells, _named(name, cells))
                    elif places is None:  # of a compressed file, unpacked in memory
                        yield Stored(cells, _named(name, cells), encoded[row].as_py())
                    else:
                        yield Stored(cells, _named(name, cells), place=str(Stretch(file, *places[row])))


def _places(encoded: Any, whole: Any) -> list[tuple[int, int]] | None:
    """First byte in the file, and number of bytes, of each recording; None if the array does not lie in the file."""
    import pyarrow as pa

    _, offsets, content = encoded.buffers()
    if content is None:
        return [(0, 0)] * len(encoded)
    base = content.address - whole.address
    if not 0 <= base <= whole.size - content.size:
        return None
    width = np.int64 if pa.types.is_large_binary(encoded.type) else np.int32
    ends = np.frombuffer(offsets, width)[encoded.offset : encoded.offset + len(encoded) + 1].astype(np.int64)
    return [(base + int(start), int(end - start)) for start, end in pairwise(ends)]


def parquet_files(folder: str, config: str | None) -> dict[str, Sequence[str]]:
    """Parquet files of a folder by split, as `datasets` finds them (by names of files and folders, or the README).

    Raises
    ------
    ValueError
        If they are files of another kind.
    """
    import datasets

    builder = datasets.load_dataset_builder(folder, config)
    if builder.name != "parquet":
        raise ValueError(f"expected Parquet files, found a set of the kind {builder.name}")
    return {str(split): files for split, files in builder.config.data_files.items()}


def parquet_rows(root: Path, files: Sequence[Path], audio: str) -> Iterator[Stored]:
    """Rows of Parquet files; of the recordings' column only the names are read.

    Parameters
    ----------
    root : Path
        Folder of the data set.
    files : sequence of Path
    audio : str
        Column of the recordings.
    """
    import pyarrow.parquet as pq

    for file in files:
        place = os.path.abspath(file)
        with readable_parquet(file), pq.ParquetFile(file) as opened:
            columns = [name for name in opened.schema_arrow.names if name != audio]
            embedded = _holds_recordings(opened, f"{audio}.bytes")
            row = 0
            for batch in opened.iter_batches(_BATCH, columns=[*columns, f"{audio}.path"]):
                batch.validate(full=True)
                for cells in batch.to_pylist():
                    name = _named((cells.pop(audio, None) or {}).get("path"), cells)
                    yield Stored(cells, name, place=str(Cell(place, audio, row)) if embedded else "")
                    row += 1


def _holds_recordings(file: Any, column: str) -> bool:
    """Whether a file holds bytes of recordings, and not only their paths, as far as its statistics say."""
    for group in range(file.num_row_groups):
        chunks = file.metadata.row_group(group)
        for chunk in map(chunks.column, range(chunks.num_columns)):
            if chunk.path_in_schema == column:
                stated = chunk.statistics
                if stated is None or not stated.has_null_count or stated.null_count < chunk.num_values:
                    return True
    return False


def _named(name: Any, cells: dict[str, Any]) -> str:
    path = str(name or cells.get("path") or "")
    return path if place_of(path) is None else ""  # a data set cannot point into files by itself
