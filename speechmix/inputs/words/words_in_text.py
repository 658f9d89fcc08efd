"""Find the words of a clip in its text. All that compares words with a text does it here.

In: words as they are heard, with fillers, false starts and labels such as "<unk>", and the text as it is
written. Out: the characters of each word, none for a word that is not in the text; what is in one of the two
alone; and the part of a text that some words leave. Which words are in a text is said in `word_matching`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from ...errors import InputError
from .multipart_words import join_words, list_parts, refuse_multipart_word
from .text_normalization import is_noise_label
from .timed_words import Word
from .word_matching import SIGN_SPELLINGS, Characters, FoldedText, best_matches, is_letter

# Raised when words that are not all in a text are found elsewhere in it than before: what is stored of such
# clips is computed again.
WORDS_IN_TEXT_REVISION = 1


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
    """Return the characters of a target that is written in one part.

    InputError if it is not in the text, or in several parts.
    """
    refuse_multipart_word(words[target], "another spelling in its place", where=where)
    target_ranges = locate_word_parts(words, text)[target]
    if not target_ranges:
        raise InputError(f"{where}: the target {words[target].text!r} is not in the text {text!r}")
    return target_ranges[0]


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


def cut_text(words: Sequence[Word], kept: Sequence[int], text: str | None) -> str | None:
    """Return the part of a text from the first kept word to the last, with touching punctuation.

    `kept` are ascending indices into all words of a clip. Without a text, or where none of the
    words is in it, they are joined with blanks. None if there is no word to keep.
    """
    ranges = locate_word_parts(words, text) if text else [()] * len(words)
    kept_ranges = sorted(characters for index in kept for characters in ranges[index])
    if text is None or not kept_ranges:
        return join_words(words[index] for index in kept) or None
    first, last = kept_ranges[0][0], max(stop for _, stop in kept_ranges)
    left_out = [
        characters
        for index, word_ranges in enumerate(ranges)
        if index not in set(kept)
        for characters in word_ranges
    ]
    start = max((stop for _, stop in left_out if stop <= first), default=0)
    stop = min((start for start, _ in left_out if start >= last), default=len(text))
    if start:
        start += _divide_gap(text[start:first])
    if stop < len(text):
        stop = last + _divide_gap(text[last:stop])
    return text[start:stop].strip()


def _divide_gap(gap: str) -> int:
    """Where the signs between two words are divided: before one that opens, else at the last blank, else at
    their end."""
    opening = (i for i, sign in enumerate(gap) if unicodedata.category(sign) in ("Ps", "Pi"))
    blanks = (i for i in reversed(range(len(gap))) if gap[i].isspace())
    return next(opening, next(blanks, len(gap)))


def describe_differences(words: Sequence[Word], text: str) -> str:
    """Say which words are not in a text, and what of the text is not among the words; "" if nothing.

    Examples
    --------
    >>> describe_differences([Word("er", 0, 1), Word("Ever", 1, 2)], "Ever tried")
    "'er' is not in the text; 'tried' is not among the words"
    """
    labels = [part.text for _, part in list_parts(words)]
    ranges = locate_words(labels, text)
    words_alone = [
        label
        for label, characters in zip(labels, ranges, strict=True)
        if characters is None and (is_noise_label(label) or any(map(is_letter, label)))
    ]
    text_alone = _list_text_alone(text, [characters for characters in ranges if characters])
    differences = []
    for strings, list_name in ((words_alone, "in the text"), (text_alone, "among the words")):
        distinct = list(dict.fromkeys(strings))
        if distinct:
            more = f" and {len(distinct) - 5} more" if len(distinct) > 5 else ""
            verb = "is" if len(distinct) == 1 else "are"
            listing = ", ".join(map(repr, distinct[:5]))
            differences.append(f"{listing}{more} {verb} not {list_name}")
    return "; ".join(differences)


def locate_words(words: Sequence[str], text: str) -> list[Characters | None]:
    """Find each word's characters in a text; None for a word that is not in it.

    Examples
    --------
    >>> locate_words(["les", "euh", "amis", "les"], "Les amis, les vrais")
    [(0, 3), None, (4, 8), (10, 13)]
    """
    folded_text = FoldedText.fold(text)
    cores: list[Characters | None] = [None] * len(words)
    for match in best_matches(words, folded_text):
        cores[match.word] = folded_text.characters(match.start, match.stop)
    ranges: list[Characters | None] = []
    previous_stop = 0
    for index, (word, core) in enumerate(zip(words, cores, strict=True)):
        next_start = next((other[0] for other in cores[index + 1 :] if other), len(text))
        characters = (
            _add_signs(word, core, text, previous_stop, next_start)
            if core
            else _find_sign(word, text, previous_stop, next_start)
        )
        previous_stop = characters[1] if characters else previous_stop
        ranges.append(characters)
    return ranges


def _add_signs(word: str, core: Characters, text: str, earliest: int, latest: int) -> Characters:
    """Characters of a word's letters together with the signs at its edges, as far as the text has them."""
    text, word = text.translate(SIGN_SPELLINGS), word.translate(SIGN_SPELLINGS)
    letter_ranges = FoldedText.fold(word).ranges
    leading, trailing = word[: letter_ranges[0][0]], word[letter_ranges[-1][1] :]
    start, stop = core
    while leading and start > earliest and text[start - 1] == leading[-1]:
        start, leading = start - 1, leading[:-1]
    while trailing and stop < latest and text[stop] == trailing[0]:
        stop, trailing = stop + 1, trailing[1:]
    return start, stop


def _find_sign(word: str, text: str, earliest: int, latest: int) -> Characters | None:
    """Characters of a word without letters (*%*), or of a label of noise, between the words around it."""
    if not word or (any(map(is_letter, word)) and not is_noise_label(word)):
        return None
    start = text.find(word, earliest, latest)
    return None if start < 0 else (start, start + len(word))


def _list_text_alone(text: str, ranges: Sequence[Characters]) -> list[str]:
    """Words of a text, or parts of them, that no range covers."""
    alone: list[Characters] = []
    for start, stop in dict.fromkeys(FoldedText.fold(text).ranges):
        if any(range_start <= start < range_stop for range_start, range_stop in ranges):
            continue
        if (
            alone
            and not any(map(str.isspace, text[alone[-1][1] : start]))
            and not any(alone[-1][1] <= range_start < start for range_start, _ in ranges)
        ):
            alone[-1] = (alone[-1][0], stop)
        else:
            alone.append((start, stop))
    return [text[start:stop] for start, stop in alone]
