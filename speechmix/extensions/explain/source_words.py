"""Clip words and pauses that serve as sources of an explanation.

In: a clip, and who is to place words. Out: what was said, and the clip with words that can be taken
away, pauses among them if they are sources, too; where there are no words, segments of the sound.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ...adapters.generation.decoder_text import spoken_language
from ...adapters.generation.greedy_generation import transcribe
from ...alignment import align, resolve_method
from ...alignment.whisper_attention import is_trained_whisper, named_heads
from ...errors import AlignmentError, InputError, MissingExtraError
from ...inputs.clips.clip import Clip
from ...inputs.clips.segments import SEGMENT_SECONDS, SegmentOption, segment_clip
from ...inputs.words.timed_words import Word
from ...inputs.words.transcript_accuracy import (
    MAX_ERROR_RATE,
    character_error_rate,
    normalize_transcript,
)
from ...mixing.passes.requested_spans import segment_item
from .speech_activity import describe_missing_speech

if TYPE_CHECKING:
    from ...adapters.model import Model

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
