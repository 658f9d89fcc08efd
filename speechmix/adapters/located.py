"""Which of some words each token of a text is of, found by characters.

In: a tokenizer, a text, and words that are in it. Out: ids, labels as they are written, and for each token the word that it
shares characters with.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any


def located_tokens(tokenizer: Any, text: str, words: list[str]) -> tuple[list[int], list[str], list[int | None]]:
    """Tokens of a text without special ones: ids, labels as they are written, and which of the words each is of."""
    ids, offsets, text = tokens_with_offsets(tokenizer, text)
    places = locate_words(words, text)
    labels = [text[a:b].strip() or tokenizer.decode([i]).strip() or "␣" for i, (a, b) in zip(ids, offsets, strict=True)]
    return ids, labels, [_word_at(place, places) for place in offsets]


def tokens_with_offsets(tokenizer: Any, text: str) -> tuple[list[int], list[tuple[int, int]], str]:
    """Tokens of a text without special ones: ids, the characters of each, and the text that these are counted in.

    That is the text itself, or, of a tokenizer that tells no characters, what it spells of the ids: it grows by what each adds.
    """
    if getattr(tokenizer, "is_fast", False):
        encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return list(encoded["input_ids"]), [tuple(place) for place in encoded["offset_mapping"]], text
    ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    ends = [0, *(len(tokenizer.decode(ids[: count + 1])) for count in range(len(ids)))]
    return ids, list(pairwise(ends)), tokenizer.decode(ids)


def locate_words(words: list[str], text: str) -> list[tuple[int, int] | None]:
    """Find each word's characters in a text, left to right, case and apostrophe style aside; None where it is not.

    Examples
    --------
    >>> locate_words(["les", "amis", "les"], "Les amis, les vrais")
    [(0, 3), (4, 8), (10, 13)]
    """

    def plain(string: str) -> str:
        return "".join(c.lower() if len(c.lower()) == 1 else c for c in string).replace("’", "'")

    haystack, reached = plain(text), 0
    places: list[tuple[int, int] | None] = []
    for word in words:
        needle = re.escape(plain(word).strip())
        match = re.compile(rf"(?<!\w){needle}(?!\w)").search(haystack, reached) or re.compile(needle).search(
            haystack, reached
        )
        places.append(match.span() if match and needle else None)
        reached = match.end() if match else reached
    return places


def _word_at(offsets: tuple[int, int], places: list[tuple[int, int] | None]) -> int | None:
    """Index of the word that shares characters with a token."""
    start, stop = offsets
    for index, place in enumerate(places):
        if place is not None and max(start, place[0]) < min(stop, place[1]):
            return index
    return None
