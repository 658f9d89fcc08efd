"""Transcripts as a kind of result: what a trained model generates for a clip, and its error rate."""

from __future__ import annotations

from ...adapters.generation.greedy_generation import transcribe
from ...errors import SpeechmixError
from ...inputs.words.transcript_accuracy import character_error_rate, normalization_entry
from .result_kind import Result, ResultItem, ResultKind

_INGREDIENTS = ("weights", "dtype", "sound", "language", "text")


def _cache_key(item: ResultItem) -> dict[str, object] | None:
    model = item.model
    transcribes = (
        model.can_transcribe and model.init == "trained" and model.prefix.task == "transcribe"
    )
    clips = item.options.get("clips")  # without it, all
    is_requested = clips is None or item.clip.name in clips
    if not (item.clip.text and transcribes and is_requested):
        return None
    ingredients = item.ingredients
    key = {name: ingredients[name] for name in _INGREDIENTS}
    return key | normalization_entry(item.clip.language)


def _compute(item: ResultItem) -> Result:
    try:
        transcript = transcribe(item.model, item.clip)
    except SpeechmixError:
        if "clips" not in item.options:
            raise
        return Result([])  # nothing else depends on the transcript of a drawn clip
    rate = character_error_rate(item.clip.text or "", transcript, item.clip.language)
    row = {"text": item.clip.text, "transcript": transcript, "character_error_rate": rate}
    return Result([row])


TRANSCRIPTS_KIND = ResultKind("transcripts", _compute, cache_key=_cache_key, columns={})
