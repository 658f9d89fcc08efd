"""Data sets of Hugging Face `datasets`, row by row: a folder, or a hub id, which is streamed.

In: a folder written by save_to_disk, one of Parquet files, or a hub id. Out: `Row`s; nothing is
decoded here, soundfile does that later. Of a folder the recordings are not even read: a row says
where in its file they are. The paper's annotated set (hosein-m/french_homophone_asr, Mohebbi et al.
2023) is recognised by its columns and used as it is: its words with times, its cue and its target.

Read rows of local Arrow and Parquet data sets without loading recordings.

In: Arrow files that `datasets` wrote (save_to_disk), or Parquet files. Out: `StoredRow` rows: their
other columns, and the place of the recording in the file (`speechmix.inputs.audio.decoding`).

Read rows of the French homophone data set of Mohebbi et al. (2023).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ...errors import InputError
from ...files.json_files import JsonObject
from ...files.parquet_files import readable_parquet
from ...files.user_tables import RowError
from ...inputs.audio.decoding import ByteRange, ParquetCell, parse_location
from ...inputs.clips.corpus_row import (
    Origin,
    RejectedRow,
    Row,
    check_sentence,
    is_missing_number,
    resolve_audio_path,
    row_name,
)
from ...inputs.corpora.corpus_source import CorpusSource
from ...inputs.words.cue_and_target import normalize_word
from ...inputs.words.timed_words import Word
from .columns import Features, find_audio_and_text_columns

# What the published determiners say of their noun, in the form in which words are compared (l, not
# l').
_NUMBER_OF_DETERMINER = {
    **dict.fromkeys(("le", "la", "l", "un", "une"), "s"),
    **dict.fromkeys(("les", "des"), "p"),
}
_COLUMNS = ("transcription", "cue_word", "target_word", "alignment")


def add_annotations(row: Row, cells: JsonObject) -> Row:
    """Add words, cue and target to a row of the annotated set; return any other row as it is.

    RowError if the annotation cannot be read, or does not hold its cue and target.
    """
    if not all(name in cells for name in _COLUMNS):
        return row
    try:
        return _add_words_and_pairs(row, cells)
    except RowError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        reason = (
            "expected an alignment with intervals (word, start, end), cue and target, found "
            f"others ({error!r})"
        )
        raise RowError("unreadable row", reason[:400]) from error


def _add_words_and_pairs(row: Row, cells: JsonObject) -> Row:
    """Words, cue and target of the paper's annotated set; of determiner, noun and verb both
    readings."""
    intervals = (cells["alignment"] or {}).get("intervals") or []
    if isinstance(intervals, dict):  # a sequence of structures comes as a structure of lists
        intervals = [
            dict(zip(intervals, values, strict=True))
            for values in zip(*intervals.values(), strict=True)
        ]
    words = tuple(Word(_interval_label(i), float(i["start"]), float(i["end"])) for i in intervals)
    if not all(math.isfinite(edge) for word in words for edge in (word.start, word.end)):
        raise RowError("unreadable words", "expected finite times of words, found others")
    label = str(cells.get("label_number", "")).lower()
    number = "s" if "sing" in label else "p" if "plur" in label else None
    pairs: list[JsonObject] = []
    for target, indices in (
        ("target_word", "target_indices"),
        ("target_word_2", "target_indices_2"),
    ):
        if cells.get(target):
            pair_indices = _read_indices(cells, indices) or _find_nearest_pair(
                words, cells["cue_word"], cells[target]
            )
            if pair_indices is None or not all(
                0 <= word_index < len(words) for word_index in pair_indices
            ):
                reason = (
                    f"the words {cells['cue_word']!r} and {cells[target]!r} are not, in this "
                    "order, in its alignment"
                )
                raise RowError("pair not found", reason)
            cue_index, target_index = pair_indices
            pair = {
                "cue": cue_index,
                "target": target_index,
                "template": cells.get("template"),
                "number": number,
            }
            # Of the verb the cue is determiner and noun; the label is its number, not the noun's.
            if pairs:
                pair["cue"] = (cue_index, pairs[0]["target"])
                pairs[0]["number"] = _NUMBER_OF_DETERMINER.get(
                    normalize_word(cells["cue_word"]), number
                )
            pairs.append(pair)
    return replace(row, words=words, pairs=tuple(pairs))


def _interval_label(interval: JsonObject) -> str:
    key = next((key for key in ("word", "label") if key in interval), "text")
    return str(interval[key])


def _read_indices(cells: JsonObject, indices: str) -> tuple[int, int] | None:
    """Return the indices into the alignment's words that the data set itself holds, if it does."""
    cue, target = ((cells.get(name) or {}).get("enc") or [] for name in ("cue_indices", indices))
    return (cue[0], target[0]) if len(cue) == len(target) == 1 else None


