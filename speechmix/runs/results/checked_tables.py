"""Check the tables and descriptions in a run's folder.

In: files of a run, which may be damaged, of another version, or somebody else's. Out: their
content, each file read once, or an `InputError` that names the file, what it lacks and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from ...errors import InputError
from ...files.json_files import JsonObject, read_json_object
from ...files.parquet_files import read_parquet
from ...files.text_files import read_csv
from .run_folder import ABLATION, BOUNDARIES, CONTRIBUTIONS, TRANSCRIPTS, RunFolder
from .run_times import COLUMNS
from .tidy_tables import STRENGTH

# What the tables of a run must have, where they are there at all: columns of text, of whole
# numbers, and of numbers.
_TABLES: dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]] = {
    CONTRIBUTIONS: (
        ("clip", "model", "init", "stack", "measure", "rows"),
        ("layer",),
        ("depth", "contribution", STRENGTH),
    ),
    ABLATION: (("clip", "model", "init", "ablated", "source"), (), ("layer", "right")),
    TRANSCRIPTS: (("clip", "model"), (), ("character_error_rate",)),
    BOUNDARIES: (
        ("clip", "model", "init", "stack", "measure", "rows", "boundaries"),
        ("layer",),
        ("contribution",),
    ),
}
# Read as categories where there is a row for each clip, layer, model and measure.
_CATEGORIES = ("clip", "fingerprint", "model", "init", "cue", "target", "stack", "measure", "rows")
_REASON = ("clip", "model", "reason")


def checked_clips(folder: RunFolder) -> pd.DataFrame:
    """Return the table of clips; all but seconds is text, for names may look like numbers ("001").

    InputError if it is damaged.
    """
    clips = read_csv(folder.clips_path)
    _check_columns(
        folder.clips_path,
        clips,
        ("clip", "text", "seconds", "cue", "target", "foil", "sound"),
        (),
        (),
    )
    try:
        clips = clips.astype({"seconds": float})
    except ValueError as error:
        raise damaged(folder.clips_path, f"a column seconds of numbers, found {error}") from error
    if (
        not (clips["seconds"] > 0).all()
        or clips["clip"].duplicated().any()
        or (clips["clip"] == "").any()
    ):
        raise damaged(folder.clips_path, "a length above 0 and a name of its own for each clip")
    return clips


def checked_tables(folder: RunFolder) -> dict[str, pd.DataFrame]:
    """Return the tables that a page is made of, by name; one that is not there is empty.

    InputError if one is damaged.
    """
    tables = {name: pd.DataFrame() for name in _TABLES}
    for name, columns in _TABLES.items():
        path = folder.table_path(name)
        if path.is_file():
            tables[name] = read_parquet(
                path, categories=_CATEGORIES if name == CONTRIBUTIONS else ()
            )
            _check_columns(path, tables[name], *columns)
    return tables


def checked_reasons(folder: RunFolder) -> list[dict[str, str]]:
    """Return what was left out: clip, model, reason; InputError if the table is damaged."""
    if not folder.skipped_path.is_file():
        return []
    table = read_csv(folder.skipped_path)
    if len(table) and set(table) != set(_REASON):
        raise damaged(
            folder.skipped_path,
            f"the columns clip, model and reason, found {', '.join(map(str, table))}",
        )
    return [{name: row[name] for name in _REASON} for row in table.to_dict("records")]


def checked_times(folder: RunFolder) -> pd.DataFrame:
    """Return where the time of a run went; nothing if the table is not there.

    InputError if it is damaged.
    """
    if not folder.times_path.is_file():
        return pd.DataFrame(columns=[*COLUMNS])
    table = read_csv(folder.times_path)
    if any(name not in table for name in COLUMNS):
        raise damaged(
            folder.times_path,
            f"the columns {', '.join(COLUMNS)}, found {', '.join(map(str, table))}",
        )
    try:
        return table.astype({"seconds": float, "clips": int})
    except ValueError as error:
        raise damaged(
            folder.times_path, f"columns seconds and clips of numbers, found {error}"
        ) from error


def _check_columns(
    path: Path,
    table: pd.DataFrame,
    texts: Sequence[str],
    integer_columns: Sequence[str],
    numbers: Sequence[str],
) -> None:
    expected = (*texts, *integer_columns, *numbers, *(["seed"] if "init" in texts else []))
    if not table.columns.is_unique or any(name not in table for name in expected):
        columns = ", ".join(map(str, table.columns[:40]))
        raise damaged(path, f"each of the columns {', '.join(expected)} once, found {columns}")
    wrong = [name for name in texts if not _has_texts(table[name])]
    wrong += [
        name
        for name in integer_columns
        if table[name].dtype.kind not in "iu" or table[name].lt(0).any()
    ]
    wrong += [name for name in numbers if table[name].dtype.kind not in "biuf"]
    if wrong:
        raise damaged(path, f"other values in the columns {', '.join(wrong)}")


def _has_texts(column: pd.Series) -> bool:
    if isinstance(column.dtype, pd.CategoricalDtype):
        return bool(column.notna().all()) and _has_texts(column.cat.categories.to_series())
    return bool(column.map(lambda cell: isinstance(cell, str)).all())


def _is_selection_entry(facts: JsonObject) -> bool:
    """Whether it is what `french.stage_counts.read_selection_metadata` returns: counts of stages, and error
    rates of models."""
    stages, models = facts.get("stages", []), facts.get("models", [])
    if not isinstance(stages, list) or not isinstance(models, list):
        return False
    counted = all(
        isinstance(row, list) and [type(cell) for cell in row] == [str, str, str, int]
        for row in stages
    )
    rates = ("transcribed_clips", "transcribed_wer_percent", "transcribed_cer_percent")
    rated = all(
        isinstance(row, dict)
        and isinstance(row.get("model"), str)
        and all(type(row.get(name)) is float for name in rates)
        for row in models
    )
    return counted and rated


def read_run_description(folder: RunFolder) -> JsonObject:
    """Return options, versions and state of a run, and title and notes of the page written at its
    end.

    InputError if these files are damaged.
    """
    description: JsonObject = {}
    kinds = {
        "options": dict,
        "state": str,
        "group": str,
        "title": str,
        "notes": list,
        "parts": dict,
        "selection": dict,
    }
    for path in (folder.description_path, folder.page_description_path):
        if not path.is_file():
            continue
        content = read_json_object(path)
        wrong = [
            key for key, kind in kinds.items() if not isinstance(content.get(key, kind()), kind)
        ]
        if not all(isinstance(note, str) for note in content.get("notes", [])):
            wrong.append("notes")
        if "selection" not in wrong and not _is_selection_entry(content.get("selection", {})):
            wrong.append("selection")
        if wrong:
            raise damaged(path, f"other values for {', '.join(wrong)}")
        if isinstance(content.get("standing"), dict) and isinstance(
            content["standing"].get("options"), dict
        ):
            content["options"] = content["standing"][
                "options"
            ]  # the run was stopped: its tables are of before
        description |= content
    return description


def damaged(path: Path, expected: str) -> InputError:
    """Return the error for a file of a run."""
    return InputError(
        f"{path} is damaged or of another version: expected {expected}. Score the clips again into "
        "this folder"
    )
