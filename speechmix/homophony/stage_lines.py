"""Lines of a stage's output: written with checksums, read again, counted.

In: a JSON-lines file as `speechmix.homophony.journal` writes it. Out: its lines, if it is whole; its options and inputs; a
digest of what a later stage reads of it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import InputError

_SUM = b', "sum": "'


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Lines of a complete output, dropped items included, without the first and the last.

    Raises
    ------
    InputError
        If the stage was not done, or not to its end, or the file is damaged.
    """
    if not path.is_file():
        state = "was stopped before its end" if path.with_name(f"{path.name}.unfinished").is_file() else "was not done"
        raise InputError(f"the stage {path.stem} {state} in {path.parent}: run it first")
    last: dict[str, Any] = {}
    count = 0
    try:
        with path.open("rb") as file:
            file.readline()
            for number, text in enumerate(file, start=2):
                ended = "end" in last
                if last and not ended:
                    yield last
                    count += 1
                line = line_of(text)
                if line is None or ended or not line.keys() & {"key", "end"}:
                    raise InputError(f"{path}, line {number}, is damaged: run the stage again, and it is made again")
                last = line
    except OSError as error:
        raise InputError(f"cannot read {path} ({error})") from error
    if "end" not in last:
        raise InputError(f"{path} ends too early (or was written by an older version): run the stage again")
    if last["end"] != count:
        raise InputError(f"{path}: expected {last['end']} items, found {count}: it is damaged, run the stage again")


def kept(path: Path) -> Iterator[dict[str, Any]]:
    """Lines of a complete output that were not dropped."""
    return (line for line in lines(path) if "why" not in line)


def counted(path: Path) -> str:
    """Return one line that counts what a stage kept and why it dropped the rest.

    Examples
    --------
    >>> counted(Path("study/pairs.jsonl"))        # doctest: +SKIP
    'pairs: 812 kept, 190 dropped (no pair 187, missing clip 3); study/pairs.jsonl'
    """
    whys = Counter(line.get("why", "") for line in lines(path))
    n_kept = whys.pop("", 0)
    reasons = ", ".join(f"{why} {count}" for why, count in whys.most_common())
    return f"{path.stem}: {n_kept} kept, {whys.total()} dropped{f' ({reasons})' if reasons else ''}; {path}"


def options_of(path: Path) -> dict[str, Any]:
    """Options that an output was made with."""
    return header_of(path).get("options", {})


def inputs_of(path: Path) -> dict[str, Any]:
    """Inputs that a complete output is of."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 2**16))
            text = file.read().splitlines(keepends=True)
    except OSError as error:
        raise InputError(f"cannot read {path} ({error}): run the stage first") from error
    return (line_of(text[-1]) or {}).get("inputs", {}) if text else {}


def input_digest(path: Path, *names: str) -> str:
    """Short hash of what a later stage reads of an output: these entries of the items kept."""
    entries = hashlib.sha256()
    for line in kept(path):
        entries.update(json.dumps([line.get(name) for name in ("key", *names)], ensure_ascii=False).encode("utf-8"))
    return entries.hexdigest()[:16]


def checked(line: dict[str, Any]) -> bytes:
    """Return a line with its checksum, as it is written."""
    text = json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace")
    return text[:-1] + _SUM + _sum(text) + b'"}\n'


def line_of(text: bytes) -> dict[str, Any] | None:
    """Return a line as it was written; None if it is not whole or was changed."""
    start, mark, end = text.rpartition(_SUM)
    if not mark or not text.endswith(b'"}\n') or end[:-3] != _sum(start + b"}"):
        return None
    try:
        line = json.loads(start + b"}")
    except (ValueError, RecursionError):
        return None
    return line if isinstance(line, dict) else None


def _sum(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=8).hexdigest().encode("ascii")


def header_of(path: Path) -> dict[str, Any]:
    """First line of an output; nothing if there is no such file, or the line is damaged."""
    try:
        with path.open("rb") as file:
            header = line_of(file.readline())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(f"cannot read {path} ({error}): expected the output of a stage") from error
    return header if header is not None and isinstance(header.get("options"), dict) else {}
