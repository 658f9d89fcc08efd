"""How far a copy is from its engine, as a kind of result.

In: a run of a model that was loaded with ``engine=``. Out: ``engine_distance.parquet`` with a row for each
clip.
"""

from __future__ import annotations

from ...files.json_files import JsonObject
from ...runs.kinds.result_kind import Result, ResultItem, ResultKind

_COLUMNS = {
    "engine": "str",
    "text": "str",
    "token_count": "int64",
    "agreeing_count": "int64",
    "largest": "float64",
    "mean": "float64",
}


def _cache_key(item: ResultItem) -> dict[str, object] | None:
    if item.model.engine is None:
        return None
    return {
        "weights": item.model.fingerprint,
        "sound": item.clip.audio_hash,
        "language": item.clip.language,
    }


def _compute(item: ResultItem) -> Result:
    distance = vars(item.model.engine.measure(item.model, item.clip))
    return Result([{name: distance[name] for name in _COLUMNS}])


ENGINE_DISTANCE_KIND = ResultKind(
    "engine_distance", _compute, cache_key=_cache_key, columns=_COLUMNS, needs_words=False
)


def distance_kinds() -> dict[str, JsonObject]:
    """Return what a run beside an engine computes of each clip, with its options."""
    return {ENGINE_DISTANCE_KIND.name: {}}
