"""Are the tables and descriptions in a run's folder what this package writes?

In: files of a run, which may be damaged, of another version, or somebody else's. Out: their content, or an `InputError` that
names the file, what it lacks and what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from ..errors import InputError
from ..files.json_files import read_json_object
from ..files.parquet_files import read_parquet
from ..files.text_files import read_csv

if TYPE_CHECKING:
    from .run import Run

# What the tables of a run must have, where they are there at all: columns of text, of whole numbers, and of numbers.
_TABLES = {
    "cue_contribution": (("clip", "model", "init", "stack", "measure", "rows"), ("layer",), ("contribution",)),
    "ablation": (("clip", "model", "init", "ablated"), (), ("right",)),
    "transcripts": (("clip", "model"), (), ("character_error_rate",)),
    "boundaries": (("clip", "model", "init", "stack", "measure", "rows", "boundaries"), ("layer",), ("contribution",)),
}


def check_tables(folder: Path) -> None:
    """Check the tables that a run's page is made of.

    Raises
    ------
    InputError
        If one is damaged.
    """
    path = folder / "clips.csv"
    clips = read_csv(path)
    _check_columns(path, clips, ("clip", "text", "seconds"), (), ())
    try:
        seconds = clips["seconds"].astype(float)
    except ValueError as error:
        raise damaged(path, f"a column seconds of numbers, found {error}") from error
    if not (seconds > 0).all() or clips["clip"].duplicated().any() or (clips["clip"] == "").any():
        raise damaged(path, "a length above 0 and a name of its own for each clip")
    for name, columns in _TABLES.items():
        path = folder / f"{name}.parquet"
        if path.is_file():
            _check_columns(path, read_parquet(path), *columns)


def _check_columns(
    path: Path, table: pd.DataFrame, texts: Sequence[str], whole: Sequence[str], numbers: Sequence[str]
) -> None:
    wanted = (*texts, *whole, *numbers, *(["seed"] if "init" in texts else []))
    missing = [name for name in wanted if name not in table]
    if missing or not table.columns.is_unique:
        raise damaged(
            path, f"each of the columns {', '.join(wanted)} once, found {', '.join(map(str, table.columns[:40]))}"
        )
    wrong = [name for name in texts if not table[name].map(lambda cell: isinstance(cell, str)).all()]
    wrong += [name for name in whole if table[name].dtype.kind not in "iu" or table[name].lt(0).any()]
    wrong += [name for name in numbers if table[name].dtype.kind not in "biuf"]
    if wrong:
        raise damaged(path, f"other values in the columns {', '.join(wrong)}")


def described_run(run: Run) -> dict[str, Any]:
    """Options, versions and state of a run, and its kind (title and notes of the page that was written at its end).

    Raises
    ------
    InputError
        If these files are damaged.
    """
    description: dict[str, Any] = {}
    wanted = {"options": dict, "state": str, "title": str, "notes": list}
    for name in ("run.json", "report.json"):
        path = run.out / name
        if not path.is_file():
            continue
        content = read_json_object(path)
        wrong = [key for key, kind in wanted.items() if not isinstance(content.get(key, kind()), kind)]
        if wrong or not all(isinstance(note, str) for note in content.get("notes", [])):
            raise damaged(path, f"other values for {', '.join(wrong) or 'notes'}")
        if isinstance(content.get("standing"), dict) and isinstance(content["standing"].get("options"), dict):
            content["options"] = content["standing"]["options"]  # the run was stopped: its tables are of before
        description |= content
    return description


def damaged(path: Path, expected: str) -> InputError:
    """Return the error for a file of a run."""
    return InputError(
        f"{path} is damaged or of another version: expected {expected}. Score the clips again into this folder"
    )
