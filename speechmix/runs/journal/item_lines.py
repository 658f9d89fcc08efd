"""Compute JSON lines about items in a resumable folder.

In: items with names, what decides an item's answer, and a function that answers. Out: the answers,
in the order of the items; those of an earlier start are read back where all that decides them is
the same.

Stages that read each other, or are done in shards, have `runs.journal`; a run of clips has
`runs.score_clips`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ...errors import InputError, SpeechmixError
from ...files.json_files import Json, JsonObject
from ...files.text_files import read_text
from ...files.whole_files import write_json, write_text


class _HasName(Protocol):
    @property
    def name(self) -> str: ...


Named = TypeVar("Named", bound=_HasName)


def open_request_folder(
    folder: Path, request: Mapping[str, Json], *, overwrite: bool = False
) -> None:
    """Make a folder, or check that it holds a run of the same request, which is in `run.json`.

    InputError if it holds a run with other options, or its description is damaged.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()) / "run"
    >>> open_request_folder(folder, {"units": "token"})
    >>> open_request_folder(folder, {"units": "word"})  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    ...
    speechmix.errors.InputError: ... holds a run with other options (units 'token', now 'word'): ...
    """
    json_request = json.loads(json.dumps(request))
    path = folder / "run.json"
    if path.is_file() and not overwrite:
        earlier = _read_request(path)
        other = [name for name in json_request if earlier.get(name) != json_request[name]]
        if other:
            changed_options = ", ".join(
                f"{name} {earlier.get(name)!r}, now {json_request[name]!r}" for name in other
            )
            raise InputError(
                f"{folder} holds a run with other options ({changed_options}): choose another --out, or "
                "--overwrite"
            )
    folder.mkdir(parents=True, exist_ok=True)
    write_json(path, json_request)


def compute_item_lines(
    path: Path,
    items: Iterable[Named],
    *,
    make_request: Callable[[Named], JsonObject],
    answer: Callable[[Named], list[Any]],
    is_whole: Callable[[list[Any]], bool],
    refused: Callable[[Named, SpeechmixError], object],
) -> Iterator[tuple[Named, list[Any]]]:
    """Yield each item with its answer, computed or read back.

    Answers are JSON lines at `path`; a damaged one, or one that was cut off, is removed and made
    again. `make_request` returns everything that decides an item's answer; `is_whole` checks the
    form of a stored one. `refused` gets an item that raises an error of this package; it is left
    out.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    stored = _read_stored_lines(path, is_whole)
    with path.open("a", encoding="utf-8") as file:
        for item in items:
            name = item.name
            item_request = {"item": name, **json.loads(json.dumps(make_request(item)))}
            line = stored.get(name, {})
            if line.get("asked") != item_request:
                try:
                    line = {"asked": item_request, "rows": answer(item)}
                except SpeechmixError as error:
                    refused(item, error)
                    continue
                file.write(json.dumps(line) + "\n")
                file.flush()
            yield item, line["rows"]


def _read_stored_lines(path: Path, is_whole: Callable[[list[Any]], bool]) -> dict[str, JsonObject]:
    """Lines of an earlier start, by item."""
    if not path.is_file():
        return {}
    lines, usable_texts = {}, []
    for text in path.read_bytes().decode("utf-8", "replace").split("\n"):
        try:
            line = json.loads(text)
            usable = isinstance(line["asked"]["item"], str) and is_whole(line["rows"])
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if not usable:
            continue
        lines[line["asked"]["item"]] = line
        usable_texts.append(text)
    write_text(path, "".join(f"{text}\n" for text in usable_texts))
    return lines


def _read_request(path: Path) -> JsonObject:
    try:
        request = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        request = error
    if not isinstance(request, dict):
        raise InputError(
            f"{path} is damaged (expected a JSON object, found {request}): --overwrite starts "
            "afresh"
        )
    return request
