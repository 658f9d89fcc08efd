"""Compute what the app shows of a clip and a model: transcripts, maps, explanations.

In: a `Clip` and a `Model`. Out: texts, maps, explanations; nothing here depends on the page or
stores anything. A notebook or another page may call the same functions (`recipes/gradio_app.py`
does).

Build the files that the app offers for download: page, picture, TextGrid, audio, manifest row.

In: a `Clip` and its maps. Out: a `SavedFile`, the bytes of a file with a safe name; nothing is
written to a folder.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...adapters.generation.greedy_generation import transcribe
from ...adapters.model import Model
from ...alignment.ctc import has_ctc_head
from ...alignment.whisper_attention import is_trained_whisper
from ...errors import InputError, SpeechmixError
from ...files.cache_keys import versions
from ...files.json_files import Json, JsonObject
from ...files.names import safe_name
from ...inputs.clips.clip import Clip
from ...inputs.clips.player import encode_flac
from ...inputs.formats.textgrid import write_textgrid
from ...inputs.sentences.sentence import Sentence
from ...inputs.words.multipart_words import join_words
from ...inputs.words.spans import clip_frame_count
from ...inputs.words.timed_words import Word
from ...mixing.maps.measure_registry import measure_facts, measure_label, measure_names
from ...mixing.maps.mixing_map import MixingMap
from ...mixing.passes.mix import mix_one
from ...reporting.pages.clip_card import clip_card, model_label
from ...reporting.pages.html_page import render_page
from ...reporting.plots.clip_overview import clip_figure, sound_picture
from ...reporting.plots.figure_style import png_bytes
from ...runs.results.stored_maps import Maps
from ..explain.explain import explain
from ..explain.explanation import Explanation
from ..explain.source_words import describe_missing_speech

# Ways to get word times; "model" is its CTC head or Whisper's cross-attention.
EVEN_SPACING = "evenly"
PLACEMENT_METHODS = ("model", "synthesis", EVEN_SPACING)
# How words came to be by a machine.
_ALIGNERS = ("ctc", "transducer", "whisper", "synthesis", EVEN_SPACING)
SAMPLE_RATE = 16_000  # of a stored recording, in Hz


@dataclass(frozen=True)
class ClipMaps:
    """Hold the maps of a clip in one model.

    Parameters
    ----------
    maps : dict
        By (measure, stack).
    failure_reasons : dict of str to str
        Why a measure has no map.
    """

    maps: dict[tuple[str, str], MixingMap]
    failure_reasons: dict[str, str]


def list_page_measures() -> tuple[str, ...]:
    """List the measures that the page computes: the layer-wise ones."""
    return tuple(
        name for name in measure_names("layer", "model") if measure_facts(name).is_layerwise
    )


def import_drawing_libraries() -> None:
    """Import the audio and drawing libraries ahead of the first request; it takes seconds."""
    clip = Clip.from_array(np.zeros(800, np.float32), 8_000, name="silence")
    sound_picture(clip, width=1.0, height=1.0)
    encode_flac(clip)


def transcribe_clip(model: Model, clip: Clip) -> str:
    """Transcribe a clip with a trained model (greedy).

    Raises
    ------
    InputError
        If the model has no head that generates text, or random weights; if the clip is longer than
        the model's input.
    """
    if model.init != "trained":
        raise InputError(
            f"{model.label} has random weights, so its transcript is noise: choose the trained model"
        )
    if not model.can_transcribe:
        raise InputError(
            f"{model.label} has no CTC or language-model head and cannot transcribe: type what is said"
        )
    return transcribe(model, clip)


def can_align_words(model: Model) -> bool:
    """Return True for a trained model with a CTC head, and for a trained Whisper."""
    return is_trained_whisper(model) or (model.init == "trained" and has_ctc_head(model))


def measure_clip(
    model: Model,
    clip: Clip | Sentence,
    *,
    measures: Sequence[str] = ("value_zeroing",),
    units: str = "word",
    stack: str | None = None,
) -> ClipMaps:
    """Compute maps of a clip or a sentence by several measures, for one or all stacks.

    A measure that fails is listed with its reason.

    Parameters
    ----------
    model : Model
    clip : Clip or Sentence
        A clip with words, for maps of words.
    measures : sequence of str
        Of `list_page_measures()`.
    units : {"word", "frame"}
    stack : str, optional
        All that the model has by default.

    Raises
    ------
    InputError
        If no measure has a map; the message is the reason of the first.
    """
    unknown_measures = set(measures) - set(list_page_measures())
    if unknown_measures or not measures:
        raise InputError(
            f"measures should be some of {', '.join(list_page_measures())}; found "
            f"{', '.join(sorted(unknown_measures)) or 'none'}"
        )
    if isinstance(clip, Clip) and clip.text is None and clip.spoken_words:
        clip = clip.replace(text=join_words(clip.spoken_words))
    maps: dict[tuple[str, str], MixingMap] = {}
    failure_reasons: dict[str, str] = {}
    with model.unchanged():
        for measure in measures:
            try:
                maps.update(mix_one(model, clip, measures=measure, stacks=stack, units=units))
            except SpeechmixError as error:
                failure_reasons[measure] = str(error)
    if not maps:
        raise InputError(next(iter(failure_reasons.values())))
    return ClipMaps(maps, failure_reasons)


def _count_clip_frames(model: Model, clip: Clip) -> tuple[int, int]:
    """Count the frames of a clip, and all that the model sees."""
    grid = model.grid(len(clip.audio(model.sample_rate)))
    return clip_frame_count(grid, clip.duration), grid.n_frames


def count_map_operations(
    model: Model, item: Clip | Sentence, units: str, stack_name: str | None = None
) -> float:
    """Count the operations of a map roughly, in billions: enough to scale the time of another map.

    They are those of a forward pass, and of each pair of a target position and a source in a layer
    (two matrices of the width times four times the width).
    """
    source_count = len(item.words or ())
    token_count = 6 + 1.5 * source_count  # of a decoder behind an encoder
    position_count = all_positions = float(source_count + 2)
    if isinstance(item, Clip) and model.hears:
        position_count, all_positions = _count_clip_frames(model, item)
        source_count = source_count if units == "word" else int(position_count) + 1
    operations = 2 * all_positions * sum(weight.numel() for weight in model.module.parameters())
    for stack in model.stacks.values() if stack_name is None else [model.stacks[stack_name]]:
        reads_input = stack.name == model.capabilities.input_stack
        targets = position_count if reads_input else token_count
        sources = source_count if reads_input or stack.name == "cross" else token_count
        operations += len(stack) * targets * sources * 16 * stack.width**2
    return float(operations) / 1e9


def explain_clip(model: Model, clip: Clip) -> Explanation:
    """Explain each word that the model writes, or its label, against the clip's words and the
    runner-up.

    Parameters
    ----------
    model : Model
        One that generates text (`transcribe_clip`), or a classifier.
    clip : Clip
        With words; for a classifier, and where nobody speaks, segments of the sound take their place.

    Raises
    ------
    InputError
        If the model generates no text, or speech has no word times.
    """
    if describe_missing_speech(clip) is not None:
        if clip.alignment in _ALIGNERS:  # an aligner places a text in any sound
            clip = clip.replace(words=None, doubts=(), cue=None, target=None, foil=None)
    elif not clip.words and not model.has_label_head:
        raise InputError(
            "an explanation needs the word times of the audio: click Align words first"
        )
    if model.init != "trained" or not (model.can_transcribe or model.has_label_head):
        transcribe_clip(model, clip)  # raises the reason
    with model.unchanged():
        return explain(model, clip, against=("reference", "runner_up"))


def model_properties(model: Model) -> JsonObject:
    """Describe a model for a page: its structure and what it can do."""
    return {
        "describe": model.describe(),
        "stacks": list(model.stacks),
        "hears": model.hears,
        "writes": model.init == "trained" and model.can_transcribe,
        "places": can_align_words(model),
    }


_MAX_PAGE_BYTES = 10_000_000  # fits a mail attachment


@dataclass(frozen=True)
class SavedFile:
    """Hold a file that the browser saves."""

    name: str
    media_type: str
    content: bytes


def build_textgrid_file(clip: Clip) -> SavedFile:
    """Encode word times as a TextGrid for Praat.

    Raises
    ------
    InputError
        If the clip has no words.
    """
    words = _require_words(clip, "a TextGrid")
    with tempfile.TemporaryDirectory(prefix="speechmix-") as folder:
        path = Path(folder) / "words.TextGrid"
        write_textgrid(path, words, clip.duration)
        return SavedFile(
            f"{safe_name(clip.name)}.TextGrid", "text/plain; charset=utf-8", path.read_bytes()
        )


def build_flac_file(clip: Clip) -> SavedFile:
    """Encode the audio as FLAC, under the name that `build_manifest_row_file` gives it."""
    return SavedFile(_audio_file_name(clip), "audio/flac", encode_flac(clip))


def build_manifest_row_file(clip: Clip) -> SavedFile:
    """Encode the clip as a line of a JSONL manifest that names its audio file.

    Examples
    --------
    >>> import numpy as np
    >>> clip = Clip.from_array(np.zeros(16_000), 16_000, name="a", text="les", words=[("les", 0.25, 0.5)])
    >>> print(build_manifest_row_file(clip).content.decode().strip())
    {"path": "a.flac", "name": "a", "text": "les", "words": [["les", 0.25, 0.5]]}
    """
    row: JsonObject = {
        "path": _audio_file_name(clip),
        "name": clip.name,
        "text": clip.text,
        "language": clip.language,
    }
    row["words"] = [_round_word_times(word) for word in clip.words or ()] or None
    row |= {"cue": clip.cue, "target": clip.target, "foil": clip.foil}
    line = json.dumps(
        {field: value for field, value in row.items() if value is not None}, ensure_ascii=False
    )
    return SavedFile(
        f"{safe_name(clip.name)}.jsonl", "application/jsonl; charset=utf-8", (line + "\n").encode()
    )


def _round_word_times(word: Word) -> list[Any]:
    piece_times = [[round(start, 5), round(end, 5)] for start, end in word.pieces]
    return [
        word.text,
        round(word.start, 5),
        round(word.end, 5),
        *([None, piece_times] if piece_times else []),
    ]


def render_maps_picture(clip: Clip, mixing_map: MixingMap, *, layer: int) -> SavedFile:
    """Draw the clip with a map in its first, middle and last layer and in `layer`, as PNG.

    Raises
    ------
    InputError
        If the clip has no words, or the map lacks the layer.
    """
    _require_words(clip, "a picture with its map")
    layers = sorted(
        {
            mixing_map.layers[0],
            mixing_map.layers[len(mixing_map.layers) // 2],
            mixing_map.layers[-1],
            layer,
        }
    )
    figure = clip_figure(clip, {(mixing_map.measure, mixing_map.stack): mixing_map}, layers=layers)
    return SavedFile(f"{safe_name(clip.name)}.png", "image/png", png_bytes(figure))


def render_maps_page(
    clip: Clip, maps: Maps, *, initial_view: Mapping[str, Json], notes: tuple[str, ...] = ()
) -> SavedFile:
    """Render one self-contained page with audio, words and all maps, as in a run's report.

    Parameters
    ----------
    clip : Clip
    maps : dict
        By (model, init, seed) and (measure, stack).
    initial_view : mapping
        Model, stack, measure (as the page names them) and layer to show first.
    notes : tuple of str
        Paragraphs at the top.
    """
    fact_texts = [
        f"{clip.duration:.2f} s",
        *([f"words aligned by: {clip.alignment}"] if clip.alignment else []),
    ]
    fact_texts += [f"word times are doubtful: {doubt}" for doubt in clip.doubts]
    card = clip_card(
        clip.name,
        clip,
        maps,
        heading=clip.name,
        summary=" · ".join(fact_texts),
        start=initial_view,
        seconds=clip.duration,
        max_bytes=_MAX_PAGE_BYTES,
    )
    models = ", ".join(model_label(key) for key in maps)
    measures = ", ".join(
        dict.fromkeys(
            measure_label(measure) for by_model in maps.values() for measure, _ in by_model
        )
    )
    method_paragraphs = (
        (f"Models: {models}. Measures: {measures}.", f"Measured with {versions()}.") if maps else ()
    )
    page_html = render_page(
        clip.name, [("The clip", [*notes, card]), ("What was measured", [*method_paragraphs])]
    )
    return SavedFile(f"{safe_name(clip.name)}.html", "text/html; charset=utf-8", page_html.encode())


def render_explanation_page(explanation: Explanation) -> SavedFile:
    """Render the page of an explanation, as `Explanation.save` writes it."""
    name = f"{safe_name(explanation.item)}_why.html"
    return SavedFile(name, "text/html; charset=utf-8", explanation.to_html().encode())


def _audio_file_name(clip: Clip) -> str:
    return f"{safe_name(clip.name)}.flac"


def _require_words(clip: Clip, purpose: str) -> Sequence[Word]:
    if not clip.words:
        raise InputError(f"{purpose} needs word times: click Align words first")
    return clip.words
