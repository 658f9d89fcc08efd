"""Turn requests that need a model into tasks for the queue; a task returns plain values for the page.

In: the `Session` and a decoded request. Out: a function that the queue runs later. A request that
is wrong by itself raises at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ...adapters.model import Model
from ...errors import InputError
from ...files.json_files import Json, JsonObject
from ...inputs.clips.clip import Clip
from ...interventions.removals import SOUND_FILLS
from ...mixing.maps.measure_registry import measure_label
from ...mixing.maps.mixing_map import MixingMap
from ...reporting.pages.clip_card import MAX_UNITS, encode_maps, map_forms, model_label
from ...runs.results.stored_clips import Maps, ModelKey
from ..explain.explanation import Explanation
from ..explain.page_data import explanation_view
from . import clip_changes, downloads, measurements
from .request_queue import Progress
from .requests import (
    ModelRequest,
    parse_choice,
    parse_layer_index,
    parse_model_request,
    parse_model_requests,
    parse_name_list,
    parse_requested_clip,
    parse_requested_item,
    parse_word_indices,
)
from .session import Session

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
