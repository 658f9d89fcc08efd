"""Scores of a run as one long Parquet data set, which analysts open lazily: a folder for each
model, measure and stack.

    scores/model=whisper-small/init=random/measure=value_zeroing/stack=encoder/seed-0.5d0c6a31.parquet

In: maps, clip by clip. Out: files of few, large row groups (about a million rows each, sorted by
clip), plain types, no CSV; each belongs to a part of the run (clip_result_files.py), whose name is in its
own. What a folder's name says (model, init, measure, stack) is no column of the file. The seed is
one: as a folder's name it would be missing for trained models, and pandas reads no numbers there
beside a missing one. Maps are taken apart layer by layer, so that no more than a layer of a frame
map and the rows that wait to be written are in memory.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...files.cache_keys import digest
from ...files.file_fingerprints import FileMark
from ...files.json_files import JsonObject
from ...files.unfinished_files import unfinished_name
from ...inputs.clips.clip import Clip
from ...mixing.maps.map_set import Maps
from .score_rows import COLUMNS, list_score_rows

if TYPE_CHECKING:
    from ...adapters import Model

ROWS_PER_GROUP = 1_000_000
_TABLES_AT_ONCE = 256  # that wait one by one
MAX_WAITING_BYTES = 2**27  # bytes of rows that wait to be written, in all folders together
_MAX_FILE_ROWS = 2**28  # bytes; a file is closed behind the row group that goes past it

_MAX_NAME_LENGTH = 200  # letters of a value in a folder's name; file systems take 255 bytes
_NUMBERS = [
    "score",
    "share",
]  # hardly two alike: their bytes are put in an order that can be packed, a fifth smaller


class ScoreFiles:
    """Rows of scores that become files of one part of a run: few, with large row groups.

    Nothing has its name in ``scores`` before `close`; as a context manager, it removes what is
    unfinished. `rows_per_group` rows of one folder are written together.
    """

    def __init__(self, folder: Path, *, rows_per_group: int = ROWS_PER_GROUP):
        self._folder, self._rows_per_group = folder, rows_per_group
        self._waiting: dict[Path, list[pa.Table]] = defaultdict(list)
        self._packed: dict[Path, list[pa.Table]] = defaultdict(list)
        self._rows: Counter[Path] = Counter()  # that wait, and their bytes
        self._bytes: Counter[Path] = Counter()
        self._files: dict[Path, UnfinishedFiles] = {}

    def append(self, maps: Maps, clip: Clip, model: Model) -> None:
        """Add every score of some maps of one clip, raw and as a share of its row."""
        for (measure, stack), mixing_map in maps.items():
            file_prefix = partition_folder(model.name, model.init, measure, stack) / file_name(
                model.seed
            )
            for rows in list_score_rows(mixing_map, clip, model.seed):
                self.append_rows(file_prefix, rows)
        while self._bytes.total() > MAX_WAITING_BYTES:
            self._write(self._bytes.most_common(1)[0][0])

    def append_rows(self, file_prefix: Path, rows: pa.Table) -> None:
        """Add rows of one clip to the files of a folder (`partition_folder`) that begin like
        `file_name`."""
        self._waiting[file_prefix].append(rows)
        self._rows[file_prefix] += rows.num_rows
        self._bytes[file_prefix] += rows.nbytes
        if len(self._waiting[file_prefix]) >= _TABLES_AT_ONCE:
            self._packed[file_prefix].append(_join_tables(self._waiting.pop(file_prefix)))
        if self._rows[file_prefix] >= self._rows_per_group:
            self._write(file_prefix)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the rows in memory."""
        return self._bytes.total()

    def _write(self, file_prefix: Path) -> None:
        """One row group, sorted by clip."""
        rows = _join_tables(
            [*self._packed.pop(file_prefix, []), *self._waiting.pop(file_prefix, [])]
        )
        clips = rows["clip"].chunk(0)
        order = np.argsort(np.asarray(clips.dictionary.to_pylist(), dtype=object), kind="stable")
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order))
        rows = rows.take(np.argsort(ranks[clips.indices.to_numpy()], kind="stable"))
        del self._rows[file_prefix], self._bytes[file_prefix]
        if file_prefix not in self._files:
            self._files[file_prefix] = UnfinishedFiles(self._folder / file_prefix.parent, COLUMNS)
        self._files[file_prefix].write(rows.cast(COLUMNS))

    def close(self, part_name: str) -> dict[str, FileMark]:
        """Finish the files of a part, whose name is in theirs; returns their paths below the
        folder, with their marks."""
        for file_prefix in list(self._rows):
            self._write(file_prefix)
        marks = {}
        for file_prefix, files in sorted(self._files.items()):
            for path in files.close(f"{file_prefix.name}{part_name}"):
                marks[path.relative_to(self._folder).as_posix()] = FileMark.of(path)
        self._files = {}
        return marks

    def discard(self) -> None:
        """Remove what is unfinished."""
        for files in self._files.values():
            files.discard()
        self._files, self._waiting, self._packed = {}, defaultdict(list), defaultdict(list)
        self._rows, self._bytes = Counter(), Counter()

    def __enter__(self) -> ScoreFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()


