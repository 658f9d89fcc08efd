"""Clip words and pauses that serve as sources of an explanation.

In: a clip, and who is to place words. Out: what was said, and the clip with words that can be taken
away, pauses among them if they are sources, too; where there are no words, segments of the sound.

Whether and where somebody speaks in a clip, by the voice activity detector of Silero (package silero-vad, MIT).

In: a clip. Out: why there seems to be no speech in it, or None; the stretches with speech.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from ...adapters.generation.decoder_text import spoken_language
from ...adapters.generation.greedy_generation import transcribe
from ...alignment import align, resolve_method
from ...alignment.whisper_attention import is_trained_whisper, named_heads
from ...errors import AlignmentError, InputError, MissingExtraError, SpeechmixError
from ...inputs.clips.clip import Clip
from ...inputs.clips.segments import SEGMENT_SECONDS, SegmentOption, segment_clip
from ...inputs.words.timed_words import Word
from ...inputs.words.transcript_accuracy import (
    MAX_ERROR_RATE,
    character_error_rate,
    normalize_transcript,
)
from ...mixing.passes.item_view import segment_item

if TYPE_CHECKING:
    from ...adapters.model import Model

SAMPLE_RATE = 16_000
_WINDOW = 512  # samples, 32 ms, that the detector takes at a time
_PEAK = 0.5  # soft speech is speech, too
_LEAST_PROBABILITY = 0.5
_LEAST_WINDOWS = 3  # in a row, 96 ms: some tones are taken for speech for one or two
_LOCK = Lock()  # the detector remembers what it heard


def describe_missing_speech(clip: Clip) -> str | None:
    """Why there seems to be no speech in a clip; None if there is some."""
    audio = np.asarray(clip.audio(SAMPLE_RATE), dtype=np.float32)
    if np.ptp(audio) < 1e-4:  # as the aligner by synthesis has it
        return f"{clip.duration:.2f} s of silence"
    highest, windows_in_a_row = 0.0, 0
    for probability in _window_probabilities(audio):
        highest = max(highest, probability)
        windows_in_a_row = windows_in_a_row + 1 if probability >= _LEAST_PROBABILITY else 0
        if windows_in_a_row == _LEAST_WINDOWS:
            return None
    return (
        "a detector of speech (silero-vad) hears none; its highest probability in 32 ms is "
        f"{100 * highest:.0f} %"
    )


def find_speech(clip: Clip) -> list[tuple[float, float]]:
    """Return the stretches of a clip in which somebody speaks, in seconds."""
    audio = np.asarray(clip.audio(SAMPLE_RATE), dtype=np.float32)
    if np.ptp(audio) < 1e-4:
        return []
    is_speech = np.array([p >= _LEAST_PROBABILITY for p in _window_probabilities(audio)])
    edges = np.flatnonzero(np.diff(np.r_[False, is_speech, False].astype(int)))
    stretches = [range_ for range_ in edges.reshape(-1, 2) if np.ptp(range_) >= _LEAST_WINDOWS]
    return [
        (
            float(start) * _WINDOW / SAMPLE_RATE,
            min(float(stop) * _WINDOW / SAMPLE_RATE, clip.duration),
        )
        for start, stop in stretches
    ]


def _window_probabilities(audio: np.ndarray) -> Iterator[float]:
    """Probability of speech in each window of a sound that is not silent."""
    audio = np.pad(audio * (_PEAK / np.abs(audio).max()), (0, -len(audio) % _WINDOW))
    with _LOCK:
        detector = _load_detector()
        detector.reset_states()
        for window in torch.from_numpy(audio).split(_WINDOW):
            with torch.inference_mode():
                probability = float(detector(window, SAMPLE_RATE))
            yield probability


@lru_cache(maxsize=1)
def _load_detector() -> Any:
    # Not imported: that would have torch use one thread from then on.
    package = find_spec("silero_vad")
    if package is None or package.origin is None:
        raise SpeechmixError("the package silero-vad is missing: pip install silero-vad")
    return torch.jit.load(Path(package.origin).parent / "data" / "silero_vad.jit").eval()


SILENCE = "<silence>"
_MIN_SILENCE_SECONDS = 0.03  # seconds between words that are a source of their own
_LEAST_SCORE = 0.5  # of a word that its aligner finds more likely right than wrong


class FoundSources(NamedTuple):
    """The clip with words or segments that can be taken away; what was said, empty where nobody
    says it, or nobody asked; remarks about both."""

    clip: Clip
    reference_words: tuple[Word | str, ...] = ()
    remarks: tuple[str, ...] = ()


def find_sources(
    model: Model,
    clip: Clip,
    text: str | None,
    aligner: Model | None,
    method: str,
    segments: SegmentOption | None,
) -> FoundSources:
    """The words of a clip as sources, or segments of its sound: where these are asked for, nobody
    speaks, or words cannot be placed."""
    is_transcript = model.prompt.answer is None and model.prompt.transcribes
    is_reference = is_transcript and not model.has_label_head
    reference = tuple[Word | str, ...](clip.spoken_words or (clip.text or "").split())
    reference_words = reference if is_reference else ()
    if segments is not None:
        return FoundSources(segment_item(model, clip, segments), reference_words)
    if clip.words is not None:
        return FoundSources(clip, reference_words)
    if model.has_label_head and not clip.text:
        return _fall_back(clip, "The clip has no words.")
    reason = describe_missing_speech(clip)
    if reason is not None and not _writes_reference(model, clip, text, reference_words):
        return _fall_back(clip, f"Nobody seems to speak here: {reason}.", reference_words)
    try:
        clip_with_words, reference_words = _place_words(
            model, clip, text, aligner, method, is_reference
        )
    except (AlignmentError, InputError, MissingExtraError) as error:
        is_alignment_error = isinstance(error, AlignmentError)
        if not is_alignment_error and (aligner is not None or method != "auto"):
            raise
        remark = f"No words were found in the sound: {str(error).removesuffix('.')}."
        if (
            is_alignment_error
            and is_trained_whisper(model)
            and _writes_reference(model, clip, text, reference_words)
        ):
            return _place_by_attention(model, clip, remark)
        return _fall_back(clip, remark, reference_words)
    if not reference_words and _is_hardly_placed(clip_with_words):
        doubts = " ".join(clip_with_words.doubts)
        whose = "of the clip" if model.has_label_head else "that the model writes"
        return _fall_back(clip, f"Nobody seems to say the text {whose}: {doubts}")
    return FoundSources(clip_with_words, reference_words)


def _fall_back(
    clip: Clip, reason: str, reference_words: tuple[Word | str, ...] = ()
) -> FoundSources:
    seconds = min(SEGMENT_SECONDS, clip.duration)
    remark = f"{reason} The sources are segments of the sound, {seconds:g} s each."
    return FoundSources(segment_clip(clip, seconds), reference_words, (remark,))


def _writes_reference(
    model: Model, clip: Clip, text: str | None, reference_words: tuple[Word | str, ...]
) -> bool:
    """Whether the model writes most of what is said, so that somebody says it."""
    if not reference_words or not model.transcribes:
        return False
    transcript = text or transcribe(model, clip)
    language = spoken_language(model, clip.language)
    return character_error_rate(clip.text or "", transcript, language) <= MAX_ERROR_RATE


def _place_by_attention(model: Model, clip: Clip, remark: str) -> FoundSources:
    """Words by the cross-attention of a Whisper, where an aligner finds none, as synthesis in steady
    noise."""
    placed = align(clip, model=model, method="whisper")
    heads = "the alignment heads that it names" if named_heads(model) else "its steadiest heads"
    remark = f"{remark} The model's cross-attention places them, by {heads}."
    return FoundSources(placed, placed.words or (), (remark,))


def _is_hardly_placed(clip: Clip) -> bool:
    """Whether the aligner doubts the words, and each of them is more likely wrong than right."""
    return bool(clip.doubts) and all(
        word.score is not None and word.score < _LEAST_SCORE for word in clip.words or ()
    )


def _place_words(
    model: Model,
    clip: Clip,
    text: str | None,
    aligner: Model | None,
    method: str,
    is_reference: bool,
) -> tuple[Clip, tuple[Word, ...]]:
    """The clip with the words of its text, or else of what the model writes; and what was said."""
    if not is_reference:
        return align(clip, model=_choose_aligner(model, aligner, method), method=method), ()
    if clip.text:
        clip = _align_text(model, clip, aligner, method)
        return clip, clip.words or ()
    transcript = text or transcribe(model, clip)
    if not normalize_transcript(transcript):
        raise AlignmentError(f"{model.label} writes no word.")
    aligner = _choose_aligner(model, aligner, method)
    language = spoken_language(model, clip.language)  # a model may write one language alone
    clip = clip.replace(text=transcript, language=language)
    return align(clip, model=aligner, method=method), ()


def _align_text(model: Model, clip: Clip, aligner: Model | None, method: str) -> Clip:
    """The clip with the words of its text as `speechmix score` places them, which does not ask the
    model that is explained.

    A CTC head that mishears a clip also misplaces what was said in it.
    """
    language = spoken_language(model, clip.language)
    if method == "auto" and aligner is None and language:
        try:
            return align(clip, language=language)
        except MissingExtraError:
            pass
    return align(clip, model=_choose_aligner(model, aligner, method), method=method)


def _choose_aligner(model: Model, aligner: Model | None, method: str) -> Model | None:
    """The aligner that was given, or the explained model where the method uses it."""
    if aligner is not None:
        return aligner
    return None if resolve_method(model, method) == "synthesis" else model


def add_pauses(clip: Clip) -> Clip:
    """The clip with its pauses among its words; its cue and target are the words that they were."""
    words, reached = list(clip.words or ()), 0.0
    for start, end in sorted(
        [*(edges for word in words for edges in word.intervals), (clip.duration, clip.duration)]
    ):
        if start - reached >= _MIN_SILENCE_SECONDS:
            words.append(Word(SILENCE, reached, start))
        reached = max(reached, end)
    order = sorted(range(len(words)), key=lambda index: words[index].start)
    new_indices = {index: new_index for new_index, index in enumerate(order)}
    cue, target = (
        [new_indices[word] for word in clip.cue_words],
        None if clip.target is None else new_indices[clip.target],
    )
    return clip.replace(
        words=[words[index] for index in order],
        alignment=clip.alignment,
        doubts=clip.doubts,
        cue=cue or None,
        target=target,
        foil=clip.foil,
    )
