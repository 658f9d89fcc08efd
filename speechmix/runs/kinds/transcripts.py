"""Transcripts as a kind of result: what a trained model generates for a clip, and its error rate."""

from __future__ import annotations

from ...adapters.generation.transcription import transcribe
from ...inputs.words.transcript_accuracy import character_error_rate
from .result_kind import Result, ResultItem, ResultKind

_INGREDIENTS = ("weights", "dtype", "sound", "language", "text")


def _cache_key(item: ResultItem) -> dict[str, object] | None:
    model = item.model
    transcribes = (
        model.can_transcribe and model.init == "trained" and model.prefix.task == "transcribe"
    )
    if not item.clip.text or not transcribes:
        return None
    ingredients = item.ingredients
    return {name: ingredients[name] for name in _INGREDIENTS}


def _compute(item: ResultItem) -> Result:
    transcript = transcribe(item.model, item.clip)
    rate = character_error_rate(item.clip.text or "", transcript)
    row = {"text": item.clip.text, "transcript": transcript, "character_error_rate": rate}
    return Result([row])


TRANSCRIPTS_KIND = ResultKind("transcripts", _compute, cache_key=_cache_key, columns={})
