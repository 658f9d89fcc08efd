"""A run's folder, read back: its tables, its clips with their sound, and their maps; every file once.

In: a folder written by `experiments.run`, whole or damaged: a table that cannot be read is an `InputError` that names it, a map
is left out of its clip. Out: a `StoredRun`. Audio is where the clip table says, or in a folder that is given (a run that was
made on another machine): a file named like the clip, or like its audio file.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from ..errors import InputError, SpeechmixError
from ..files.names import safe_name
from ..inputs.clips import Clip
from ..maps.mixing import MixingMap
from .checked_tables import checked_clips, checked_reasons, checked_tables, checked_times, described_run
from .folder import (
    ABLATION,
    BOUNDARIES,
    CONTRIBUTIONS,
    RUNNING,
    SCORES,
    TRANSCRIPTS,
    RunFolder,
    clip_folders,
    map_files,
)
from .part_files import Part, opened_part
from .score_files import scores_in
from .stored_maps import checked_map, maps_in_part

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset

    from .run import Run

ModelKey = tuple[str, str, int | None]  # name, init, seed
Maps = dict[ModelKey, dict[tuple[str, str], MixingMap]]
_SOUNDS = (".wav", ".flac", ".ogg", ".mp3")
_MOST_BYTES = 2**28  # of maps kept in memory: word maps of any run, but not many frame maps


STOPPED = (
    "This run was stopped before its end: the tables are those of an earlier start, if there was one, and may lack clips whose "
    "maps are there. Start it again with the same options, and it goes on where it was."
)


class _ReadMaps:
    """Maps that were read, kept for the next who asks, as many as `_MOST_BYTES` hold; and why others cannot be read."""

    def __init__(self) -> None:
        self._maps: dict[Hashable, dict[tuple[str, str], MixingMap] | SpeechmixError] = {}
        self._bytes = 0

    def read(
        self, place: Hashable, read: Callable[[], dict[tuple[str, str], MixingMap]]
    ) -> dict[tuple[str, str], MixingMap]:
        if place not in self._maps:
            try:
                maps = read()
            except SpeechmixError as error:
                self._maps[place] = error
                raise
            size = sum(mixing_map.scores.nbytes for mixing_map in maps.values())
            self._bytes += size
            if self._bytes > _MOST_BYTES:
                self._maps, self._bytes = {}, size
            self._maps[place] = maps
        content = self._maps[place]
        if isinstance(content, SpeechmixError):
            raise content
        return content


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
    description: Mapping[str, Any]
    clips: pd.DataFrame
    contributions: pd.DataFrame
    ablation: pd.DataFrame
    transcripts: pd.DataFrame
    boundaries: pd.DataFrame
    done: int
    skipped: Sequence[Mapping[str, str]]
    _maps: _ReadMaps = field(default_factory=_ReadMaps, repr=False)

    @property
    def out(self) -> Path:
        """The folder's path."""
        return self.folder.path

    @property
    def scores(self) -> Dataset:
        """Every cell of every map, opened lazily: a `pyarrow.dataset.Dataset` with model, init, seed, measure and stack.

        Columns as in data_templates/tables.md. Nothing is read before it is asked for, and then only those folders, columns
        and row groups that are needed.

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
        files = [name for part in self.parts for name in part.scores] if self.parts else None
        if files == [] and any(part.maps for part in self.parts):
            raise InputError(
                f"{self.out} is a run of frames, which has no table of cells: its maps are open_run(...).maps(clip)"
            )
        return scores_in(self.folder.scores, files, self.folder.table(SCORES))

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """Part files that the tables are made of; none in a run of an earlier version."""
        return tuple(opened_part(self.out / name) for name in sorted(self.description.get("parts", ())))

    @cached_property
    def times(self) -> pd.DataFrame:
        """Where the time went, by model and phase: data_templates/tables.md has the columns."""
        return checked_times(self.folder)

    def read_map(self, path: Path) -> MixingMap:
        """Return a map of this run, as `read_map` does; the file is read the first time."""
        (mixing_map,) = self._maps.read(path, lambda: {("", ""): read_map(path)}).values()
        return mixing_map

    def maps_in_part(self, part: Part, clip: str) -> dict[tuple[str, str], MixingMap]:
        """Maps of a clip that lie in a part of this run; they are read the first time."""
        return self._maps.read((part.path, clip), lambda: maps_in_part(self.folder, part, clip))

    def maps(self, clip: str) -> Maps:
        """Maps of a clip by (model, init, seed) and (measure, stack); see `maps_of_clip`.

        Scores of frame maps stay in their files until they are used.

        Examples
        --------
        >>> import speechmix
        >>> maps = speechmix.open_run("runs/small").maps("livre_sg")                      # doctest: +SKIP
        >>> maps["openai/whisper-small", "trained", None]["value_zeroing", "encoder"]     # doctest: +SKIP
        """
        return maps_of_clip(self, clip)


def open_run(run: str | PathLike | Run | StoredRun) -> StoredRun:
    """Read what a run left, each table once; its `done` and `skipped` as the run itself counted them.

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
    if folder.description.is_file() and not folder.clips.is_file():
        raise InputError(f"{folder.path} holds a run that was stopped before its tables were written: start it again")
    if not folder.description.is_file() or not folder.clips.is_file():
        raise InputError(
            f"{folder.path} holds no run: expected run.json and clips.csv, as `speechmix score` leaves them"
        )
    skipped, description = checked_reasons(folder), described_run(folder)
    done = description.get("done")
    if description.get("state") == RUNNING:
        warnings.warn(f"{folder.path}: {STOPPED}", stacklevel=2)
    clips, tables = checked_clips(folder), checked_tables(folder)
    return StoredRun(
        folder, description, clips, tables[CONTRIBUTIONS], tables[ABLATION], tables[TRANSCRIPTS], tables[BOUNDARIES],
        done=done if isinstance(done, int) else sum(1 for _ in _scored(folder)), skipped=skipped,
    )  # fmt: skip


