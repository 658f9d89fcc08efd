"""Check what a card's JSON file holds before it is shown: types of all fields, intervals.

In: the content of a profile. Out: a `MixingProfile`, or an error that names the field.
"""

from __future__ import annotations

from ...errors import InputError
from ...files.json_files import (
    NUMBER,
    OPTIONAL_NUMBER,
    TEXT,
    FieldTypes,
    Json,
    check_fields,
    check_value,
)
from .card_contents import CardEstimate, MixingProfile

_PROFILE: FieldTypes = {
    "clips": (dict,),
    "options": (dict,),
    "twins": (int,),
    "answers": (list,),
    "notes": (list,),
    "estimates": (list,),
    "layers": (list,),
    "measures": (list,),
    "versions": TEXT,
}
_CLIPS: FieldTypes = {
    "count": (int,),
    "groups": (int,),
    "seconds": NUMBER,
    "languages": (list,),
    "fingerprint": TEXT,
}
_ESTIMATE: FieldTypes = {
    **dict.fromkeys(("quantity", "side", "stack", "measure", "unit", "verdict"), TEXT),
    "value": NUMBER,
    "low": OPTIONAL_NUMBER,
    "high": OPTIONAL_NUMBER,
    "groups": (int,),
}
_LAYERS: FieldTypes = {
    **dict.fromkeys(("side", "stack", "measure"), TEXT),
    **dict.fromkeys(("difference", "low", "high"), (list,)),
}
_MEASURE: FieldTypes = {
    **dict.fromkeys(("perturbation", "stack", "measure", "aggregation"), TEXT),
    **dict.fromkeys(("value", "low", "high"), OPTIONAL_NUMBER),
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
    check_fields(content, _PROFILE, "profile")
    check_fields(content["clips"], _CLIPS, "clips", allow_others=True)
    for name, texts in (("languages", content["clips"]["languages"]), *_texts(content)):
        if not all(isinstance(text, str) for text in texts):
            raise InputError(f"{name}: expected texts, found {str(texts)[:80]}")
    for estimate in content["estimates"]:
        check_fields(estimate, _ESTIMATE, "estimate")
        _check_interval(estimate["low"], estimate["value"], estimate["high"])
    for curve in content["layers"]:
        check_fields(curve, _LAYERS, "layers", allow_others=True)
        edges = [curve[name] for name in ("low", "difference", "high")]
        if len({len(values) for values in edges}) > 1:
            raise InputError("layers: expected as many intervals as layers")
        for values in zip(*edges, strict=True):
            for value in values:
                check_value(value, OPTIONAL_NUMBER, "layers")
            _check_interval(*values)
    for row in content["measures"]:
        check_fields(row, _MEASURE, "measures")
        _check_interval(row["low"], row["value"], row["high"])
    estimates = [CardEstimate(**estimate) for estimate in content["estimates"]]
    return MixingProfile(**{**content, "estimates": estimates})


def _texts(content: Json) -> list[tuple[str, list[Json]]]:
    return [(name, content[name]) for name in ("answers", "notes")]


def _check_interval(low: float | None, value: float | None, high: float | None) -> None:
    edges = [edge for edge in (low, value, high) if edge is not None]
    if edges != sorted(edges):
        raise InputError(f"the interval {low} to {high} does not hold its value {value}")
