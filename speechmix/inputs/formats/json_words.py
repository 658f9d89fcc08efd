"""Words with times, and the text, from the JSON files of recognisers.

In: what a JSON file holds. Out: its words in time order, and the text that the file itself has for all of them.
Known are lists of words, objects with "words" (the package's own; OpenAI's service), "segments" (Whisper,
faster-whisper, whisper-timestamped, WhisperX), "chunks" (transformers) and "transcription" (whisper.cpp).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...errors import InputError
from ...files.json_files import Json, JsonObject
from ..words.text_normalization import join_labels, normalize_text
from ..words.timed_words import Word
from .word_items import words_from_items

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
