"""Rows of a data set in files on this machine, without its recordings: where each is, is enough.

In: Arrow files that `datasets` wrote (save_to_disk), or Parquet files. Out: `StoredRow` rows: their
other columns, and the place of the recording in the file (`speechmix.inputs.audio.byte_ranges`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from ...errors import InputError
from ...files.json_files import JsonObject
from ...files.parquet_files import readable_parquet
from ..audio.byte_ranges import ByteRange, ParquetCell, parse_location
from .columns import ArrowObject, HubData

_BATCH = 500


@dataclass(frozen=True)
class StoredRow:
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

    cells: JsonObject
    path: str
    content: bytes | None = None
    place: str = ""


def arrow_rows(data: HubData, audio: str) -> Iterator[StoredRow]:
    """Rows of a data set that was loaded from disk.

    Arrow keeps the bytes of a recording as they are, so that a place in the file is a place in the
    recording.

    Parameters
    ----------
    data : datasets.Dataset
    audio : str
        Column of the recordings.

    Raises
    ------
    InputError
        If a file is damaged, or the column holds something else.
    """
    import pyarrow as pa

    for entry in data.cache_files:
        file = os.path.abspath(entry["filename"])
        with readable_parquet(file, kind="Arrow"), pa.memory_map(file) as source:
            whole = source.read_buffer()
            for batch in pa.ipc.open_stream(whole):
                batch.validate(full=True)
                recordings = batch.column(audio)
                others = batch.select(_other_columns(batch.schema, audio)).to_pylist()
                if _holds_names(recordings.type, audio, file):
                    for cells, name in zip(others, recordings.to_pylist(), strict=True):
                        yield StoredRow(cells, _named(name, cells))
                    continue
                encoded = recordings.field("bytes")
                places = _byte_ranges(encoded, whole)
                for row, (cells, name) in enumerate(
                    zip(others, recordings.field("path").to_pylist(), strict=True)
                ):
                    if not (recordings[row].is_valid and encoded[row].is_valid):
                        yield StoredRow(cells, _named(name, cells))
                    elif places is None:  # of a compressed file, unpacked in memory
                        yield StoredRow(cells, _named(name, cells), encoded[row].as_py())
                    else:
                        yield StoredRow(
                            cells, _named(name, cells), place=str(ByteRange(file, *places[row]))
                        )


def _other_columns(schema: ArrowObject, audio: str) -> list[str]:
    """Columns beside the recordings that can be read for every row: none that hold bytes, as a
    second recording does."""
    return [field.name for field in schema if field.name != audio and not _has_bytes(field.type)]


def _has_bytes(kind: ArrowObject) -> bool:
    import pyarrow as pa

    if pa.types.is_nested(kind):
        return any(_has_bytes(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _holds_names(kind: ArrowObject, audio: str, file: str) -> bool:
    """Whether a column holds names of files, and not recordings, each with its name.

    Raises
    ------
    InputError
        If it holds neither.
    """
    import pyarrow as pa

    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return True
    if pa.types.is_struct(kind) and {"bytes", "path"} <= {field.name for field in kind}:
        return False
    raise InputError(
        f"{file}: expected recordings in the column {audio} (bytes and path, as `datasets` stores "
        "them) or names of files, "
        f"found {kind}: cast it with cast_column({audio!r}, datasets.Audio(decode=False)) and save "
        "the set again"
    )


def _byte_ranges(encoded: ArrowObject, whole: ArrowObject) -> list[tuple[int, int]] | None:
    """First byte in the file, and number of bytes, of each recording; None if the array does not
    lie in the file."""
    import pyarrow as pa

    _, offsets, content = encoded.buffers()
    if content is None:
        return [(0, 0)] * len(encoded)
    base = content.address - whole.address
    if not 0 <= base <= whole.size - content.size:
        return None
    width = np.int64 if pa.types.is_large_binary(encoded.type) else np.int32
    ends = np.frombuffer(offsets, width)[encoded.offset : encoded.offset + len(encoded) + 1].astype(
        np.int64
    )
    return [(base + int(start), int(end - start)) for start, end in pairwise(ends)]


def parquet_files(folder: str, config: str | None) -> dict[str, Sequence[str]]:
    """Parquet files of a folder by split, as `datasets` finds them (by names of files and folders,
    or the README).

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


def parquet_rows(root: Path, files: Sequence[Path], audio: str) -> Iterator[StoredRow]:
    """Rows of Parquet files; of the recordings' column only the names are read.

    Parameters
    ----------
    root : Path
        Folder of the data set.
    files : sequence of Path
    audio : str
        Column of the recordings.

    Raises
    ------
    InputError
        If a file is damaged, or has no such column, or one that holds something else.
    """
    import pyarrow.parquet as pq

    for file in files:
        place = os.path.abspath(file)
        with readable_parquet(file), pq.ParquetFile(file) as opened:
            schema = opened.schema_arrow
            has_names = _holds_names(schema.field(audio).type, audio, place)
            embedded = not has_names and _holds_recordings(opened, f"{audio}.bytes")
            columns = [*_other_columns(schema, audio), audio if has_names else f"{audio}.path"]
            row = 0
            for batch in opened.iter_batches(_BATCH, columns=columns):
                batch.validate(full=True)
                for cells in batch.to_pylist():
                    recording = cells.pop(audio, None)
                    name = recording if has_names else (recording or {}).get("path")
                    yield StoredRow(
                        cells,
                        _named(name, cells),
                        place=_cell(place, audio, row) if embedded else "",
                    )
                    row += 1


def _cell(file: str, column: str, row: int) -> str:
    """The place of a recording.

    Raises
    ------
    InputError
        If there is no way to write it.
    """
    cell = ParquetCell(file, column, row)
    if parse_location(str(cell)) != cell:
        raise InputError(
            f"{file}: expected a file ending in .parquet and a column without / and #, found "
            f"{column!r}: rename it"
        )
    return str(cell)


def _holds_recordings(file: ArrowObject, column: str) -> bool:
    """Whether a file holds bytes of recordings, and not only their paths, as far as its statistics
    say."""
    for group in range(file.num_row_groups):
        chunks = file.metadata.row_group(group)
        for chunk in map(chunks.column, range(chunks.num_columns)):
            if chunk.path_in_schema == column:
                stated = chunk.statistics
                if (
                    stated is None
                    or not stated.has_null_count
                    or stated.null_count < chunk.num_values
                ):
                    return True
    return False


def _named(name: object, cells: JsonObject) -> str:
    path = str(name or cells.get("path") or "")
    return (
        path if parse_location(path) is None else ""
    )  # a data set cannot point into files by itself
