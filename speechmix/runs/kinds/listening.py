"""Listening as a result kind: what a model answers about a recording with and without sound and prompt."""

from __future__ import annotations

from ...evaluation.listening.effects import listening_effects
from ...evaluation.listening.items import ListeningItem
from .result_kind import Result, ResultItem, ResultKind


def _cache_key(item: ResultItem) -> dict[str, object] | None:
    clip, model = item.clip, item.model
    if item.is_partial_twin:
        return None
    donor = item.options.get("donors", {}).get(clip.name)
    return {
        "weights": model.fingerprint,
        "dtype": str(model.state_dtype),
        "sound": clip.audio_hash,
        "language": clip.language,
        "question": ListeningItem.from_clip(clip).question,
        "other": None if donor is None else [donor.name, donor.audio_hash],
    }


def _compute(item: ResultItem) -> Result:
    donor = item.options.get("donors", {}).get(item.clip.name)
    return Result(listening_effects(item.model, ListeningItem.from_clip(item.clip), donor))


LISTENING_KIND = ResultKind(
    "listening",
    _compute,
    cache_key=_cache_key,
    columns={
        "correct": "bool",
        "probability": "float64",
        "log_probability": "float64",
        "log_odds": "float64",
        "text_probability": "float64",
        "mass": "float64",
        "shapley_sound": "float64",
        "shapley_prompt": "float64",
        "shapley_earlier_answer": "float64",
    },
    needs_words=False,
)
