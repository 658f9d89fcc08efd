"""Result kind: maps and cue contributions, all measures in one forward pass of several clips.

Contributions become the run's table. Scores go into the table of scores or, of frames, into files.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ...adapters.model import Model
from ...errors import InputError, SpeechmixError
from ...files.cache_keys import digest, joined_digests
from ...files.json_files import JsonObject
from ...files.timing import phase
from ...inputs.clips.clip import Clip
from ...mixing.maps.map_files import labels_to_text
from ...mixing.maps.map_set import Maps
from ...mixing.maps.mixing_map import MixingMap
from ...mixing.measures.measure_functions import find_measure
from ...mixing.measures.value_zeroing import REVISION as STRENGTH_REVISION
from ...mixing.passes.mix import mix_items
from ...mixing.passes.request import MEASURE_SPECIFIC_OPTIONS, MixRequest
from ..progress import OutOfMemory, memory_errors_named
from ..results.map_files import MAPS, is_stored_in_shards, list_map_rows, score_digests, tensor_name
from ..results.result_store import Key, Results
from ..results.tidy_tables import list_share_rows
from .generated_texts import generate_ids
from .result_kind import ClipSnapshot, Outcome, Result, ResultItem, ResultKind, version_entry

_MAX_CELLS = 256  # (target position, source) pairs at once, where memory ran out with more


@dataclass(frozen=True)
class MapOptions:
    """What a run requests of its maps.

    `as_rows` also stores word maps as rows of Parquet. `dtype` is that of the scores of frame maps,
    None as they are computed.
    """

    mix_request: MixRequest
    as_rows: bool = False
    dtype: str | None = None

    def described(self) -> list[object]:
        """Return what a run's hash has of them besides the mix request."""
        frames = _frames_entry(self.mix_request)
        return [self.as_rows, self.dtype, {"mixing_strength": STRENGTH_REVISION} | frames]


class ModelMaps:
    """Maps of one model: whether their scores go into the table of scores or into shards, and their
    keys."""

    def __init__(self, model: Model, options: MapOptions, version: int, *, with_scores: bool):
        self.model, self.options, self.mix_request = model, options, options.mix_request
        self._version = version
        self.in_shards = with_scores and is_stored_in_shards(self.mix_request)
        self.in_scores = with_scores and not self.in_shards
        self._measure_keys = {name: self._measure_key(name) for name in self.mix_request.measures}

    @classmethod
    def of(cls, item: ResultItem, version: int) -> ModelMaps:
        """Return the maps of an item's model, made once for all items."""
        maps = item.shared.get("maps")
        if not isinstance(maps, cls):
            maps = cls(
                item.model, item.options["maps"], version, with_scores=not item.is_partial_twin
            )
            item.shared["maps"] = maps
        return maps

    def _measure_key(self, name: str) -> str:
        """Hash of what decides the maps of one measure but the clip."""
        described, measure = self.mix_request.described(), find_measure(name)
        read = {*measure.own_options, *(("objective",) if measure.objective else ())}
        unread = {"measures", *MEASURE_SPECIFIC_OPTIONS} - read
        options = {option: described[option] for option in described if option not in unread}
        facts: dict[str, object] = {
            "weights": self.model.fingerprint,
            "dtype": str(self.model.state_dtype),
        }
        facts["in_scores"] = self.in_scores
        facts |= {"in_shards": self.options.dtype or "as computed"} if self.in_shards else {}
        facts |= {} if measure.objective else {"mixing_strength": STRENGTH_REVISION}
        facts |= _frames_entry(self.mix_request)
        version = version_entry(self._version)
        return digest({"measure": measure.identity, **facts, **options, **version})

    def keys(self, item: ResultItem) -> list[Key]:
        """Return the key of each measure's result."""
        clip_hash = item_snapshot(item).clip_hash
        if ids := generate_ids(self.model, item.clip):
            clip_hash = digest([clip_hash, ids])
        name = item.clip.name
        return [
            Key(name, measure, joined_digests(key, clip_hash))
            for measure, key in self._measure_keys.items()
        ]

    def row_keys(self, keys: Sequence[Key]) -> list[Key]:
        """Return the key of the rows of Parquet of maps with these keys; none if they are not wanted."""
        if not (self.options.as_rows and self.in_scores):
            return []
        return [Key(keys[0].clip, MAPS, digest([key.question for key in keys]))]


