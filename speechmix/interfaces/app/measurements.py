"""What the app answers, as functions of clips and models: recordings read, words placed, texts
written, maps, words silenced.

In: a `Clip` and a `Model`. Out: clips, maps, texts; nothing here knows of the page or keeps
anything. A notebook or another page may call the same functions (`recipes/gradio_app.py` does).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ...adapters.generation.transcription import transcribe
from ...adapters.model import Model
from ...alignment.ctc import has_ctc_head
from ...alignment.whisper_attention import is_trained_whisper
from ...errors import InputError, SpeechmixError
from ...explanations.explain import explain
from ...explanations.explanation import Explanation
from ...files.json_files import JsonObject
from ...inputs.clips.clip import Clip
from ...inputs.clips.player import encode_flac
from ...inputs.words.multipart_words import join_words
from ...mixing.maps.measure_registry import measure_facts, measure_names
from ...mixing.maps.mixing_map import MixingMap
from ...mixing.passes.mix import mix_one
from ...reporting.plots.sound_panels import sound_picture

# How words can be placed, beside the aligners' own names ("ctc", "whisper", "synthesis").
EVENLY = "evenly"
PLACINGS = ("model", "synthesis", EVENLY)
FIRST_MEASURES = ("value_zeroing", "attention", "attention_norm")
RATE = 16_000  # samples per second that a recording is kept with

Progress = Callable[[str, int, int], None]  # what is being done, steps done, steps in all


@dataclass(frozen=True)
class ClipMaps:
    """Maps of a clip in one model.

    Parameters
    ----------
    maps : dict
        By (measure, stack).
    refused : dict of str to str
        Why a measure has none.
    """

    maps: dict[tuple[str, str], MixingMap]
    refused: dict[str, str]


def page_measures() -> tuple[str, ...]:
    """Names of the measures that the page computes: those that explain no single number of the
    output."""
    return tuple(
        name for name in measure_names("layer", "model") if measure_facts(name).is_layerwise
    )


def warm_up() -> None:
    """Import what reading and drawing a recording takes, which is seconds, before somebody waits
    for it."""
    clip = Clip.from_array(np.zeros(800, np.float32), 8_000, name="silence")
    sound_picture(clip, width=1.0, height=1.0)
    encode_flac(clip)


def transcribe_clip(model: Model, clip: Clip) -> str:
    """What a trained recogniser hears in a clip (greedy).

    Raises
    ------
    InputError
        If the model writes nothing: it has no head that spells, or random weights; if the clip is
        longer than it hears.
    """
    if model.init != "trained":
        raise InputError(
            f"{model.label} has random weights: what it writes says nothing; ask the trained model"
        )
    if not model.can_spell:
        raise InputError(
            f"{model.label} writes no text (it has no CTC or language-model head): type what is "
            "said"
        )
    return transcribe(model, clip)


def can_place_words(model: Model) -> bool:
    """True for a trained model with a CTC head, and for a trained Whisper."""
    return is_trained_whisper(model) or (model.init == "trained" and has_ctc_head(model))


def measure_clip(
    model: Model,
    clip: Clip,
    *,
    measures: Sequence[str] = FIRST_MEASURES,
    units: str = "word",
    progress: Progress | None = None,
) -> ClipMaps:
    """Maps of a clip by several measures, all stacks and layers; a measure that is not defined here
    says why.

    Parameters
    ----------
    model : Model
    clip : Clip
        With words, for maps of words.
    measures : sequence of str
        Of `page_measures()`.
    units : {"word", "frame"}
    progress : callable, optional
        Called before each measure with what is done, how many are done, and of how many.

    Raises
    ------
    InputError
        If no measure has a map: the reason of the first.
    """
    unknown = set(measures) - set(page_measures())
    if unknown or not measures:
        raise InputError(
            f"measures should be some of {', '.join(page_measures())}; found "
            f"{', '.join(sorted(unknown)) or 'none'}"
        )
    if clip.text is None and clip.words:
        clip = clip.replace(text=join_words(clip.words))
    maps: dict[tuple[str, str], MixingMap] = {}
    refused: dict[str, str] = {}
    with model.unchanged():
        for number, measure in enumerate(measures):
            if progress is not None:
                progress(f"{measure.replace('_', ' ')} in {model.label}", number, len(measures))
            try:
                maps.update(mix_one(model, clip, measures=measure, units=units))
            except SpeechmixError as error:
                refused[measure] = str(error)
    if not maps:
        raise InputError(next(iter(refused.values())))
    return ClipMaps(maps, refused)


def explain_clip(model: Model, clip: Clip) -> Explanation:
    """Why the model writes each of its words: errors against the clip's words first, and each word
    against its runner-up.

    Parameters
    ----------
    model : Model
        That writes (`transcribe_clip`).
    clip : Clip
        With words.

    Raises
    ------
    InputError
        If the model writes nothing, or the clip has no words.
    """
    if not clip.words:
        raise InputError("what a word came from is told by words of the sound: place them first")
    if model.init != "trained" or not model.can_spell:
        transcribe_clip(model, clip)  # says why it writes nothing
    with model.unchanged():
        return explain(model, clip, against=("reference", "runner_up"))


def model_properties(model: Model) -> JsonObject:
    """What a page needs to know of a model: what it is, and what can be asked of it."""
    return {
        "describe": model.describe(),
        "stacks": list(model.stacks),
        "writes": model.init == "trained" and model.can_spell,
        "places": can_place_words(model),
    }
