"""What the app answers, as functions of clips and models: recordings read, words placed, texts
written, maps, words silenced.

In: a `Clip` and a `Model`. Out: clips, maps, texts; nothing here knows of the page or keeps
anything. A notebook or another page may call the same functions (`recipes/gradio_app.py` does).
"""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...adapters.generation.transcription import transcribe
from ...adapters.model import Model
from ...alignment import place_words
from ...alignment.ctc import has_ctc_head
from ...alignment.whisper_attention import is_trained_whisper
from ...errors import InputError, SpeechmixError
from ...explanations.explain import explain
from ...explanations.explanation import Explanation
from ...files.names import safe_name
from ...inputs.audio.decoding import header_seconds
from ...inputs.audio.frame_grid import Seconds
from ...inputs.audio.loading import read_audio
from ...inputs.clips.clip import Clip
from ...inputs.clips.player import flac
from ...inputs.words.multipart_words import join_words
from ...inputs.words.timed_words import Word
from ...interventions.audio_removal import silence
from ...mixing.maps.measure_registry import measure_facts, measure_names
from ...mixing.maps.mixing_map import MixingMap
from ...mixing.passes.mix import mix_one
from ...reporting.plots.sound_panels import sound_picture

# How words can be placed, beside the aligners' own names ("ctc", "whisper", "synthesis").
EVENLY = "evenly"
PLACINGS = ("model", "synthesis", EVENLY)
FIRST_MEASURES = ("value_zeroing", "attention", "attention_norm")
RATE = 16_000  # samples per second that a recording is kept with
_EDGE = 0.05  # share of a clip without words at either end, where words are spread evenly

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


@dataclass(frozen=True)
class SilencedTranscript:
    """What a model writes when words are silenced.

    Parameters
    ----------
    clip : Clip
        With the other sound.
    before, after : str
        Transcripts of the clip as it was and of `clip`.
    changes : list of (before, after)
        Stretches of both texts in order; where both are the same nothing changed.
    """

    clip: Clip
    before: str
    after: str
    changes: list[tuple[str, str]]


def page_measures() -> tuple[str, ...]:
    """Names of the measures that the page computes: those that explain no single number of the
    output."""
    return tuple(
        name for name in measure_names("layer", "model") if measure_facts(name).is_layerwise
    )


def clip_from_bytes(content: bytes, name: str, *, longest: Seconds) -> Clip:
    """Read a recording that was sent, as the bytes of a WAV, FLAC, OGG or MP3 file.

    Parameters
    ----------
    content : bytes
    name : str
        As its owner calls the file; whatever is in it, the clip's name is safe.
    longest : float
        Seconds.

    Raises
    ------
    InputError
        If it is no audio, holds less than it promises, or is longer than `longest`; the message has
        the name, and no path.
    """
    shown = safe_name(name)
    with tempfile.TemporaryDirectory(prefix="speechmix-") as folder:
        path = Path(folder) / shown
        path.write_bytes(content)
        try:
            seconds = header_seconds(path)
            if seconds > longest:
                raise InputError(
                    f"{path} lasts {seconds:.1f} s, expected at most {longest:g} s: cut it, or "
                    "start the page with a longer "
                    "limit (speechmix serve --longest)"
                )
            samples = read_audio(path, sample_rate=RATE)
        except InputError as error:
            raise InputError(str(error).replace(str(path), shown)) from None
    return Clip.from_array(samples, RATE, name=Path(shown).stem)


def warm_up() -> None:
    """Import what reading and drawing a recording takes, which is seconds, before somebody waits
    for it."""
    clip = Clip.from_array(np.zeros(800, np.float32), 8_000, name="silence")
    sound_picture(clip, width=1.0, height=1.0)
    flac(clip)


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