def _find_nearest_pair(words: tuple[Word, ...], cue: str, target: str) -> tuple[int, int] | None:
    """Return the cue nearest before the last target, and the first target behind it: the published
    rule."""
    cue_indices, target_indices = (
        [
            index
            for index, word in enumerate(words)
            if normalize_word(word.text) == normalize_word(text)
        ]
        for text in (cue, target)
    )
    preceding_cues = [
        index for index in cue_indices if target_indices and index < target_indices[-1]
    ]
    return (
        (preceding_cues[-1], next(index for index in target_indices if index > preceding_cues[-1]))
        if preceding_cues
        else None
    )


_BATCH_ROWS = 500

# Of libraries without types.
HubData: TypeAlias = Any  # a data set of `datasets`, or several by split
ArrowObject: TypeAlias = Any  # a type, a schema, an array or a file of pyarrow


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


_REMOTE_SCHEMES = ("hf://", "https://", "http://")  # not file://, which is here


def is_dataset_folder(path: Path) -> bool:
    """True for what `Dataset.save_to_disk` or `DatasetDict.save_to_disk` writes, and for a folder
    of Parquet files."""
    if (path / "dataset_dict.json").is_file() or (path / "state.json").is_file():
        return True
    return any(
        next(path.glob(pattern), None) for pattern in ("*.parquet", "data/*.parquet", "*/*.parquet")
    )


def metadata_table(source: CorpusSource) -> Path | None:
    """Return the table of a folder of audio files as `datasets` reads it (AudioFolder), or None.

    None means that it is no such folder. InputError if it has several splits and none was named, or
    an option of the source has no meaning for a table.
    """
    tables = {
        table.parent.name if "/" in pattern else "": table
        for pattern in ("metadata.csv", "metadata.jsonl", "*/metadata.csv", "*/metadata.jsonl")
        for table in source.path.glob(pattern)
    }
    if not tables:
        return None
    source.refuse_options("config", kind="a folder of audio files with a table")
    if "" in tables:
        source.refuse_options("split", kind="a folder of audio files with one table")
        return tables[""]
    table: Path = _choose_split(tables, source)
    return table


def read_dataset(
    source: CorpusSource, *, sentences: bool = True, allow_outside: bool = False
) -> Iterator[Row | RejectedRow]:
    """Read the recordings of a data set: a folder or a hub id.

    The hub is streamed, not downloaded as a whole. `sentences` rejects rows without a sentence;
    without it no column of text is needed. `allow_outside` accepts recordings that a folder's rows
    name elsewhere on this machine; rows of the hub never name such a file. InputError if the set
    cannot be loaded, has several splits and none is named, or has no column of audio or text, or
    several.
    """
    features, rows = _open_dataset(source)
    audio, text = find_audio_and_text_columns(source, features, needs_text=sentences)
    root = source.path if source.path.is_dir() else None
    for row_index, stored in enumerate(rows(audio)):
        name, origin = row_name(stored.path, row_index), Origin(row_index + 1, path=stored.path)
        try:
            sentence = _read_sentence(stored.cells, text, sentences)
            yield _make_row(name, stored, sentence, text, root, origin, allow_outside=allow_outside)
        except RowError as error:
            yield RejectedRow(name, error.reason_kind, str(error), origin)


def _open_dataset(source: CorpusSource) -> tuple[Features, Callable[[str], Iterator[StoredRow]]]:
    """Columns with their types, and a function from the column of audio to the rows."""
    import datasets

    path = source.path
    is_saved_dataset = (path / "dataset_dict.json").is_file() or (path / "state.json").is_file()
    # Not there, no connection, a script that is no longer run; what datasets raises on damage
    # depends on where it is.
    try:
        if is_saved_dataset:
            data = _choose_split(datasets.load_from_disk(source.location), source)
            return data.features, lambda audio: read_arrow_rows(data, audio)
        if path.is_dir():
            files = [
                Path(file)
                for file in _choose_split(
                    list_parquet_files(source.location, source.config), source
                )
            ]
            return dict(_parquet_features(files[0])), lambda audio: read_parquet_rows(
                path, files, audio
            )
        data = _choose_split(
            datasets.load_dataset(source.location, source.config, streaming=True), source
        )
        features = data.features or dict.fromkeys(next(iter(data.take(1)), {}))
        return features, lambda audio: _stream_rows(data, audio, source)
    except InputError:
        raise
    except Exception as error:
        problem = f"{type(error).__name__}: {str(error)[:200]}"
        raise InputError(
            f"cannot load the data set {source.location} ({problem}): give a folder or the id of one"
        ) from error


