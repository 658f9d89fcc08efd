"""Find the character positions of a clip's words in a text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...errors import InputError
from ...inputs.words.multipart_words import list_parts, refuse_multipart_word
from ...inputs.words.timed_words import Word

Characters = tuple[int, int]


def locate_word_parts(words: Sequence[Word], text: str) -> list[tuple[Characters, ...]]:
    """Characters of each word in a text, a range for each of its parts (*ne ... pas*); none for a
    word that is not all there.

    Examples
    --------
    >>> words = [Word("ne … pas", 0.2, 0.9, pieces=((0.2, 0.3), (0.7, 0.9))), Word("mange", 0.3, 0.7)]
    >>> locate_word_parts(words, "il ne mange pas")
    [((3, 5), (12, 15)), ((6, 11),)]
    """
    parts = list_parts(words)
    word_ranges: list[list[Characters | None]] = [[] for _ in words]
    for (word, _), characters in zip(
        parts, locate_words([part.text for _, part in parts], text), strict=True
    ):
        word_ranges[word].append(characters)
    return [
        () if None in part_ranges else tuple(characters for characters in part_ranges if characters)
        for part_ranges in word_ranges
    ]


def locate_target(words: Sequence[Word], target: int, text: str, *, where: str) -> Characters:
    """Characters of a target that is written in one part.

    Raises
    ------
    InputError
        If it is not in the text, or in several parts.
    """
    refuse_multipart_word(words[target], "another spelling in its place", where=where)
    target_ranges = locate_word_parts(words, text)[target]
    if not target_ranges:
        raise InputError(f"{where}: the target {words[target].text!r} is not in the text {text!r}")
    return target_ranges[0]


def locate_words(words: list[str], text: str) -> list[tuple[int, int] | None]:
    """Find each word's characters in a text, left to right, case and apostrophe style aside; None
    where it is not.

    Examples
    --------
    >>> locate_words(["les", "amis", "les"], "Les amis, les vrais")
    [(0, 3), (4, 8), (10, 13)]
    """

    def normalize(string: str) -> str:
        return "".join(c.lower() if len(c.lower()) == 1 else c for c in string).replace("’", "'")

    normalized_text, search_start = normalize(text), 0
    ranges: list[tuple[int, int] | None] = []
    for word in words:
        pattern = re.escape(normalize(word).strip())
        match = re.compile(rf"(?<!\w){pattern}(?!\w)").search(
            normalized_text, search_start
        ) or re.compile(pattern).search(normalized_text, search_start)
        ranges.append(match.span() if match and pattern else None)
        search_start = match.end() if match else search_start
    return ranges


def find_word_at(characters: Characters, word_ranges: Sequence[Sequence[Characters]]) -> int | None:
    """Index of the word that shares characters with a token."""
    start, stop = characters
    for index, part_ranges in enumerate(word_ranges):
        if any(
            max(start, range_start) < min(stop, range_stop)
            for range_start, range_stop in part_ranges
        ):
            return index
    return None
