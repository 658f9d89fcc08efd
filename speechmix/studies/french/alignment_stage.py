"""Alignment stage of the French study.

In: a study folder with pairs, or a corpus as it is; the work to do on a line. Out: a JSON-lines
file (`runs.journal`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from ...files.cache_keys import digest
from ...files.json_files import JsonObject
from ...files.shard_assignment import WHOLE, Shard
from ...inputs.corpora.corpus_reading import read_corpus
from ...runs.journal.stage_journal import SkipItem, run_stage
from ...runs.journal.stage_lines import POSITION, input_digest, read_numbered_lines
from .shard_rows import ShardRows, absolute_source, corpus_position_entry
from .study_folder import PAIRS, make_corpus_line, recording_signature


def run_alignment_stage(
    study: Path,
    output: Path,
    align: Callable[[JsonObject], JsonObject],
    alignment_key: Callable[[JsonObject], JsonObject],
    *,
    options: JsonObject,
    source: str | PathLike[str] | None = None,
    shard: Shard = WHOLE,
    overwrite: bool = False,
    progress: bool = False,
) -> Path:
    """Align each mined sentence, or clip of a corpus, and store its word times.

    See `runs.journal.stage_journal.run_stage`. `align` takes a line of the pairs and returns what
    to keep of it; `alignment_key` returns what decides that, beside the sound and the position in
    the corpus.
    """
    options = dict(options)
    if source is None:
        inputs: Any = {"pairs": input_digest(study / PAIRS, "text", "path", shard=shard)}
        items: Iterable[Any] = (
            (line["key"], line)
            for line in read_numbered_lines(study / PAIRS, shard)
            if "why" not in line
        )
    else:
        options["source"] = absolute_source(source)
        rows = ShardRows(read_corpus(source), shard)
        items, inputs = (
            (
                (row.name, make_corpus_line(study, row) | {POSITION: position})
                for position, row in rows
            ),
            rows.inputs,
        )

    def align_or_skip(line: JsonObject) -> JsonObject:
        if "why" in line:
            raise SkipItem(line["why"], line["reason"])
        return align(line)

    def cache_key(line: JsonObject, stored: JsonObject) -> JsonObject:
        if "why" in line:
            return {
                "of": digest([line["why"], line["reason"]]),
                **corpus_position_entry(line[POSITION], shard),
            }
        return {
            **alignment_key(line),
            **recording_signature(line["path"], stored),
            **corpus_position_entry(line[POSITION], shard),
        }

    return run_stage(
        output,
        items,
        align_or_skip,
        options=options,
        ingredients=cache_key,
        unimportant=("file", POSITION),
        inputs=inputs,
        why="not aligned",
        shard=shard,
        overwrite=overwrite,
        progress=progress,
    )
