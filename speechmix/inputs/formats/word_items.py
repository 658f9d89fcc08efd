"""Words from items of any form: pairs and triples, dictionaries of recognisers, words in pieces.

Words with times, and the text, from the JSON files of recognisers.

In: what a JSON file holds. Out: its words in time order, and the text that the file itself has for all of them.
Known are lists of words, objects with "words" (the package's own; OpenAI's service), "segments" (Whisper,
faster-whisper, whisper-timestamped, WhisperX), "chunks" (transformers) and "transcription" (whisper.cpp).
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Sequence
from dataclasses import replace

from ...errors import InputError
from ...files.json_files import Json, JsonObject
from ..words.timed_words import Word
from ..words.transcript_accuracy import is_written_without_blanks, join_labels, normalize_text

LABEL_KEYS, START_KEYS, END_KEYS = (
    ("word", "text", "label"),
    ("start", "start_sec"),
    ("end", "end_sec"),
)
SCORE_KEYS = ("score", "confidence", "probability")


_MIN_WORD_SECONDS = 0.02  # seconds of a word that is placed between others


def words_from_items(items: Sequence[object], *, where: str = "words") -> list[Word]:
    """Words from JSON items: ``[text, start, end]`` or ``{"word": ..., "start": ..., "end": ...}``.

    A word in pieces is ``[text, [[start, end], ...]]`` or ``{"word": ..., "pieces": [[start, end],
    ...]}``. The label may also be called text or label, the times start_sec and end_sec or (as
    transformers writes them) ``"timestamp": [start, end]``, the score confidence or probability. A
    phone may have the label of its file as a sixth entry or as "source_label". Of objects, words
    without any times (numerals of WhisperX) are placed between the words around them, with a
    warning, or left out where there is no room. A last word without an end ends at infinity, with a
    warning: a clip keeps it to its own end.

    Where labels begin with blanks (Whisper's), one without a blank goes on with the word before it:
    " J" and "'aime" are one word, in languages that have blanks. InputError for an incomplete item.
    """
    if not isinstance(items, Sequence) or isinstance(items, str):
        raise InputError(f"{where}: expected a list of words, found {type(items).__name__}")
    words: list[Word | str] = []  # a label alone where an aligner gave no times
    raw_labels: list[str] = []
    for index, item in enumerate(items):
        word, raw_label = _parse_item(item, where=f"{where}: word {index}")
        if isinstance(word, Word) and word.end == math.inf:
            if index + 1 < len(items):
                raise _missing_part_error(item, where=f"{where}: word {index}")
            warnings.warn(
                f"{where}: the last word {word.text!r} has no end: it is kept to the end of the clip",
                stacklevel=2,
            )
        words.append(word)
        raw_labels.append(raw_label)
    return _place_untimed_words(_join_word_pieces(words, raw_labels), where)


def _parse_item(item: object, *, where: str) -> tuple[Word | str, str]:
    """Word of one item, or its label alone if it has no times; and its label as it is in the file."""
    if pieces := _find_pieces(item):
        return _make_word_from_pieces(item, pieces, where=where), ""  # a whole word
    if isinstance(item, dict):
        timestamp = item.get("timestamp")
        timestamp = (
            timestamp
            if isinstance(timestamp, (list, tuple)) and len(timestamp) == 2
            else (None, None)
        )
        label, start, end = (
            first_value(item, LABEL_KEYS),
            first_value(item, START_KEYS, timestamp[0]),
            first_value(item, END_KEYS, timestamp[-1]),
        )
        score, source_label = first_value(item, SCORE_KEYS), item.get("source_label", "")
        if isinstance(label, str) and label.strip() and start is None and end is None:
            return label.strip(), label
    elif isinstance(item, Sequence) and not isinstance(item, str) and len(item) in (3, 4, 6):
        (label, start, end), score = item[:3], item[3] if len(item) > 3 else None
        source_label = item[5] if len(item) == 6 else ""
    else:
        label = start = None
    if label is None or start is None:
        raise _missing_part_error(item, where=where)
    word = make_word(label, start, end, score, where=where)
    return replace(word, source_label=str(source_label)), str(label)


def _missing_part_error(item: object, *, where: str) -> InputError:
    return InputError(
        f"{where} must be [text, start, end] or have word, start, end; found {item!r}"
    )


def _join_word_pieces(words: Sequence[Word | str], raw_labels: Sequence[str]) -> list[Word | str]:
    """Join each word whose label has no leading blank to the one before it, where labels have blanks."""
    blank_count = sum(label[:1].isspace() for label in raw_labels)
    if not blank_count or not (raw_labels[0][:1].isspace() or 2 * blank_count > len(words)):
        return list(words)
    joined: list[Word | str] = []
    for word, raw_label in zip(words, raw_labels, strict=True):
        if joined and _continues_word(_label(joined[-1]), raw_label):
            joined[-1] = _join_two(joined[-1], word)
        else:
            joined.append(word)
    return joined


def _continues_word(previous: str, raw_label: str) -> bool:
    """Whether a label goes on with the word before it; in a script without blanks only signs do."""
    if raw_label[:1].isspace() or not raw_label:
        return False
    has_blanks = not any(map(is_written_without_blanks, (previous[-1:], raw_label[0])))
    return has_blanks or not any(map(str.isalnum, raw_label))


def _join_two(first: Word | str, second: Word | str) -> Word | str:
    """One word of two that follow each other; the times of the one that has some."""
    text = _label(first) + _label(second)
    if isinstance(first, str) or isinstance(second, str):
        timed = next((word for word in (first, second) if isinstance(word, Word)), None)
        return text if timed is None else replace(timed, text=text)
    score = None if first.score is None or second.score is None else min(first.score, second.score)
    return Word(text, first.start, second.end, score)


def _label(word: Word | str) -> str:
    return word.text if isinstance(word, Word) else word


def _place_untimed_words(words: Sequence[Word | str], where: str) -> list[Word]:
    """Place words without times, such as numerals of WhisperX, between the words around them; leave
    out what has no room.

    InputError if no word has times.
    """
    timed_words = [word for word in words if isinstance(word, Word)]
    untimed_words = [word for word in words if isinstance(word, str)]
    if not untimed_words:
        return timed_words
    if not timed_words:
        raise InputError(
            f"{where}: word 0 must be [text, start, end] or have word, start, end; found "
            f"{untimed_words[0]!r} alone"
        )
    placed_words: list[Word] = []
    skipped_words: list[str] = []
    pending_words: list[str] = []
    for word in words:
        if isinstance(word, str):
            pending_words.append(word)
            continue
        start, gap_seconds = (
            (placed_words[-1].end, word.start - placed_words[-1].end)
            if placed_words
            else (0.0, 0.0)
        )
        if pending_words and gap_seconds / len(pending_words) >= _MIN_WORD_SECONDS:
            word_seconds = gap_seconds / len(pending_words)
            placed_words += [
                Word(
                    text, start + word_index * word_seconds, start + (word_index + 1) * word_seconds
                )
                for word_index, text in enumerate(pending_words)
            ]
        else:
            skipped_words += pending_words
        placed_words.append(word)
        pending_words = []
    skipped_words += pending_words
    spread_words = [text for text in untimed_words if text not in skipped_words]
    outcome = (
        f"placed between the words around them: {', '.join(spread_words[:5])}"
        if spread_words
        else ""
    )
    outcome += ("; " if spread_words and skipped_words else "") + (
        f"left out: {', '.join(skipped_words[:5])}" if skipped_words else ""
    )
    warnings.warn(f"{where}: {len(untimed_words)} words have no times; {outcome}", stacklevel=3)
    return placed_words


def _find_pieces(item: object) -> Json:
    """Pieces of a word's JSON item; none of most."""
    if isinstance(item, dict):
        return item.get("pieces")
    if (
        isinstance(item, (list, tuple))
        and len(item) in (2, 5)
        and isinstance(item[-1], (list, tuple))
    ):
        return item[-1]
    return None


def _make_word_from_pieces(item: Json, pieces: Json, *, where: str) -> Word:
    """Word of a JSON item with pieces."""
    label, score = (
        (first_value(item, LABEL_KEYS), first_value(item, SCORE_KEYS))
        if isinstance(item, dict)
        else (item[0], None)
    )
    if label is None or not isinstance(pieces, (list, tuple)):
        raise InputError(f"{where} must have a word and pieces [[start, end], ...], found {item!r}")
    try:
        piece_intervals = [(float(start), float(end)) for start, end in pieces]
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"{where}: expected pieces [[start, end], ...] in seconds, found {pieces!r:.80}"
        ) from None
    first_piece = piece_intervals[0]
    word = make_word(label, *first_piece, score, where=where)
    try:
        return Word.from_pieces(word.text, piece_intervals, word.score)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def first_value(item: JsonObject, names: Sequence[str], default: object = None) -> Json:
    return next((item[name] for name in names if item.get(name) is not None), default)


