"""A manifest lists many clips: one row a clip, with its audio, text, words, cue and target.

In: a .tsv, .csv or .jsonl file. Out: a list of `Clip`s whose audio is read when it is asked for. Everything that would
stop a long run later (missing files, a cue that is no word) is reported while the manifest is read.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator
from os import PathLike
from pathlib import Path

from .clips import Clip
from .errors import InputError
from .text_files import read_table, read_text

COLUMNS = ("path", "text", "words", "cue", "target", "foil", "language", "name")

OnError = str | Callable[[int, str, InputError], None]


def read_clips(
    manifest: str | PathLike, *, tier: str | None = None, allow_outside: bool = False, on_error: OnError = "raise"
) -> list[Clip]:
    """Clips of a manifest, in its order; the audio is read lazily.

    Columns: path (required), text, words, cue, target, foil, language, name; others are kept in `Clip.meta`. Relative paths
    count from the manifest's folder. `words` is the path of a word file, or in JSONL also a list of [text, start, end].
    `cue` and `target` are a word ("les"), a word and which of its occurrences ("les:2"), or an index from 0 ("3",
    unless there is a word "3"). A name that occurs twice gets "-2" behind it.

    Parameters
    ----------
    manifest : path ending in .tsv, .csv or .jsonl
    tier : str, optional
        Which tier of the TextGrids holds the words.
    allow_outside : bool
        Let paths lead out of the manifest's folder (links followed). Off, because a manifest may come from others.
    on_error : "raise", "skip" or callable
        What to do with a row that cannot be used: stop; leave it out and warn once with the count and the first
        reasons; or leave it out and call ``on_error(row, name, error)``, with the row as an editor counts it (the
        header of a table is row 1) and the name or path of the clip as far as it is known.

    Raises
    ------
    InputError
        If the manifest cannot be read, has no path column or no rows; with "raise", for the first unusable row.
    """
    manifest = Path(manifest)
    if not (callable(on_error) or on_error in ("raise", "skip")):
        raise InputError(f'on_error must be "raise", "skip" or a function of row, name and error, found {on_error!r}')
    folder = manifest.parent.resolve()
    clips: list[Clip] = []
    taken: set[str] = set()
    skipped: list[str] = []
    rows = 0
    for row, cells in _rows(manifest):
        rows += 1
        try:
            if isinstance(cells, InputError):
                raise cells
            clip = _clip(cells, folder, tier, allow_outside)
        except InputError as error:
            located = InputError(f"{manifest}, row {row}: {error}")
            if on_error == "raise":
                raise located from error
            skipped.append(str(located))
            if callable(on_error):
                known = cells if isinstance(cells, dict) else {}
                on_error(row, str(known.get("name") or known.get("path") or ""), located)
            continue
        clip.name = _unused(clip.name, taken)
        clips.append(clip)
    if not rows:
        raise InputError(f"{manifest}: expected at least one row with a clip, found none")
    if skipped and on_error == "skip":
        reasons = "\n  ".join(skipped[:5])
        warnings.warn(f"{manifest}: {len(skipped)} of {rows} rows left out:\n  {reasons}", stacklevel=2)
    return clips


def _rows(manifest: Path) -> Iterator[tuple[int, dict | InputError]]:
    suffix = manifest.suffix.lower()
    if suffix in (".tsv", ".csv"):
        return read_table(manifest, required=("path",))
    if suffix == ".jsonl":
        return _json_rows(manifest)
    raise InputError(f"{manifest}: expected a manifest ending in .tsv, .csv or .jsonl, found {suffix!r}")


def _json_rows(manifest: Path) -> Iterator[tuple[int, dict | InputError]]:
    for row, line in enumerate(read_text(manifest).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            cells = json.loads(line)
        except ValueError as error:
            yield row, InputError(f"not valid JSON ({error})")
            continue
        if isinstance(cells, dict):
            yield row, {key: value for key, value in cells.items() if value is not None and value != ""}
        else:
            yield row, InputError(f"expected a JSON object, found {type(cells).__name__}")


def _clip(cells: dict, folder: Path, tier: str | None, allow_outside: bool) -> Clip:
    if "path" not in cells:
        raise InputError(f"expected a path, found only {sorted(cells)}")
    words = cells.get("words")
    if isinstance(words, list):
        from .alignment.readers import words_from_items  # a later room: only when there are words to read

        words = words_from_items(words, where="words")
    elif words is not None:
        words = _inside(words, folder, allow_outside)
    for column in ("text", "foil", "language", "name"):
        if not isinstance(cells.get(column, ""), str):
            raise InputError(f"expected {column} to be a string, found {cells[column]!r}")
    return Clip.from_file(
        _inside(cells["path"], folder, allow_outside),
        words=words,
        tier=tier,
        meta={key: _as_text(value) for key, value in cells.items() if key not in COLUMNS},
        **{column: cells.get(column) for column in ("text", "cue", "target", "foil", "language", "name")},
    )


def _inside(path: object, folder: Path, allow_outside: bool) -> Path:
    """Path of a file named in the manifest; refused if it leads out of the manifest's folder, links followed."""
    if not isinstance(path, str):
        raise InputError(f"expected a path as a string, found {path!r}")
    try:
        found = (folder / path).resolve()
    except (OSError, ValueError, RuntimeError) as error:  # a null byte, a loop of links
        raise InputError(f"not a usable path: {path!r} ({error})") from error
    if not allow_outside and not found.is_relative_to(folder):
        raise InputError(
            f"path {path!r} leads out of the manifest's folder: move the file there, "
            "or say allow_outside=True (--allow-outside) if you trust this manifest"
        )
    # Not the resolved path: a clip is named after its link, and links may point at names without an ending.
    return folder / path


def _unused(name: str, taken: set[str]) -> str:
    """Return the name, with a number behind it if it is taken; capitals do not tell two file names apart everywhere."""
    unused, number = name, 1
    while unused.casefold() in taken:
        number += 1
        unused = f"{name}-{number}"
    taken.add(unused.casefold())
    return unused


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
