"""The requests that take a model: what each is asked, and what it answers, as plain values for the
page.

In: the `Session` and a decoded request. Out: a function that does the work when its turn has come.
What can be seen to be wrong before is refused at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...adapters.model import Model
from ...errors import InputError
from ...explanations.page_data import view_of
from ...files.json_files import Json, JsonObject
from ...inputs.clips.clip import Clip
from ...interventions.audio_removal import SOUND_FILLS
from ...mixing.maps.measure_facts import measure_label
from ...mixing.maps.mixing_map import MixingMap
from ...reporting.pages.map_encoding import MAX_UNITS, encode_maps, map_forms, model_label
from ...runs.results.stored_clips import Maps, ModelKey
from . import clip_changes
from . import downloads as saving
from . import measurements as answers
from .requests import (
    ModelRequest,
    requested_choice,
    requested_clip,
    requested_layer,
    requested_model,
    requested_models,
    requested_names,
    requested_word_indices,
)
from .session import Session

Work = Callable[[answers.Progress], Any]
_MAP_BYTES = 2**26  # of one answer; layers are left out beyond it


def answer_load(session: Session, asked: Mapping[str, Json]) -> Work:
    """Load a model and say what it is."""
    which = requested_model(asked)
    return lambda told: {
        "name": which.name,
        **answers.model_properties(_loaded(session, which, told)),
    }


def answer_write(session: Session, asked: Mapping[str, Json]) -> Work:
    """Let a model write what it hears."""
    clip, which = requested_clip(session, asked), requested_model(asked)

    def work(told: answers.Progress) -> JsonObject:
        model = _loaded(session, which, told)
        told(f"{model.label} listens", 0, 1)
        return {"text": answers.transcribe_clip(model, clip)}

    return work


def answer_place(session: Session, asked: Mapping[str, Json]) -> Work:
    """Place the words of the text."""
    clip, how = requested_clip(session, asked), requested_choice(asked, "how", answers.PLACINGS)
    which = requested_model(asked) if how == "model" else None

    def work(told: answers.Progress) -> JsonObject:
        model = None if which is None else _loaded(session, which, told)
        told("words are placed", 0, 1)
        return clip_facts(clip_changes.add_word_times(clip, model=model, how=how))

    return work


def answer_measure(session: Session, asked: Mapping[str, Json]) -> Work:
    """Maps of a clip in a model, by some measures."""
    clip, which, measures = (
        requested_clip(session, asked),
        requested_model(asked),
        requested_names(asked, "measures"),
    )
    units = requested_choice(asked, "units", ("word", "frame"))
    if units == "word" and not clip.words:
        raise InputError("maps of words need words: place them first, or measure frames")

    def work(told: answers.Progress) -> JsonObject:
        model = _loaded(session, which, told)
        result = session.maps(model, clip, measures=measures, units=units, progress=told)
        return {
            "maps": _drawn({_key(which): result.maps}, clip.duration),
            "refused": _spelled(result, clip.duration),
        }

    return work


def answer_silence(session: Session, asked: Mapping[str, Json]) -> Work:
    """Silence words and write again."""
    clip, which, words = (
        requested_clip(session, asked),
        requested_model(asked),
        requested_word_indices(asked),
    )
    fill = requested_choice(asked, "fill", SOUND_FILLS)

    def work(told: answers.Progress) -> JsonObject:
        model = _loaded(session, which, told)
        told(f"{model.label} listens", 0, 1)
        result = clip_changes.silence_words(model, clip, words, fill=fill)
        recording = session.keep(result.clip) if words else None
        changes = [list(pair) for pair in result.changes]
        return {
            "before": result.before,
            "after": result.after,
            "changes": changes,
            "recording": recording,
        }

    return work


def answer_explain(session: Session, asked: Mapping[str, Json]) -> Work:
    """Why the model writes each of its words: what the view of an explanation shows; the page has
    the sound already."""
    clip, which = requested_clip(session, asked), requested_model(asked)

    def work(told: answers.Progress) -> JsonObject:
        model = _loaded(session, which, told)
        told(f"{model.label}: why it writes its words", 0, 1)
        return view_of(session.explanation(model, clip), sound=False)

    return work


def _save_explanation(session: Session, asked: Mapping[str, Json]) -> Work:
    """One HTML file with an explanation."""
    clip, which = requested_clip(session, asked), requested_model(asked)

    def work(told: answers.Progress) -> saving.SavedFile:
        model = _loaded(session, which, told)
        told(f"{model.label}: why it writes its words", 0, 1)
        return saving.explanation_page(session.explanation(model, clip))

    return work


def _save_page(session: Session, asked: Mapping[str, Json]) -> Work:
    """One HTML file with the maps of some models."""
    clip, models, measures = (
        requested_clip(session, asked),
        requested_models(asked),
        requested_names(asked, "measures"),
    )
    units = "word" if clip.words else "frame"
    start = {
        "model": model_label(_key(models[0])),
        "stack": asked.get("stack"),
        "measure": measure_label(measures[0]),
        "layer": requested_layer(asked),
    }

    def work(told: answers.Progress) -> saving.SavedFile:
        maps: Maps = {}
        for which in models:
            model = _loaded(session, which, told)
            maps[_key(which)] = session.maps(
                model, clip, measures=measures, units=units, progress=told
            ).maps
        told("the page is written", 0, 1)
        notes = (SYNTHETIC,) if _is_synthetic(clip) else ()
        with session.drawing:
            return saving.maps_page(clip, maps, start=start, notes=notes)

    return work


def _save_picture(session: Session, asked: Mapping[str, Json]) -> Work:
    """One PNG file with one map."""
    clip, which, layer = (
        requested_clip(session, asked),
        requested_model(asked),
        requested_layer(asked),
    )
    measure_asked, stack = requested_names(asked, "measures")[0], str(asked.get("stack"))

    def work(told: answers.Progress) -> saving.SavedFile:
        model = _loaded(session, which, told)
        maps = session.maps(model, clip, measures=[measure_asked], units="word", progress=told).maps
        if (measure_asked, stack) not in maps:
            raise InputError(f"{model.label} has no map of {measure_asked} in its {stack}")
        told("the picture is drawn", 0, 1)
        forms = map_forms(maps[measure_asked, stack])
        shown = next((form for units, form in forms if units == asked.get("units")), forms[0][1])
        with session.drawing:
            return saving.maps_picture(clip, shown, layer=layer)

    return work


KINDS: dict[str, Callable[[Session, Mapping[str, Json]], Work]] = {
    "load": answer_load,
    "write": answer_write,
    "place": answer_place,
    "measure": answer_measure,
    "silence": answer_silence,
    "explain": answer_explain,
    "explanation": _save_explanation,
    "page": _save_page,
    "picture": _save_picture,
}

SYNTHETIC = "This clip is synthetic speech that comes with the package."


def clip_facts(clip: Clip) -> JsonObject:
    """What the page keeps of a clip."""
    return {
        "name": clip.name,
        "seconds": clip.duration,
        "text": clip.text,
        "language": clip.language,
        "words": None if clip.words is None else [word.to_list() for word in clip.words],
        "alignment": clip.alignment,
        "doubts": list(clip.doubts),
        "cue": list(clip.cue_words),
        "target": clip.target,
        "foil": clip.foil,
        "synthetic": _is_synthetic(clip),
    }


def _is_synthetic(clip: Clip) -> bool:
    """Whether a clip says of itself that nobody spoke it: those of the package have a voice of
    espeak-ng."""
    return clip.meta.get("synthetic") == "yes"


def _loaded(session: Session, which: ModelRequest, told: answers.Progress) -> Model:
    told(f"{which.name} is loaded", 0, 1)
    return session.model(which.name, **which.which)


def _key(which: ModelRequest) -> ModelKey:
    return which.name, which.which["init"], which.seed


def _drawn(maps: Maps, seconds: float) -> list[JsonObject]:
    return encode_maps(maps, seconds, None, _MAP_BYTES)


def _spelled(result: answers.ClipMaps, seconds: float) -> dict[str, str]:
    """Why measures have no map to look at."""
    large = {
        measure: f"{max(m.scores.shape[-2:])} units are more than a page can draw ({MAX_UNITS}): "
        "measure words instead"
        for (measure, _), m in result.maps.items()
        if max(m.without("silence", "padding").scores.shape[-2:]) > MAX_UNITS
    }
    return {**large, **result.refused}


def _units(maps: Mapping[tuple[str, str], MixingMap]) -> str:
    frames = any(
        span.kind == "frame" for mixing_map in maps.values() for span in mixing_map.sources
    )
    return "frame" if frames else "word"


def stored_maps(maps: Maps, seconds: float) -> JsonObject:
    """Maps that a run has kept, and the models they are of."""
    models = [
        {
            "label": model_label(key),
            "name": model_label((key[0], "trained", None)),
            "seed": key[2],
            "units": _units(own),
        }
        for key, own in maps.items()
    ]
    return {"maps": _drawn(maps, seconds), "models": models}
