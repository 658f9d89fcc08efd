"""Where a clip's words are in a text: characters, by which a decoder's tokens are told which word
they are part of."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...errors import InputError
from ...inputs.words.multipart_words import list_parts, refuse_multipart_word
from ...inputs.words.timed_words import Word

Characters = tuple[int, int]


def places_in_text(words: Sequence[Word], text: str) -> list[tuple[Characters, ...]]:
    """Characters of each word in a text, a range for each of its parts (*ne ... pas*); none for a
    word that is not all there.

    Examples
    --------
    >>> words = [Word("ne … pas", 0.2, 0.9, pieces=((0.2, 0.3), (0.7, 0.9))), Word("mange", 0.3, 0.7)]
    >>> places_in_text(words, "il ne mange pas")
    [((3, 5), (12, 15)), ((6, 11),)]
    """
    parts = list_parts(words)
    places: list[list[Characters | None]] = [[] for _ in words]
    for (word, _), place in zip(
        parts, locate_words([part.text for _, part in parts], text), strict=True
    ):
        places[word].append(place)
    return [
        () if None in of_word else tuple(place for place in of_word if place) for of_word in places
    ]


def place_of_target(words: Sequence[Word], target: int, text: str, *, where: str) -> Characters:
    """Characters of a target that is written in one part.

    Raises
    ------
    InputError
        If it is not in the text, or in several parts.
    """
    refuse_multipart_word(words[target], "another spelling in its place", where=where)
    places = places_in_text(words, text)[target]
    if not places:
        raise InputError(f"{where}: the target {words[target].text!r} is not in the text {text!r}")
    return places[0]


def locate_words(words: list[str], text: str) -> list[tuple[int, int] | None]:
    """Find each word's characters in a text, left to right, case and apostrophe style aside; None
    where it is not.

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
        match = re.compile(rf"(?<!\w){needle}(?!\w)").search(haystack, reached) or re.compile(
            needle
        ).search(haystack, reached)
        places.append(match.span() if match and needle else None)
        reached = match.end() if match else reached
    return places


def word_at(characters: Characters, places: Sequence[Sequence[Characters]]) -> int | None:
    """Index of the word that shares characters with a token."""
    start, stop = characters
    for index, of_word in enumerate(places):
        if any(max(start, first) < min(stop, last) for first, last in of_word):
            return index
    return None
