"""Listening as result kinds: answers with and without sound and prompt; where the sound is read; which seconds count.

Options hold the clip whose sound is the other one for each item ("donors"), and the names of the items to look into.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ...runs.kinds.result_kind import Result, ResultItem, ResultKind
from .effects import PLAYERS, listening_effects
from .items import ListeningItem
from .sound_routes import item_routes
from .sound_seconds import sound_seconds


def _cache_key(item: ResultItem) -> dict[str, object] | None:
    clip, model, options = item.clip, item.model, dict(item.options)
    donor = options.pop("donors", {}).get(clip.name)
    names = options.pop("names", None)
    if item.is_partial_twin or (names is not None and clip.name not in names):
        return None
    return {
        "weights": model.fingerprint,
        "dtype": str(model.state_dtype),
        "sound": clip.audio_hash,
        "language": clip.language,
        "question": ListeningItem.from_clip(clip).question,
        "other": None if donor is None else [donor.name, donor.audio_hash],
        **options,
    }


def _compute_answers(item: ResultItem) -> Result:
    donor = item.options.get("donors", {}).get(item.clip.name)
    return Result(listening_effects(item.model, ListeningItem.from_clip(item.clip), donor))


def _compute_routes(item: ResultItem) -> Result:
    donor = item.options["donors"][item.clip.name]
    return Result(item_routes(item.model, ListeningItem.from_clip(item.clip), donor))


def _compute_seconds(item: ResultItem) -> Result:
    question = ListeningItem.from_clip(item.clip)
    table = sound_seconds(item.model, question, seconds=item.options.get("seconds", 0.5))
    return Result(table.drop(columns="item").to_dict("records"))


def _make_kind(
    name: str, compute: Callable[[ResultItem], Result], columns: Mapping[str, str]
) -> ResultKind:
    return ResultKind(name, compute, cache_key=_cache_key, columns=columns, needs_words=False)


_NUMBERS = ("probability", "log_probability", "log_odds", "text_probability", "mass")
_VALUES = tuple(f"shapley_{player}" for player in PLAYERS)
LISTENING_KIND = _make_kind(
    "listening",
    _compute_answers,
    {"correct": "bool", **dict.fromkeys((*_NUMBERS, *_VALUES), "float64")},
)
LISTENING_ROUTES_KIND = _make_kind(
    "listening_routes",
    _compute_routes,
    dict.fromkeys(("layer", "layer_count"), "int64")
    | dict.fromkeys(("head", "effect", "needs"), "float64"),
)
LISTENING_SECONDS_KIND = _make_kind(
    "listening_seconds",
    _compute_seconds,
    dict.fromkeys(("start", "end", "effect", "gradient"), "float64"),
)
