"""Words from items of any form: pairs and triples, dictionaries of recognisers, words in pieces."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

from ...errors import InputError
from ...files.json_files import Json, JsonObject
from ..words.timed_words import Word

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
    warning, or left out where there is no room.

    Raises
    ------
    InputError
        For an item with a part missing.

    Examples
    --------
    >>> words_from_items([["les", 0.1, 0.2], {"text": " livres", "timestamp": [0.2, 0.7]}])[1]
    Word(text='livres', start=0.2, end=0.7, score=None)
    """
    if not isinstance(items, Sequence) or isinstance(items, str):
        raise InputError(f"{where}: expected a list of words, found {type(items).__name__}")
    words: list[Word | str] = []  # a label alone where an aligner gave no times
    for index, item in enumerate(items):
        if pieces := _find_pieces(item):
            words.append(_make_word_from_pieces(item, pieces, where=f"{where}: word {index}"))
            continue
        if isinstance(item, dict):
            timestamp = item.get("timestamp")
            timestamp = (
                timestamp
                if isinstance(timestamp, (list, tuple)) and len(timestamp) == 2
                else (None, None)
            )
            values = (
                first_value(item, LABEL_KEYS),
                first_value(item, START_KEYS, timestamp[0]),
                first_value(item, END_KEYS, timestamp[-1]),
            )
            score, source_label = first_value(item, SCORE_KEYS), item.get("source_label", "")
        elif isinstance(item, Sequence) and not isinstance(item, str) and len(item) in (3, 4, 6):
            values, score = tuple(item[:3]), item[3] if len(item) > 3 else None
            source_label = item[5] if len(item) == 6 else ""
        else:
            values, score, source_label = (None,) * 3, None, ""
        if (
            isinstance(item, dict)
            and isinstance(values[0], str)
            and values[0].strip()
            and values[1:] == (None, None)
        ):
            words.append(values[0].strip())
            continue
        if None in values:
            raise InputError(
                f"{where}: word {index} must be [text, start, end] or have word, start, end; found "
                f"{item!r}"
            )
        label, start, end = values
        word = make_word(label, start, end, score, where=f"{where}: word {index}")
        words.append(replace(word, source_label=str(source_label)))
    return _place_untimed_words(words, where)


def _place_untimed_words(words: Sequence[Word | str], where: str) -> list[Word]:
    """Place words without times, such as numerals of WhisperX, between the words around them; leave
    out what has no room.

    Raises
    ------
    InputError
        If no word has times.
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
    """Word of four cells, whatever they hold: `float` says whether the last three are numbers."""
    try:
        interval = float(start), float(end)
        score = None if score is None else float(score)
    except (TypeError, ValueError, OverflowError) as error:
        listing = ", ".join(repr(value)[:40] for value in (start, end))
        raise InputError(
            f"{where}: expected seconds as numbers with a decimal point, found {listing}, score "
            f"{score!r:.40}"
        ) from error
    return Word(str(text).strip(), *interval, score)
