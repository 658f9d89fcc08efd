"""What a run keeps of each clip and model: contributions and scores, ablation, transcript, states.

In: a model, clips, a question. Out: `Results` that hold the answer to each: those of an earlier
start are used if everything that went into them is the same (their *question*), all others are
computed now. Word times are in word_times.py.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pandas as pd

from ..adapters import Model
from ..errors import InputError, SpeechmixError
from ..evaluation.transcript_accuracy import character_error_rate, transcribe
from ..files.cache_keys import digest, joined_digests
from ..files.timing import phase
from ..inputs.clips.clip import Clip
from ..interventions.ablation import CONTROL, ablate_with_control
from ..mixing.maps.map_headers import labels_as_text
from ..mixing.maps.mixing_map import Maps, MixingMap
from ..mixing.measures.measure import OF_SOME_MEASURES
from ..mixing.measures.mixing_strength import REVISION as STRENGTH_REVISION
from ..mixing.measures.registry import measure_named
from ..mixing.passes.mix import mix
from ..mixing.passes.request import Question
from .generated_texts import written_of
from .out_of_memory import OutOfMemory, memory_errors_named
from .results.map_files import MAPS, goes_to_shards, rows_of_maps, tensor_name
from .results.map_shards import digests_as_stored
from .results.result_store import Key, Results
from .results.tidy_tables import share_rows
from .revisions import revision_entry

_FEW_PAIRS = (
    256  # (target position, source) pairs at once, where memory ran out with as many as fit
)
ABLATION, TRANSCRIPTS = (
    "ablation",
    "transcripts",
)  # kinds of results, beside those called like a measure


class ClipAsked(NamedTuple):
    """What a clip was when the run began: its sound, and a hash of all that decides an answer about
    it but the model."""

    sound: str
    says: str

    @classmethod
    def of(cls, clip: Clip) -> ClipAsked:
        return cls(clip.sound, digest([clip.fingerprint, clip.alignment, clip.doubts]))


class MapsAsked:
    """What maps are asked for, and the keys that their results have.

    Parameters
    ----------
    model : Model
    question : Question
    clips : mapping of str to ClipAsked
        By name; of others it is found out when they are asked about.
    with_scores : bool
        Whether every score is kept: in the table of scores, or in shards.
    maps_dtype : str, optional
        Type of scores in shards; as they are computed by default.

    Attributes
    ----------
    in_scores, in_shards : bool
    """

    def __init__(
        self,
        model: Model,
        question: Question,
        clips: Mapping[str, ClipAsked],
        *,
        with_scores: bool = True,
        maps_dtype: str | None = None,
    ):
        self.model, self.question, self.maps_dtype, self._clips = model, question, maps_dtype, clips
        self.in_shards = with_scores and goes_to_shards(question)
        self.in_scores = with_scores and not self.in_shards
        self._asked = {name: self._asked_of(name) for name in question.measures}

    def _asked_of(self, name: str) -> str:
        """Hash of what decides the maps of one measure but the clip: the model and the options that
        the measure reads."""
        asked, measure = self.question.described(), measure_named(name)
        unread = {"measures", *OF_SOME_MEASURES} - set(measure.options)
        options = {option: asked[option] for option in asked if option not in unread}
        says = {
            "weights": self.model.fingerprint,
            "dtype": str(self.model.state_dtype),
            "in_scores": self.in_scores,
        }
        says |= {"in_shards": self.maps_dtype or "as computed"} if self.in_shards else {}
        says |= {} if measure.objective else {"mixing_strength": STRENGTH_REVISION}
        return digest(
            {"measure": measure.identity, **says, **options, **revision_entry("contributions")}
        )

    def keys(self, clip: Clip) -> list[Key]:
        """Key of each measure's result."""
        says = self.clip(clip).says
        if written := written_of(self.model, clip):
            says = digest([says, written])
        return [
            Key(clip.name, name, joined_digests(asked, says)) for name, asked in self._asked.items()
        ]

    def clip(self, clip: Clip) -> ClipAsked:
        """What the clip is, or was when the run began."""
        return self._clips.get(clip.name) or ClipAsked.of(clip)


def keep_maps(
    results: Results, asked: MapsAsked, clips: Sequence[Clip], *, batch_size: int | str = "auto"
) -> list[Maps | SpeechmixError]:
    """Maps of some clips that are not kept yet, computed in one forward pass; what becomes of them
    is then kept.

    Returns
    -------
    list of Maps or SpeechmixError
        For each clip those that were computed, which may be none, or why it cannot be scored.
    """
    computed: list[Maps | SpeechmixError] = [Maps({}) for _ in clips]
    todo: dict[tuple[str, ...], list[int]] = {}
    for index, clip in enumerate(clips):
        missing = tuple(key.kind for key in asked.keys(clip) if key not in results)
        if missing:
            todo.setdefault(missing, []).append(index)
    for missing, places in todo.items():
        sounds = [asked.clip(clips[index]).sound for index in places]
        question = replace(asked.question, measures=missing)
        all_maps = _computed(asked.model, [clips[index] for index in places], question, batch_size)
        for index, sound, maps in zip(places, sounds, all_maps, strict=True):
            clip = clips[index]
            if not isinstance(maps, SpeechmixError) and clip.sound != sound:
                maps = InputError(
                    f"{clip.path} was replaced while it was scored: give the same command again"
                )
            if not isinstance(maps, SpeechmixError):
                try:
                    _put_maps(results, asked, clip, maps)
                except SpeechmixError as error:
                    maps = error
            computed[index] = maps
    return computed