def _join_tables(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables as one whose columns are of one piece each: thousands of small ones take several times
    their bytes."""
    coded = [_encode_rows(table) for table in tables]
    return pa.concat_tables(coded).unify_dictionaries().combine_chunks()


def _encode_rows(rows: pa.Table) -> pa.Table:
    """Rows whose columns of text are indices into dictionaries."""
    for column_index, column in enumerate(rows.schema):
        if pa.types.is_string(column.type):
            rows = rows.set_column(column_index, column.name, rows[column.name].dictionary_encode())
    return rows


class UnfinishedFiles:
    """Parquet files of one folder that have no name yet; the next is begun when one is large."""

    def __init__(self, folder: Path, schema: pa.Schema):
        self._folder, self._schema = folder, schema
        self._paths: list[Path] = []
        self._file: BinaryIO | None = None

    def write(self, rows: pa.Table) -> None:
        """Write rows as one row group."""
        if self._file is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._paths.append(unfinished_name(self._folder / "rows"))
            self._file = self._paths[-1].open("wb")
            packing: JsonObject = {}
            if numbers := [name for name in _NUMBERS if name in self._schema.names]:
                texts = [name for name in self._schema.names if name not in numbers]
                packing = {"use_dictionary": texts, "use_byte_stream_split": numbers}
            self._writer = pq.ParquetWriter(
                self._file,
                self._schema,
                compression="zstd",
                write_page_checksum=True,
                store_schema=False,
                **packing,
            )
        self._writer.write_table(rows, row_group_size=max(rows.num_rows, 1))
        if self._file.tell() > _MAX_FILE_ROWS:
            self._end_file()

    def _end_file(self) -> None:
        if self._file is not None:
            self._writer.close()
            self._file.close()
            self._file = None

    def close(self, stem: str) -> list[Path]:
        """Give the files their names: "<stem>.parquet", and "<stem>-1.parquet", ... where there are
        more."""
        self._end_file()
        named = [
            self._folder / f"{stem}{f'-{number}' if number else ''}.parquet"
            for number in range(len(self._paths))
        ]
        for unfinished, path in zip(self._paths, named, strict=True):
            os.replace(unfinished, path)
        self._paths = []
        return named

    def discard(self) -> None:
        """Remove what has no name yet."""
        self._end_file()
        for path in self._paths:
            with suppress(OSError):
                path.unlink(missing_ok=True)
        self._paths = []


def partition_folder(model: str, init: str, measure: str, stack: str) -> Path:
    """Return the folder of one model's scores by one measure in one stack.

    Examples
    --------
    >>> partition_folder("openai/whisper-small", "trained", "attention", "cross").as_posix()
    'model=openai%2Fwhisper-small/init=trained/measure=attention/stack=cross'
    """
    values = {"model": model, "init": init, "measure": measure, "stack": stack}
    return Path(*(f"{name}={_folder_value(value)}" for name, value in values.items()))


def _folder_value(value: str) -> str:
    """Return a value as part of a folder's name; one that no file system takes is cut, with a hash
    of the whole."""
    shortened_value = value
    while len(quote(shortened_value, safe="")) > _MAX_NAME_LENGTH:
        shortened_value = shortened_value[:-1]
    return quote(
        shortened_value if shortened_value == value else f"{shortened_value}-{digest(value)[:8]}",
        safe="",
    )


def file_name(seed: int | None) -> str:
    """How the names of a model's files begin: "seed-0." for a random twin, "trained." without a
    seed."""
    return "trained." if seed is None else f"seed-{seed}."
