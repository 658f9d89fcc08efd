"""Read rows of local Arrow and Parquet data sets without loading recordings.

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

_BATCH_ROWS = 500


@dataclass(frozen=True)
class StoredRow:
    """A row as it is stored.

    `cells` are all columns but the recording. `path` is what the data set calls the recording's
    file, "" if it does not say. The recording is `content` (encoded bytes), or lies at `location`
    in a file; both are empty if it is a file by itself.
    """

    cells: JsonObject
    path: str
    content: bytes | None = None
    location: str = ""


def read_arrow_rows(data: HubData, audio: str) -> Iterator[StoredRow]:
    """Read the rows of a data set that was loaded from disk; `audio` is the column of recordings.

    Arrow keeps the bytes of a recording as they are, so that a place in the file is a place in the
    recording. InputError if a file is damaged, or the column holds something else.
    """
    import pyarrow as pa

    for entry in data.cache_files:
        file = os.path.abspath(entry["filename"])
        with readable_parquet(file, kind="Arrow"), pa.memory_map(file) as source:
            file_buffer = source.read_buffer()
            for batch in pa.ipc.open_stream(file_buffer):
                batch.validate(full=True)
                recordings = batch.column(audio)
                other_cells = batch.select(_other_columns(batch.schema, audio)).to_pylist()
                if _is_name_column(recordings.type, audio, file):
                    for cells, name in zip(other_cells, recordings.to_pylist(), strict=True):
                        yield StoredRow(cells, _recording_path(name, cells))
                    continue
                encoded = recordings.field("bytes")
                byte_ranges = _byte_ranges(encoded, file_buffer)
                for row, (cells, name) in enumerate(
                    zip(other_cells, recordings.field("path").to_pylist(), strict=True)
                ):
                    if not (recordings[row].is_valid and encoded[row].is_valid):
                        yield StoredRow(cells, _recording_path(name, cells))
                    elif byte_ranges is None:  # of a compressed file, unpacked in memory
                        yield StoredRow(cells, _recording_path(name, cells), encoded[row].as_py())
                    else:
                        yield StoredRow(
                            cells,
                            _recording_path(name, cells),
                            location=str(ByteRange(file, *byte_ranges[row])),
                        )


def _other_columns(schema: ArrowObject, audio: str) -> list[str]:
    """Columns beside the recordings that can be read for every row: none that hold bytes, as a
    second recording does."""
    return [
        field.name for field in schema if field.name != audio and not _contains_bytes(field.type)
    ]


def _contains_bytes(arrow_type: ArrowObject) -> bool:
    import pyarrow as pa

    if pa.types.is_nested(arrow_type):
        return any(
            _contains_bytes(arrow_type.field(index).type) for index in range(arrow_type.num_fields)
        )
    return bool(pa.types.is_binary(arrow_type) or pa.types.is_large_binary(arrow_type))


def _is_name_column(arrow_type: ArrowObject, audio: str, file: str) -> bool:
    """Say whether a column holds names of files, or recordings with their names; InputError if
    neither."""
    import pyarrow as pa

    if pa.types.is_string(arrow_type) or pa.types.is_large_string(arrow_type):
        return True
    if pa.types.is_struct(arrow_type) and {"bytes", "path"} <= {field.name for field in arrow_type}:
        return False
    raise InputError(
        f"{file}: expected recordings in the column {audio} (bytes and path, as `datasets` stores "
        "them) or names of files, "
        f"found {arrow_type}: cast it with cast_column({audio!r}, datasets.Audio(decode=False)) and save "
        "the set again"
    )


def _byte_ranges(encoded: ArrowObject, file_buffer: ArrowObject) -> list[tuple[int, int]] | None:
    """First byte in the file, and number of bytes, of each recording; None if the array does not
    lie in the file."""
    import pyarrow as pa

    _, offsets, content = encoded.buffers()
    if content is None:
        return [(0, 0)] * len(encoded)
    base = content.address - file_buffer.address
    if not 0 <= base <= file_buffer.size - content.size:
        return None
    width = np.int64 if pa.types.is_large_binary(encoded.type) else np.int32
    byte_offsets = np.frombuffer(offsets, width)[
        encoded.offset : encoded.offset + len(encoded) + 1
    ].astype(np.int64)
    return [(base + int(start), int(end - start)) for start, end in pairwise(byte_offsets)]


def list_parquet_files(folder: str, config: str | None) -> dict[str, Sequence[str]]:
    """Parquet files of a folder by split, as `datasets` finds them (by names of files and folders,
    or the README).

    ValueError if they are files of another kind.
    """
    import datasets

    builder = datasets.load_dataset_builder(folder, config)
    if builder.name != "parquet":
        raise ValueError(f"expected Parquet files, found a set of the kind {builder.name}")
    return {str(split): files for split, files in builder.config.data_files.items()}


def read_parquet_rows(root: Path, files: Sequence[Path], audio: str) -> Iterator[StoredRow]:
    """Read the rows of Parquet files; of the column `audio`, only the names are read.

    InputError if a file is damaged, or has no such column, or one that holds something else.
    """
    import pyarrow.parquet as pq

    for file in files:
        file_path = os.path.abspath(file)
        with readable_parquet(file), pq.ParquetFile(file) as parquet_file:
            schema = parquet_file.schema_arrow
            has_names = _is_name_column(schema.field(audio).type, audio, file_path)
            has_audio = not has_names and _has_embedded_audio(parquet_file, f"{audio}.bytes")
            columns = [*_other_columns(schema, audio), audio if has_names else f"{audio}.path"]
            row = 0
            for batch in parquet_file.iter_batches(_BATCH_ROWS, columns=columns):
                batch.validate(full=True)
                for cells in batch.to_pylist():
                    recording = cells.pop(audio, None)
                    name = recording if has_names else (recording or {}).get("path")
                    yield StoredRow(
                        cells,
                        _recording_path(name, cells),
                        location=_make_cell_location(file_path, audio, row) if has_audio else "",
                    )
                    row += 1


def _make_cell_location(file: str, column: str, row: int) -> str:
    """Return the place of a recording; InputError if there is no way to write it."""
    cell = ParquetCell(file, column, row)
    if parse_location(str(cell)) != cell:
        raise InputError(
            f"{file}: expected a file ending in .parquet and a column without / and #, found "
            f"{column!r}: rename it"
        )
    return str(cell)


def _has_embedded_audio(file: ArrowObject, column: str) -> bool:
    """Whether a file holds bytes of recordings, and not only their paths, as far as its statistics
    say."""
    for group in range(file.num_row_groups):
        chunks = file.metadata.row_group(group)
        for chunk in map(chunks.column, range(chunks.num_columns)):
            if chunk.path_in_schema == column:
                statistics = chunk.statistics
                if (
                    statistics is None
                    or not statistics.has_null_count
                    or statistics.null_count < chunk.num_values
                ):
                    return True
    return False


def _recording_path(name: object, cells: JsonObject) -> str:
    path = str(name or cells.get("path") or "")
    return (
        path if parse_location(path) is None else ""
    )  # a data set cannot point into files by itself
