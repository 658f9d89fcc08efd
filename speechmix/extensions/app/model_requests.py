"""Turn requests that need a model into tasks for the queue; a task returns plain values for the page.

In: the `Session` and a decoded request. Out: a function that the queue runs later. A request that
is wrong by itself raises at once.

Parse and check the JSON requests of the page: clips, models and options.

In: a decoded JSON object and the `Session`. Out: a `Clip` with the text, words and boundaries that
the page has now, names of models, measures. An error is an `InputError` that the page shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...adapters.model import Model
from ...errors import InputError
from ...files.json_files import Json, JsonObject
from ...inputs.clips.clip import Clip
from ...inputs.formats.word_items import words_from_items
from ...inputs.sentences.sentence import Sentence
from ...interventions.removals import SOUND_FILLS
from ...mixing.maps.measure_registry import measure_label
from ...mixing.maps.mixing_map import MixingMap
from ...reporting.pages.clip_card import MAX_UNITS, encode_maps, map_forms, model_label
from ...runs.results.stored_maps import Maps, ModelKey
from ..explain.explanation import Explanation
from ..explain.page import explanation_view
from . import clip_changes, downloads, measurements
from .request_queue import Progress
from .session import Session

_MAX_CHARACTERS, _MAX_WORDS, _MAX_MODELS = 5_000, 600, 4


@dataclass(frozen=True)
class ModelRequest:
    """Name a model of the page, and the seed of its untrained twin (None: the trained model)."""

    name: str
    seed: int | None = None

    @property
    def load_options(self) -> JsonObject:
        """Return the options of `Session.get_model`."""
        return (
            {"init": "trained", "seed": None}
            if self.seed is None
            else {"init": "random", "seed": self.seed}
        )


def require_json_object(fields: object) -> Mapping[str, Json]:
    """Check that a value is a JSON object, and return it.

    Raises
    ------
    InputError
        If it is not.
    """
    if not isinstance(fields, Mapping):
        raise InputError(f"expected a JSON object, found {type(fields).__name__}")
    return fields


def parse_requested_clip(session: Session, fields: Mapping[str, Json]) -> Clip:
    """Return the clip of a request: a recording with the text, words, cue and target of the page.

    Raises
    ------
    InputError
        If the recording is not stored, or its words are not valid.
    """
    clip_fields = require_json_object(fields.get("clip"))
    clip = session.get_recording(clip_fields.get("recording"))
    words = clip_fields.get("words")
    if words is not None and (
        not isinstance(words, Sequence) or isinstance(words, str) or len(words) > _MAX_WORDS
    ):
        raise InputError(f"expected a list of at most {_MAX_WORDS} words, found {str(words)[:80]}")
    text = _parse_text(clip_fields, "text", _MAX_CHARACTERS)
    untimed_clip = clip.replace(
        words=None,
        doubts=(),
        cue=None,
        target=None,
        text=text,
        language=_parse_text(clip_fields, "language", 12) or clip.language or session.language,
        name=_parse_text(clip_fields, "name", 300) or clip.name,
        foil=_parse_text(clip_fields, "foil", 200),
    )
    if not words:
        return untimed_clip
    cue, target = clip_fields.get("cue") or [], _parse_index(clip_fields, "target", len(words))
    if not isinstance(cue, list):
        raise InputError(f"expected the cue as a list of indices of words, found {cue!r:.80}")
    roles: JsonObject = {
        "cue": [_parse_index({"cue": i}, "cue", len(words)) for i in cue] or None,
        "target": target,
    }
    checked_words = words_from_items(words, where=f"clip {untimed_clip.name!r}")
    return untimed_clip.replace(
        words=checked_words, alignment=_parse_text(clip_fields, "alignment", 60) or "given", **roles
    )


def open_text(text: object) -> JsonObject:
    """Encode a typed text for the page: its words stand at whole numbers, in place of seconds.

    Raises
    ------
    InputError
        If it is no text with words, or too long.
    """
    sentence = _parse_sentence({"text": text})
    words = [[word.text, index, index + 1] for index, word in enumerate(sentence.words)]
    return {
        "name": sentence.text[:60],
        "text": sentence.text,
        "sentence": True,
        "seconds": len(words),
        "words": words,
        "recording": None,
        "cue": [],
        "target": next((i for i, word in enumerate(sentence.words) if word.text == "<mask>"), None),
    }


def _parse_sentence(fields: Mapping[str, Json]) -> Sentence:
    text = (_parse_text(fields, "text", _MAX_CHARACTERS) or "").replace("[MASK]", "<mask>")
    if not text:
        raise InputError("type a sentence first")
    return Sentence(text)


def parse_requested_item(session: Session, fields: Mapping[str, Json]) -> Clip | Sentence:
    """Return what a request is about: a clip, or a sentence that was typed."""
    item_fields = require_json_object(fields.get("clip"))
    if item_fields.get("sentence") is True:
        return _parse_sentence(item_fields)
    return parse_requested_clip(session, fields)


def parse_model_request(fields: Mapping[str, Json]) -> ModelRequest:
    """Return the model of a request."""
    name, seed = fields.get("model"), fields.get("seed")
    if not isinstance(name, str):
        raise InputError(f"expected the name of a model, found {name!r}")
    if seed is not None and not (type(seed) is int and 0 <= seed < 2**31):
        raise InputError(f"expected the seed of a twin as a whole number from 0, found {seed!r}")
    return ModelRequest(name, seed)


def parse_model_requests(fields: Mapping[str, Json]) -> list[ModelRequest]:
    """Return the models of a request, each once."""
    values = fields.get("models")
    if not isinstance(values, list) or not 1 <= len(values) <= _MAX_MODELS:
        raise InputError(f"expected 1 to {_MAX_MODELS} models, found {str(values)[:80]}")
    return list(dict.fromkeys(parse_model_request(require_json_object(model)) for model in values))


def parse_name_list(fields: Mapping[str, Json], field: str) -> list[str]:
    """Return a list of names, each once."""
    values = fields.get(field)
    if (
        not isinstance(values, list)
        or not values
        or not all(isinstance(name, str) for name in values)
    ):
        raise InputError(f"expected {field} as a list of names, found {str(values)[:80]}")
    return list(dict.fromkeys(values))


def parse_word_indices(fields: Mapping[str, Json]) -> list[int]:
    """Return sorted indices of words; the list may be empty."""
    values = fields.get("words")
    if not isinstance(values, list) or not all(type(index) is int for index in values):
        raise InputError(f"expected words as a list of whole numbers, found {str(values)[:80]}")
    return sorted(set(values))


def parse_choice(fields: Mapping[str, Json], field: str, allowed_values: Sequence[str]) -> str:
    """Return one of the allowed values; by default the first."""
    value = fields.get(field, allowed_values[0])
    if value not in allowed_values:
        raise InputError(
            f"{field} should be one of {', '.join(allowed_values)}; found {str(value)[:80]!r}"
        )
    result: str = value
    return result


def parse_layer_index(fields: Mapping[str, Json]) -> int:
    """Return the index of a layer, counted from 0."""
    layer = fields.get("layer", 0)
    if type(layer) is not int or layer < 0:
        raise InputError(f"expected a layer, counted from 0, found {layer!r}")
    return layer


def _parse_text(clip_fields: Mapping[str, Json], field: str, max_characters: int) -> str | None:
    value = clip_fields.get(field)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if not isinstance(value, str) or len(value) > max_characters:
        raise InputError(
            f"expected {field} as a text of at most {max_characters:,} characters, found {str(value)[:80]!r}"
        )
    return " ".join(value.split())


def _parse_index(clip_fields: Mapping[str, Json], role: str, count: int) -> int | None:
    index = clip_fields.get(role)
    if index is not None and not (type(index) is int and 0 <= index < count):
        raise InputError(
            f"expected the {role} as the index of one of {count} words, found {index!r}"
        )
    return index


ModelTask = Callable[[Progress], Any]
_MAX_MAP_BYTES = 2**26  # of one response; layers beyond it are dropped


def build_load_task(session: Session, fields: Mapping[str, Json]) -> ModelTask:
    """Load a model and describe it; list the text models of the page."""
    model_request = parse_model_request(fields)
    return lambda report_progress: {
        "name": model_request.name,
        **measurements.model_properties(_load_model(session, model_request, report_progress)),
        "text_models": [name for name, choice in session.choices.items() if choice.reads_text],
    }


def build_transcription_task(session: Session, fields: Mapping[str, Json]) -> ModelTask:
    """Transcribe a clip with a model."""
    clip, model_request = parse_requested_clip(session, fields), parse_model_request(fields)

    def run_task(report_progress: Progress) -> JsonObject:
        model = _load_model(session, model_request, report_progress)
        note = f"{model.label} transcribes"
        with session.timed(report_progress, note, "transcribe", model.label, clip.duration):
            return {"text": measurements.transcribe_clip(model, clip)}

    return run_task


def build_alignment_task(session: Session, fields: Mapping[str, Json]) -> ModelTask:
    """Align the words of the text with the audio."""
    clip, method = (
        parse_requested_clip(session, fields),
        parse_choice(fields, "how", measurements.PLACEMENT_METHODS),
    )
    model_request = parse_model_request(fields) if method == "model" else None

    def run_task(report_progress: Progress) -> JsonObject:
        model = (
            None if model_request is None else _load_model(session, model_request, report_progress)
        )
        label = method if model is None else model.label
        with session.timed(report_progress, "aligning words", "align", label, clip.duration):
            return clip_metadata(clip_changes.add_word_times(clip, model=model, method=method))

    return run_task


def build_measurement_task(session: Session, fields: Mapping[str, Json]) -> ModelTask:
    """Compute maps of a clip or a sentence in one stack of a model, by some measures."""
    clip, model_request, measures = (
        parse_requested_item(session, fields),
        parse_model_request(fields),
        parse_name_list(fields, "measures"),
    )
    units, requested_stack = parse_choice(fields, "units", ("word", "frame")), fields.get("stack")
    if units == "word" and not clip.words:
        raise InputError(
            "maps of words need word times: click Align words, or choose frames as units"
        )

    def run_task(report_progress: Progress) -> JsonObject:
        model = _load_model(session, model_request, report_progress)
        stacks = list(model.stacks)
        result = session.get_maps(
            model,
            clip,
            measures=measures,
            units=units,
            stack=requested_stack if requested_stack in stacks else stacks[0],
            report_progress=report_progress,
        )
        seconds = clip.duration if isinstance(clip, Clip) else math.inf
        return {
            "maps": _draw_maps({_model_key(model_request): result.maps}, seconds),
            "refused": _list_failure_reasons(result),
            "stacks": stacks,
        }

    return run_task


def build_muting_task(session: Session, fields: Mapping[str, Json]) -> ModelTask:
    """Mute words and transcribe again."""
    clip, model_request, words = (
        parse_requested_clip(session, fields),
        parse_model_request(fields),
        parse_word_indices(fields),
    )
    fill = parse_choice(fields, "fill", SOUND_FILLS)

    def run_task(report_progress: Progress) -> JsonObject:
        model = _load_model(session, model_request, report_progress)
        note = f"{model.label} transcribes"
        with session.timed(report_progress, note, "transcribe", model.label, 2 * clip.duration):
            result = clip_changes.mute_words(model, clip, words, fill=fill)
        recording = session.add_recording(result.clip) if words else None
        changes = [list(pair) for pair in result.changes]
        return {
            "before": result.text_before,
            "after": result.text_after,
            "changes": changes,
            "recording": recording,
        }

    return run_task


def build_explanation_task(session: Session, fields: Mapping[str, Json]) -> ModelTask:
    """Explain the words that a model writes; the page has the audio already."""
    clip, model_request = parse_requested_clip(session, fields), parse_model_request(fields)

    def run_task(report_progress: Progress) -> JsonObject:
        model = _load_model(session, model_request, report_progress)
        return explanation_view(_explain(session, model, clip, report_progress), sound=False)

    return run_task


def build_explanation_file_task(session: Session, fields: Mapping[str, Json]) -> ModelTask:
    """Render one HTML file with an explanation."""
    clip, model_request = parse_requested_clip(session, fields), parse_model_request(fields)

    def run_task(report_progress: Progress) -> downloads.SavedFile:
        model = _load_model(session, model_request, report_progress)
        return downloads.render_explanation_page(_explain(session, model, clip, report_progress))

    return run_task


def build_page_task(session: Session, fields: Mapping[str, Json]) -> ModelTask:
    """Render one HTML file with the maps of some models."""
    clip, model_requests, measures = (
        parse_requested_clip(session, fields),
        parse_model_requests(fields),
        parse_name_list(fields, "measures"),
    )
    units = "word" if clip.words else "frame"
    initial_view = {
        "model": model_label(_model_key(model_requests[0])),
        "stack": fields.get("stack"),
        "measure": measure_label(measures[0]),
        "layer": parse_layer_index(fields),
    }

    def run_task(report_progress: Progress) -> downloads.SavedFile:
        maps: Maps = {}
        for model_request in model_requests:
            model = _load_model(session, model_request, report_progress)
            maps[_model_key(model_request)] = session.get_maps(
                model, clip, measures=measures, units=units, report_progress=report_progress
            ).maps
        report_progress("rendering the page")
        notes = (SYNTHETIC_NOTE,) if _is_synthetic(clip) else ()
        with session.drawing_lock:
            return downloads.render_maps_page(clip, maps, initial_view=initial_view, notes=notes)

    return run_task


def build_picture_task(session: Session, fields: Mapping[str, Json]) -> ModelTask:
    """Draw one map as a PNG file."""
    clip, model_request, layer = (
        parse_requested_clip(session, fields),
        parse_model_request(fields),
        parse_layer_index(fields),
    )
    measure, stack = parse_name_list(fields, "measures")[0], str(fields.get("stack"))

    def run_task(report_progress: Progress) -> downloads.SavedFile:
        model = _load_model(session, model_request, report_progress)
        maps = session.get_maps(
            model,
            clip,
            measures=[measure],
            units="word",
            stack=stack if stack in model.stacks else None,
            report_progress=report_progress,
        ).maps
        if (measure, stack) not in maps:
            raise InputError(f"{model.label} has no map of {measure} in its {stack}")
        report_progress("drawing the picture")
        forms = map_forms(maps[measure, stack])
        drawn_map = next(
            (form for units, form in forms if units == fields.get("units")), forms[0][1]
        )
        with session.drawing_lock:
            return downloads.render_maps_picture(clip, drawn_map, layer=layer)

    return run_task


TASK_BUILDERS: dict[str, Callable[[Session, Mapping[str, Json]], ModelTask]] = {
    "load": build_load_task,
    "write": build_transcription_task,
    "place": build_alignment_task,
    "measure": build_measurement_task,
    "mute": build_muting_task,
    "explain": build_explanation_task,
    "explanation": build_explanation_file_task,
    "page": build_page_task,
    "picture": build_picture_task,
}

SYNTHETIC_NOTE = "This clip is synthetic speech that comes with the package."


def clip_metadata(clip: Clip) -> JsonObject:
    """Encode a clip without its audio for the page."""
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
    """Return True for a clip marked as synthetic speech, as those of the package are."""
    return clip.meta.get("synthetic") == "yes"


def _load_model(session: Session, model_request: ModelRequest, report_progress: Progress) -> Model:
    if session.has_model(model_request.name, **model_request.load_options):
        return session.get_model(model_request.name, **model_request.load_options)
    with session.timed(
        report_progress, f"loading {model_request.name}", "load", model_request.name
    ):
        return session.get_model(model_request.name, **model_request.load_options)


def _explain(session: Session, model: Model, clip: Clip, report_progress: Progress) -> Explanation:
    note = f"explaining the transcript of {model.label}"
    with session.timed(report_progress, note, "explain", model.label, clip.duration):
        return session.get_explanation(model, clip)


def _model_key(model_request: ModelRequest) -> ModelKey:
    return model_request.name, model_request.load_options["init"], model_request.seed


def _draw_maps(maps: Maps, seconds: float) -> list[JsonObject]:
    return encode_maps(maps, seconds, None, _MAX_MAP_BYTES)


def _list_failure_reasons(result: measurements.ClipMaps) -> dict[str, str]:
    """List why measures have no map to show."""
    oversized_maps = {
        measure: f"{max(m.scores.shape[-2:])} units; the page draws at most {MAX_UNITS}: choose words as units"
        for (measure, _), m in result.maps.items()
        if max(m.without("silence", "padding").scores.shape[-2:]) > MAX_UNITS
    }
    return {**oversized_maps, **result.failure_reasons}


def _map_units(maps: Mapping[tuple[str, str], MixingMap]) -> str:
    has_frames = any(
        span.kind == "frame" for mixing_map in maps.values() for span in mixing_map.sources
    )
    return "frame" if has_frames else "word"


def encode_stored_maps(maps: Maps, seconds: float) -> JsonObject:
    """Encode the maps that a run has stored, and their models."""
    models = [
        {
            "label": model_label(key),
            "name": model_label((key[0], "trained", None)),
            "seed": key[2],
            "units": _map_units(model_maps),
        }
        for key, model_maps in maps.items()
    ]
    return {"maps": _draw_maps(maps, seconds), "models": models}
