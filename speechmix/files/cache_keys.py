"""Cache keys: one hash of everything that decides a result.

In: whatever JSON can say (texts, numbers, lists, dictionaries). Out: 32 hexadecimal digits, the
same on every machine and in every process. Results are stored with the hash of their ingredients
and used again only if it is still the same.
"""

from __future__ import annotations

import hashlib
import json
from os import PathLike

_AS_TEXT = json.JSONEncoder(sort_keys=True, ensure_ascii=False, default=str).encode


def digest(content: object) -> str:
    """Return the hash of a value, 32 hexadecimal digits; lists and tuples count as the same, and the
    order of a dictionary does not count.

    Floats are told apart to their last bit. What JSON does not know is taken by its `str`.

    Examples
    --------
    >>> digest({"cue": 2, "words": [("les", 0.1, 0.3)]}) == digest({"words": [["les", 0.1, 0.3]], "cue": 2})
    True
    >>> digest(0.1) == digest(0.1 + 2**-56)
    False
    """
    text = _AS_TEXT(content)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def joined_digests(*digests: str) -> str:
    """Return one hash of several hashes; their order counts.

    Examples
    --------
    >>> joined_digests(digest("a"), digest("b")) == joined_digests(digest("b"), digest("a"))
    False
    """
    return hashlib.blake2b(" ".join(digests).encode("ascii"), digest_size=16).hexdigest()


def file_digest(path: str | PathLike[str]) -> str:
    """Return the hash of a file's bytes, 32 hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
