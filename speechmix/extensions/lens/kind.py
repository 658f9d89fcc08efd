"""Lens as a kind of result: margins and text of each layer of a clip, ``lens.parquet``.

Its option ``kind`` is that of `speechmix.lens`. Untrained twins have results too: they are the null of
`extensions.lens.lens_curves`.
"""

from __future__ import annotations

from ...runs.kinds.result_kind import Result, ResultItem, ResultKind
from .lens import lens

_OWNER_COLUMNS = ["clip", "model", "init", "seed"]


def _cache_key(item: ResultItem) -> dict[str, object] | None:
    """Of models that write transcripts."""
    return {**item.ingredients, **item.options} if item.model.can_transcribe else None


def _compute(item: ResultItem) -> Result:
    table = lens(item.model, item.clip, **item.options).to_dataframe().drop(columns=_OWNER_COLUMNS)
    return Result(table.astype(object).mask(table.isna(), None).to_dict("records"))


_NUMBERS = ("error_rate", "difference", "margin", "log_probability", "rank", "decided_layer")
LENS_KIND = ResultKind(
    "lens",
    _compute,
    cache_key=_cache_key,
    columns={"layer": "int64", "word": "Int64", **dict.fromkeys(_NUMBERS, "float64")},
)
