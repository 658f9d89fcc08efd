"""Examples of a data set, read back as clips."""

from __future__ import annotations

from collections.abc import Iterator
from os import PathLike
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ...errors import InputError, SpeechmixError
from ...files.json_files import JsonObject, parse_json
from ...files.parquet_files import readable_parquet
from ...inputs.clips.clip import Clip
from ...inputs.words.multipart_words import GAP, split_parts
from ...inputs.words.timed_words import Word
from .contrasts import INVARIANT
from .dataset import BATCH_ROWS, METADATA_NAME, PARQUET_NAME, SCHEMA, read_dataset_metadata

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
