"""Check the fields of an object that a JSON file holds, with errors that name the field.

In: an object, and the types that its fields may have. Out: nothing, or an error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from ..errors import InputError
from .json_files import Json

FieldTypes = Mapping[str, tuple[type, ...]]
TEXT, NUMBER, OPTIONAL_NUMBER = (str,), (int, float), (int, float, type(None))


def check_fields(
    content: Json, types: FieldTypes, where: str, *, allow_others: bool = False
) -> None:
    """Check names and types of the fields of a JSON object.

    True and false are no numbers, and a number is finite. InputError, which calls the object
    `where`, if a field is missing, has another type, or is not expected (unless `allow_others`).

    Examples
    --------
    >>> check_fields({"count": "3"}, {"count": NUMBER}, "clips")
    Traceback (most recent call last):
    ...
    speechmix.errors.InputError: clips, count: expected int or float, found '3'
    """
    if not isinstance(content, dict):
        raise InputError(f"{where}: expected an object, found {type(content).__name__}")
    missing, unknown = types.keys() - content.keys(), content.keys() - types.keys()
    if missing or (unknown and not allow_others):
        field_names = ", ".join(content)[:200] or "none"
        raise InputError(f"{where}: expected the fields {', '.join(types)}, found {field_names}")
    for name, expected in types.items():
        check_value(content[name], expected, f"{where}, {name}")


def check_value(value: Json, types: tuple[type, ...], where: str) -> None:
    """Check the type of one value, as `check_fields` does."""
    is_wrong_bool = isinstance(value, bool) and bool not in types
    if is_wrong_bool or not isinstance(value, types):
        expected = " or ".join("null" if kind is type(None) else kind.__name__ for kind in types)
        raise InputError(f"{where}: expected {expected}, found {_shorten(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{where}: expected a finite number, found {value}")


def _shorten(value: Json) -> str:
    """A value in an error; of a nested one its type alone, which may be deep."""
    return type(value).__name__ if isinstance(value, (dict, list)) else f"{value!r:.80}"
