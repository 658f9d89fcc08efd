"""Run a resumable stage that writes one line per item.

In: items and the work to do on one. Out: a JSON-lines file, read again by `stage_lines`

    {"stage", "options", "versions", ...}            first line: how it was made
    {"key", (ingredients,) result or why, "sum"}     a line an item, in their order, with a checksum of itself
    {"end", "inputs", "versions", "sum"}             last line: how many items, and of which inputs

While the stage runs the file is called `<name>.unfinished`; it gets its name when it is complete,
so an output is whole or not there. A stage that is killed loses at most the item at hand and a
tenth of a second's work before it. At each start lines are used again if item and ingredients are
still the same; the others are made again, and damaged ones too. What a stage has in the end does
not depend on its past.

A shard does the same in a file of its own (see `stage_files`), whose first line names it. Shards of
one output run at once, on several machines; each holds a lock of its own, and none writes a file of
another.

Refuse to restart a stage with other options.
"""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from ...errors import InputError, SpeechmixError, StorageError
from ...files.cache_keys import package_versions
from ...files.json_files import Json, JsonObject
from ...files.shard_assignment import WHOLE, Shard
from ...files.whole_files import hold_writing_lock
from .stage_files import UNFINISHED, check_shard_count, shard_file
from .stage_lines import decode_checked_line, encode_checked_line, read_header, read_stage_options


def check_output_options(path: Path, options: JsonObject, overwrite: bool) -> None:
    """Refuse an output made with other options, or remove it if it may be overwritten; one without
    a header is set aside."""
    if not path.is_file():
        return
    header = read_header(path)
    if not header:
        if path.stat().st_size and not path.name.endswith(UNFINISHED):
            aside = path.with_name(f"{path.name}.damaged")
            os.replace(path, aside)
            warnings.warn(
                f"{path} is damaged (or of an older version): set aside as {aside.name} and made "
                "again",
                stacklevel=3,
            )
            return
        path.unlink()
    elif header["options"] != options:
        if not overwrite:
            raise InputError(
                f"{path} was made with other options ({_format_difference(header['options'], options)}): "
                "choose another folder, or overwrite it"
            )
        path.unlink()


def check_shard_options(output: Path, options: JsonObject) -> None:
    """Refuse a shard that is not of the options of the other shards of the output."""
    others = read_stage_options(output)
    if others and others != options:
        raise InputError(
            f"the shards of {output.stem} in {output.parent} are made with other options "
            f"({_format_difference(others, options)}): use "
            "theirs, choose another folder, or overwrite all of them"
        )


def _format_difference(stored: JsonObject, now: JsonObject) -> str:
    names = sorted(name for name in {*stored, *now} if stored.get(name) != now.get(name))
    return "; ".join(f"{name}: {stored.get(name)!r}, now {now.get(name)!r}" for name in names)[:500]


Shown = TypeVar("Shown")
_MAX_LOST_ITEMS = 0.1  # seconds of work on quick items; a slow one is written when it is done


class SkipItem(SpeechmixError):
    """An item that a stage leaves out, with the kind of reason ("missing clip"), the reason, and
    what else to note."""

    def __init__(self, why: str, reason: str, **noted: Any):
        super().__init__(reason)
        self.why, self.noted = why, noted


def run_stage(
    path: Path,
    items: Iterable[tuple[str, Any]],
    work: Callable[[Any], JsonObject],
    *,
    options: JsonObject,
    ingredients: Callable[[Any, JsonObject], JsonObject] = lambda item, stored: {},
    unimportant: tuple[str, ...] = (),
    inputs: Mapping[str, Json] | Callable[[], Mapping[str, Json]] | None = None,
    why: str = "cannot be used",
    shard: Shard = WHOLE,
    overwrite: bool = False,
    progress: bool = False,
) -> Path:
    """Do a stage, or what is left of it; return its file, `path` (.jsonl) or that of the shard.

    `work` returns what to keep of an item; an error of this package drops the item, with the kind
    of reason `why` unless it is a `SkipItem`, and any other stops the stage. `options` decide the
    result of every item, and an output made with others is not mixed with this one, but replaced
    with `overwrite`. `ingredients` takes an item and its stored line (or {}) and returns what
    decides its result: a stored line is used again only if they are the same, those named in
    `unimportant` (a file's time, where its content has a hash) aside. `inputs` says which inputs
    the items are of, for `stage_lines.read_stage_inputs`; a function is called when all items were
    read.

    The items are those of `shard`. Their `ingredients` then give each one's position among the
    items of all shards (`stage_lines.POSITION`), in this order. InputError if there is an output
    made with other options, or in another number of shards; StorageError if another process writes
    to the folder (the shard), or the disk is full.
    """
    options = json.loads(json.dumps(options, default=str))
    header: JsonObject = {
        "stage": path.stem,
        "options": options,
        "versions": package_versions(),
    }
    check_shard_count(path, shard)
    if shard.count > 1:
        header["shard"] = shard.label
        if not overwrite:
            check_shard_options(path, options)
    path = shard_file(path, shard)
    with hold_writing_lock(path.parent, shard.label if shard.count > 1 else ""):
        unfinished = path.with_name(f"{path.name}{UNFINISHED}")
        for stored_file in (path, unfinished):
            check_output_options(stored_file, options, overwrite)

        def made(key: str, item: Any, stored: JsonObject | None) -> JsonObject:
            encoded_ingredients = _encode_entries(ingredients(item, stored or {}))
            if stored and all(
                stored.get(name) == encoded_ingredients[name]
                for name in encoded_ingredients
                if name not in unimportant
            ):
                return {**stored, **encoded_ingredients}
            try:
                return {"key": key, **encoded_ingredients, **_process_item(work, item, why)}
            except Exception as error:
                error.add_note(
                    f"at {key!r} of the stage {header['stage']}; what is done so far is kept in "
                    f"{unfinished}"
                )
                raise

        with StoredLines(path) as former, _reopen_unfinished(unfinished, header) as file:
            count = _write_items(
                file, _report_progress(items, header["stage"], progress), made, former
            )
            inputs = inputs() if callable(inputs) else inputs
            file.write(
                encode_checked_line(
                    {"end": count, "inputs": inputs or {}, "versions": package_versions()}
                )
            )
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    return path


