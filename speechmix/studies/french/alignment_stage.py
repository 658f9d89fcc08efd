"""The stage that places words: which lines it goes through, and what decides the result of each.

In: a study folder with pairs, or a corpus as it is; the work to do on a line. Out: a JSON-lines
file (`stages.journal`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from typing import Any

from ...files.cache_keys import digest
from ...files.json_files import JsonObject
from ...files.shards import WHOLE, Shard
from ...inputs.corpora.corpus_reading import read_corpus
from ...runs.journal.stage_journal import LeftOut, run_stage
from ...runs.journal.stage_lines import AT, input_digest, numbered_lines
from .shard_rows import ShardRows, absolute_source, with_corpus_position
from .study_folder import PAIRS, corpus_line, recording_marks


def words_stage(
    study: Path,
    output: Path,
    work: Callable[[JsonObject], JsonObject],
    placed: Callable[[JsonObject], JsonObject],
    *,
    options: JsonObject,
    source: str | PathLike[str] | None = None,
    shard: Shard = WHOLE,
    overwrite: bool = False,
    progress: bool = False,
) -> Path:
    """Do the work on each mined sentence, or clip of a corpus, that places its words; see
    `runs.journal.stage_journal.run_stage`.

    Parameters
    ----------
    study, output : Path
        Study folder, and the file to write.
    work, placed : callable
        A line of the pairs -> what to keep of it; -> what decides that, beside the sound and the
        place in the corpus.
    """
    options = dict(options)
    if source is None:
        inputs: Any = {"pairs": input_digest(study / PAIRS, "text", "path", shard=shard)}
        items: Iterable[Any] = (
            (line["key"], line)
            for line in numbered_lines(study / PAIRS, shard)
            if "why" not in line
        )
    else:
        options["source"] = absolute_source(source)
        rows = ShardRows(read_corpus(source), shard)
        items, inputs = (
            ((row.name, corpus_line(study, row) | {AT: place}) for place, row in rows),
            rows.inputs,
        )

    def usable(line: JsonObject) -> JsonObject:
        if "why" in line:
            raise LeftOut(line["why"], line["reason"])
        return work(line)

    def ingredients(line: JsonObject, stored: JsonObject) -> JsonObject:
        if "why" in line:
            return {
                "of": digest([line["why"], line["reason"]]),
                **with_corpus_position(line[AT], shard),
            }
        return {
            **placed(line),
            **recording_marks(line["path"], stored),
            **with_corpus_position(line[AT], shard),
        }

    return run_stage(
        output,
        items,
        usable,
        options=options,
        ingredients=ingredients,
        unimportant=("file", AT),
        inputs=inputs,
        why="not aligned",
        shard=shard,
        overwrite=overwrite,
        progress=progress,
    )
