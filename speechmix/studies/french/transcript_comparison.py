"""Compare transcripts with what was said: word error rate, and one word's place.

In: a recogniser and a clip, or two texts. Out: transcript, errors, and character ranges of
reference words in the transcript, through the edit operations that turn one into the other (jiwer);
a word that only occurs elsewhere is not right. The normaliser is French-safe: case, punctuation,
hyphens, the apostrophe's form and figures against words make no difference, accents do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from ...adapters.generation.greedy_generation import transcribe
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

    `error_count` counts edit operations, `word_count` words of the reference. `aligned_spans` has
    for each word of the reference its characters there, and in the transcript if it is right, else
    None.
    """

    error_count: int
    word_count: int
    aligned_spans: list[tuple[Range, Range | None]]

    def find_span(self, span: Range) -> Range | None:
        """Characters in the transcript of a stretch of the reference; None unless every word of it
        is right."""
        spans = [
            transcript_span
            for reference_span, transcript_span in self.aligned_spans
            if reference_span[0] < span[1] and span[0] < reference_span[1]
        ]
        correct_spans = [
            transcript_span for transcript_span in spans if transcript_span is not None
        ]
        if not spans or len(correct_spans) < len(spans):
            return None
        return correct_spans[0][0], correct_spans[-1][1]


def compare_transcript(reference: str, transcript: str) -> TranscriptComparison:
    """Compare two texts word by word. Where several edits cost the same, jiwer's choice decides
    which words are right.

    InputError if the reference has no words; MissingExtraError if jiwer is not installed.
    """
    try:
        import jiwer
    except ImportError as error:
        raise MissingExtraError(
            "jiwer", "french", "word error rates and the choice of examples by transcript"
        ) from error

    reference_words, transcript_words = normalized_words(reference), normalized_words(transcript)
    if not reference_words:
        raise InputError(f"the reference {reference!r} has no words to compare with")
    output = jiwer.process_words(
        [" ".join(word for word, _ in reference_words)],
        [" ".join(word for word, _ in transcript_words)],
    )
    transcript_indices: dict[int, int] = {}
    for chunk in output.alignments[0]:
        if chunk.type == "equal":
            transcript_indices |= {
                index: index - chunk.ref_start_idx + chunk.hyp_start_idx
                for index in range(chunk.ref_start_idx, chunk.ref_end_idx)
            }
    aligned_spans = [
        (
            reference_span,
            transcript_words[transcript_indices[index]][1] if index in transcript_indices else None,
        )
        for index, (_, reference_span) in enumerate(reference_words)
    ]
    return TranscriptComparison(
        output.substitutions + output.deletions + output.insertions,
        len(reference_words),
        aligned_spans,
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

    InputError if the model cannot spell, or the audio is longer than it can take.
    """
    if not model.can_transcribe:
        raise InputError(
            f"{model.label} cannot transcribe: it needs a CTC or language-model head and its "
            "processor"
        )
    clip = clip_from_line(line)
    transcript = transcribe(model, clip, max_tokens=max_tokens)
    comparison = compare_transcript(line["text"], transcript)
    counts = {
        "transcript": transcript,
        "errors": comparison.error_count,
        "words": comparison.word_count,
    }
    wer = round(comparison.error_count / comparison.word_count, 4)
    return {**counts, "wer": wer, "tokens": token_ranges(model, clip, transcript)}


def token_ranges(model: Model, clip: Clip, transcript: str) -> list[Range | None] | None:
    """Characters of the transcript that each decoder input position holds; None for the prefix, or
    without a decoder."""
    if model.capabilities.decoding == "frames":
        return None
    from ...adapters.generation.decoder_text import (
        decoder_prefix,
        join_to_prefix,
        tokenize_with_offsets,
    )

    text = join_to_prefix(model, transcript)
    prefix_length = len(text) - len(transcript)
    _, offsets, _ = tokenize_with_offsets(model.tokenizer, text)
    ranges = [
        (max(0, start - prefix_length), max(0, stop - prefix_length)) for start, stop in offsets
    ]
    return [*[None] * len(decoder_prefix(model, clip)), *ranges]


def cue_and_target_positions(
    tokens: Sequence[Range | None] | None, cues: Sequence[Range], target: Range
) -> tuple[list[int], list[int]]:
    """Return the input positions that hold the cue, and those that predict the target.

    The latter are one before those that hold it. `tokens` come from `token_ranges`; without a
    decoder both results are empty. Cues and target are ranges of characters of the transcript, one
    for each of the cue's words.
    """

    def list_positions(word: Range) -> list[int]:
        return [
            position
            for position, token in enumerate(tokens or ())
            if token and token[0] < word[1] and word[0] < token[1] and token[0] < token[1]
        ]

    cue_positions = [position for cue in cues for position in list_positions(cue)]
    return cue_positions, [position - 1 for position in list_positions(target)]
