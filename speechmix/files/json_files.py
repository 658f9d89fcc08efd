"""Read and write JSON, with errors that name the place.

In: a text, or the path of a file. Out: what it holds. Deep nesting, numbers without end and half
characters ("\ud800", legal in JSON and no text) are errors like any other.

Check the fields of an object that a JSON file holds, with errors that name the field.

In: an object, and the types that its fields may have. Out: nothing, or an error.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from os import PathLike
from typing import Any, TypeAlias

from ..errors import InputError
from .cache_keys import digest
from .text_files import read_text
from .whole_files import write_json

Json: TypeAlias = Any  # what a JSON text holds is known at run time alone
JsonObject: TypeAlias = dict[str, Json]


def parse_json(text: str, *, where: str) -> Json:
    """Return what a JSON text holds.

    InputError, which calls it `where`, if it is no JSON, or holds strings that are no text.

    Examples
    --------
    >>> parse_json('{"words": []}', where="words.json")
    {'words': []}
    >>> parse_json("[" * 9999, where="words.json")
    Traceback (most recent call last):
    ...
    speechmix.errors.InputError: words.json: not valid JSON (nested too deeply)
    """
    try:
        content = json.loads(text)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(content, ensure_ascii=False).encode("utf-8")
    except RecursionError as error:
        raise InputError(f"{where}: not valid JSON (nested too deeply)") from error
    except ValueError as error:
        raise InputError(f"{where}: not valid JSON ({str(error)[:200]})") from error
    return content


def write_checked_json(path: str | PathLike[str], content: Mapping[str, object]) -> None:
    """Write a JSON object with a checksum of its content, whole or not at all."""
    write_json(path, {**content, "checksum": digest(json.loads(json.dumps(content)))})


def read_checked_json(path: str | PathLike[str]) -> JsonObject:
    """Return the object that `write_checked_json` wrote.

    InputError if the file cannot be read, or is not as it was written.
    """
    content = read_json_object(path)
    if content.pop("checksum", None) != digest(content):
        raise InputError(
            f"{path} is damaged or of another version: its content is not that which speechmix "
            "wrote. Start the run again"
        )
    return content


def read_json_object(path: str | PathLike[str]) -> JsonObject:
    """Return the object that a JSON file holds; InputError if it cannot be read or holds another
    type."""
    content = parse_json(read_text(path), where=str(path))
    if not isinstance(content, dict):
        raise InputError(f"{path}: expected a JSON object, found {type(content).__name__}")
    return content


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
