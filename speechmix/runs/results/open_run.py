"""Open a stored run: its tables and maps.

In: a folder written by `runs.score_clips`, whole or damaged: a table that cannot be read is an
`InputError` that names it, a map is left out of its clip. Out: a `StoredRun`. One clip of it, with
maps and sound, is in stored_clips.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from ...errors import InputError, SpeechmixError
from ...files.file_fingerprints import FileMark
from ...files.json_files import Json
from ...files.names import path_within
from ...mixing.maps.mixing_map import MixingMap
from .checked_tables import (
    checked_clips,
    checked_reasons,
    checked_tables,
    checked_times,
    damaged,
    read_run_description,
)
from .clip_result_files import Part, open_part
from .run_folder import ABLATION, BOUNDARIES, CONTRIBUTIONS, TRANSCRIPTS, RunFolder
from .run_state import RUNNING, RunState
from .score_rows import read_scores
from .stored_clips import Maps, read_clip_maps
from .stored_maps import read_part_maps

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

    from ..scored_run import Run

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
