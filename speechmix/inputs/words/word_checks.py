"""Check the word times of a clip.

In: words as a user gives them. Out: a checked tuple of `Word` in time order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from ...errors import InputError
from ..audio.frame_grid import Seconds
from .text_normalization import normalize_text
from .timed_words import Word
from .word_lookup import describe_word

# Overlaps up to this long come from times that were rounded to milliseconds; they are trimmed.
ROUNDING_TOLERANCE: Seconds = 0.001
# Aligners round word ends up to their own frames; an end this far behind the audio is cut to it.
END_TOLERANCE: Seconds = 0.05

# A word, or its parts: (text, start, end) or (text, start, end, score).
WordLike = Word | Sequence[object]


def check_words(
    words: Iterable[WordLike],
    *,
    duration: Seconds | None = None,
    where: str = "words",
    unit: str = "word",
) -> tuple[Word, ...]:
    """Return the words as `Word`s, or say which one cannot be right.

    Overlaps up to 1 ms and starts up to 1 ms before zero are trimmed; an end up to 50 ms behind the
    audio is cut to it, and so is one at infinity, which a file does not say. Words of no length
    (start = end) are legal here; a clip leaves them out. A word may lie between the pieces of
    another. Words are `Word`, (text, start, end[, score[, pieces]]) or (text, pieces), times in
    seconds; pieces are (start, end) pairs. Without `duration` (seconds of audio) the end of the
    audio is not checked. InputError for no words, an empty label, a time that is no number or is
    negative, an end before its start, words out of order or overlapping by more than 1 ms, a word
    past the audio.
    """
    checked: list[Word] = []
    parsed_words = [_parse_word(item, index, where, unit) for index, item in enumerate(words)]
    if any(word.pieces for word in parsed_words):
        return _check_words_with_pieces(parsed_words, duration, where, unit)
    for index, item in enumerate(parsed_words):
        word = _check_times(item, index, duration, where, unit)
        if checked:
            previous = checked[-1]
            start = max(word.start, previous.start)
            if previous.start - word.start > ROUNDING_TOLERANCE:
                raise InputError(
                    f"{where}: {unit}s must be in time order; {describe_word(word, index, unit)} starts "
                    "before "
                    f"{describe_word(previous, index - 1, unit)}: sort them by start"
                )
            if previous.end - word.start > ROUNDING_TOLERANCE:
                raise InputError(
                    f"{where}: {unit}s must not overlap by more than {1000 * ROUNDING_TOLERANCE:g} ms; "
                    f"{describe_word(previous, index - 1, unit)} and {describe_word(word, index, unit)} share "
                    f"{1000 * (previous.end - word.start):.0f} ms: correct one of the two times"
                )
            checked[-1] = replace(previous, end=min(previous.end, start))
            word = replace(word, start=start, end=max(word.end, start))
        checked.append(word)
    if not checked:
        raise InputError(
            f"{where}: expected at least one {unit}, found none: leave `{unit}s` out if there are none "
            "yet"
        )
    return tuple(checked)


def _check_words_with_pieces(
    words: Sequence[Word], duration: Seconds | None, where: str, unit: str
) -> tuple[Word, ...]:
    """Words of which some are in pieces: the pieces of all are checked as words are, in the order
    of time."""
    for index, (previous, word) in enumerate(pairwise(words)):
        if previous.start - word.start > ROUNDING_TOLERANCE:
            raise InputError(
                f"{where}: {unit}s must be in time order; {describe_word(word, index + 1, unit)} starts "
                "before "
                f"{describe_word(previous, index, unit)}: sort them by start"
            )
    pieces = [(interval, index) for index, word in enumerate(words) for interval in word.intervals]
    pieces.sort(key=lambda piece: piece[0])
    piece_words = [
        _check_times(Word(words[index].text, *edges), index, duration, where, unit)
        for edges, index in pieces
    ]
    intervals_by_word: list[list[tuple[Seconds, Seconds]]] = [[] for _ in words]
    for piece, (_, index) in zip(
        check_words(piece_words, duration=duration, where=where), pieces, strict=True
    ):
        if piece.start == piece.end and words[index].pieces:
            raise InputError(
                f"{where}: {describe_word(words[index], index, unit)} has a piece of no length: leave it out"
            )
        intervals_by_word[index].append((piece.start, piece.end))
    return tuple(
        Word(
            word.text,
            intervals[0][0],
            intervals[-1][1],
            word.score,
            tuple(intervals) if word.pieces else (),
            word.source_label,
        )
        for word, intervals in zip(words, intervals_by_word, strict=True)
    )


def _parse_word(item: object, index: int, where: str, unit: str) -> Word:
    if not isinstance(item, Word):
        has_pieces = (
            isinstance(item, Sequence) and len(item) == 2 and isinstance(item[1], (list, tuple))
        )
        if (
            isinstance(item, str)
            or not isinstance(item, Sequence)
            or not (has_pieces or 3 <= len(item) <= 6)
        ):
            raise InputError(f"{where}: {unit} {index} must be (text, start, end), found {item!r}")
        try:
            item = Word.from_pieces(*item) if has_pieces else Word(*item)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
    if not isinstance(item.text, str) or not normalize_text(item.text).strip():
        raise InputError(
            f"{where}: {unit} {index} at {item.start} s has no label, found {item.text!r}: name or "
            "remove it"
        )
    try:
        start, end = float(item.start), float(item.end)
        score = None if item.score is None else float(item.score)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{where}: {unit} {index} {item.text!r} has a time or score that is no number: {item}"
        ) from error
    if not math.isfinite(start) or math.isnan(end) or end == -math.inf:
        raise InputError(
            f"{where}: {unit} {index} {item.text!r} must have finite times, found {start} to {end}"
        )
    if score is not None and not math.isfinite(score):
        raise InputError(
            f"{where}: {unit} {index} {item.text!r} must have a finite score, found {score}: leave it "
            "out if there is none"
        )
    text = normalize_text(item.text).strip() if unit == "word" else item.text.strip()
    return Word(text, start, end, score, item.pieces, item.source_label)


def _check_times(word: Word, index: int, duration: Seconds | None, where: str, unit: str) -> Word:
    """Check a word against itself and the audio; trim what is rounding."""
    if word.end < word.start:
        raise InputError(
            f"{where}: {describe_word(word, index, unit)} ends before it starts: exchange or correct its "
            "times"
        )
    if word.start < -ROUNDING_TOLERANCE:
        raise InputError(
            f"{where}: {describe_word(word, index, unit)} has a negative time: times count from the clip's "
            "start"
        )
    start, end = max(0.0, word.start), max(0.0, word.end)
    if duration is not None:
        # The last clause spares a word of no length that sits exactly on the audio's end.
        if start > duration or (start == duration and end > start):
            raise InputError(
                f"{where}: {describe_word(word, index, unit)} starts past the end of the audio "
                f"({duration:.3f} s): "
                "do words and audio belong together, and are the times seconds?"
            )
        if math.inf > end > duration + END_TOLERANCE:
            raise InputError(
                f"{where}: {describe_word(word, index, unit)} ends {1000 * (end - duration):.0f} ms past "
                "the end of the audio "
                f"({duration:.3f} s), expected at most {1000 * END_TOLERANCE:g} ms: correct the "
                "time or the audio"
            )
        end = min(end, duration)
    return replace(word, start=start, end=end)
