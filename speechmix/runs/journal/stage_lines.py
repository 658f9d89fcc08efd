"""Lines of a stage's output: written with checksums, read again, counted.

In: JSON lines as `runs.journal` writes them, in one file or in one a shard. Out: its lines, if it
is whole; its options and inputs; a digest of what a later stage reads of it.

The files of shards are read as one: each of their lines has the position of its clip in the corpus
(`POSITION`), and they are merged by it. So the lines and their order are those of one process,
whatever the number of shards.

Compute JSON lines about items in a resumable folder.

In: items with names, what decides an item's answer, and a function that answers. Out: the answers,
in the order of the items; those of an earlier start are read back where all that decides them is
the same.

Stages that read each other, or are done in shards, have `runs.journal`; a run of clips has
`runs.score_clips`.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import gcd
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ...errors import InputError, SpeechmixError
from ...files.json_files import Json, JsonObject
from ...files.shard_assignment import WHOLE, Shard, shard_number
from ...files.text_files import read_text
from ...files.whole_files import write_json, write_text
from .stage_files import UNFINISHED, list_required_shards, shard_file, stage_files

POSITION = "at"
_CHUNK_BYTES = 2**16  # bytes
_CHECKSUM_FIELD = b', "sum": "'
_encode_json = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode


def lines(path: Path, shard: Shard = WHOLE) -> Iterator[JsonObject]:
    """Yield the lines of a complete output, dropped items included, without the first and the last.

    `path` is the output, by the name that one process gives it, or the file of one shard. Shards of
    the output that hold no clip of `shard` need not be there. InputError if the stage was not done,
    or not to its end (it says which shards are missing), or a file is damaged.
    """
    return (
        {name: line[name] for name in line if name != POSITION}
        for line in read_numbered_lines(path, shard)
    )


def read_numbered_lines(path: Path, shard: Shard = WHOLE) -> Iterator[JsonObject]:
    """Lines as `lines` has them, each with its clip's place in the corpus (`POSITION`)."""
    required_shards = list_required_shards(path, shard)
    files = [shard_file(path, required_shard) for required_shard in required_shards]
    _check_same_origin(path, files)
    merged = heapq.merge(*map(_read_file_lines, files), key=lambda line: line[POSITION])
    return (
        (line for line in merged if shard.holds(line["key"])) if shard.count > 1 else iter(merged)
    )


def _read_file_lines(path: Path) -> Iterator[JsonObject]:
    """Lines of one file, whole or an error; a line that does not say its place is of one process,
    and they are in order."""
    _read_required_header(path)
    last: JsonObject = {}
    count = 0
    for number, text in enumerate(_read_raw_lines(path), start=1):
        if number == 1:
            continue
        ended = "end" in last
        if last and not ended:
            yield {POSITION: count, **last}
            count += 1
        line = decode_checked_line(text)
        if line is None or ended or not line.keys() & {"key", "end"}:
            raise InputError(
                f"{path}, line {number}, is damaged: run the stage again, and it is made again"
            )
        last = line
    if "end" not in last:
        raise InputError(
            f"{path} ends too early (or was written by an older version): run the stage again"
        )
    if last["end"] != count:
        raise InputError(
            f"{path}: expected {last['end']} items, found {count}: it is damaged, run the stage "
            "again"
        )


def _read_raw_lines(path: Path) -> Iterator[bytes]:
    """Lines of a file as they are, some at a time; between them it is closed: a thousand shards are
    too many to hold open."""
    offset = 0
    first_mark: tuple[int, int, int] | None = None
    try:
        while True:
            with path.open("rb") as file:
                status = os.fstat(file.fileno())
                mark = (status.st_ino, status.st_size, status.st_mtime_ns)
                if mark != (first_mark := first_mark or mark):
                    raise InputError(f"{path} was written again while it was read: try again")
                file.seek(offset)
                texts = file.readlines(_CHUNK_BYTES)
                offset = file.tell()
            if not texts:
                return
            yield from texts
    except OSError as error:
        raise InputError(f"cannot read {path} ({error})") from error


def _check_same_origin(path: Path, files: Sequence[Path]) -> None:
    """Refuse shards that were made with unlike options or of unlike corpora, and files that were
    renamed."""
    if len(files) == 1:
        return
    first = read_origin(files[0])
    for file in files:
        label = _read_required_header(file).get("shard")
        if label != file.stem:
            raise InputError(f"{file} is the shard {label}: give it its name again, or delete it")
        origin = read_origin(file)
        unlike = [name for name in origin if origin[name] != first[name]]
        if unlike:
            raise InputError(
                f"{file} is of other {' and '.join(unlike)} than {files[0].name}: shards of one "
                "output need the same. Run "
                "those that are not as they should be again (with --overwrite where the options "
                "are others)"
            )


def read_origin(file: Path) -> JsonObject:
    """What the shards of one output have in common: options, and a hash of the corpus where they
    say it."""
    return {
        "options": _read_required_header(file)["options"],
        "corpus": read_stage_inputs(file).get("corpus"),
    }


