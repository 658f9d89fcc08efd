"""Transcripts of a corpus by the models under study, clip by clip, in shards."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputError
from ...files.json_files import JsonObject
from ...files.names import is_same_file_name
from ...files.shard_assignment import WHOLE, Shard
from ...runs.journal.stage_journal import SkipItem, run_stage
from ...runs.journal.stage_lines import POSITION, input_digest
from .shard_rows import corpus_position_entry
from .study_folder import (
    PAIRS,
    WORDS,
    read_aligned_lines,
    recording_signature,
    refuse_outdated_output,
    transcript_digest,
)

if TYPE_CHECKING:
    from ...adapters import Model
from .stages import transcript_path


def transcribe_corpus(
    study: str | PathLike[str],
    models: Iterable[Model | Callable[[], Model]],
    *,
    max_tokens: int = 200,
    shard: Shard = WHOLE,
    overwrite: bool = False,
    progress: bool = False,
) -> list[Path]:
    """Transcribe the clips that have pairs and words; greedy, Whisper with language and task fixed.

    Models, or functions that load one, are taken one after the other. `max_tokens` stops a decoder
    that does not stop. Only the clips of `shard` are transcribed: see `align_corpus`. Returns
    ``transcripts/<model>.jsonl`` of each model, or the shard's
    ``transcripts/<model>/3-of-48.jsonl``. InputError if the words were not placed yet, a model
    cannot spell, or the folder holds other transcripts of it; MissingExtraError if jiwer is not
    installed.
    """
    from .transcript_comparison import transcribe_line

    study, paths = Path(study), []
    refuse_outdated_output(study, study / WORDS, "words", "align again", shard)
    pairs_digest = input_digest(study / PAIRS, "text", "path", shard=shard)
    labels: set[str] = set()
    for model in models:
        model = model() if callable(model) else model
        label = is_same_file_name(model.label)
        if label in labels:
            raise InputError(
                f"two models are called {model.label!r} or alike: give them folders of their own "
                "names"
            )
        labels.add(label)
        options = {
            "model": model.label,
            "weights": model.fingerprint,
            "dtype": str(model.dtype),
            "max_tokens": max_tokens,
        }
        items = ((line["key"], line) for line in read_aligned_lines(study, shard))

        def transcribe_or_skip(line: JsonObject, model: Model = model) -> JsonObject:
            if recording_signature(line["path"], {})["sound"] != line["sound"]:
                raise SkipItem(
                    "other recording",
                    f"{line['path']} was replaced since its words were placed: align again",
                )
            return transcribe_line(model, line, max_tokens=max_tokens)

        def cache_key(line: JsonObject, stored: JsonObject) -> JsonObject:
            """What decides a transcript and its errors: text, language, and the sound, now and when
            its words were placed."""
            return {
                "of": transcript_digest(line),
                **recording_signature(line["path"], stored or line),
                **corpus_position_entry(line[POSITION], shard),
            }

        path = run_stage(
            transcript_path(study, model),
            items,
            transcribe_or_skip,
            options=options,
            ingredients=cache_key,
            unimportant=("file", POSITION),
            inputs={"pairs": pairs_digest},
            why="not transcribed",
            shard=shard,
            overwrite=overwrite,
            progress=progress,
        )
        paths.append(path)
    return paths
