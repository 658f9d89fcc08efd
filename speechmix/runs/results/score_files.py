"""Scores of a run as one long Parquet data set, which analysts open lazily: a folder for each
model, measure and stack.

    scores/model=whisper-small/init=random/measure=value_zeroing/stack=encoder/seed-0.5d0c6a31.parquet

In: maps, clip by clip. Out: files of few, large row groups (about a million rows each, sorted by
clip), plain types, no CSV; each belongs to a part of the run (clip_result_files.py), whose name is in its
own. What a folder's name says (model, init, measure, stack) is no column of the file. The seed is
one: as a folder's name it would be missing for trained models, and pandas reads no numbers there
beside a missing one. Maps are taken apart layer by layer, so that no more than a layer of a frame
map and the rows that wait to be written are in memory.

Copy scores of an earlier start into new files.

Rows of the long table of scores, made of maps.

Compare data files with their recorded checksums when first opened.

In: paths with the marks of their files. Out: a file system of pyarrow, for reading alone. A scan
that needs three files of a thousand compares three: page checksums of Parquet do not cover its
footer, where a flipped bit hides rows.
"""

from __future__ import annotations

import os
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from ...errors import InputError
from ...files.cache_keys import FileMark, digest
from ...files.json_files import JsonObject
from ...files.parquet_files import find_row_groups, read_mark, readable_parquet
from ...files.whole_files import unfinished_name
from ...inputs.clips.clip import Clip
from ...inputs.words.spans import Span
from ...mixing.maps.map_set import Maps
from ...mixing.maps.mixing_map import MixingMap
from ...mixing.maps.numerics import normalize_rows

if TYPE_CHECKING:
    from ...adapters import Model


def checked_files(marks: Mapping[Path, FileMark]) -> pafs.FileSystem:
    """Return a file system that compares each file with its mark before it is read.

    Errors of a damaged file are `InputError`, raised by whatever reads.
    """
    return pafs.PyFileSystem(_CheckedFiles({str(path): mark for path, mark in marks.items()}))


class _CheckedFiles(pafs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """Local files; those with a mark are compared with it once while they stay the same."""

    def __init__(self, marks: Mapping[str, FileMark]):
        self._marks = dict(marks)
        self._seen: dict[str, tuple[int, ...]] = {}
        self._local = pafs.LocalFileSystem()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _CheckedFiles) and self._marks == other._marks

    def __hash__(self) -> int:
        return hash(frozenset(self._marks))

    def __reduce__(self) -> tuple[Any, ...]:
        return _CheckedFiles, (self._marks,)

    def open_input_file(self, path: str) -> Any:
        """Open a file, compared with its mark."""
        mark, now = self._marks.get(path), read_mark(Path(path))
        if mark is not None and self._seen.get(path) != now:
            mark.check(Path(path))
            self._seen[path] = now
        return self._local.open_input_file(path)

    open_input_stream = open_input_file

    def get_type_name(self) -> str:
        """Name of the file system."""
        return "checked"

    def normalize_path(self, path: str) -> str:
        """Return the path as it is."""
        return path

    def get_file_info(self, paths: list[str]) -> list[pafs.FileInfo]:
        """Return what is known of some files."""
        result: list[pafs.FileInfo] = self._local.get_file_info(paths)
        return result

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        """Return what is known of the files in a folder."""
        result: list[pafs.FileInfo] = self._local.get_file_info(selector)
        return result

    def _refuse(self, *_: Any) -> Any:
        raise InputError("the files of a run are read, not written, through its data set")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = delete_file = _refuse
    move = copy_file = open_output_stream = open_append_stream = _refuse


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
    return Path(*(f"{name}={folder_value(value)}" for name, value in values.items()))


def folder_value(value: str) -> str:
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


class RowGroups:
    """Row groups of Parquet files that are sorted by clip; those that were read last are in memory.

    All that are in memory have at most `most_rows` rows; two groups are in any case.
    """

    def __init__(self, *, most_rows: int = 2 * ROWS_PER_GROUP):
        self._most_rows = most_rows
        self._groups: OrderedDict[tuple[Path, int], tuple[pa.Table, dict[str, tuple[int, int]]]] = (
            OrderedDict()
        )

    def rows_of(self, path: Path, group: int, clip: str) -> pa.Table:
        """Rows of a clip that the group holds."""
        group_key = (path, group)
        if group_key in self._groups:
            self._groups.move_to_end(group_key)
        else:
            self._groups[group_key] = _read_group(path, group)
            while (
                len(self._groups) > 2
                and sum(len(rows) for rows, _ in self._groups.values()) > self._most_rows
            ):
                self._groups.popitem(last=False)
        rows, stretches = self._groups[group_key]
        return rows.slice(*stretches[clip])


def _read_group(path: Path, group: int) -> tuple[pa.Table, dict[str, tuple[int, int]]]:
    """A row group, and where each clip's rows begin and how many there are."""
    with readable_parquet(path):
        file = pq.ParquetFile(path, page_checksum_verification=True)
        texts = [column.name for column in file.schema_arrow if pa.types.is_string(column.type)]
        file = pq.ParquetFile(path, page_checksum_verification=True, read_dictionary=texts)
        rows = file.read_row_group(group).combine_chunks()
    clips = rows["clip"].chunk(0)
    codes = clips.indices.to_numpy()
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    counts = np.diff(starts, append=len(codes))
    names = clips.dictionary.take(pa.array(codes[starts])).to_pylist()
    return rows, dict(zip(names, zip(starts.tolist(), counts.tolist(), strict=True), strict=True))


class CopiedScores:
    """Rows of clips in Parquet files of scores or maps of one model, taken out clip by clip.

    The files have a column `clip`; `groups` are of these files and others.
    """

    def __init__(self, files: Sequence[Path], groups: RowGroups):
        self._groups = groups
        self._places = [(path, find_row_groups(path, "clip")) for path in files]

    def rows_of(self, clip: str) -> pa.Table | None:
        """Rows of a clip; None if the files have none."""
        tables = [
            self._groups.rows_of(path, group, clip)
            for path, assign_groups in self._places
            for group in assign_groups.get(clip, ())
        ]
        return pa.concat_tables(tables) if tables else None
