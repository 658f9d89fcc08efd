"""Result kind "ablation": the target's spelling without the cue's values, by stack.

Options: `by_layer`, names of clips in which the cue is ablated layer by layer, too; `trained_only`, which
leaves out untrained twins.

Knock-out as a kind of result: what the decision loses without a word's values, layer by layer.
"""

from __future__ import annotations

from typing import Any

import pandas as pd

from ...inputs.words.cue_and_target import CONTROL
from ...interventions.value_knock_out import ablate_with_control, knock_out
from .result_kind import Result, ResultItem, ResultKind


def has_ablation(item: ResultItem) -> bool:
    """Whether the model spells the clip's target and foil; a translation spells neither."""
    model, clip = item.model, item.clip
    can_transcribe = (
        model.can_transcribe and model.prefix.task == "transcribe" and not item.is_partial_twin
    )
    return bool(can_transcribe and clip.foil and clip.cue is not None)


def _is_by_layer(item: ResultItem) -> bool:
    """Whether the cue is ablated layer by layer, too: in few clips, by trained models."""
    return item.model.init == "trained" and item.clip.name in item.options.get("by_layer", ())


def _cache_key(item: ResultItem) -> dict[str, object] | None:
    """Return the cache key of an item; None if it is not ablated."""
    is_skipped = item.options.get("trained_only", False) and item.model.init != "trained"
    if is_skipped or not has_ablation(item):
        return None
    return {**item.ingredients, "by_layer": _is_by_layer(item), "control": CONTROL}


def _compute(item: ResultItem) -> Result:
    table = ablate_with_control(item.model, item.clip, by_layer=_is_by_layer(item))
    rows: list[dict[Any, Any]] = table.astype({"layer": object}).to_dict("records")
    return Result(
        [{name: None if cell is pd.NA else cell for name, cell in row.items()} for row in rows]
    )


ABLATION_KIND = ResultKind("ablation", _compute, cache_key=_cache_key, columns={"layer": "Int64"})


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