def make_word(text: object, start: Json, end: Json, score: Json, *, where: str) -> Word:
    """Word of four cells, whatever they hold: `float` says whether the last three are numbers. An
    end of None is not known: the word ends at infinity."""
    try:
        interval = float(start), math.inf if end is None else float(end)
        score = None if score is None else float(score)
    except (TypeError, ValueError, OverflowError) as error:
        listing = ", ".join(repr(value)[:40] for value in (start, end))
        raise InputError(
            f"{where}: expected seconds as numbers with a decimal point, found {listing}, score "
            f"{score!r:.40}"
        ) from error
    if math.inf in interval and end is not None:
        raise InputError(f"{where} must have finite times, found {start} to {end}")
    return Word(str(text).strip(), *interval, score)


_WHISPER_CPP_MARK = re.compile(r"\[_.*_\]|\[_TT_\d+\]")  # tokens that are no text


def words_and_text_from_json(data: Json, *, where: str) -> tuple[list[Word], str | None]:
    """Return the words of a JSON file, and its text, None where it has none.

    InputError if it has no words that can be read.

    Examples
    --------
    >>> words_and_text_from_json({"text": "Oui.", "words": [["oui", 0.1, 0.3]]}, where="a.json")
    ([Word(text='oui', start=0.1, end=0.3, score=None)], 'Oui.')
    """
    if not isinstance(data, dict):
        return words_from_items(data, where=where), None
    segments = next(
        (
            data[name]
            for name in ("segments", "transcription")
            if isinstance(data.get(name), list) and "words" not in data
        ),
        None,
    )
    if segments is None:
        items = data.get("words", data.get("chunks"))
        if items is None:
            raise InputError(
                f'{where}: expected a list of words or an object with "words", found keys {sorted(data)}'
            )
        return words_from_items(items, where=where), _own_text(data, ())
    objects = [segment for segment in segments if isinstance(segment, dict)]
    word_lists = (
        [_whisper_cpp_items(segment) for segment in objects]
        if "transcription" in data
        else [segment.get("words", []) for segment in objects]
    )
    if not all(isinstance(words, list) for words in word_lists):
        raise InputError(
            f"{where}: expected segments with lists of words, found {str(word_lists)[:200]}"
        )
    items = [word for words in word_lists for word in words]
    return words_from_items(items, where=where), _own_text(data, objects)


