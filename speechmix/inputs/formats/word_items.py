"""Words from items of any form: pairs and triples, dictionaries of recognisers, words in pieces."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from ...errors import InputError
from ...files.json_files import Json, JsonObject
from ..words.timed_words import Word

LABELS, STARTS, ENDS = ("word", "text", "label"), ("start", "start_sec"), ("end", "end_sec")
SCORES = ("score", "confidence", "probability")


_SHORTEST = 0.02  # seconds of a word that is placed between others


def words_from_items(items: Sequence[object], *, where: str = "words") -> list[Word]:
    """Words from JSON items: ``[text, start, end]`` or ``{"word": ..., "start": ..., "end": ...}``.

    A word in pieces is ``[text, [[start, end], ...]]`` or ``{"word": ..., "pieces": [[start, end],
    ...]}``. The label may also be called text or label, the times start_sec and end_sec or (as
    transformers writes them) ``"timestamp": [start, end]``, the score confidence or probability. Of
    objects, words without any times (numerals of WhisperX) are placed between the words around
    them, with a warning, or left out where there is no room.

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
        if pieces := _pieces_of(item):
            words.append(_in_pieces(item, pieces, where=f"{where}: word {index}"))
            continue
        if isinstance(item, dict):
            times = item.get("timestamp")
            times = times if isinstance(times, (list, tuple)) and len(times) == 2 else (None, None)
            parts = (
                first_value(item, LABELS),
                first_value(item, STARTS, times[0]),
                first_value(item, ENDS, times[-1]),
            )
            score = first_value(item, SCORES)
        elif isinstance(item, Sequence) and not isinstance(item, str) and len(item) in (3, 4):
            parts, score = tuple(item[:3]), item[3] if len(item) == 4 else None
        else:
            parts, score = (None,) * 3, None
        if (
            isinstance(item, dict)
            and isinstance(parts[0], str)
            and parts[0].strip()
            and parts[1:] == (None, None)
        ):
            words.append(parts[0].strip())
            continue
        if None in parts:
            raise InputError(
                f"{where}: word {index} must be [text, start, end] or have word, start, end; found "
                f"{item!r}"
            )
        label, start, end = parts
        words.append(word_of_item(label, start, end, score, where=f"{where}: word {index}"))
    return _with_times(words, where)


def _with_times(words: Sequence[Word | str], where: str) -> list[Word]:
    """Place words without times, such as numerals of WhisperX, between the words around them; leave
    out what has no room.

    Raises
    ------
    InputError
        If no word has times.
    """
    timed = [word for word in words if isinstance(word, Word)]
    untimed = [word for word in words if isinstance(word, str)]
    if not untimed:
        return timed
    if not timed:
        raise InputError(
            f"{where}: word 0 must be [text, start, end] or have word, start, end; found "
            f"{untimed[0]!r} alone"
        )
    placed: list[Word] = []
    left_out: list[str] = []
    waiting: list[str] = []
    for word in words:
        if isinstance(word, str):
            waiting.append(word)
            continue
        start, room = (placed[-1].end, word.start - placed[-1].end) if placed else (0.0, 0.0)
        if waiting and room / len(waiting) >= _SHORTEST:
            each = room / len(waiting)
            placed += [
                Word(text, start + i * each, start + (i + 1) * each)
                for i, text in enumerate(waiting)
            ]
        else:
            left_out += waiting
        placed.append(word)
        waiting = []
    left_out += waiting
    spread = [text for text in untimed if text not in left_out]
    what = f"placed between the words around them: {', '.join(spread[:5])}" if spread else ""
    what += ("; " if spread and left_out else "") + (
        f"left out: {', '.join(left_out[:5])}" if left_out else ""
    )
    warnings.warn(f"{where}: {len(untimed)} words have no times; {what}", stacklevel=3)
    return placed


def _pieces_of(item: object) -> Json:
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


def _in_pieces(item: Json, pieces: Json, *, where: str) -> Word:
    """Word of a JSON item with pieces."""
    label, score = (
        (first_value(item, LABELS), first_value(item, SCORES))
        if isinstance(item, dict)
        else (item[0], None)
    )
    if label is None or not isinstance(pieces, (list, tuple)):
        raise InputError(f"{where} must have a word and pieces [[start, end], ...], found {item!r}")
    try:
        times = [(float(start), float(end)) for start, end in pieces]
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"{where}: expected pieces [[start, end], ...] in seconds, found {pieces!r:.80}"
        ) from None
    first = times[0]
    whole = word_of_item(label, *first, score, where=where)
    try:
        return Word.from_pieces(whole.text, times, whole.score)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def first_value(item: JsonObject, names: Sequence[str], default: object = None) -> Json:
    return next((item[name] for name in names if item.get(name) is not None), default)


def word_of_item(text: object, start: Json, end: Json, score: Json, *, where: str) -> Word:
    """Word of four cells, whatever they hold: `float` says whether the last three are numbers."""
    try:
        times = float(start), float(end)
        score = None if score is None else float(score)
    except (TypeError, ValueError, OverflowError) as error:
        shown = ", ".join(repr(value)[:40] for value in (start, end))
        raise InputError(
            f"{where}: expected seconds as numbers with a decimal point, found {shown}, score "
            f"{score!r:.40}"
        ) from error
    return Word(str(text).strip(), *times, score)
