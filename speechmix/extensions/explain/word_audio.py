"""A word's own sound: the segment of the audio that is aligned to the very word that is explained.

In: a `Writing` of a clip, its choices and transcript errors. Out: which source is each choice's own
sound, [C, S]. That a word comes from its own sound is no news, and it hides the context that
decides, so views, text and tables can set it aside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...inputs.clips.clip import Clip
from ...inputs.words.transcript_accuracy import normalize_transcript
from .source_words import SILENCE
from .transcript_errors import TranscriptError, align_words

if TYPE_CHECKING:
    from .choices import Choice
    from .generated_tokens import SourceUnit, Writing
    from .word_attributions import Attribution, FrameParts


def find_own_audio(
    writing: Writing, choices: Sequence[Choice], errors: Sequence[TranscriptError]
) -> np.ndarray:
    """Whether a source is the audio segment of the very word that a choice is about, bool [C, S].

    Words of the transcript and of the sound are aligned by their spelling, as errors are. A missing
    word's own sound is where it was said; a word that nobody said has none, and neither has the end
    of the text, a translation, or an answer.
    """
    owned = np.zeros((len(choices), len(writing.sources)), dtype=bool)
    clip = writing.decision.item
    if not isinstance(clip, Clip) or writing.model.has_label_head or not writing.model.transcribes:
        return owned
    spoken = [index for index, word in enumerate(clip.spoken_words) if word.text != SILENCE]
    segment_of = _written_segments(
        writing.words, [clip.spoken_words[index].text for index in spoken]
    )
    place_of = {
        source.source.index: source_index
        for source_index, source in enumerate(writing.sources)
        if source.side == "sound"
    }
    for row, choice in enumerate(choices):
        error = None if choice.error is None else errors[choice.error]
        segment = (
            segment_of.get(-1 if choice.word is None else choice.word)
            if error is None
            else error.reference
        )
        if segment is not None and segment < len(spoken) and spoken[segment] in place_of:
            owned[row, place_of[spoken[segment]]] = True
    return owned


def _written_segments(written_words: Sequence[str], spoken: Sequence[str]) -> Mapping[int, int]:
    """For each written word the number of the spoken word that it is aligned to.

    Examples
    --------
    >>> _written_segments(["nos", "euh", "maison"], ["Nos", "maisons"])
    {0: 0, 2: 1}
    """
    spoken_forms = [
        (number, normalize_transcript(word))
        for number, word in enumerate(spoken)
        if normalize_transcript(word)
    ]
    wrote = [
        (number, normalize_transcript(word))
        for number, word in enumerate(written_words)
        if normalize_transcript(word)
    ]
    steps = {
        (row, column): kind
        for kind, row, column in align_words([w for _, w in spoken_forms], [w for _, w in wrote])
    }
    pairs, row, column = {}, 0, 0
    while row < len(spoken_forms) and column < len(wrote):
        kind = steps.get((row, column), "match")
        if kind in ("match", "substitution"):
            pairs[wrote[column][0]] = spoken_forms[row][0]
        row, column = row + (kind != "insertion"), column + (kind != "deletion")
    return pairs


def without_own_audio(
    attribution: Attribution, owned: np.ndarray, sources: Sequence[SourceUnit]
) -> Attribution:
    """A attribution without each choice's own sound [C, S]; a share is then one of all that is not the
    own sound.

    The rest that belongs to no source stays as it was.
    """
    of_own = np.where(owned, np.nan_to_num(attribution.values), 0.0).sum(axis=1)
    values = np.where(owned, np.nan, attribution.values)
    if attribution.of == "share":
        remaining = 1 - of_own[:, None]
        values = np.divide(
            values, remaining, out=np.full_like(values, np.nan), where=remaining > 1e-12
        )
    errors = None if attribution.errors is None else np.where(owned, np.nan, attribution.errors)
    totals = None if attribution.totals is None else attribution.totals - of_own
    return replace(
        attribution,
        values=values,
        errors=errors,
        totals=totals,
        by_frame=_frames_without_own_audio(attribution, owned, sources),
    )


def _frames_without_own_audio(
    attribution: Attribution, owned: np.ndarray, sources: Sequence[SourceUnit]
) -> FrameParts | None:
    if attribution.by_frame is None:
        return None
    values = attribution.by_frame.values.copy()
    for row, source_index in np.argwhere(owned):
        values[row, list(sources[source_index].source.positions)] = np.nan
    return replace(attribution.by_frame, values=values)
