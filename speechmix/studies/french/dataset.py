"""The annotated data set: one example a row, as Parquet and as a folder for
`datasets.load_from_disk`.

In: examples as dictionaries, and what they were made from. Out: a folder, written whole or not at
all; back to `Clip`s. The recordings are not copied: `audio` is a path relative to `audio_root`,
which is kept with all options and versions in the Parquet metadata and in `metadata.json`.
`data_templates/annotated/README.md` explains every column.

Examples of a data set, read back as clips.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import InputError, SpeechmixError
from ...files.json_files import JsonObject, parse_json, read_json_object
from ...files.parquet_files import readable_parquet
from ...files.whole_files import whole_folder
from ...inputs.clips.clip import Clip
from ...inputs.words.multipart_words import GAP, split_parts
from ...inputs.words.timed_words import Word
from .contrasts import INVARIANT

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


_META_COLUMNS = ("template", "number", "person", "tense", "lemma", "audible", "liaison", "distance")


_OPTIONAL_META_COLUMNS = ("contrast", "meaning", "numeral", "attractor", "position")


_REQUIRED_COLUMNS = (
    "name",
    "clip",
    "audio",
    "sound",
    "text",
    "language",
    "cue",
    "cue_indices",
    "cue_word",
    "target",
    "foil",
    "words",
    "alignment",
    "doubts",
    "meta",
    *_META_COLUMNS,
    *_OPTIONAL_META_COLUMNS,
)


def is_dataset(folder: str | PathLike[str]) -> bool:
    """Whether a folder is a data set that `write_examples` wrote.

    Examples
    --------
    >>> is_dataset("nowhere")
    False
    """
    return (Path(folder) / METADATA_NAME).is_file() and (Path(folder) / PARQUET_NAME).is_file()


def read_examples(
    folder: str | PathLike[str],
    *,
    audio_root: str | PathLike[str] | None = None,
    skipped: list[tuple[str, str]] | None = None,
) -> list[Clip]:
    """Clips of a data set, with words, cue, target and foil, ready to be scored.

    Parameters
    ----------
    folder : path
        Written by `write_examples`.
    audio_root : path, optional
        Where the recordings are now; default: where they were when the data set was made.
    skipped : list, optional
        Gets (name, reason) of examples that cannot be used; without it such an example is an error.

    Raises
    ------
    InputError
        If there is no data set, it is damaged, or a recording is missing.
    """
    root = audio_root or read_dataset_metadata(folder).get("audio_root")
    if not isinstance(root, (str, PathLike)):
        raise InputError(
            f"{Path(folder) / METADATA_NAME} does not say where the recordings are: name their folder "
            "(audio_root=)"
        )
    clips = []
    for example in _read_rows(Path(folder) / PARQUET_NAME):
        try:
            clips.append(_clip_from_example(example, Path(root)))
        except SpeechmixError as error:
            if skipped is None:
                raise
            skipped.append((str(example["name"]), str(error)))
    return clips


def _read_rows(path: Path) -> Iterator[JsonObject]:
    with readable_parquet(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
        types = dict(zip(file.schema_arrow.names, file.schema_arrow.types, strict=True))
        missing_columns = [
            name for name in _REQUIRED_COLUMNS if types.get(name) != SCHEMA.field(name).type
        ]
        if missing_columns:
            raise InputError(
                f"{path}: expected the columns {', '.join(_REQUIRED_COLUMNS)}; missing or of another type: "
                f"{missing_columns}: it is damaged or of "
                "another version, select again"
            )
        row_count = 0
        for batch in file.iter_batches(BATCH_ROWS):
            batch.validate(full=True)
            row_count += batch.num_rows
            yield from batch.to_pylist()
        if (
            row_count != file.metadata.num_rows
        ):  # a page's damaged header can end the reading without an error
            raise InputError(
                f"{path}: expected {file.metadata.num_rows} examples, found {row_count}: it is "
                "damaged, select again"
            )


def _clip_from_example(example: JsonObject, root: Path) -> Clip:
    where = f"example {example['name']!r}"
    row_meta = parse_json(example["meta"] or "{}", where=f"{where}: meta")
    empty_columns = [
        name for name in ("name", "clip", "audio", "words", "doubts") if example[name] is None
    ]
    if (
        empty_columns
        or not isinstance(row_meta, dict)
        or any(word is None for word in example["words"])
    ):
        raise InputError(
            f"{where}: expected all columns filled in, found {empty_columns or example['meta'][:80]!r}: "
            "select again"
        )
    # Resampling (bootstrap) goes by recording: two pairs of one sentence are not independent.
    columns = (
        *_META_COLUMNS,
        *(name for name in _OPTIONAL_META_COLUMNS if example[name] is not None),
    )
    meta = {**row_meta, **{name: str(example[name]) for name in columns}, "pair": example["clip"]}
    if example["contrast"] == INVARIANT:
        meta["control"] = "yes"  # nothing can be told: not part of the headline
    cue, target = _role_requests(example)
    clip = Clip.from_file(
        root / example["audio"],
        text=example["text"],
        words=[
            Word(word["text"], word["start"], word["end"], word["score"])
            for word in example["words"]
        ],
        cue=cue,
        target=target,
        foil=example["foil"],
        language=example["language"],
        name=example["name"],
        meta=meta,
        audio_hash=example["sound"],
    )
    return clip.replace(alignment=example["alignment"], doubts=example["doubts"])


def _role_requests(example: JsonObject) -> tuple[Any, int]:
    """Return a clip's requests for cue and target; a cue in several parts is one word, behind whose
    first the others are none."""
    cue, target = example["cue_indices"] or example["cue"], example["target"]
    if not isinstance(cue, list) or len(cue) < 2 or len(split_parts(example["cue_word"])) < 2:
        return cue, target
    return GAP.join(map(str, cue)), target - sum(index < target for index in cue[1:])
