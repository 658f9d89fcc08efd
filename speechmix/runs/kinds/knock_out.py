"""Knock-out as a kind of result: what the decision loses without a word's values, layer by layer."""

from __future__ import annotations

from ...interventions.value_knock_out import knock_out
from .result_kind import Result, ResultItem, ResultKind


def _knock_out_cache_key(item: ResultItem) -> dict[str, object] | None:
    """Of models that write transcripts; a clip without target fails, and the run says why."""
    model = item.model
    if not model.can_transcribe or model.prefix.task != "transcribe" or item.is_partial_twin:
        return None
    return {**item.ingredients, **item.options}


def _compute_knock_out(item: ResultItem) -> Result:
    decision_map = knock_out(item.model, item.clip, **item.options)
    return Result(decision_map.table.to_dict("records"))


KNOCK_OUT_KIND = ResultKind(
    "knock_out",
    _compute_knock_out,
    cache_key=_knock_out_cache_key,
    columns={"layer": "int64", "word": "int64", "drop": "float64", "margin": "float64"},
)
