"""Rebuild a run's maps from labels and stored scores.

In: a part, a clip. Out: its maps as they were computed, to the last bit. A further random twin has
no rows in the table of scores, and so no maps.

One clip of a run, read back: its row, its maps by every model, and the clip itself with its
sound.

In: a run that is open, the name of a clip. Out: maps by model, measure and stack; a `Clip`, or None
without its sound, which is where the clip table says, or in a folder that is given (a run that was
made on another machine): a file named like the clip, or like its audio file.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import InputError, SpeechmixError
from ...files.cache_keys import FileMark
from ...files.json_files import Json, JsonObject
from ...files.parquet_files import find_row_groups, read_mark, readable_parquet
from ...inputs.clips.clip import Clip
from ...inputs.words.word_checks import check_words
from ...mixing.maps.map_files import labels_from_text
from ...mixing.maps.mixing_map import MixingMap
from .clip_result_files import Part
from .map_files import frame_map_scores, tensor_name
from .run_folder import RunFolder
from .score_files import file_name, partition_folder

if TYPE_CHECKING:
    from .open_run import StoredRun

Labels = Mapping[str, Json]
_PLACES = ("layer", "head", "target", "source")


def read_part_maps(folder: RunFolder, part: Part, clip: str) -> dict[tuple[str, str], MixingMap]:
    """Return the maps of a clip in a part, by (measure, stack); InputError if they are damaged."""
    contents = part.rows_of(clip, ("clip", "content"))["content"].to_pylist()
    return {
        (mixing_map.measure, mixing_map.stack): mixing_map
        for content in contents
        for mixing_map in read_row_maps(folder, part, clip, content)
    }


def read_row_maps(folder: RunFolder, part: Part, clip: str, content: str) -> Iterator[MixingMap]:
    """Maps that the content of a part's row speaks of; raises what `read_part_maps` raises."""
    if content.startswith('[{"measure"'):
        for labels in json.loads(content):
            mixing_map = _read_map(folder, part, clip, labels)
            if mixing_map is not None:
                yield mixing_map


def _read_map(folder: RunFolder, part: Part, clip: str, labels: Labels) -> MixingMap | None:
    """One map; None if its scores were not stored."""
    where = f"{part.path}, clip {clip!r}"
    try:
        map_labels = labels_from_text(dict(labels))
        shape, dtype = tuple(labels["shape"]), np.dtype(labels["dtype"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise InputError(
            f"{where}: labels of a map that cannot be read ({error!r:.200}): make the run again"
        ) from error
    if "digests" in labels:
        name = tensor_name(clip, map_labels["measure"], map_labels["stack"])
        stored = frame_map_scores(folder.maps_dir, part, name, labels["digests"])
        if stored.shape != shape:
            raise _damaged_map_error(
                where, f"scores {name!r} of the shape {shape}, found {stored.shape}"
            )
        return check_map(MixingMap(scores=stored, **map_labels), where)
    owner = part.owner
    partition = partition_folder(
        owner.name or "", owner.init or "", map_labels["measure"], map_labels["stack"]
    )
    names = [
        name
        for name in part.scores
        if name.startswith(f"{partition.as_posix()}/{file_name(owner.seed)}")
    ]
    if not names:
        return None
    scores = np.full(shape, np.nan)
    count = 0
    for name in names:
        for rows in _read_clip_rows(folder.scores_dir / name, part.scores[name], clip):
            layer, head, target, source = (rows[column].to_numpy() for column in _PLACES)
            index = [np.searchsorted(map_labels["layers"], layer), target, source]
            if len(shape) == 4:
                index.insert(1, head.astype(int))
            scores[tuple(index)] = rows["score"].to_numpy()
            count += rows.num_rows
    if count != scores.size:
        raise InputError(
            f"{where}: expected {scores.size} scores of {map_labels['measure']}, {map_labels['stack']}, found "
            f"{count}"
        )
    return check_map(MixingMap(scores=scores.astype(dtype), **map_labels), where)


def _read_clip_rows(path: Path, recorded_mark: FileMark, clip: str) -> Iterator[pa.Table]:
    """Rows of a clip in a file of scores, a row group at a time."""
    with readable_parquet(path):
        mark = read_mark(path)
        _check_part(path, recorded_mark, mark)
        for group in find_row_groups(path, "clip").get(clip, ()):
            rows = _row_group(path, group, mark)
            names = rows[
                "clip"
            ].combine_chunks()  # numbers of a dictionary: compared three times as fast as names
            number = names.dictionary.index(clip).as_py()
            yield rows.take(np.flatnonzero(names.indices.to_numpy() == number))


@lru_cache(maxsize=1_000)
def _check_part(path: Path, recorded_mark: FileMark, mark: object) -> None:
    """Compare a file with what was written, once while it stays the same."""
    recorded_mark.check(path)


@lru_cache(maxsize=2)
def _row_group(path: Path, group: int, mark: object) -> pa.Table:
    """A row group: the next clip may well lie in it too."""
    file = pq.ParquetFile(path, page_checksum_verification=True, read_dictionary=["clip"])
    rows = file.read_row_group(group, columns=["clip", *_PLACES, "score"])
    # what unpacking took: of many row groups a quarter of a gigabyte
    pa.default_memory_pool().release_unused()
    return rows


def check_map(mixing_map: MixingMap, where: object) -> MixingMap:
    """Return a map that says of which model and clip it is; InputError if it does not."""
    provenance = mixing_map.provenance
    words, texts = provenance.get("words") or (), ("text", "foil", "alignment")
    is_valid = isinstance(provenance.get("model"), str) and isinstance(provenance.get("init"), str)
    is_valid &= isinstance(provenance.get("seed"), int | None) and all(
        isinstance(provenance.get(name), str | None) for name in texts
    )
    is_valid &= isinstance(words, list | tuple) and all(
        isinstance(word, list | tuple) and len(word) in (3, 5) for word in words
    )
    if not is_valid:
        raise _damaged_map_error(where, "a map that says of which model and clip it is")
    if words:
        check_words(words, where=str(where))
    for role in ("cue", "target"):
        stored = provenance.get(role)
        indices = (
            stored if role == "cue" and isinstance(stored, list | tuple) and stored else [stored]
        )
        if stored is not None and not all(
            isinstance(index, int) and 0 <= index < len(words) for index in indices
        ):
            raise _damaged_map_error(
                where, f"a {role} that is one of the {len(words)} words, found {stored!r}"
            )
    return mixing_map


def _damaged_map_error(where: object, expected: str) -> SpeechmixError:
    return InputError(
        f"{where} is damaged or of another version: expected {expected}. Score the clips again "
        "into this folder"
    )


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
