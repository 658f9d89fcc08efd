"""Read and write JSON, with errors that name the place.

In: a text, or the path of a file. Out: what it holds. Deep nesting, numbers without end and half
characters ("\ud800", legal in JSON and no text) are errors like any other.
"""

from __future__ import annotations

import json
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
