"""Scores of a run as one long Parquet data set, which analysts open lazily: a folder for each
model, measure and stack.

    scores/model=whisper-small/init=random/measure=value_zeroing/stack=encoder/seed-0.5d0c6a31.parquet

In: maps, clip by clip. Out: files of few, large row groups (about a million rows each, sorted by
clip), plain types, no CSV; each belongs to a part of the run (results.py), whose name is in its
own. What a folder's name says (model, init, measure, stack) is no column of the file. The seed is
one: as a folder's name it would be missing for trained models, and pandas reads no numbers there
beside a missing one. Maps are taken apart layer by layer, so that no more than a layer of a frame
map and the rows that wait to be written are in memory.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from ...errors import InputError
from ...files.cache_keys import digest
from ...files.file_fingerprints import FileMark
from ...files.parquet_files import readable_parquet
from ...files.unfinished_files import unfinished_name
from ...inputs.clips.clip import Clip
from ...inputs.words.spans import Span
from ...mixing.maps.map_set import Maps
from ...mixing.maps.mixing_map import MixingMap
from ...mixing.maps.numerics import normalize_rows
from .checked_datasets import checked_files

if TYPE_CHECKING:
    from ...adapters import Model

ROWS_PER_GROUP = 1_000_000
_CELLS_AT_ONCE = 100_000  # of a map
_TABLES_AT_ONCE = 256  # that wait one by one
MOST_WAITING = 2**27  # bytes of rows that wait to be written, in all folders together
_MOST_IN_A_FILE = 2**28  # bytes; a file is closed behind the row group that goes past it

_FOLDERS = pa.schema([(name, pa.string()) for name in ("model", "init", "measure", "stack")])
_SIDE = [
    ("label", pa.string()),
    ("kind", pa.string()),
    ("onset", pa.float64()),
    ("offset", pa.float64()),
]
_COLUMNS = pa.schema(
    [("clip", pa.string()), ("fingerprint", pa.string()), ("seed", pa.int64())]
    + [("layer", pa.int32()), ("head", pa.int32())]
    + [("target", pa.int32()), ("source", pa.int32())]
    + [(f"{side}_{name}", kind) for side in ("target", "source") for name, kind in _SIDE]
    + [("score", pa.float64()), ("share", pa.float32())]  # which follows from the scores
)
_MOST_IN_A_NAME = 200  # letters of a value in a folder's name; file systems take 255 bytes
_NUMBERS = [
    "score",
    "share",
]  # hardly two alike: their bytes are put in an order that can be packed, a fifth smaller


class ScoreFiles:
    """Rows of scores that become files of one part of a run: few, with large row groups, in the
    folders they belong to.

    Nothing has its name before `close`; as a context manager, it removes what is unfinished.

    Parameters
    ----------
    folder : Path
        ``scores`` in a run's folder.
    rows_per_group : int
        Rows of one folder that are written together.
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
            place = partition(model.name, model.init, measure, stack) / file_name(model.seed)
            for rows in rows_of_map(mixing_map, clip, model.seed):
                self.append_rows(place, rows)
        while self._bytes.total() > MOST_WAITING:
            self._write(self._bytes.most_common(1)[0][0])

    def append_rows(self, place: Path, rows: pa.Table) -> None:
        """Add rows of one clip to the files of a folder (`partition`) that begin like
        `file_name`."""
        self._waiting[place].append(rows)
        self._rows[place] += rows.num_rows
        self._bytes[place] += rows.nbytes
        if len(self._waiting[place]) >= _TABLES_AT_ONCE:
            self._packed[place].append(_joined(self._waiting.pop(place)))
        if self._rows[place] >= self._rows_per_group:
            self._write(place)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of the rows in memory."""
        return self._bytes.total()

    def _write(self, place: Path) -> None:
        """One row group, sorted by clip."""
        rows = _joined([*self._packed.pop(place, []), *self._waiting.pop(place, [])])
        clips = rows["clip"].chunk(0)
        order = np.argsort(np.asarray(clips.dictionary.to_pylist(), dtype=object), kind="stable")
        ranks = np.empty(len(order), dtype=np.int64)
        ranks[order] = np.arange(len(order))
        rows = rows.take(np.argsort(ranks[clips.indices.to_numpy()], kind="stable"))
        del self._rows[place], self._bytes[place]
        if place not in self._files:
            self._files[place] = UnfinishedFiles(self._folder / place.parent, _COLUMNS)
        self._files[place].write(rows.cast(_COLUMNS))

    def close(self, part: str) -> dict[str, FileMark]:
        """Finish the files of a part, whose name is in theirs; returns their paths below the
        folder, with their marks."""
        for place in list(self._rows):
            self._write(place)
        marks = {}
        for place, files in sorted(self._files.items()):
            for path in files.close(f"{place.name}{part}"):
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


def _joined(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables as one whose columns are of one piece each: thousands of small ones take several times
    their bytes."""
    coded = [_coded(table) for table in tables]
    return pa.concat_tables(coded).unify_dictionaries().combine_chunks()


