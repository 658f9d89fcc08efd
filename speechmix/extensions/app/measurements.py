"""Compute what the app shows of a clip and a model: transcripts, maps, explanations.

In: a `Clip` and a `Model`. Out: texts, maps, explanations; nothing here depends on the page or
stores anything. A notebook or another page may call the same functions (`recipes/gradio_app.py`
does).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...adapters.generation.greedy_generation import transcribe
from ...adapters.model import Model
from ...alignment.ctc import has_ctc_head
from ...alignment.whisper_attention import is_trained_whisper
from ...errors import InputError, SpeechmixError
from ...files.json_files import JsonObject
from ...inputs.clips.clip import Clip
from ...inputs.clips.player import encode_flac
from ...inputs.sentences.sentence import Sentence
from ...inputs.words.multipart_words import join_words
from ...inputs.words.spans import clip_frame_count
from ...mixing.maps.measure_registry import measure_facts, measure_names
from ...mixing.maps.mixing_map import MixingMap
from ...mixing.passes.mix import mix_one
from ...reporting.plots.clip_overview import sound_picture
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
