"""Clip words and pauses that serve as sources of an explanation.

In: a clip, and who is to place words. Out: what was said, and the clip with words that can be taken
away, pauses among them if they are sources, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..adapters.generation.greedy_generation import transcribe
from ..alignment import align
from ..errors import InputError, MissingExtraError
from ..inputs.clips.clip import Clip
from ..inputs.words.timed_words import Word
from ..inputs.words.transcript_accuracy import normalize_transcript

if TYPE_CHECKING:
    from ..adapters.model import Model

SILENCE = "<silence>"
_MIN_SILENCE_SECONDS = 0.03  # seconds between words that are a source of their own


def find_source_words(
    model: Model, clip: Clip, text: str | None, aligner: Model | None, method: str
) -> tuple[tuple[Word, ...], Clip]:
    """What was said (nothing, where nobody says it, or nobody asked), and the clip with words that
    can be taken away."""
    if model.prompt.answer is not None or not model.prompt.transcribes:
        if clip.words is None:
            clip = align(clip, model=aligner or model, method=method)
        return (), clip
    if clip.words is not None:
        return clip.words, clip
    if clip.text:
        clip = _align_text(model, clip, aligner, method)
        return clip.words or (), clip
    transcript = text or transcribe(model, clip)
    if not normalize_transcript(transcript):
        raise InputError(
            f"{clip.name}: {model.label} writes no word, and the clip has none: give words= or "
            "text="
        )
    return (), align(clip.replace(text=transcript), model=aligner or model, method=method)


def _align_text(model: Model, clip: Clip, aligner: Model | None, method: str) -> Clip:
    """The clip with the words of its text as `speechmix score` places them, which does not ask the
    model that is explained.

    A CTC head that mishears a clip also misplaces what was said in it.
    """
    if method == "auto" and aligner is None and clip.language:
        try:
            return align(clip)
        except MissingExtraError:
            pass
    return align(clip, model=aligner or model, method=method)


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
