"""Check what a card's JSON file holds before it is shown: types of all fields, intervals.

In: the content of a profile. Out: a `MixingProfile`, or an error that names the field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ...errors import InputError
from ...files.json_files import Json
from .card_contents import CardEstimate, MixingProfile

Kinds = Mapping[str, tuple[type, ...]]
_NUMBER = (int, float)
_OPTIONAL_NUMBER = (int, float, type(None))
_PROFILE: Kinds = {
    "clips": (dict,),
    "options": (dict,),
    "twins": (int,),
    "answers": (list,),
    "notes": (list,),
    "estimates": (list,),
    "layers": (list,),
    "measures": (list,),
    "versions": (str,),
}
_CLIPS: Kinds = {
    "count": (int,),
    "groups": (int,),
    "seconds": _NUMBER,
    "languages": (list,),
    "fingerprint": (str,),
}
_ESTIMATE: Kinds = {
    **dict.fromkeys(("quantity", "side", "stack", "measure", "unit", "verdict"), (str,)),
    "value": _NUMBER,
    "low": _OPTIONAL_NUMBER,
    "high": _OPTIONAL_NUMBER,
    "groups": (int,),
}
_LAYERS: Kinds = {
    **dict.fromkeys(("side", "stack", "measure"), (str,)),
    **dict.fromkeys(("difference", "low", "high"), (list,)),
}
_MEASURE: Kinds = {
    **dict.fromkeys(("perturbation", "stack", "measure", "aggregation"), (str,)),
    **dict.fromkeys(("value", "low", "high"), _OPTIONAL_NUMBER),
    "better_than_all_baselines": (bool,),
}


def parse_profile(content: Json) -> MixingProfile:
    """Return the profile that a card's file holds.

    Raises
    ------
    InputError
        If a field is missing or has another type, a number is not finite, or an interval does not
        hold its value.
    """
    _check_fields(content, _PROFILE, "profile", exactly=True)
    _check_fields(content["clips"], _CLIPS, "clips")
    for name, texts in (("languages", content["clips"]["languages"]), *_texts(content)):
        if not all(isinstance(text, str) for text in texts):
            raise InputError(f"{name}: expected texts, found {str(texts)[:80]}")
    for estimate in content["estimates"]:
        _check_fields(estimate, _ESTIMATE, "estimate", exactly=True)
        _check_interval(estimate["low"], estimate["value"], estimate["high"])
    for curve in content["layers"]:
        _check_fields(curve, _LAYERS, "layers")
        edges = [curve[name] for name in ("low", "difference", "high")]
        if len({len(values) for values in edges}) > 1:
            raise InputError("layers: expected as many intervals as layers")
        for values in zip(*edges, strict=True):
            for value in values:
                _check_number("layers", value, _OPTIONAL_NUMBER)
            _check_interval(*values)
    for row in content["measures"]:
        _check_fields(row, _MEASURE, "measures")
        _check_interval(row["low"], row["value"], row["high"])
    estimates = [CardEstimate(**estimate) for estimate in content["estimates"]]
    return MixingProfile(**{**content, "estimates": estimates})


def _texts(content: Json) -> list[tuple[str, list[Json]]]:
    return [(name, content[name]) for name in ("answers", "notes")]


def _check_fields(content: Json, kinds: Kinds, where: str, *, exactly: bool = False) -> None:
    if not isinstance(content, dict):
        raise InputError(f"{where}: expected an object, found {str(content)[:80]}")
    missing, unknown = kinds.keys() - content.keys(), content.keys() - kinds.keys()
    if missing or (exactly and unknown):
        raise InputError(f"{where}: expected {', '.join(kinds)}, found {', '.join(content)[:200]}")
    for name, types in kinds.items():
        _check_number(f"{where}, {name}", content[name], types)


def _check_number(name: str, value: Json, types: tuple[type, ...]) -> None:
    """Check the type of a value, and that a number is finite; True is no number."""
    is_wrong_bool = isinstance(value, bool) and bool not in types
    if is_wrong_bool or not isinstance(value, types):
        expected = " or ".join(kind.__name__ for kind in types)
        raise InputError(f"{name}: expected {expected}, found {str(value)[:80]!r}")
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{name}: expected a finite number, found {value}")


def _check_interval(low: float | None, value: float | None, high: float | None) -> None:
    edges = [edge for edge in (low, value, high) if edge is not None]
    if edges != sorted(edges):
        raise InputError(f"the interval {low} to {high} does not hold its value {value}")
