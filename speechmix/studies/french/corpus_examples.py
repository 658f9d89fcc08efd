"""Clips for the French study, made of a corpus: pairs are mined, words aligned, sentences
transcribed, examples selected.

In: a corpus and models. Out: clips with cue and target. Each stage goes on where it was stopped.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import SpeechmixError
from ...files.json_files import Json, JsonObject
from ...runs.journal.stage_files import list_started_shards
from ...runs.journal.stage_lines import read_stage_options, summarize_stage_output
from .dataset_reading import read_examples
from .selection import select_examples
from .speaker_adaptation import align_study
from .stage_counts import format_stage_counts
from .stages import mine_corpus, transcript_path
from .study_folder import PAIRS, WORDS
from .transcription_stage import transcribe_corpus

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...inputs.clips.clip import Clip


def make_corpus_examples(
    corpus: str | PathLike[str],
    folder: Path,
    models: Sequence[Callable[[], Model]],
    aligner: Model | None,
    skipped: list[tuple[str, str]],
    *,
    mining: Mapping[str, Json],
    selection: Mapping[str, Json],
    textgrids: str | PathLike[str] | None,
    overwrite: bool,
) -> list[Clip]:
    """Examples mined from a corpus: pairs, word times, transcripts, selection. What is done already
    is not done again.

    A stage that was begun in shards goes on in them.
    """
    stage_options: JsonObject = {"overwrite": overwrite, "progress": sys.stderr.isatty()}
    for shard in list_started_shards(folder / PAIRS):
        mine_corpus(corpus, folder, shard=shard, **mining, **stage_options)
    print(summarize_stage_output(folder / PAIRS))
    for shard in list_started_shards(folder / WORDS):
        align_study(
            folder, model=aligner, textgrids=textgrids, shard=shard, log=print, **stage_options
        )
    print(summarize_stage_output(folder / WORDS))
    transcript_paths = [
        _transcribe_with(folder, load_model(), stage_options) for load_model in models
    ]
    model_labels = [read_stage_options(path)["model"] for path in sorted(transcript_paths)]
    examples = select_examples(folder, models=model_labels, **selection)
    print(f"\n{format_stage_counts(examples)}\n")
    clips = read_examples(examples, skipped=skipped)
    if not clips:
        raise SpeechmixError(
            f"no pair became an example: {examples / 'dropped.csv'} says why, one by one"
        )
    return clips


def _transcribe_with(folder: Path, model: Model, stage_options: JsonObject) -> Path:
    """What a model writes of the corpus, in one file or in the shards that were begun."""
    output = transcript_path(folder, model)
    for shard in list_started_shards(output):
        transcribe_corpus(folder, [model], shard=shard, **stage_options)
    print(summarize_stage_output(output))
    return output
