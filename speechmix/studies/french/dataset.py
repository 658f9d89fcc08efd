"""The annotated data set: one example a row, as Parquet and as a folder for
`datasets.load_from_disk`.

In: examples as dictionaries, and what they were made from. Out: a folder, written whole or not at
all; back to `Clip`s. The recordings are not copied: `audio` is a path relative to `audio_root`,
which is kept with all options and versions in the Parquet metadata and in `metadata.json`.
`data_templates/annotated/README.md` explains every column.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from os import PathLike
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import InputError
from ...files.json_files import JsonObject, read_json_object
from ...files.whole_files import whole_folder

PARQUET_NAME, DATASET_DIR_NAME, METADATA_NAME = "examples.parquet", "dataset", "about.json"
BATCH_ROWS = 500

_WORD_TYPE = pa.struct(
    [
        ("text", pa.string()),
        ("start", pa.float64()),
        ("end", pa.float64()),
        ("score", pa.float64()),
        ("from", pa.int32()),
        ("to", pa.int32()),
    ]
)
_MODEL_TYPE = pa.struct(
    [
        ("model", pa.string()),
        ("transcript", pa.string()),
        ("wer", pa.float64()),
        ("cue_columns", pa.list_(pa.int32())),
        ("target_rows", pa.list_(pa.int32())),
    ]
)
_TEXT_COLUMNS = (
    "template",
    "number",
    "person",
    "tense",
    "lemma",
    "contrast",
    "meaning",
    "cue_word",
    "target_word",
    "via_word",
    "foil",
)
SCHEMA = pa.schema(
    [
        *((name, pa.string()) for name in ("name", "clip", "audio", "sound", "text", "language")),
        ("seconds", pa.float64()),
        *((name, pa.int32()) for name in ("cue", "target", "via")),
        ("cue_indices", pa.list_(pa.int32())),
        *((name, pa.string()) for name in _TEXT_COLUMNS),
        *((name, pa.bool_()) for name in ("audible", "liaison")),
        ("distance", pa.int32()),
        *((name, pa.bool_()) for name in ("numeral", "attractor")),
        ("position", pa.string()),
        ("words", pa.list_(_WORD_TYPE)),
        ("alignment", pa.string()),
        ("alignment_score", pa.float64()),
        ("doubts", pa.list_(pa.string())),
        ("models", pa.list_(_MODEL_TYPE)),
        ("meta", pa.string()),
    ]
)


def write_examples(
    folder: str | PathLike[str],
    examples: Iterable[JsonObject],
    metadata: JsonObject,
    *,
    write_extras: Callable[[Path], None] = lambda folder: None,
) -> Path:
    """Write a data set; an older one in the folder is replaced when the new one is complete.

    Examples have the columns of `SCHEMA`; metadata are `audio_root`, options, versions: whatever a
    reader must know, as JSON. `write_extras` writes further files into the folder before it gets
    its name.
    """
    import datasets

    folder = Path(folder)
    metadata_json = json.dumps(metadata, indent=1, ensure_ascii=False)
    schema = SCHEMA.with_metadata({"speechmix": metadata_json})
    remaining = iter(examples)
    with whole_folder(folder) as partial_dir:
        with pq.ParquetWriter(
            partial_dir / PARQUET_NAME, schema, write_page_checksum=True
        ) as writer:
            while rows := list(islice(remaining, BATCH_ROWS)):
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
        table = datasets.table.InMemoryTable(
            pq.read_table(partial_dir / PARQUET_NAME).replace_schema_metadata()
        )
        data = datasets.Dataset(
            table, info=datasets.DatasetInfo(description=metadata_json), fingerprint="speechmix"
        )
        with _hide_progress_bars():
            data.save_to_disk(partial_dir / DATASET_DIR_NAME)
        (partial_dir / METADATA_NAME).write_text(metadata_json, encoding="utf-8")
        write_extras(partial_dir)
    return folder


@contextmanager
def _hide_progress_bars() -> Iterator[None]:
    import datasets

    was_enabled = datasets.is_progress_bar_enabled()
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        if was_enabled:
            datasets.enable_progress_bars()


def read_dataset_metadata(folder: str | PathLike[str]) -> JsonObject:
    """Return what a data set was made from: audio_root, options of every stage, versions.

    InputError if there is no data set, or the file is damaged.
    """
    path = Path(folder) / METADATA_NAME
    if not path.is_file():
        raise InputError(
            f"{folder} holds no annotated data set ({METADATA_NAME} is not there): run `speechmix select` "
            "first"
        )
    return read_json_object(path)
