"""Store recordings, models, maps and explanations of the running app in memory, with limits.

In: models by name (folder or hub id), perhaps the folder of a run. Out: clips, models and maps.
Models and untrained twins are loaded on first use.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ...adapters.model import Model
from ...errors import InputError, SpeechmixError
from ...files.cache_keys import digest
from ...files.json_files import Json, JsonObject
from ...inputs.audio.frame_grid import Seconds
from ...inputs.clips.clip import Clip
from ...inputs.sentences.sentence import Sentence
from ...inputs.words.cue_and_target import cue_to_json
from ...mixing.maps.mixing_map import MixingMap
from ...reporting.plots.figure_style import model_name
from ...runs.results.open_run import StoredRun
from ..explain.explanation import Explanation
from . import measurements
from .request_queue import Progress

MAX_CLIP_SECONDS: Seconds = 60.0
_MAX_RECORDINGS, _MAX_MAPS, _MAX_EXPLANATIONS = 100, 400, 20
_MAX_MAP_BYTES = 2**29
# Seconds of each kind of work before any was timed: of loading a model, of a second of audio, of a
# billion operations of a map.
_FIRST_RATES = {"load": 5.0, "transcribe": 0.1, "align": 0.2, "explain": 2.0, "measure": 0.05}
_MAX_MODELS = 4  # in memory, twins included; the least recently used one is dropped

Loader = Callable[..., Model]  # of init and seed


@dataclass(frozen=True)
class ModelChoice:
    """Name a model of the page, with the function that loads it."""

    name: str
    load: Loader
    source: Any = None

    @cached_property
    def reads_text(self) -> bool:
        """Whether this is a text model, from its config alone; False where that cannot be read."""
        from ..estimate.operation_count import build_meta_model

        try:
            return not build_meta_model(self.source).hears
        except SpeechmixError:
            return False


def model_choices(sources: Sequence[Any], load: Callable[..., Model]) -> list[ModelChoice]:
    """Name the models of the page: short names, or whole ones where two would be equal.

    Examples
    --------
    >>> [choice.name for choice in model_choices(["openai/whisper-small", "/models/tiny"], load=None)]
    ['openai/whisper-small', 'tiny']
    >>> [choice.name for choice in model_choices(["/a/tiny", "/b/tiny"], load=None)]
    ['/a/tiny', '/b/tiny']
    """
    short_names = [
        Path(source).resolve().name if Path(source).is_dir() else model_name(source)
        for source in sources
    ]
    names = [
        str(source) if short_names.count(name) > 1 else name
        for source, name in zip(sources, short_names, strict=True)
    ]
    return [
        ModelChoice(name, _bind_source(load, source), source)
        for name, source in zip(names, sources, strict=True)
    ]


def _bind_source(load: Callable[..., Model], source: Any) -> Loader:
    return lambda **load_options: load(source, **load_options)


class Session:
    """Hold what one `speechmix serve` has in memory.

    Parameters
    ----------
    models : sequence of ModelChoice
    run : StoredRun, optional
    examples : sequence of Clip
        Clips that the page offers at the start.
    max_seconds : float
        Longest clip that the page takes.
    language : str, optional
        Language of recordings without one ("fr"); the synthetic voice that aligns words needs it.
    """

    def __init__(
        self,
        models: Sequence[ModelChoice],
        *,
        run: StoredRun | None = None,
        audio: str | None = None,
        examples: Sequence[Clip] = (),
        max_seconds: Seconds = MAX_CLIP_SECONDS,
        language: str | None = None,
    ):
        self.choices = {choice.name: choice for choice in models}
        self.run, self.audio, self.max_seconds, self.language = run, audio, max_seconds, language
        self.examples = {clip.name: clip for clip in examples}
        self._recordings: OrderedDict[str, Clip] = OrderedDict()
        self._models: OrderedDict[tuple[str, str, int | None], Model] = OrderedDict()
        self._maps: OrderedDict[str, dict[tuple[str, str], MixingMap]] = OrderedDict()
        self._explanations: OrderedDict[str, Explanation] = OrderedDict()
        self._rates = dict(_FIRST_RATES)
        self._lock = threading.Lock()
        # matplotlib and librosa are not thread-safe
        self.drawing_lock = threading.Lock()

    def add_recording(self, clip: Clip) -> str:
        """Store a recording and return its id; beyond the limit drop the oldest."""
        name = secrets.token_urlsafe(9)
        with self._lock:
            self._recordings[name] = clip
            while len(self._recordings) > _MAX_RECORDINGS:
                self._recordings.popitem(last=False)
        return name

    def get_recording(self, name: object) -> Clip:
        """Return a recording.

        Raises
        ------
        InputError
            If it is not stored (any more).
        """
        with self._lock:
            if not isinstance(name, str) or name not in self._recordings:
                raise InputError("this recording is no longer stored: open it again")
            self._recordings.move_to_end(name)
            return self._recordings[name]

    @contextmanager
    def timed(
        self, report_progress: Progress, note: str, kind: str, label: str, amount: float = 1.0
    ) -> Iterator[None]:
        """Report work with an estimate from the time that the same kind took last, with this label
        (a model, a measure) if there is one."""
        rate = self._rates.get(f"{kind} {label}", self._rates[kind])
        report_progress(note, amount * rate)
        start_time = time.monotonic()
        yield
        rate = (time.monotonic() - start_time) / amount
        self._rates |= {kind: rate, f"{kind} {label}": rate}

    def get_model(self, name: object, *, init: str = "trained", seed: int | None = None) -> Model:
        """Return a model, loaded on first use. Only the running task of the queue may call this.

        Raises
        ------
        InputError, ModelError
            If the page lacks the model, or it cannot be loaded.
        """
        if not isinstance(name, str) or name not in self.choices:
            raise InputError(
                f"the page has no model {name!r}: choose one of {', '.join(self.choices) or 'none'}"
            )
        cache_key = (name, init, seed)
        if cache_key not in self._models:
            load_options: JsonObject = {} if init == "trained" else {"init": init, "seed": seed}
            while len(self._models) >= _MAX_MODELS:
                self._models.popitem(last=False)  # before another needs the memory
            self._models[cache_key] = self.choices[name].load(**load_options)
        self._models.move_to_end(cache_key)
        return self._models[cache_key]

    def has_model(self, name: str, *, init: str = "trained", seed: int | None = None) -> bool:
        """Return True if a model is in memory."""
        return (name, init, seed) in self._models

    def get_maps(
        self,
        model: Model,
        clip: Clip | Sentence,
        *,
        measures: Sequence[str],
        units: str,
        stack: str | None = None,
        report_progress: Progress = lambda *_: None,
    ) -> measurements.ClipMaps:
        """Return maps of a clip or a sentence, computed or from memory, with the clip's cue and target.

        Raises
        ------
        InputError
            If no measure has a map.
        """
        cache_keys = {
            measure: _cache_key(model, clip, measure, units, stack) for measure in measures
        }
        missing_measures = [
            measure for measure in measures if cache_keys[measure] not in self._maps
        ]
        failure_reasons: dict[str, str] = {}
        amount = measurements.count_map_operations(model, clip, units, stack)
        for measure in missing_measures:  # one by one, so that one that fails does not stop others
            note, label = (
                f"{measure.replace('_', ' ')} in {model.label}",
                f"{measure} {model.label}",
            )
            try:
                with self.timed(report_progress, note, "measure", label, amount):
                    self._maps[cache_keys[measure]] = measurements.measure_clip(
                        model, clip, measures=[measure], units=units, stack=stack
                    ).maps
            except InputError as error:
                failure_reasons[measure] = str(error)
        maps = {
            map_key: mixing_map
            for measure in measures
            for map_key, mixing_map in self._maps.get(cache_keys[measure], {}).items()
        }
        self._evict_maps()  # last, since the maps of this result may exceed the limit
        if not maps:
            raise InputError(next(iter(failure_reasons.values())))
        return measurements.ClipMaps(
            {key: _set_cue_and_target(mixing_map, clip) for key, mixing_map in maps.items()},
            failure_reasons,
        )

    def get_explanation(self, model: Model, clip: Clip) -> Explanation:
        """Return the explanation of a clip's transcript, computed or from memory.

        Raises
        ------
        InputError
            As `explain_clip`.
        """
        cache_key = _cache_key(model, clip, "explanation", clip.name)
        if cache_key not in self._explanations:
            self._explanations[cache_key] = measurements.explain_clip(model, clip)
            while len(self._explanations) > _MAX_EXPLANATIONS:
                self._explanations.popitem(last=False)
        return self._explanations[cache_key]

    def _evict_maps(self) -> None:
        def size() -> int:
            return sum(
                mixing_map.scores.nbytes
                for maps in self._maps.values()
                for mixing_map in maps.values()
            )

        while len(self._maps) > 1 and (len(self._maps) > _MAX_MAPS or size() > _MAX_MAP_BYTES):
            self._maps.popitem(last=False)


def _cache_key(
    model: Model, clip: Clip | Sentence, measure: str, units: str, stack: str | None = None
) -> str:
    """Hash all that decides a map's scores; cue and target do not."""
    if isinstance(clip, Sentence):
        return digest([model.fingerprint, clip.text, measure, stack])
    words = [word.to_list() for word in clip.words or ()]
    return digest(
        [model.fingerprint, clip.audio_hash, clip.text, clip.language, words, measure, units, stack]
    )


def _set_cue_and_target(mixing_map: MixingMap, clip: Clip | Sentence) -> MixingMap:
    cue_fields: Mapping[str, Json] = {
        "cue": cue_to_json(clip.cue_words),
        "target": clip.target,
        "foil": clip.foil,
    }
    return replace(
        mixing_map, provenance={**mixing_map.provenance, **cue_fields, "clip": clip.name}
    )
