"""Map the tokens of a text to its words by character offsets.

In: a tokenizer, a text, and words that are in it. Out: ids, labels as they are written, and for
each token the word that it shares characters with.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from ...inputs.words.timed_words import Word
from ...inputs.words.words_in_text import find_word_at, locate_word_parts
from ..transformers_types import Tokenizer

if TYPE_CHECKING:
    from ..model import Model


def align_tokens_to_words(
    tokenizer: Tokenizer, text: str, words: Sequence[Word]
) -> tuple[list[int], list[str], list[int | None]]:
    """Tokens of a text without special ones: ids, labels as they are written, and which of the
    words each is of."""
    ids, offsets, text = tokenize_with_offsets(tokenizer, text)
    word_ranges = locate_word_parts(words, text)
    labels = [
        text[a:b].strip() or token_text(tokenizer, i)
        for i, (a, b) in zip(ids, offsets, strict=True)
    ]
    return ids, labels, [find_word_at(characters, word_ranges) for characters in offsets]


def tokenize_with_offsets(
    tokenizer: Tokenizer, text: str
) -> tuple[list[int], list[tuple[int, int]], str]:
    """Tokens of a text without special ones: ids, the characters of each, and the text that these
    are counted in.

    That is the text itself, or, of a tokenizer that tells no characters, what it spells of the ids:
    it grows by what each adds.
    """
    if getattr(tokenizer, "is_fast", False):
        encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        return (
            list(encoding["input_ids"]),
            [tuple(characters) for characters in encoding["offset_mapping"]],
            text,
        )
    ids = list(tokenizer(text, add_special_tokens=False)["input_ids"])
    piece_ends = [0, *(len(tokenizer.decode(ids[: count + 1])) for count in range(len(ids)))]
    return ids, list(pairwise(piece_ends)), tokenizer.decode(ids)


def decoding_options(model: Model) -> dict[str, bool]:
    """Options of ``tokenizer.decode``: a transducer's text may repeat a token, which a tokenizer
    made for CTC would merge."""
    return {"group_tokens": False} if model.capabilities.is_transducer else {}


def token_text(tokenizer: Tokenizer, token_id: int) -> str:
    """Spell one token for a label; ␣ for one of white space alone."""
    return tokenizer.decode([token_id]).strip() or "␣"