def _parquet_features(file: Path) -> Features:
    import datasets
    import pyarrow.parquet as pq

    features: Features = datasets.Features.from_arrow_schema(pq.read_schema(file))
    return features


def _choose_split(data: HubData, source: CorpusSource) -> HubData:
    if not isinstance(data, dict):
        return data
    if source.split is None and len(data) == 1:
        return next(iter(data.values()))
    if source.split not in data:
        splits = ", ".join(map(str, data))
        raise InputError(
            f"{source.location}: expected one of the splits {splits}, found {source.split!r}: name "
            "one with split="
        )
    return data[source.split]


def _stream_rows(data: HubData, audio: str, source: CorpusSource) -> Iterator[StoredRow]:
    """Rows of a stream, each with its recording: there is no file to read it from again."""
    from datasets import Audio
    from datasets.utils.file_utils import xopen

    row_count = 0  # of the rows that came
    try:
        for cells in data.cast_column(audio, Audio(decode=False)):
            recording = cells.pop(audio) or {}
            path, content = (
                str(recording.get("path") or cells.get("path") or ""),
                recording.get("bytes"),
            )
            if content is None and path.rpartition("::")[2].startswith(_REMOTE_SCHEMES):
                with xopen(path, "rb") as file:
                    content = file.read()
            row_count += 1
            yield StoredRow(cells, path, content)
    except (
        ImportError
    ) as error:  # datasets wants torchcodec for loose files, though nothing is decoded
        raise InputError(
            f"cannot stream {source.location} ({error}): download it with `hf download`, and give "
            "a folder"
        ) from error
    except (
        Exception
    ) as error:  # what datasets, its HTTP clients and its unpackers raise has no common root
        raise InputError(
            f"{source.location} broke off behind row {row_count} ({type(error).__name__}: "
            f"{str(error)[:200]}): what is done with "
            "the rows before is kept, and the same command goes on there once the connection is "
            "back; a set that was fetched "
            "with `hf download` breaks off nowhere"
        ) from error


def _read_sentence(cells: JsonObject, text: str | None, needs_sentence: bool) -> str:
    sentence = cells.get(text) if text is not None else None
    return check_sentence(sentence) if needs_sentence or sentence not in (None, "") else ""


def _make_row(
    name: str,
    stored: StoredRow,
    sentence: str,
    text: str | None,
    root: Path | None,
    origin: Origin,
    *,
    allow_outside: bool,
) -> Row:
    cells, path, content = stored.cells, stored.location or stored.path, stored.content
    if content is None:
        if not path:
            raise RowError(
                "missing clip",
                "expected a recording, found neither its bytes nor the name of a file",
            )
        if root is None:
            raise RowError(
                "unsafe path",
                f"expected the bytes of a recording, found the name of a file here: {path[:200]!r}",
            )
        if not stored.location:  # else the reader has it open, wherever a link to it leads
            resolve_audio_path(root, path, allow_outside=allow_outside)
        root = Path(path).parent if Path(path).is_absolute() else root
        path = Path(path).name if Path(path).is_absolute() else path
    meta = {
        column: json.dumps(value, ensure_ascii=False) if isinstance(value, list) else str(value)
        for column, value in cells.items()
        if column not in ("path", text) and _is_fact(value) and not is_missing_number(column, value)
    }
    row = Row(
        name,
        sentence,
        root or Path(),
        path if content is None else None,
        content,
        meta=meta,
        origin=origin,
    )
    return add_annotations(row, cells)


def _is_fact(value: object) -> bool:
    """Whether a clip keeps a cell: a text, a number, or a list as the options of a question; no vector."""
    if isinstance(value, list):
        return bool(value) and all(isinstance(element, (str, int)) for element in value)
    return isinstance(value, (str, int, float))
