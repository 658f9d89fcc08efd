"""Open a stored run: its tables and maps.

In: a folder written by `runs.score_clips`, whole or damaged: a table that cannot be read is an
`InputError` that names it, a map is left out of its clip. Out: a `StoredRun`. One clip of it, with
maps and sound, is in stored_maps.py.

Check the tables and descriptions in a run's folder.

In: files of a run, which may be damaged, of another version, or somebody else's. Out: their
content, each file read once, or an `InputError` that names the file, what it lacks and what to do.

Which models a run scored, with which weights and how many clips; and their maps, clip by clip.

In: a run that is open. Out: a `ScoredModel` for each model and twin.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from ...errors import InputError, SpeechmixError
from ...files.cache_keys import FileMark
from ...files.json_files import Json, JsonObject, read_json_object
from ...files.names import path_within
from ...files.parquet_files import read_parquet
from ...files.text_files import read_csv
from ...mixing.maps.mixing_map import MixingMap
from .clip_result_files import Owner, Part, open_part
from .run_folder import (
    ABLATION,
    BOUNDARIES,
    CONTRIBUTIONS,
    RUNNING,
    TRANSCRIPTS,
    RunFolder,
    RunState,
)
from .run_times import COLUMNS
from .score_files import read_scores
from .stored_maps import Maps, read_clip_maps, read_part_maps
from .tidy_tables import STRENGTH

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

    from ..scored_run import Run


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
    is_complete = bool(column.notna().all())
    return column.empty or (is_complete and pd.api.types.infer_dtype(column) == "string")


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


_MAX_MAP_BYTES = 2**28  # of maps kept in memory: word maps of any run, but not many frame maps


STOPPED = (
    "This run was stopped before its end: the tables are those of an earlier start, if there was "
    "one, and may lack clips whose "
    "maps are there. Start it again with the same options, and it goes on where it was."
)


class _ReadMaps:
    """Cache of maps that were read, as many as `_MAX_MAP_BYTES` hold; and why others cannot be
    read."""

    def __init__(self) -> None:
        self._maps: dict[Hashable, dict[tuple[str, str], MixingMap] | SpeechmixError] = {}
        self._bytes = 0

    def read(
        self, cache_key: Hashable, read: Callable[[], dict[tuple[str, str], MixingMap]]
    ) -> dict[tuple[str, str], MixingMap]:
        content = self._maps.get(
            cache_key
        )  # one look: another thread may begin anew before a second one
        if isinstance(content, SpeechmixError):
            raise content
        if content is not None:
            return content
        try:
            maps = read()
        except SpeechmixError as error:
            self._maps[cache_key] = error
            raise
        size = sum(mixing_map.scores.nbytes for mixing_map in maps.values())
        self._bytes += size
        if self._bytes > _MAX_MAP_BYTES:
            self._maps, self._bytes = {}, size
        self._maps[cache_key] = maps
        return maps


@dataclass(frozen=True, eq=False)
class StoredRun:
    """What a run left in its folder, as it was when it was opened (`open_run`).

    Attributes
    ----------
    folder : RunFolder
    description : dict
        Options, versions and state of the run; title and notes of its page.
    clips : DataFrame
        A row for each clip; all but seconds is text.
    contributions, ablation, transcripts, boundaries : DataFrame
        Tables of the run; empty where it has none.
    done : int
        (clip, model) pairs that were scored.
    skipped : list of dict
        clip, model, reason.
    """

    folder: RunFolder
    description: Mapping[str, Json]
    clips: pd.DataFrame
    contributions: pd.DataFrame
    ablation: pd.DataFrame
    transcripts: pd.DataFrame
    boundaries: pd.DataFrame
    done: int
    skipped: Sequence[Mapping[str, str]]
    _maps: _ReadMaps = field(default_factory=_ReadMaps, repr=False)

    @property
    def group(self) -> str | None:
        """Column of the clips that says which belong together, where the run was given one."""
        return self.description.get("group")

    @property
    def out(self) -> Path:
        """The folder's path."""
        return self.folder.path

    @property
    def scores(self) -> Dataset:
        """Every cell of every map, opened lazily: a `pyarrow.dataset.Dataset` with model, init,
        seed, measure and stack.

        Columns as in data_templates/tables.md. Nothing is read before it is needed, and then only
        those folders, columns and row groups that are needed.

        Raises
        ------
        InputError
            If the run has no scores (that of frames has `maps` alone), or they cannot be opened.

        Examples
        --------
        >>> import pyarrow.dataset as ds, speechmix
        >>> run = speechmix.open_run("runs/small")                                        # doctest: +SKIP
        >>> run.scores.to_table(filter=ds.field("stack") == "encoder").to_pandas()        # doctest: +SKIP
        """
        files = {name: mark for part in self.parts for name, mark in part.scores.items()}
        if not files and any(part.maps for part in self.parts):
            raise InputError(
                f"{self.out} is a run of frames, which has no table of cells: its maps are "
                "open_run(...).maps(clip)"
            )
        return read_scores(self.folder.scores_dir, files)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Part files that the tables are made of, also those of kinds that were computed alone.

        Raises
        ------
        InputError
            If one is damaged.
        """
        parts = []
        for name, mark in sorted(self.description["parts"].items()):
            path = path_within(self.out, name, where=self.folder.description_path)
            FileMark.read(mark).check(path)
            parts.append(open_part(path))
        named = {part.path for part in parts}
        parts += [
            open_part(path)
            for path in RunState(self.folder).job_parts()
            if path not in named and path.is_file()
        ]
        return tuple(parts)

    @cached_property
    def times(self) -> pd.DataFrame:
        """Where the time went, by model and phase: data_templates/tables.md has the columns."""
        return checked_times(self.folder)

    def read_part_maps(self, part: Part, clip: str) -> dict[tuple[str, str], MixingMap]:
        """Maps of a clip that lie in a part of this run; they are read the first time."""
        return self._maps.read((part.path, clip), lambda: read_part_maps(self.folder, part, clip))

    def maps(self, clip: str) -> Maps:
        """Maps of a clip by (model, init, seed) and (measure, stack); see `read_clip_maps`.

        Scores of frame maps stay in their files until they are used.

        Examples
        --------
        >>> import speechmix
        >>> maps = speechmix.open_run("runs/small").maps("livre_sg")                      # doctest: +SKIP
        >>> maps["openai/whisper-small", "trained", None]["value_zeroing", "encoder"]     # doctest: +SKIP
        """
        return read_clip_maps(self, clip)


def open_run(run: str | PathLike[str] | Run | StoredRun) -> StoredRun:
    """Read what a run left, each table once; its `done` and `skipped` as the run itself counted
    them.

    A run that was stopped before its end is opened with a warning.

    Parameters
    ----------
    run : path, Run or StoredRun
        The folder, or the run that was made there; one that is open already is returned as it is.

    Raises
    ------
    InputError
        If the folder holds no run, or one of its tables cannot be read.
    """
    if isinstance(run, StoredRun):
        return run
    folder = RunFolder(Path(run if isinstance(run, (str, PathLike)) else run.out))
    stopped = InputError(
        f"{folder.path} holds a run that was stopped before its tables were written: start it again"
    )
    if folder.description_path.is_file() and not folder.clips_path.is_file():
        raise stopped
    if not folder.description_path.is_file() or not folder.clips_path.is_file():
        raise InputError(
            f"{folder.path} holds no run: expected run.json and clips.csv, as `speechmix score` "
            "leaves them"
        )
    skipped, description = checked_reasons(folder), read_run_description(folder)
    if not isinstance(description.get("parts"), dict) or not isinstance(
        description.get("done"), int
    ):
        if description.get("state") == RUNNING:
            raise stopped
        raise damaged(
            folder.description_path,
            "the part files and the number of results that the tables are made of",
        )
    if description.get("state") == RUNNING:
        warnings.warn(f"{folder.path}: {STOPPED}", stacklevel=2)
    clips, tables = checked_clips(folder), checked_tables(folder)
    return StoredRun(
        folder,
        description,
        clips,
        tables[CONTRIBUTIONS],
        tables[ABLATION],
        tables[TRANSCRIPTS],
        tables[BOUNDARIES],
        done=description["done"],
        skipped=skipped,
    )


def list_versions(run: StoredRun) -> list[str]:
    """Return the versions of the packages that computed the results of a run, in alphabetical
    order.

    After an upgrade a run keeps what former versions computed.

    Examples
    --------
    >>> import speechmix
    >>> list_versions(speechmix.open_run("runs/small"))                           # doctest: +SKIP
    ['speechmix 0.1.0, transformers 5.23.0, torch 2.11.0, torchaudio 2.11.0, Python 3.11.9']
    """
    return sorted({version for part in run.parts for version in part.versions})


@dataclass(frozen=True)
class ScoredModel:
    """A model of a run.

    `weights` is the fingerprint, "" where it was not recorded; `clips` are the names of the clips
    that were scored.
    """

    name: str
    init: str
    seed: int | None
    weights: str
    clips: Sequence[str]
    _maps_of: Callable[[str], Mapping[tuple[str, str], MixingMap]]

    def maps(self, clip: str) -> Mapping[tuple[str, str], MixingMap]:
        """Maps of a clip by (measure, stack): those that can be read; none of a further twin, of
        which none are kept."""
        with suppress(SpeechmixError):
            return self._maps_of(clip)
        return {}


def scored_models(run: StoredRun) -> list[ScoredModel]:
    """Return the models of a run, trained ones before their twins."""
    return sorted(
        _list_part_models(run),
        key=lambda model: (model.name, model.init != "trained", model.seed or 0),
    )


def _list_part_models(run: StoredRun) -> list[ScoredModel]:
    by_owner: dict[Owner, list[Part]] = defaultdict(list)
    for part in run.parts:
        if part.owner.name is not None:
            by_owner[part.owner].append(part)
    return [_make_scored_model(run, owner, parts) for owner, parts in by_owner.items()]


def _make_scored_model(run: StoredRun, owner: Owner, parts: Sequence[Part]) -> ScoredModel:
    measures = pa.array(run.description.get("options", {}).get("measures", ()), pa.string())
    part_by_clip: dict[str, Part] = {}
    for part in parts:
        rows = part.read(("clip", "kind"))
        scored = rows.filter(pc.is_in(rows["kind"], value_set=measures))
        part_by_clip |= dict.fromkeys(scored["clip"].to_pylist(), part)
    return ScoredModel(
        owner.name or "",
        owner.init or "",
        owner.seed,
        owner.weights or "",
        list(part_by_clip),
        lambda clip: (
            run.read_part_maps(part_by_clip[clip], clip)
            if part_by_clip[clip].scores or part_by_clip[clip].maps
            else {}
        ),
    )
