"""Many part files become one, in the order of the run; those that no table needs are removed.

In: the part files of a model, and the keys of the results that the run wants. Out: as few parts as
may be: the same, to the byte, whether the run was stopped on the way or not.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path

from ...files.shard_assignment import Shard
from ...files.timing import phase
from .clip_result_files import KEY, Part, part_name
from .map_files import MAPS, MapFiles
from .part_index import Key, PartIndex
from .part_integrity import remove_part
from .run_state import RunState
from .score_files import ScoreFiles
from .score_reuse import CopiedScores, RowGroups

_LARGE_PART_BYTES = 2**26  # of scores; smaller parts are made again when one is added


def compact_parts(index: PartIndex, keys: Sequence[Key], shard: Shard) -> list[Part]:
    """Put these results, and no others, into as few parts as may be, in this order.

    A large part stays as it is if all of it is wanted, in its order; all others become one.
    """
    counts = Counter(index[key].part_index for key in keys)
    unchanged = {
        part_index
        for part_index, count in counts.items()
        if _is_large(index.parts[part_index])
        and count == index.row_counts[part_index]
        and _is_in_order(index, part_index, keys)
    }
    other_keys = [key for key in keys if index[key].part_index not in unchanged]
    parts = [index.parts[part_index] for part_index in sorted(unchanged)]
    return parts + ([_merge_parts(index, other_keys, shard)] if other_keys else [])


def remove_unneeded_parts(
    index: PartIndex, parts: Sequence[Part], shard: Shard, own_kinds: Collection[str] | None
) -> None:
    """Remove parts of a shard that are neither among `parts` nor needed by a table.

    `own_kinds` are the kinds of results that may be removed, None for all.
    """
    needed = {part.path for part in parts} | RunState(index.folder).needed_parts()
    for part in index.parts:
        is_own = shard.count == 1 or part.shard == shard.label
        if is_own and part.path not in needed and _has_only_kinds(part, own_kinds):
            remove_part(index.folder, part)


def _has_only_kinds(part: Part, kinds: Collection[str] | None) -> bool:
    """Whether a part holds nothing but these kinds."""
    if kinds is None or not part.path.is_file():
        return kinds is None
    return set(kinds).issuperset(part.read(("kind",))["kind"].unique().to_pylist())


def _is_in_order(index: PartIndex, part_index: int, keys: Sequence[Key]) -> bool:
    """Whether a part holds its results in the order of these keys."""
    locations = map(index.__getitem__, keys)
    rows = [location.row_index for location in locations if location.part_index == part_index]
    return all(former < row for former, row in pairwise(rows))


def _is_large(part: Part) -> bool:
    return sum(mark.size for mark in part.scores.values()) >= _LARGE_PART_BYTES


def _merge_parts(index: PartIndex, keys: Sequence[Key], shard: Shard) -> Part:
    """Return the part that holds just these results: it is there, or made now of what is there."""
    path = index.dir / f"{shard.prefix}{part_name(keys)}.parquet"
    part = next((part for part in index.parts if part.path == path), None)
    if part is None:
        with (
            phase("writing"),
            ScoreFiles(index.folder.scores_dir) as scores,
            MapFiles(index.folder.maps_dir, index.dir.name) as maps,
        ):
            _copy_scores(index, keys, scores)
            _copy_maps(index, keys, maps)
            versions = {version for key in keys for version in index.part(key).versions}
            part = index.write(keys, index.tables(keys), scores, maps, shard, versions)
        index.add(part, part.read(KEY))
    return part


def _copy_scores(index: PartIndex, keys: Sequence[Key], scores: ScoreFiles) -> None:
    """Copy the scores of some results, in their order, from the parts that hold them."""
    copies: dict[tuple[Path, str], list[tuple[int, str]]] = defaultdict(list)
    files: dict[tuple[Path, str, int], list[Path]] = defaultdict(list)
    for part_index, part in enumerate(index.parts):
        for name in part.scores:
            partition, stem = Path(name).parent, Path(name).name.partition(".")[0]
            files[partition, stem, part_index].append(index.folder.scores_dir / name)
    targets = {(partition, stem) for partition, stem, _ in files}
    for key in keys:
        for partition, stem in targets:
            if partition.parent.name == f"measure={key.kind}":
                copies[partition, stem].append((index[key].part_index, key.clip))
    for (partition, stem), clips in sorted(copies.items()):
        copied: dict[int, CopiedScores] = {}
        groups = RowGroups()
        for part_index, clip in clips:
            if part_index not in copied:
                paths = files.get((partition, stem, part_index), ())
                copied[part_index] = CopiedScores(paths, groups)
            rows = copied[part_index].rows_of(clip)
            if rows is not None and rows.num_rows:
                scores.append_rows(partition / f"{stem}.", rows)


def _copy_maps(index: PartIndex, keys: Sequence[Key], maps: MapFiles) -> None:
    """Copy the files of maps of some results, in their order, from the parts that hold them."""
    copied: dict[Path, CopiedScores] = {}
    groups = RowGroups()
    for key in keys:
        part = index.part(key)
        if not part.maps:
            continue
        if key.kind != MAPS:
            maps.append_copies(part, key.clip, index.row(key)["content"])
            continue
        if part.path not in copied:
            copied[part.path] = maps.copied_rows(part, groups)
        rows = copied[part.path].rows_of(key.clip)
        if rows is not None:
            maps.append_rows(rows)
