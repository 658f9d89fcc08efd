"""What models wrote themselves about clips without a text, kept in the run's folder: once for each model and clip.

In: a model with a decoder, a clip, and what is asked. Out: the model remembers (`Model.written`) what is kept, or writes it now
and it is kept: tokens, text, and who wrote it. A random twin, which writes nothing of its own, is fed what the trained model
of its name wrote: the two then differ in their weights alone (Mohebbi et al. 2023 do the same).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from ..adapters.model import Model
from ..adapters.tokens import given_text
from ..adapters.writing import Written, can_write, key_of, written_about
from ..inputs.clips import Clip
from ..scoring.question import Question
from .checked_json import stored_json, write_checked
from .folder import RunFolder


def remember_written(
    folder: RunFolder, model: Model, clip: Clip, question: Question, report: Callable[[str], None]
) -> None:
    """Have the model know what is written about a clip without a text, if the decoder is asked about at all."""
    asked = question.stacks is None or {"decoder", "cross"} & set(question.stacks)
    if not asked or "cross" not in model.stacks or model.tokenizer is None or given_text(model, clip) is not None:
        return
    key, path = key_of(model, clip), folder.written(model, clip)
    if key in model.written:
        return
    stored = stored_json(path, report)
    if can_write(model):
        if stored.get("question") != key:
            stored = {"question": key, **_said(clip), "written": asdict(written_about(model, clip))}
            write_checked(path, stored)
    elif {name: stored.get(name) for name in _said(clip)} != _said(clip):
        return  # by no trained model of this name, or of another recording
    model.written[key] = Written(**{**stored["written"], "ids": tuple(stored["written"]["ids"])})


def written_of(model: Model, clip: Clip) -> dict[str, Any]:
    """What a stored map of a clip without a text depends on besides the clip: the ids that were fed to the decoder."""
    if "cross" not in model.stacks or model.tokenizer is None or given_text(model, clip) is not None:
        return {}
    written = model.written.get(key_of(model, clip))
    return {} if written is None else {"written": list(written.ids)}


def _said(clip: Clip) -> dict[str, Any]:
    return {"sound": clip.sound, "language": clip.language}