def _scored(folder: RunFolder) -> Iterator[Path]:
    """Folders of the (clip, model) pairs that have maps."""
    return (clip for model in folder.map_folders() for clip in clip_folders(model) if clip.suffix != ".part")


def read_map(path: Path) -> MixingMap:
    """Read a map of a run of an earlier version, which kept each in a file.

    Raises
    ------
    InputError
        If the file is damaged, or does not say of which model and clip it is.
    """
    return checked_map(MixingMap.load(path), path)


def maps_of_clip(run: StoredRun, name: str, *, unreadable: list[str] | None = None) -> Maps:
    """Maps of a clip by (model, init, seed) and (measure, stack): trained models and one random twin of each.

    Parameters
    ----------
    run : StoredRun
    name : str
    unreadable : list, optional
        Gets the reason for each map that is left out because it cannot be read; without it there is a warning.
    """
    by_model: Maps = {}
    reasons: list[str] = []
    fingerprint = str(clip_row(run, name).get("fingerprint") or "")
    for maps in _maps_by_model(run, name, fingerprint, reasons):
        provenance = next(iter(maps.values())).provenance
        key = (provenance["model"], provenance["init"], provenance.get("seed"))
        twin = next((other for other in by_model if other[:2] == key[:2] == (key[0], "random")), None)
        if twin is not None:
            if (twin[2] or 0) <= (key[2] or 0):
                continue
            del by_model[twin]
        by_model[key] = maps
    if unreadable is not None:
        unreadable += reasons
    elif reasons:
        warnings.warn(f"{len(reasons)} maps of {name!r} are left out: {reasons[0]}", stacklevel=2)
    return dict(sorted(by_model.items(), key=lambda item: (item[0][0], item[0][1] != "trained")))


