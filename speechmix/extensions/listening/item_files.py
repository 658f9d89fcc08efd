"""Read questions about recordings from a table or data set, and write them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

from ...errors import InputError
from ...files.whole_files import write_text
from ...inputs.clips.player import encode_wav
from ...inputs.corpora.corpus_reading import read_clips_or_corpus
from .item_groups import check_items
from .items import ListeningItem


def read_listening_items(
    source: str | PathLike[str],
    *,
    allow_outside: bool = False,
    skipped: list[tuple[str, str]] | None = None,
) -> list[ListeningItem]:
    """Read questions from a table (.tsv, .csv, .jsonl) or a data set of Hugging Face `datasets`.

    Parameters
    ----------
    source : path or hub id
        As for `speechmix.read_clips`, with the columns of `ListeningItem.from_clip`.
    allow_outside : bool
        Let a table name files outside its folder.
    skipped : list, optional
        Gets (name, reason) of rows that cannot be used; without it such a row is an error.

    Raises
    ------
    InputError
        If there is no usable row.
    """

    def record_error(row: int, name: str, error: InputError) -> None:
        if skipped is None:
            raise error
        skipped.append((name or f"row {row}", str(error)))

    items = list[ListeningItem]()
    clips = read_clips_or_corpus(source, allow_outside=allow_outside, on_error=record_error)
    for row, clip in enumerate(clips):
        try:
            items.append(ListeningItem.from_clip(clip))
        except InputError as error:
            record_error(row, clip.name, error)
    if not items:
        reasons = "; ".join(reason for _, reason in (skipped or ())[:3])
        raise InputError(f"{source}: no item can be used: {reasons or 'there is none'}")
    return items


def write_listening_items(items: Sequence[ListeningItem], folder: str | PathLike[str]) -> Path:
    """Write items with their recordings (WAV) into a folder.

    Returns
    -------
    Path
        Of the table, ``items.jsonl``, for `read_listening_items` and the command line.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for item in check_items(items):
        clip = item.clip
        (folder / f"{item.name}.wav").write_bytes(encode_wav(clip))
        facts = {"name": item.name, "text": clip.text, "language": clip.language}
        cells = {"path": f"{item.name}.wav", **facts, **clip.meta, **item.question}
        lines.append(
            json.dumps({key: cell for key, cell in cells.items() if cell}, ensure_ascii=False)
        )
    path = folder / "items.jsonl"
    write_text(path, "\n".join(lines) + "\n")
    return path
