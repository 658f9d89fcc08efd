"""What recognisers write, against what was said: word error rate, and whether one word is right at
its own place.

In: a recogniser and a clip, or two texts. Out: transcript, errors, and character ranges of
reference words in the transcript, through the edit operations that turn one into the other (jiwer);
a word that only occurs elsewhere is not right. The normaliser is French-safe: case, punctuation,
hyphens, the apostrophe's form and figures against words make no difference, accents do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...adapters.generation.transcription import transcribe
from ...errors import InputError, MissingExtraError
from ...files.json_files import JsonObject
from .language.spoken import split_written_words
from .study_folder import clip_from_line

if TYPE_CHECKING:
    from ...adapters import Model
    from ...inputs.clips.clip import Clip

Range = tuple[int, int]


class TranscriptComparison(NamedTuple):
    """A transcript against its reference.

    Parameters
    ----------
    errors, words : int
        Edit operations, and words of the reference.
    places : list of (range, range or None)
        For each word of the reference: its characters there, and in the transcript if it is right.
    """

    errors: int
    words: int
    places: list[tuple[Range, Range | None]]

    def place_of(self, stretch: Range) -> Range | None:
        """Characters in the transcript of a stretch of the reference; None unless every word of it
        is right."""
        places = [
            place for there, place in self.places if there[0] < stretch[1] and stretch[0] < there[1]
        ]
        right = [place for place in places if place is not None]
        if not places or len(right) < len(places):
            return None
        return right[0][0], right[-1][1]


def compare_transcript(reference: str, transcript: str) -> TranscriptComparison:
    """Compare two texts word by word. Where several edits cost the same, jiwer's choice decides
    which words are right.

    Raises
    ------
    InputError
        If the reference has no words.
    MissingExtraError
        If jiwer is not installed.

    Examples
    --------
    >>> compared = compare_transcript("Les livres, l'été: 20 livres.", "les livre l’été vingt livres")
    >>> compared.errors, compared.words, compared.place_of((4, 10)), compared.place_of((22, 28))
    (1, 6, None, (22, 28))
    """
    try:
        import jiwer
    except ImportError as error:
        raise MissingExtraError(
            "jiwer", "french", "word error rates and the choice of examples by transcript"
        ) from error

    reference_words, written = normalized_words(reference), normalized_words(transcript)
    if not reference_words:
        raise InputError(f"the reference {reference!r} has no words to compare with")
    output = jiwer.process_words(
        [" ".join(w for w, _ in reference_words)], [" ".join(w for w, _ in written)]
    )
    right: dict[int, int] = {}
    for chunk in output.alignments[0]:
        if chunk.type == "equal":
            right |= {
                i: i - chunk.ref_start_idx + chunk.hyp_start_idx
                for i in range(chunk.ref_start_idx, chunk.ref_end_idx)
            }
    places = [
        (place, written[right[i]][1] if i in right else None)
        for i, (_, place) in enumerate(reference_words)
    ]
    return TranscriptComparison(
        output.substitutions + output.deletions + output.insertions, len(reference_words), places
    )


def normalized_words(text: str) -> list[tuple[str, Range]]:
    """Words to compare, each with its characters in the text.

    Examples
    --------
    >>> normalized_words("L'Été,  80 !")
    [('l', (0, 2)), ('été', (2, 5)), ('quatre', (8, 10)), ('vingts', (8, 10))]
    """
    return [
        (spoken.replace("'", ""), (word.start, word.stop))
        for word in split_written_words(text)
        for spoken in word.spoken_words
        if spoken.strip("'")
    ]


def transcribe_line(model: Model, line: JsonObject, *, max_tokens: int = 200) -> JsonObject:
    """Transcribe one line; return what the stage keeps: transcript, errors, words, wer, tokens.

    Raises
    ------
    InputError
        If the model cannot spell, or the audio is longer than it hears.
    """
    if not model.can_spell:
        raise InputError(
            f"{model.label} cannot transcribe: it needs a CTC or language-model head and its "
            "processor"
        )
    clip = clip_from_line(line)
    transcript = transcribe(model, clip, max_tokens=max_tokens)
    compared = compare_transcript(line["text"], transcript)
    counts = {"transcript": transcript, "errors": compared.errors, "words": compared.words}
    wer = round(compared.errors / compared.words, 4)
    return {**counts, "wer": wer, "tokens": token_ranges(model, clip, transcript)}


def token_ranges(model: Model, clip: Clip, transcript: str) -> list[Range | None] | None:
    """Characters of the transcript that each decoder input position holds; None for the prefix, or
    without a decoder."""
    if model.capabilities.decoding == "frames":
        return None
    from ...adapters.generation.decoder_prefix import decoder_prefix
    from ...adapters.generation.decoder_text import join_to_prefix
    from ...adapters.generation.token_words import tokenize_with_offsets

    text = join_to_prefix(model, transcript)
    ahead = len(text) - len(transcript)
    _, offsets, _ = tokenize_with_offsets(model.tokenizer, text)
    places = [(max(0, start - ahead), max(0, stop - ahead)) for start, stop in offsets]
    return [*[None] * len(decoder_prefix(model, clip)), *places]


def cue_and_target_positions(
    tokens: Sequence[Range | None] | None, cues: Sequence[Range], target: Range
) -> tuple[list[int], list[int]]:
    """Input positions that hold the cue, and those that predict the target: one before those that
    hold it.

    Parameters
    ----------
    tokens : sequence of (start, stop) or None, optional
        From `token_ranges`. Without a decoder both results are empty.
    cues : sequence of (int, int)
        Characters of the transcript, of each of the cue's words.
    target : (int, int)
        Likewise.

    Examples
    --------
    >>> cue_and_target_positions([None, None, (0, 3), (3, 7), (7, 10)], [(0, 3)], (4, 10))
    ([2], [2, 3])
    """

    def holding(word: Range) -> list[int]:
        places = enumerate(tokens or ())
        return [
            position
            for position, p in places
            if p and p[0] < word[1] and word[0] < p[1] and p[0] < p[1]
        ]

    return [position for cue in cues for position in holding(cue)], [
        position - 1 for position in holding(target)
    ]