def _maps_by_model(
    run: StoredRun, name: str, fingerprint: str, reasons: list[str]
) -> Iterator[dict[tuple[str, str], MixingMap]]:
    """Maps of a clip, model by model; those of another fingerprint are of an earlier start that asked otherwise: left out."""
    folders = run.folder.map_folders() if not run.parts else ()
    for read in (
        *(partial(_maps_in_files, run, folder / safe_name(name), reasons) for folder in folders),
        *(partial(_maps_in_part, run, part, name, reasons) for part in _parts_of_maps(run)),
    ):
        maps = {
            key: mixing_map
            for key, mixing_map in read().items()
            if fingerprint in ("", mixing_map.provenance.get("fingerprint", fingerprint))
        }
        if maps:
            yield maps


def _parts_of_maps(run: StoredRun) -> list[Part]:
    """Parts of trained models, and of the random twin of each with the smallest seed whose scores are kept."""
    twins: dict[str | None, int] = {}
    for part in run.parts:
        if part.owner.init == "random" and (part.scores or part.maps):
            seed = part.owner.seed or 0
            twins[part.owner.name] = min(seed, twins.get(part.owner.name, seed))
    return [
        part
        for part in run.parts
        if (part.scores or part.maps)
        and (part.owner.init == "trained" or (part.owner.seed or 0) == twins[part.owner.name])
    ]


def _maps_in_part(run: StoredRun, part: Part, name: str, reasons: list[str]) -> dict[tuple[str, str], MixingMap]:
    try:
        return run.maps_in_part(part, name)
    except SpeechmixError as error:
        reasons.append(str(error))
        return {}


def _maps_in_files(run: StoredRun, folder: Path, reasons: list[str]) -> dict[tuple[str, str], MixingMap]:
    maps = {}
    for path in map_files(folder):
        try:
            mixing_map = run.read_map(path)
        except SpeechmixError as error:
            reasons.append(str(error))
            continue
        maps[mixing_map.measure, mixing_map.stack] = mixing_map
    return maps


def provenance_of(maps: Maps) -> Mapping[str, Any]:
    """What the maps of one clip say of it (text, words, cue, ...); nothing without maps."""
    return next((mixing_map.provenance for by_model in maps.values() for mixing_map in by_model.values()), {})


def clip_of(run: StoredRun, name: str, maps: Maps, *, audio: str | PathLike | None = None) -> Clip | None:
    """Return the clip with its words, cue and target, or None if its audio is not to be found.

    Parameters
    ----------
    run : StoredRun
    name : str
    maps : dict
        Of the clip, from `maps_of_clip`: they know the words.
    audio : path, optional
        Folder to look in first.
    """
    row, provenance = clip_row(run, name), provenance_of(maps)
    path = _sound(row, Path(audio) if audio else None, run.folder.audio)
    if path is None:
        return None
    words = [tuple(word) for word in provenance.get("words") or ()]
    clip = Clip.from_file(
        path, name=name, language=row.get("language") or None, sound=row.get("sound") or None,
        **{part: provenance.get(part) for part in ("text", "cue", "target", "foil")},
    )  # fmt: skip
    return clip.with_words(words, alignment=provenance.get("alignment")) if words else clip


def clip_row(run: StoredRun, name: str) -> dict[str, Any]:
    """Row of the clip table.

    Raises
    ------
    InputError
        If there is no such clip.
    """
    rows = run.clips[run.clips["clip"] == str(name)]
    if rows.empty:
        first = ", ".join(map(str, run.clips["clip"].head(5)))
        raise InputError(f"no clip {name!r} in {run.out}; there are {len(run.clips)}: {first}, ...")
    return {str(column): cell for column, cell in rows.iloc[0].items()}


def _sound(row: Mapping[str, Any], *folders: Path | None) -> Path | None:
    noted = Path(str(row.get("audio_file") or ""))
    candidates: Sequence[Path] = [
        folder / name
        for folder in folders
        if folder is not None
        for name in (noted.name, *(f"{row['clip']}{ending}" for ending in _SOUNDS))
        if name
    ]
    return next((path for path in (*candidates, noted) if _is_file(path)), None)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):  # a name that no file can have, from a damaged table
        return False