def _coded(rows: pa.Table) -> pa.Table:
    """Rows whose columns of text are indices into dictionaries."""
    for place, column in enumerate(rows.schema):
        if pa.types.is_string(column.type):
            rows = rows.set_column(place, column.name, rows[column.name].dictionary_encode())
    return rows


class UnfinishedFiles:
    """Parquet files of one folder that have no name yet; the next is begun when one is large.

    Parameters
    ----------
    folder : Path
    schema : pyarrow.Schema
        Of their rows.
    """

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
            packing: dict[str, Any] = {}
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
        if self._file.tell() > _MOST_IN_A_FILE:
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


def partition(model: str, init: str, measure: str, stack: str) -> Path:
    """Return the folder of one model's scores by one measure in one stack.

    Examples
    --------
    >>> partition("openai/whisper-small", "trained", "attention", "cross").as_posix()
    'model=openai%2Fwhisper-small/init=trained/measure=attention/stack=cross'
    """
    values = {"model": model, "init": init, "measure": measure, "stack": stack}
    return Path(*(f"{name}={_folder_value(value)}" for name, value in values.items()))


def _folder_value(value: str) -> str:
    """Return a value as part of a folder's name; one that no file system takes is cut, with a hash
    of the whole."""
    shown = value
    while len(quote(shown, safe="")) > _MOST_IN_A_NAME:
        shown = shown[:-1]
    return quote(shown if shown == value else f"{shown}-{digest(value)[:8]}", safe="")


def file_name(seed: int | None) -> str:
    """How the names of a model's files begin: "seed-0." for a random twin, "trained." without a
    seed."""
    return "trained." if seed is None else f"seed-{seed}."


def rows_of_map(mixing_map: MixingMap, clip: Clip, seed: int | None) -> Iterator[pa.Table]:
    """Every cell of a map, some layers a table; labels are indices into a dictionary, so a row
    takes about 60 bytes."""
    targets, sources = len(mixing_map.targets), len(mixing_map.sources)
    heads = mixing_map.scores.shape[1] if mixing_map.has_heads else 1
    at_once = max(_CELLS_AT_ONCE // max(heads * targets * sources, 1), 1)
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
            "clip": _repeated(clip.name, count),
            "fingerprint": _repeated(clip.fingerprint, count),
        }
        for side, spans, index in (
            ("target", mixing_map.targets, target),
            ("source", mixing_map.sources, source),
        ):
            columns |= {f"{side}_{name}": column for name, column in _said_of(spans, index).items()}
        columns["score"] = pa.array(scores.ravel())
        columns["share"] = pa.array(normalize_rows(scores).ravel().astype(np.float32))
        yield pa.table({name: columns[name] for name in _COLUMNS.names})


def _repeated(text: str, count: int) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(
        pa.array(np.zeros(count, dtype=np.int32)), pa.array([text])
    )


def _said_of(spans: Sequence[Span], index: np.ndarray) -> dict[str, pa.Array]:
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


def scores_in(folder: Path, files: Mapping[str, FileMark] | None) -> ds.Dataset:
    """Open scores lazily: nothing is read before it is asked for.

    Parameters
    ----------
    folder : Path
        ``scores`` of a run.
    files : dict of str to FileMark, optional
        Paths below it, of the parts that stand, with what was written; None for all that are there.

    Raises
    ------
    InputError
        If there are none, or they cannot be opened. A file that is damaged raises it when it is
        read.
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
