"""What the app remembers while it runs: recordings, models, maps. In memory alone, bounded, gone
with the process.

In: models by name (folder or hub id), perhaps the folder of a run. Out: clips and models when they
are asked for; each model is loaded once, when it is needed first, and a random twin when it is
looked at first.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...adapters.model import Model
from ...errors import InputError
from ...explanations.explanation import Explanation
from ...files.cache_keys import digest
from ...files.json_files import Json, JsonObject
from ...inputs.audio.frame_grid import Seconds
from ...inputs.clips.clip import Clip
from ...inputs.words.cue_and_target import cue_to_json
from ...mixing.maps.mixing_map import MixingMap
from ...reporting.plots.figure_style import model_name
from ...runs.results.open_run import StoredRun
from . import measurements as answers

LONGEST: Seconds = 60.0
_MOST_RECORDINGS, _MOST_MAPS, _MOST_EXPLANATIONS = 100, 400, 20
_MOST_MAP_BYTES = 2**29
_MOST_MODELS = (
    4  # in memory, twins included: of more the one that was used longest ago is loaded again
)

Loader = Callable[..., Model]  # of init and seed


@dataclass(frozen=True)
class ModelChoice:
    """A model that can be asked, as the page calls it, and how it is loaded."""

    name: str
    load: Loader


def model_choices(sources: Sequence[Any], load: Callable[..., Model]) -> list[ModelChoice]:
    """Models as they are called when they are loaded; by their whole names where two would share
    one.

    Examples
    --------
    >>> [choice.name for choice in model_choices(["openai/whisper-small", "/models/tiny"], load=None)]
    ['openai/whisper-small', 'tiny']
    >>> [choice.name for choice in model_choices(["/a/tiny", "/b/tiny"], load=None)]
    ['/a/tiny', '/b/tiny']
    """
    short = [
        Path(source).resolve().name if Path(source).is_dir() else model_name(source)
        for source in sources
    ]
    names = [
        str(source) if short.count(name) > 1 else name
        for source, name in zip(sources, short, strict=True)
    ]
    return [
        ModelChoice(name, _loader(load, source))
        for name, source in zip(names, sources, strict=True)
    ]


def _loader(load: Callable[..., Model], source: Any) -> Loader:
    return lambda **which: load(source, **which)


class Session:
    """What one `speechmix serve` knows.

    Parameters
    ----------
    models : sequence of ModelChoice
    run : StoredRun, optional
    examples : sequence of Clip
        To begin with.
    longest : float
        Seconds that a clip may last.
    language : str, optional
        Of recordings that say none ("fr"): the synthetic voice that places words needs one.
    """

    def __init__(
        self,
        models: Sequence[ModelChoice],
        *,
        run: StoredRun | None = None,
        audio: str | None = None,
        examples: Sequence[Clip] = (),
        longest: Seconds = LONGEST,
        language: str | None = None,
    ):
        self.choices = {choice.name: choice for choice in models}
        self.run, self.audio, self.longest, self.language = run, audio, longest, language
        self.examples = {clip.name: clip for clip in examples}
        self._recordings: OrderedDict[str, Clip] = OrderedDict()
        self._models: OrderedDict[tuple[str, str, int | None], Model] = OrderedDict()
        self._maps: OrderedDict[str, dict[tuple[str, str], MixingMap]] = OrderedDict()
        self._explanations: OrderedDict[str, Explanation] = OrderedDict()
        self._lock = threading.Lock()
        # Held by whoever draws: matplotlib and librosa are not made for several threads.
        self.drawing = threading.Lock()

    def keep(self, clip: Clip) -> str:
        """Remember a recording and return the name it is asked for by; of too many the oldest is
        forgotten."""
        name = secrets.token_urlsafe(9)
        with self._lock:
            self._recordings[name] = clip
            while len(self._recordings) > _MOST_RECORDINGS:
                self._recordings.popitem(last=False)
        return name

    def recording(self, name: object) -> Clip:
        """Return a recording.

        Raises
        ------
        InputError
            If it is not known (any more).
        """
        with self._lock:
            if not isinstance(name, str) or name not in self._recordings:
                raise InputError("this recording is not here (any more): open it again")
            self._recordings.move_to_end(name)
            return self._recordings[name]

    def model(self, name: object, *, init: str = "trained", seed: int | None = None) -> Model:
        """Return a model, loaded when it is asked for first. Only whoever has the turn asks.

        Raises
        ------
        InputError, ModelError
            If the page does not have it, or it cannot be loaded.
        """
        if not isinstance(name, str) or name not in self.choices:
            raise InputError(
                f"{name!r} is none of this page's models "
                f"({', '.join(self.choices) or 'there are none'}): start it with --model"
            )
        key = (name, init, seed)
        if key not in self._models:
            which: JsonObject = {} if init == "trained" else {"init": init, "seed": seed}
            while len(self._models) >= _MOST_MODELS:
                self._models.popitem(last=False)  # before another needs the memory
            self._models[key] = self.choices[name].load(**which)
        self._models.move_to_end(key)
        return self._models[key]

    def maps(
        self,
        model: Model,
        clip: Clip,
        *,
        measures: Sequence[str],
        units: str,
        progress: answers.Progress | None = None,
    ) -> answers.ClipMaps:
        """Maps of a clip, measured or remembered; cue and target are written into both.

        Raises
        ------
        InputError
            If no measure has a map, remembered ones included.
        """
        keys = {measure: _key(model, clip, measure, units) for measure in measures}
        missing = [measure for measure in measures if keys[measure] not in self._maps]
        refused: dict[str, str] = {}
        for number, measure in enumerate(
            missing
        ):  # one by one: one that is refused takes no other along
            step = _step_of(progress, number, len(missing))
            try:
                self._maps[keys[measure]] = answers.measure_clip(
                    model, clip, measures=[measure], units=units, progress=step
                ).maps
            except InputError as error:
                refused[measure] = str(error)
        maps = {
            key: m for measure in measures for key, m in self._maps.get(keys[measure], {}).items()
        }
        self._forget_maps()  # not before: those of this answer may be more than are remembered
        if not maps:
            raise InputError(next(iter(refused.values())))
        return answers.ClipMaps(
            {key: _with_roles(mixing_map, clip) for key, mixing_map in maps.items()}, refused
        )

    def explanation(self, model: Model, clip: Clip) -> Explanation:
        """Why a model writes its words about a clip, computed or remembered.

        Raises
        ------
        InputError
            As `audio_answers`.
        """
        key = _key(model, clip, "explanation", clip.name)
        if key not in self._explanations:
            self._explanations[key] = answers.explain_clip(model, clip)
            while len(self._explanations) > _MOST_EXPLANATIONS:
                self._explanations.popitem(last=False)
        return self._explanations[key]

    def _forget_maps(self) -> None:
        def size() -> int:
            return sum(
                mixing_map.scores.nbytes
                for maps in self._maps.values()
                for mixing_map in maps.values()
            )

        while len(self._maps) > 1 and (len(self._maps) > _MOST_MAPS or size() > _MOST_MAP_BYTES):
            self._maps.popitem(last=False)


def _step_of(progress: answers.Progress | None, number: int, total: int) -> answers.Progress | None:
    """What is told of one measure, as one step of several."""
    return None if progress is None else lambda note, _done, _total: progress(note, number, total)


def _key(model: Model, clip: Clip, measure: str, units: str) -> str:
    """What decides a map's scores; cue and target do not."""
    words = [word.to_list() for word in clip.words or ()]
    return digest(
        [model.fingerprint, clip.audio_hash, clip.text, clip.language, words, measure, units]
    )


def _with_roles(mixing_map: MixingMap, clip: Clip) -> MixingMap:
    roles: Mapping[str, Json] = {
        "cue": cue_to_json(clip.cue_words),
        "target": clip.target,
        "foil": clip.foil,
    }
    return replace(mixing_map, provenance={**mixing_map.provenance, **roles, "clip": clip.name})
