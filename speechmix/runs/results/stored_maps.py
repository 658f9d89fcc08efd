"""Rebuild a run's maps from labels and stored scores.

In: a part, a clip. Out: its maps as they were computed, to the last bit. A further random twin has
no rows in the table of scores, and so no maps.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...errors import InputError, SpeechmixError
from ...files.cache_keys import FileMark
from ...files.json_files import Json
from ...files.parquet_files import find_row_groups, read_mark, readable_parquet
from ...inputs.words.word_checks import check_words
from ...mixing.maps.map_files import labels_from_text
from ...mixing.maps.mixing_map import MixingMap
from .clip_result_files import Part
from .map_files import frame_map_scores, tensor_name
from .run_folder import RunFolder
from .score_files import file_name, partition_folder

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
