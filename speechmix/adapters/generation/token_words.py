"""Which of some words each token of a text is of, found by characters.

In: a tokenizer, a text, and words that are in it. Out: ids, labels as they are written, and for
each token the word that it shares characters with.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ...inputs.words.timed_words import Word
from ..transformers_types import Tokenizer
from .word_positions import places_in_text, word_at


def align_tokens_to_words(
    tokenizer: Tokenizer, text: str, words: Sequence[Word]
) -> tuple[list[int], list[str], list[int | None]]:
    """Tokens of a text without special ones: ids, labels as they are written, and which of the
    words each is of."""
    ids, offsets, text = tokenize_with_offsets(tokenizer, text)
    places = places_in_text(words, text)
    labels = [
        text[a:b].strip() or tokenizer.decode([i]).strip() or "␣"
        for i, (a, b) in zip(ids, offsets, strict=True)
    ]
    return ids, labels, [word_at(place, places) for place in offsets]


def tokenize_with_offsets(
    tokenizer: Tokenizer, text: str
) -> tuple[list[int], list[tuple[int, int]], str]:
    """Tokens of a text without special ones: ids, the characters of each, and the text that these
    are counted in.

    That is the text itself, or, of a tokenizer that tells no characters, what it spells of the ids:
    it grows by what each adds.
    """
    if getattr(tokenizer, "is_fast", False):
        encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return (
            list(encoded["input_ids"]),
            [tuple(place) for place in encoded["offset_mapping"]],
            text,
        )
    ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    ends = [0, *(len(tokenizer.decode(ids[: count + 1])) for count in range(len(ids)))]
    return ids, list(pairwise(ends)), tokenizer.decode(ids)
