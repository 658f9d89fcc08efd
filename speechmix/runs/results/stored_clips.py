"""One clip of a run, read back: its row, its maps by every model, and the clip itself with its
sound.

In: a run that is open, the name of a clip. Out: maps by model, measure and stack; a `Clip`, or None
without its sound, which is where the clip table says, or in a folder that is given (a run that was
made on another machine): a file named like the clip, or like its audio file.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import InputError, SpeechmixError
from ...files.json_files import Json, JsonObject
from ...inputs.clips.clip import Clip
from ...mixing.maps.mixing_map import MixingMap
from .clip_result_files import Part

if TYPE_CHECKING:
    from .open_run import StoredRun

ModelKey = tuple[str, str, int | None]  # name, init, seed
Maps = dict[ModelKey, dict[tuple[str, str], MixingMap]]
_SOUNDS = (".wav", ".flac", ".ogg", ".mp3")


def read_clip_maps(run: StoredRun, name: str, *, unreadable: list[str] | None = None) -> Maps:
    """Return the maps of a clip by (model, init, seed) and (measure, stack).

    They are those of trained models and of one random twin of each. `unreadable` gets the reason
    for each map that cannot be read; without it there is a warning.
    """
    by_model: Maps = {}
    reasons: list[str] = []
    fingerprint = str(clip_row(run, name).get("fingerprint") or "")
    for maps in _maps_by_model(run, name, fingerprint, reasons):
        provenance = next(iter(maps.values())).provenance
        key = (provenance["model"], provenance["init"], provenance.get("seed"))
        twin = next(
            (other for other in by_model if other[:2] == key[:2] == (key[0], "random")), None
        )
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
    """Maps of a clip, model by model; those of another fingerprint are of an earlier start with
    another request: left out."""
    for part in find_map_parts(run.parts):
        maps = {
            key: mixing_map
            for key, mixing_map in _maps_in_part(run, part, name, reasons).items()
            if fingerprint in ("", mixing_map.provenance.get("fingerprint", fingerprint))
        }
        if maps:
            yield maps


def find_map_parts(parts: Sequence[Part]) -> list[Part]:
    """Parts of trained models, and of the random twin of each with the smallest seed whose scores
    are kept."""
    smallest_seeds: dict[str | None, int] = {}
    for part in parts:
        if part.owner.init == "random" and (part.scores or part.maps):
            seed = part.owner.seed or 0
            smallest_seeds[part.owner.name] = min(seed, smallest_seeds.get(part.owner.name, seed))
    return [
        part
        for part in parts
        if (part.scores or part.maps)
        and (
            part.owner.init == "trained"
            or (part.owner.seed or 0) == smallest_seeds[part.owner.name]
        )
    ]


def _maps_in_part(
    run: StoredRun, part: Part, name: str, reasons: list[str]
) -> dict[tuple[str, str], MixingMap]:
    try:
        return run.read_part_maps(part, name)
    except SpeechmixError as error:
        reasons.append(str(error))
        return {}


def read_provenance(maps: Maps) -> Mapping[str, Json]:
    """What the maps of one clip say of it (text, words, cue, ...); nothing without maps."""
    return next(
        (mixing_map.provenance for by_model in maps.values() for mixing_map in by_model.values()),
        {},
    )


def read_stored_clip(
    run: StoredRun, name: str, maps: Maps, *, audio: str | PathLike[str] | None = None
) -> Clip | None:
    """Return the clip with its words, cue and target, or None if its audio is not found.

    The maps are those of the clip, from `read_clip_maps`: they have its words. `audio` is a folder
    to search first.
    """
    row, provenance = clip_row(run, name), read_provenance(maps)
    path = find_audio(run, name, audio=audio)
    if path is None:
        return None
    words = [tuple(word) for word in provenance.get("words") or ()]
    clip = Clip.from_file(
        path,
        name=name,
        language=row.get("language") or None,
        audio_hash=row.get("sound") or None,
        **{
            field_name: provenance.get(field_name)
            for field_name in ("text", "cue", "target", "foil")
        }
        | (provenance.get("unit_roles") or {}),
    )
    if words:
        clip = clip.with_words(words, alignment=provenance.get("alignment"))
    return clip.replace(tiers=provenance.get("tiers"))


def find_audio(
    run: StoredRun, name: str, *, audio: str | PathLike[str] | None = None
) -> Path | None:
    """Return where a clip's recording is, if it is to be found; `audio` is a folder to look in
    first."""
    return _audio_path(clip_row(run, name), Path(audio) if audio else None, run.folder.audio_dir)


def clip_row(run: StoredRun, name: str) -> JsonObject:
    """Return the row of a clip in the clip table; InputError if there is no such clip."""
    rows = run.clips[run.clips["clip"] == str(name)]
    if rows.empty:
        first = ", ".join(map(str, run.clips["clip"].head(5)))
        available_text = (
            f"there are {len(run.clips)}: {first}{', ...' if len(run.clips) > 5 else ''}"
            if first
            else "it has no clips"
        )
        raise InputError(f"no clip {name!r} in {run.out}; {available_text}")
    return {str(column): cell for column, cell in rows.iloc[0].items()}


def _audio_path(row: Mapping[str, Json], *folders: Path | None) -> Path | None:
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
