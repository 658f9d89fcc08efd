"""Parser that only splits a text of any language into neighbouring words.

In: a sentence. Out: tokens with their places; an apostrophe or hyphen within a word does not cut it
(it's, well-known).
"""

from __future__ import annotations

import re

from .language.french_tokens import Token

_TOKEN = re.compile(r"[^\W_]+(?:['’\-][^\W_]+)*|[^\w\s]+|_+")


def split_into_tokens(text: str) -> list[Token]:
    """Cut a sentence into words and signs.

    Examples
    --------
    >>> [token.key for token in split_into_tokens("It’s over there, isn't it?")]
    ["it's", 'over', 'there', ',', "isn't", 'it', '?']
    """
    return [
        Token(match.group().lower().replace("’", "'"), *match.span(), match.group()[0].isupper())
        for match in _TOKEN.finditer(text)
    ]