def add_word_times(clip: Clip, *, model: Model | None = None, how: str = "model") -> Clip:
    """Give a clip's text its word times.

    Parameters
    ----------
    clip : Clip
        With a text; words that it has are placed anew.
    model : Model, optional
        For "model": a trained one with a CTC head or, if it is a Whisper, cross-attention.
    how : {"model", "synthesis", "evenly"}
        By the model; by espeak-ng and warping; or evenly by their letters, as a start for moving
        borders by hand.

    Raises
    ------
    InputError, AlignmentError, MissingExtraError
        If the words cannot be placed so.
    """
    if how not in PLACINGS:
        raise InputError(f"how should be one of {PLACINGS}, found {how!r}")
    if not (clip.text or "").split():
        raise InputError(f"{clip.name} has no text yet: type what is said, or let a model write it")
    bare = clip.replace(words=None, doubts=())
    if how == EVENLY:
        return bare.replace(words=_spread(bare), alignment=EVENLY)
    if how == "synthesis":
        if not clip.language:
            raise InputError(
                f"in which language is {clip.name} spoken? Write it into the field language (fr, "
                "en-us, ...), or start the "
                "page with speechmix serve --language: a synthetic voice speaks the text"
            )
        method = how
    elif model is not None and can_place_words(model):
        method = "ctc" if has_ctc_head(model) else "whisper"
    else:
        name = "no model" if model is None else model.label
        raise InputError(
            f"{name} cannot place words: a trained model with a CTC head or a trained Whisper can; "
            "or have the text spoken "
            "(synthesis), or spread it evenly and move the borders"
        )
    alignment = place_words(bare, clip.text or "", model=model, method=method)
    return bare.replace(words=alignment.words, alignment=alignment.method, doubts=alignment.doubts)


def can_place_words(model: Model) -> bool:
    """True for a trained model with a CTC head, and for a trained Whisper."""
    return is_trained_whisper(model) or (model.init == "trained" and has_ctc_head(model))


def _spread(clip: Clip) -> list[Word]:
    """Words one after the other, as long as they have letters."""
    texts = (clip.text or "").split()
    margin = _EDGE * clip.duration
    per_letter = (clip.duration - 2 * margin) / sum(map(len, texts))
    edges = [margin]
    for text in texts:
        edges.append(edges[-1] + per_letter * len(text))
    return [Word(text, edges[i], edges[i + 1]) for i, text in enumerate(texts)]


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


def silence_words(
    model: Model,
    clip: Clip,
    words: Sequence[int],
    *,
    fill: str = "zeros",
    before: str | None = None,
) -> SilencedTranscript:
    """Silence words in the sound and read what the model writes then.

    Parameters
    ----------
    model : Model
        That writes (`transcribe_clip`).
    clip : Clip
        With words.
    words : sequence of int
        Indices; none leaves the clip as it is.
    fill : {"zeros", "room", "noise", "word"}
        See `speechmix.silence`.
    before : str, optional
        What it writes about the whole clip, if that is known.

    Raises
    ------
    InputError
        If the model writes nothing, or there is nothing to fill with.
    """
    before = transcribe_clip(model, clip) if before is None else before
    if not words:
        return SilencedTranscript(clip, before, before, compare_words(before, before))
    quiet = silence(clip, list(words), fill=fill)
    after = transcribe_clip(model, quiet)
    return SilencedTranscript(quiet, before, after, compare_words(before, after))


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


def compare_words(before: str, after: str) -> list[tuple[str, str]]:
    """Words of two texts side by side; where as many were exchanged, one by one.

    Examples
    --------
    >>> compare_words("nos maisons", "notre maisons là")
    [('nos', 'notre'), ('maisons', 'maisons'), ('', 'là')]
    >>> compare_words("elle a dit", "il a")
    [('elle', 'il'), ('a', 'a'), ('dit', '')]
    """
    old, new = before.split(), after.split()
    pairs: list[tuple[str, str]] = []
    for _, i, j, k, m in difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes():
        alike = j - i == m - k
        pairs += (
            zip(old[i:j], new[k:m], strict=True)
            if alike
            else [(" ".join(old[i:j]), " ".join(new[k:m]))]
        )
    return pairs


def describe_model(model: Model) -> dict[str, Any]:
    """What a page needs to know of a model: what it is, and what can be asked of it."""
    return {
        "describe": model.describe(),
        "stacks": list(model.stacks),
        "writes": model.init == "trained" and model.can_spell,
        "places": can_place_words(model),
    }
