"""Look-ahead as a kind of result: how much lower a word's score is without what comes later."""

from __future__ import annotations

from ...inputs.words.transcript_accuracy import normalization_entry
from ...runs.kinds.result_kind import Result, ResultItem, ResultKind
from .look_ahead import look_ahead_effects


def _cache_key(item: ResultItem) -> dict[str, object] | None:
    """Return what decides the result, for models that write transcripts and clips with a target."""
    model = item.model
    if not model.can_transcribe or item.clip.target is None or item.is_partial_twin:
        return None
    return {**item.ingredients, **item.options, **normalization_entry(item.clip.language)}


def _compute(item: ResultItem) -> Result:
    return Result(look_ahead_effects(item.model, item.clip, **item.options))


LOOK_AHEAD_KIND = ResultKind(
    "look_ahead",
    _compute,
    cache_key=_cache_key,
    columns={"layer": "Int64", "frames": "Int64", "ms": "float64", "effect": "float64"},
)