def _own_text(data: JsonObject, segments: Sequence[JsonObject]) -> str | None:
    """The text of a file, or those of its segments in a row."""
    text = data.get("text")
    if not isinstance(text, str):
        texts = [text for segment in segments if isinstance(text := segment.get("text"), str)]
        if len(texts) < len(segments):
            return None
        has_blanks = any(text[:1].isspace() for text in texts)
        text = "".join(texts) if has_blanks else join_labels(text.strip() for text in texts)
    return normalize_text(text).strip() or None


def _whisper_cpp_items(segment: JsonObject) -> list[JsonObject]:
    """Words, or parts of words, of a segment of whisper.cpp, whose times are milliseconds; the segment
    itself where its tokens are not listed."""
    tokens = segment.get("tokens")
    items = []
    for token in tokens if isinstance(tokens, list) and tokens else [segment]:
        offsets = token.get("offsets") if isinstance(token, dict) else None
        if not isinstance(offsets, dict) or _WHISPER_CPP_MARK.fullmatch(str(token.get("text"))):
            continue
        start, end = (
            value / 1000 if isinstance(value := offsets.get(name), (int, float)) else value
            for name in ("from", "to")
        )
        items.append(
            {"text": token.get("text"), "start": start, "end": end, "score": token.get("p")}
        )
    return items