def _read_required_header(file: Path) -> JsonObject:
    header = read_header(file)
    if not header:
        raise InputError(
            f"{file}, line 1, is damaged (or of an older version): run the stage again, and it is "
            "made again"
        )
    return header


def read_kept_lines(path: Path, shard: Shard = WHOLE) -> Iterator[JsonObject]:
    """Lines of a complete output that were not dropped."""
    return (line for line in lines(path, shard) if "why" not in line)


def summarize_stage_output(path: Path) -> str:
    """Return one line that counts what a stage, which is just done, kept and why it dropped the
    rest.

    Examples
    --------
    >>> summarize_stage_output(Path("study/pairs.jsonl"))        # doctest: +SKIP
    'pairs: 812 kept, 190 dropped (no pair 187, missing clip 3); study/pairs.jsonl'
    """
    dropped = Counter(_read_drop_reasons(path))
    n_kept = dropped.pop("", 0)
    reasons = format_reasons(dropped)
    header = read_header(path)
    title = f"{header['stage']}, shard {path.stem}" if "shard" in header else path.stem
    return (
        f"{title}: {n_kept} kept, {dropped.total()} "
        f"dropped{f' ({reasons})' if reasons else ''}; {path}"
    )


def _read_drop_reasons(path: Path) -> Iterator[str]:
    """Why each item of an output that was just written was dropped, "" if it was kept; lines
    without a "why" are not parsed."""
    for required_shard in list_required_shards(path, WHOLE):
        for text in _read_raw_lines(shard_file(path, required_shard)):
            if text.startswith(b'{"key": '):
                yield (decode_checked_line(text) or {}).get("why", "") if b'"why": ' in text else ""


def count_kept_and_dropped(stage_lines: Iterable[Mapping[str, Json]]) -> tuple[int, Counter[str]]:
    """How many items were kept, and how many were dropped by kind of reason."""
    whys = Counter(line.get("why", "") for line in stage_lines)
    n_kept = whys.pop("", 0)
    return n_kept, whys


def format_reasons(dropped: Counter[str]) -> str:
    """Kinds of reasons with their counts, the most frequent first."""
    return ", ".join(f"{why} {count}" for why, count in dropped.most_common())


def read_stage_options(path: Path) -> JsonObject:
    """Options that an output, or the first of its shards whose first line can be read, was or is
    made with; else nothing."""
    files = stage_files(path)
    for indices, ending in ((files.finished_shards, ""), (files.unfinished, UNFINISHED)):
        for index in sorted(indices):
            file = shard_file(path, Shard(index, files.count))
            header = read_header(file.with_name(f"{file.name}{ending}"))
            if header:
                result: JsonObject = header["options"]
                return result
    return {}


def read_stage_inputs(path: Path) -> JsonObject:
    """Inputs that a complete output is of."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 2**16))
            text = file.read().splitlines(keepends=True)
    except OSError as error:
        raise InputError(f"cannot read {path} ({error}): run the stage first") from error
    return (decode_checked_line(text[-1]) or {}).get("inputs", {}) if text else {}


def input_digest(path: Path, *names: str, shard: Shard = WHOLE) -> str:
    """Short hash of what a later stage reads of an output: these entries of the items kept, of one
    shard or of all."""
    return input_digests(path, *names, shards=[shard])[0]


def input_digests(path: Path, *names: str, shards: Sequence[Shard]) -> list[str]:
    """Hashes as `input_digest` makes them, of shards of one count, in one pass; what holds no clip
    of theirs is not read."""
    count = shards[0].count
    entries = {shard.index: hashlib.sha256() for shard in shards}
    step = gcd(count, *(shard.index - shards[0].index for shard in shards))
    for line in read_kept_lines(path, Shard((shards[0].index - 1) % step + 1, step)):
        shard_index = shard_number(line["key"], count)
        if shard_index in entries:
            text = json.dumps([line.get(name) for name in ("key", *names)], ensure_ascii=False)
            entries[shard_index].update(text.encode("utf-8"))
    return [entries[shard.index].hexdigest()[:16] for shard in shards]


def encode_checked_line(line: JsonObject) -> bytes:
    """Return a line with its checksum, as it is written."""
    text = _encode_json(line).encode("utf-8", "backslashreplace")
    return text[:-1] + _CHECKSUM_FIELD + _checksum(text) + b'"}\n'


def decode_checked_line(text: bytes) -> JsonObject | None:
    """Return a line as it was written; None if it is not whole or was changed."""
    start, mark, end = text.rpartition(_CHECKSUM_FIELD)
    if not mark or not text.endswith(b'"}\n') or end[:-3] != _checksum(start + b"}"):
        return None
    try:
        line = json.loads(start + b"}")
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None


def _checksum(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=8).hexdigest().encode("ascii")


def read_header(path: Path) -> JsonObject:
    """First line of an output; nothing if there is no such file, or the line is damaged."""
    try:
        with path.open("rb") as file:
            header = decode_checked_line(file.readline())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(f"cannot read {path} ({error}): expected the output of a stage") from error
    return header if header is not None and isinstance(header.get("options"), dict) else {}


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
