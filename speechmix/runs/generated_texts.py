"""What models wrote themselves about clips without a text, kept in the run's folder: once for each
model and clip.

In: a model with a decoder, a clip, and what is asked. Out: the model remembers (`Model.written`)
what is kept, or writes it now and it is kept: tokens, text, and who wrote it. A random twin, which
writes nothing of its own, is fed what the trained model of its name wrote: the two then differ in
their weights alone (Mohebbi et al. 2023 do the same).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

from ..adapters.generation.generated_texts import (
    can_generate_text,
    generate_text,
    generated_text_key,
)
from ..adapters.generation.prompts import GeneratedText
from ..adapters.generation.transcription import needs_generated_text
from ..adapters.model import Model
from ..errors import InputError
from ..inputs.clips.clip import Clip
from ..mixing.passes.request import Question
from .results.part_files import opened_part
from .results.result_store import Key, Results
from .results.run_folder import RunFolder

WRITTEN = "written"  # kind of result


def remember_written(
    results: Results,
    texts: Mapping[str, Mapping[str, Any]],
    model: Model,
    clip: Clip,
    question: Question,
) -> list[Key]:
    """Have the model know what is written about a clip without a text, if the decoder is asked
    about at all.

    Parameters
    ----------
    results : Results
        Of this model, which keep what it writes.
    texts : mapping
        For a random twin: what the trained model of its name wrote, by clip (`texts_of`).
    model, clip, question

    Returns
    -------
    list of Key
        Of what is kept with this model's results.
    """
    asked = question.stacks is None or {"decoder", "cross"} & set(question.stacks)
    if not asked or not needs_generated_text(model, clip):
        return []
    question_of_text = generated_text_key(model, clip)
    key = Key(clip.name, WRITTEN, question_of_text)
    stored: Mapping[str, Any] = {}
    if can_generate_text(model):
        if key in results:
            stored = json.loads(results.row(key)["content"])
        else:
            stored = {**_heard(clip), "written": asdict(generate_text(model, clip))}
            results.put(key, content=json.dumps(stored, ensure_ascii=False))
    else:
        stored = texts.get(clip.name, {})
        if {name: stored.get(name) for name in _heard(clip)} != _heard(clip):
            return []  # by no trained model of this name, or of another recording
    if question_of_text not in model.generated_texts:
        model.generated_texts[question_of_text] = GeneratedText(
            **{**stored["written"], "ids": tuple(stored["written"]["ids"])}
        )
    return [key] if can_generate_text(model) else []


def texts_of(folder: RunFolder, name: str) -> dict[str, dict[str, Any]]:
    """What the trained model of a name wrote in this run, by clip; a damaged part is left out.

    Of what several parts have of a clip the one that was written last counts: the others are of
    weights, a prefix or a recording that an earlier start had.
    """
    texts: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.part_files(), key=_time_of_change):
        try:
            part = opened_part(path)
            if (part.owner.name, part.owner.init) != (name, "trained"):
                continue
            rows = part.read(("clip", "kind", "content"))
        except InputError:
            continue
        rows = rows.filter(pc.equal(rows["kind"], WRITTEN))
        for clip, content in zip(
            rows["clip"].to_pylist(), rows["content"].to_pylist(), strict=True
        ):
            texts[clip] = json.loads(content)
    return texts


def _time_of_change(path: Path) -> int:
    """Nanoseconds; 0 where there is no such file any more."""
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def written_of(model: Model, clip: Clip) -> dict[str, Any]:
    """What a stored map of a clip without a text depends on besides the clip: the ids that were fed
    to the decoder."""
    if not needs_generated_text(model, clip):
        return {}
    written = model.generated_texts.get(generated_text_key(model, clip))
    return {} if written is None else {"written": list(written.ids)}


def _heard(clip: Clip) -> dict[str, Any]:
    return {"sound": clip.sound, "language": clip.language}