def _encode_entries(entries: JsonObject) -> JsonObject:
    """Entries as they are read again from a line: JSON makes lists of tuples."""
    if all(entry is None or type(entry) in (str, int) for entry in entries.values()):
        return entries
    result: JsonObject = json.loads(json.dumps(entries, default=str))
    return result


def _process_item(work: Callable[[Any], JsonObject], item: Any, why: str) -> JsonObject:
    """What the work on an item gives, or why it is left out."""
    try:
        return work(item)
    except StorageError:
        raise
    except SpeechmixError as error:
        return {
            "why": getattr(error, "why", why),
            "reason": str(error),
            **getattr(error, "noted", {}),
        }


def _write_items(
    file: BinaryIO,
    items: Iterable[tuple[str, Any]],
    make_line: Callable[..., Any],
    former: StoredLines,
) -> int:
    """Write the lines that the unfinished file lacks, behind those that are still valid; returns
    how many items there are."""
    count, end_offset, standing, flushed = 0, file.tell(), True, -math.inf
    for key, item in items:
        stored = decode_checked_line(file.readline()) if standing else None
        stored = stored if stored and stored.get("key") == key else None
        line = make_line(key, item, stored or former.read_line(key))
        count += 1
        if standing and line == stored:
            end_offset = file.tell()
            continue
        if standing:  # what follows was cut off, or is of other items
            standing = False
            file.seek(end_offset)
            file.truncate()
        file.write(encode_checked_line(line))
        if (now := time.monotonic()) - flushed > _MAX_LOST_ITEMS:
            file.flush()
            flushed = now
    if standing:
        file.seek(end_offset)
        file.truncate()
    return count


class StoredLines:
    """Lines of an earlier, complete output, by key: one after the other while the items are in the
    same order."""

    def __init__(self, path: Path):
        self._file = path.open("rb") if path.is_file() else None
        self._places: dict[str, int] | None = None
        if self._file is not None:
            self._file.readline()

    def read_line(self, key: str) -> JsonObject | None:
        """Return the line of a key; None if there is none, or it is damaged."""
        if self._file is None:
            return None
        if self._places is None:
            line = decode_checked_line(self._file.readline())
            if line is not None and line.get("key") == key:
                return line
            self._places = self._all_places(self._file)
        if key not in self._places:
            return None
        self._file.seek(self._places[key])
        return decode_checked_line(self._file.readline())

    @staticmethod
    def _all_places(file: BinaryIO) -> dict[str, int]:
        file.seek(0)
        offset = len(file.readline())
        offsets = {}
        for text in file:
            line = decode_checked_line(text)
            if line is not None and "key" in line:
                offsets[line["key"]] = offset
            offset += len(text)
        return offsets

    def __enter__(self) -> StoredLines:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def _reopen_unfinished(unfinished: Path, header: JsonObject) -> BinaryIO:
    """Open the unfinished output, made if it is not there, behind its first line."""
    if not unfinished.is_file():
        unfinished.write_bytes(encode_checked_line(header))
    file = unfinished.open("r+b")
    file.readline()
    return file


def _report_progress(items: Iterable[Shown], name: str, progress: bool) -> Iterable[Shown]:
    if not progress:
        return items
    from tqdm.auto import tqdm

    return tqdm(items, desc=name, unit=" clips", smoothing=0.05)