def _frames_entry(request: MixRequest) -> dict[str, object]:
    """Frames of a fixed window were all its frames before; then the padding was a target, too."""
    return {"frames": "clip; padding as source"} if request.units == "frame" else {}


class ContributionsKind(ResultKind):
    """Maps and contributions: one key for each measure, one forward pass for several clips."""

    def keys(self, item: ResultItem) -> list[Key]:
        """Return the keys of all measures, and of rows of Parquet."""
        maps = ModelMaps.of(item, self.version)
        keys = maps.keys(item)
        return [*keys, *maps.row_keys(keys)]

    def store(self, results: Results, items: Sequence[ResultItem]) -> list[Outcome]:
        """Compute and store the maps that are missing."""
        if not items:
            return []
        maps = ModelMaps.of(items[0], self.version)
        computed = store_maps(results, maps, items)
        return [self._with_rows(results, maps, *pair) for pair in zip(items, computed, strict=True)]

    @staticmethod
    def _with_rows(
        results: Results, maps: ModelMaps, item: ResultItem, computed: Maps | SpeechmixError
    ) -> Outcome:
        """Return the keys of an item's results, after the rows of Parquet are stored where they are wanted."""
        if isinstance(computed, SpeechmixError):
            return computed
        keys = maps.keys(item)
        row_keys = maps.row_keys(keys)
        for key in row_keys:
            if key not in results:
                all_maps = _read_all_maps(results, maps, keys, computed)
                results.put(key, map_rows=list_map_rows(all_maps, item.clip, maps.model))
        return [*keys, *row_keys]


def _refuse_single_item(item: ResultItem) -> Result:
    raise NotImplementedError(
        "maps are computed for several clips at once: ContributionsKind.store"
    )


CONTRIBUTIONS_KIND = ContributionsKind("contributions", _refuse_single_item)


def item_snapshot(item: ResultItem) -> ClipSnapshot:
    """Return what the clip was when the run began, or what it is now."""
    return item.snapshot or ClipSnapshot.of(item.clip)


def _read_all_maps(results: Results, maps: ModelMaps, keys: Sequence[Key], computed: Maps) -> Maps:
    """Return the maps of all measures, in the order of measures and stacks: computed just now, or stored."""
    names = {name for name, _ in computed}
    maps_by_key = {**results.maps([key for key in keys if key.kind not in names]), **computed}
    measures, stacks = list(maps.mix_request.measures), list(maps.model.stacks)
    order = sorted(maps_by_key, key=lambda key: (measures.index(key[0]), stacks.index(key[1])))
    return Maps({key: maps_by_key[key] for key in order})


def store_maps(
    results: Results, maps: ModelMaps, items: Sequence[ResultItem]
) -> list[Maps | SpeechmixError]:
    """Compute the missing maps of some items in one forward pass, and store them.

    The result is, for each item, the maps that were computed, which may be none, or why it cannot
    be scored.
    """
    computed: list[Maps | SpeechmixError] = [Maps({}) for _ in items]
    pending: dict[tuple[str, ...], list[int]] = {}
    for index, item in enumerate(items):
        missing = tuple(key.kind for key in maps.keys(item) if key not in results)
        if missing:
            pending.setdefault(missing, []).append(index)
    for missing, indices in pending.items():
        snapshots = [item_snapshot(items[index]) for index in indices]
        mix_request = replace(maps.mix_request, measures=missing)
        some = [items[index].clip for index in indices]
        all_maps = _compute_batch(maps.model, some, mix_request)
        for index, snapshot, new_maps in zip(indices, snapshots, all_maps, strict=True):
            computed[index] = _store_if_unchanged(results, maps, items[index], snapshot, new_maps)
    return computed


