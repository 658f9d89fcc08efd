"""A stage of a long job: one item after the other, one line each, stopped and resumed at any point.

In: items and the work to do on one. Out: a JSON-lines file

    {"stage", "options", "versions", ...}            first line: how it was made
    {"key", (ingredients,) result or why, "sum"}     a line an item, in their order, with a checksum of itself
    {"end", "inputs", "versions", "sum"}             last line: how many items, and of which inputs

While the stage runs the file is called `<name>.unfinished`; it gets its name when it is complete, so an output is whole or not
there. A stopped stage loses at most the item at hand. At each start lines are used again if item and ingredients are
still the same; the others are made again, and damaged ones too. What a stage has in the end does not depend on its past.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from ..errors import InputError, SpeechmixError, StorageError
from ..files.locks import writing_to
from ..versions import package_versions

_SUM = b', "sum": "'


class LeftOut(SpeechmixError):
    """An item that a stage leaves out, with the kind of reason ("missing clip"), the reason, and what else to note."""

    def __init__(self, why: str, reason: str, **noted: Any):
        super().__init__(reason)
        self.why, self.noted = why, noted


def run_stage(
    path: Path,
    items: Iterable[tuple[str, Any]],
    work: Callable[[Any], dict[str, Any]],
    *,
    options: dict[str, Any],
    ingredients: Callable[[Any, dict[str, Any]], dict[str, Any]] = lambda item, stored: {},
    unimportant: tuple[str, ...] = (),
    inputs: dict[str, Any] | None = None,
    why: str = "cannot be used",
    overwrite: bool = False,
    progress: bool = False,
) -> Path:
    """Do a stage, or what is left of it.

    Parameters
    ----------
    path : Path
        Its output, ending in .jsonl.
    items : iterable of (key, item)
    work : callable
        Item -> what to keep of it. An error of this package drops the item; any other stops the stage.
    options : dict
        What decides the result of every item. An output made with others is not mixed with this one.
    ingredients : callable
        (item, stored line or {}) -> what decides the result of this item; kept in its line, which is used again only if it
        is the same.
    unimportant : tuple of str
        Names of ingredients that may change (a file's time, where its content has a hash of its own).
    inputs : dict, optional
        Which inputs the items are of, for `inputs_of`.
    why : str
        Kind of reason for errors that are not `LeftOut`.
    overwrite : bool
        Start afresh if there is an output made with other options.

    Returns
    -------
    Path
        `path`.

    Raises
    ------
    InputError
        If there is an output made with other options.
    StorageError
        If another process writes to the folder, or the disk is full.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "lengths.jsonl"
    >>> _ = run_stage(path, [("a", "le"), ("b", "livres")], lambda text: {"length": len(text)}, options={})
    >>> [line["length"] for line in kept(path)]
    [2, 6]
    """
    options = json.loads(json.dumps(options, default=str))
    with writing_to(path.parent):
        unfinished = path.with_name(f"{path.name}.unfinished")
        for stored_file in (path, unfinished):
            _refuse_others(stored_file, options, overwrite)
        header = {"stage": path.stem, "options": options, "versions": package_versions()}

        def made(key: str, item: Any, stored: dict[str, Any] | None) -> dict[str, Any]:
            """Return the line of an item: the stored one if it is of the same ingredients, or its work done."""
            asked = json.loads(json.dumps(ingredients(item, stored or {}), default=str))
            if stored and all(stored.get(name) == asked[name] for name in asked if name not in unimportant):
                return {**stored, **asked}
            try:
                return {"key": key, **asked, **work(item)}
            except StorageError:
                raise
            except SpeechmixError as error:
                noted = getattr(error, "noted", {})
                return {"key": key, **asked, "why": getattr(error, "why", why), "reason": str(error), **noted}
            except Exception as error:
                error.add_note(f"at {key!r} of the stage {path.stem}; what is done so far is kept in {unfinished}")
                raise

        with _Former(path) as former, _reopened(unfinished, header) as file:
            count = _go_on(file, _shown(items, path.stem, progress), made, former)
            file.write(_checked({"end": count, "inputs": inputs or {}, "versions": package_versions()}))
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    return path


def _go_on(file: BinaryIO, items: Iterable[tuple[str, Any]], made: Callable, former: _Former) -> int:
    """Write the lines that the unfinished file lacks, behind those that still stand; returns how many items there are."""
    count, whole, standing = 0, file.tell(), True
    for key, item in items:
        stored = _line(file.readline()) if standing else None
        stored = stored if stored and stored.get("key") == key else None
        line = made(key, item, stored or former.line_of(key))
        count += 1
        if standing and line == stored:
            whole = file.tell()
            continue
        if standing:  # what follows was cut off, or is of other items
            standing = False
            file.seek(whole)
            file.truncate()
        file.write(_checked(line))
        file.flush()
    if standing:
        file.seek(whole)
        file.truncate()
    return count


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
                last = _line(text)
                if last is None or ended or not last.keys() & {"key", "end"}:
                    raise InputError(f"{path}, line {number}, is damaged: run the stage again, and it is made again")
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
    count_kept = whys.pop("", 0)
    reasons = ", ".join(f"{why} {count}" for why, count in whys.most_common())
    return f"{path.stem}: {count_kept} kept, {whys.total()} dropped{f' ({reasons})' if reasons else ''}; {path}"


def options_of(path: Path) -> dict[str, Any]:
    """Options that an output was made with."""
    return _header(path).get("options", {})


def inputs_of(path: Path) -> dict[str, Any]:
    """Inputs that a complete output is of."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 2**16))
            text = file.read().splitlines(keepends=True)
    except OSError as error:
        raise InputError(f"cannot read {path} ({error}): run the stage first") from error
    return (_line(text[-1]) or {}).get("inputs", {}) if text else {}


def input_digest(path: Path, *names: str) -> str:
    """Short hash of what a later stage reads of an output: these entries of the items kept."""
    found = hashlib.sha256()
    for line in kept(path):
        found.update(json.dumps([line.get(name) for name in ("key", *names)], ensure_ascii=False).encode("utf-8"))
    return found.hexdigest()[:16]


class _Former:
    """Lines of an earlier, complete output, by key: one after the other while the items are in the same order."""

    def __init__(self, path: Path):
        self._file = path.open("rb") if path.is_file() else None
        self._places: dict[str, int] | None = None
        if self._file is not None:
            self._file.readline()

    def line_of(self, key: str) -> dict[str, Any] | None:
        """Return the line of a key; None if there is none, or it is damaged."""
        if self._file is None:
            return None
        if self._places is None:
            line = _line(self._file.readline())
            if line is not None and line.get("key") == key:
                return line
            self._places = self._all_places()
        if key not in self._places:
            return None
        self._file.seek(self._places[key])
        return _line(self._file.readline())

    def _all_places(self) -> dict[str, int]:
        self._file.seek(0)
        place = len(self._file.readline())
        places = {}
        for text in self._file:
            line = _line(text)
            if line is not None and "key" in line:
                places[line["key"]] = place
            place += len(text)
        return places

    def __enter__(self) -> _Former:
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()


def _checked(line: dict[str, Any]) -> bytes:
    """Return a line with its checksum, as it is written."""
    text = json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace")
    return text[:-1] + _SUM + _sum(text) + b'"}\n'


def _line(text: bytes) -> dict[str, Any] | None:
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


def _header(path: Path) -> dict[str, Any]:
    """First line of an output; nothing if there is no such file, or the line is damaged."""
    try:
        with path.open("rb") as file:
            header = _line(file.readline())
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(f"cannot read {path} ({error}): expected the output of a stage") from error
    return header if header is not None and isinstance(header.get("options"), dict) else {}


def _refuse_others(path: Path, options: dict[str, Any], overwrite: bool) -> None:
    """Refuse an output made with other options, or remove it if it may be overwritten; one without a header is set aside."""
    if not path.is_file():
        return
    header = _header(path)
    if not header:
        if path.stat().st_size and not path.name.endswith(".unfinished"):
            aside = path.with_name(f"{path.name}.damaged")
            os.replace(path, aside)
            warnings.warn(
                f"{path} is damaged (or of an older version): set aside as {aside.name} and made again", stacklevel=3
            )
            return
        path.unlink()
    elif header["options"] != options:
        if not overwrite:
            raise InputError(
                f"{path} was made with other options ({_difference(header['options'], options)}): "
                "choose another folder, or overwrite it"
            )
        path.unlink()


def _difference(found: dict, wanted: dict) -> str:
    names = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
    return "; ".join(f"{name}: {found.get(name)!r}, now {wanted.get(name)!r}" for name in names)[:500]


def _reopened(unfinished: Path, header: dict[str, Any]):
    """Open the unfinished output, made if it is not there, behind its first line."""
    if not unfinished.is_file():
        unfinished.write_bytes(_checked(header))
    file = unfinished.open("r+b")
    file.readline()
    return file


def _shown(items: Iterable, name: str, progress: bool) -> Iterable:
    if not progress:
        return items
    from tqdm.auto import tqdm

    return tqdm(items, desc=name, unit=" clips", smoothing=0.05)