def _put_maps(results: Results, asked: MapsAsked, clip: Clip, maps: Maps) -> None:
    """Keep what becomes of some maps of a clip, measure by measure."""
    rows: list[tuple[Key, dict[str, Any]]] = []
    for key in asked.keys(clip):
        of_measure = {
            place: mixing_map for place, mixing_map in maps.items() if place[0] == key.kind
        }
        if not of_measure:
            continue
        with phase("contributions"), memory_errors_named():
            shares = share_rows(of_measure, clip, asked.model)
        row: dict[str, Any] = {"contributions": shares}
        if asked.in_scores or asked.in_shards:
            row["content"] = _labels(of_measure, key, asked)
        if asked.in_scores:
            row["scores"] = (of_measure, clip, asked.model)
        if asked.in_shards:
            row["tensors"] = {
                tensor_name(clip.name, *place): (
                    mixing_map.scores,
                    asked.maps_dtype or mixing_map.scores.dtype.name,
                )
                for place, mixing_map in of_measure.items()
            }
        rows.append((key, row))
    for key, row in rows:
        results.put(key, **row)


def _labels(maps: Mapping[tuple[str, str], MixingMap], key: Key, asked: MapsAsked) -> str:
    """All of some maps but their scores, as text."""
    told = []
    for mixing_map in maps.values():
        provenance, scores = {**mixing_map.provenance, "question": key.question}, mixing_map.scores
        in_shards: dict[str, Any] = {}
        if asked.in_shards:
            provenance["kept_as"] = asked.maps_dtype or scores.dtype.name
            in_shards["digests"] = digests_as_stored(scores, provenance["kept_as"])
        labels = labels_as_text(replace(mixing_map, provenance=provenance))
        told.append({**labels, "dtype": str(scores.dtype), "shape": scores.shape, **in_shards})
    return json.dumps(told, ensure_ascii=False)


def keep_map_rows(
    results: Results, asked: MapsAsked, clip: Clip, maps_of: Callable[[], Maps]
) -> Key:
    """Keep the maps of a clip in plain columns, unless they are there already; no pass is needed
    for those that were scored."""
    key = Key(clip.name, MAPS, digest([key.question for key in asked.keys(clip)]))
    if key not in results:
        results.put(key, map_rows=rows_of_maps(maps_of(), clip, asked.model))
    return key


def _computed(
    model: Model, clips: list[Clip], question: Question, batch_size: int | str
) -> list[Maps | SpeechmixError]:
    """Maps of clips in one forward pass; one by one if that does not go, and in smaller batches if
    memory ran out."""
    try:
        with memory_errors_named():
            return _mixed(model, clips, question, batch_size)
    except SpeechmixError:  # one of them, or they do not go together
        return [_attempt(model, clip, question, batch_size) for clip in clips]


def _mixed(
    model: Model, clips: list[Clip], question: Question, batch_size: int | str
) -> list[Maps | SpeechmixError]:
    maps = mix(model, clips, clips_at_once=len(clips), batch_size=batch_size, **question.options)
    return [maps] if isinstance(maps, Maps) else [*maps]


def _attempt(
    model: Model, clip: Clip, question: Question, batch_size: int | str
) -> Maps | SpeechmixError:
    few_pairs = _FEW_PAIRS if isinstance(batch_size, str) else min(batch_size, _FEW_PAIRS)
    for pairs in (batch_size, few_pairs):
        try:
            with memory_errors_named():
                return _mixed(model, [clip], question, pairs)[0]
        except OutOfMemory as error:
            failure: SpeechmixError = error
        except SpeechmixError as error:
            return error
    return failure


def keep_spelling(
    results: Results, model: Model, clip: Clip, *, by_layer: bool = False
) -> list[Key]:
    """Keep ablation (of each layer, too, where that is asked for) and transcript of a clip; returns
    their keys.

    A clip without a foil or a cue has no ablation, one without a text, and a random twin, no
    transcript.
    """
    keys = []
    for key, rows_of in _spelling_asked(model, clip, by_layer=by_layer).items():
        if key not in results:
            with phase(key.kind), memory_errors_named():
                rows = rows_of(model, clip)
            results.put(key, content=json.dumps(rows, ensure_ascii=False, default=_plain))
        keys.append(key)
    return keys


def _spelling_asked(
    model: Model, clip: Clip, *, by_layer: bool
) -> dict[Key, Callable[[Model, Clip], list[dict]]]:
    asked = {"weights": model.fingerprint, "dtype": str(model.state_dtype), **clip.ingredients}
    kinds: dict[Key, Callable[[Model, Clip], list[dict]]] = {}
    if model.prefix.task != "transcribe":  # a translation spells no foil, and is no transcript
        return kinds
    if clip.foil and clip.cue is not None:
        question = digest(
            {**asked, "by_layer": by_layer, "control": CONTROL, **revision_entry(ABLATION)}
        )
        kinds[Key(clip.name, ABLATION, question)] = partial(_ablation, by_layer=by_layer)
    if clip.text and model.init == "trained":
        heard = {name: asked[name] for name in ("weights", "dtype", "sound", "language", "text")}
        kinds[Key(clip.name, TRANSCRIPTS, digest({**heard, **revision_entry(TRANSCRIPTS)}))] = (
            _transcript
        )
    return kinds


def _plain(value: Any) -> Any:
    """A number of numpy as one of Python."""
    return value.item()


def _ablation(model: Model, clip: Clip, *, by_layer: bool) -> list[dict[str, Any]]:
    table = ablate_with_control(model, clip, by_layer=by_layer)
    rows = table.astype({"layer": object}).to_dict("records")
    return [
        {str(column): None if value is pd.NA else value for column, value in row.items()}
        for row in rows
    ]


def _transcript(model: Model, clip: Clip) -> list[dict[str, Any]]:
    transcript = transcribe(model, clip)
    rate = character_error_rate(clip.text or "", transcript)
    return [{"text": clip.text, "transcript": transcript, "character_error_rate": rate}]