def _store_if_unchanged(
    results: Results,
    maps: ModelMaps,
    item: ResultItem,
    snapshot: ClipSnapshot,
    new_maps: Maps | SpeechmixError,
) -> Maps | SpeechmixError:
    """Store maps unless the clip's file was replaced while they were computed."""
    if isinstance(new_maps, SpeechmixError):
        return new_maps
    if item.clip.audio_hash != snapshot.audio_hash:
        return InputError(
            f"{item.clip.path} was replaced while it was scored: give the same command again"
        )
    try:
        _store_maps(results, maps, item, new_maps)
    except SpeechmixError as error:
        return error
    return new_maps


def _store_maps(results: Results, maps: ModelMaps, item: ResultItem, new_maps: Maps) -> None:
    """Store what becomes of some maps of a clip, measure by measure."""
    rows: list[tuple[Key, JsonObject]] = []
    clip, model = item.clip, maps.model
    for key in maps.keys(item):
        by_measure = {
            map_key: mixing_map
            for map_key, mixing_map in new_maps.items()
            if map_key[0] == key.kind
        }
        if not by_measure:
            continue
        with phase("contributions"), memory_errors_named():
            row: JsonObject = {"contributions": list_share_rows(by_measure, clip, model)}
        if maps.in_scores or maps.in_shards:
            row["content"] = _row_labels(by_measure, key, maps)
        if maps.in_scores:
            row["scores"] = (by_measure, clip, model)
        if maps.in_shards:
            dtype = maps.options.dtype
            row["tensors"] = {
                tensor_name(clip.name, *map_key): (
                    mixing_map.scores,
                    dtype or mixing_map.scores.dtype.name,
                )
                for map_key, mixing_map in by_measure.items()
            }
        rows.append((key, row))
    for key, row in rows:
        results.put(key, **row)


def _row_labels(by_measure: Mapping[tuple[str, str], MixingMap], key: Key, maps: ModelMaps) -> str:
    """All of some maps but their scores, as text."""
    described = []
    for mixing_map in by_measure.values():
        provenance, scores = {**mixing_map.provenance, "question": key.question}, mixing_map.scores
        in_shards: JsonObject = {}
        if maps.in_shards:
            provenance["kept_as"] = maps.options.dtype or scores.dtype.name
            in_shards["digests"] = score_digests(scores, provenance["kept_as"])
        labels = labels_to_text(replace(mixing_map, provenance=provenance))
        described.append({**labels, "dtype": str(scores.dtype), "shape": scores.shape, **in_shards})
    return json.dumps(described, ensure_ascii=False)


def _compute_batch(
    model: Model, clips: list[Clip], mix_request: MixRequest
) -> list[Maps | SpeechmixError]:
    """Maps of clips in one forward pass; if it fails one by one, where memory ran out in smaller batches."""
    try:
        with memory_errors_named():
            results = mix_items(model, clips, mix_request, group_size=len(clips))
        return [result for _, result in results]
    except SpeechmixError:  # out of memory, or they do not go together
        return [_mix_or_error(model, clip, mix_request) for clip in clips]


def _mix_or_error(model: Model, clip: Clip, mix_request: MixRequest) -> Maps | SpeechmixError:
    for batch_size in ("auto", _MAX_CELLS):
        try:
            with memory_errors_named():
                [(_, result)] = mix_items(
                    model, [clip], mix_request, batch_size=batch_size, group_size=1
                )
            return result
        except OutOfMemory as error:
            failure: SpeechmixError = error
        except SpeechmixError as error:
            return error
    return failure
