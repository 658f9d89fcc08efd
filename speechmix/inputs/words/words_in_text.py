"""Find the words of a clip in its text. All that compares words with a text does it here.

In: words as they are heard, with fillers, false starts and labels such as "<unk>", and the text as it is
written. Out: the characters of each word, none for a word that is not in the text; what is in one of the two
alone; and the part of a text that some words leave.

Match words with the letters of a text, in order.

In: words, and a text. Out: which letters each word is. Letters are compared; case, accents as Unicode has them,
and signs make no difference. A word begins where a word of the text begins, or where the word before it ends,
and ends likewise: *um* is not in *number*, *l'* and *enfant* are *l'enfant*. Of all ways to place words in order,
the one that covers most letters is taken; of equal words the last, because a false start comes before what is
meant.
"""

from __future__ import annotations

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ...errors import InputError
from .multipart_words import join_words, list_parts, refuse_multipart_word
from .timed_words import Word
from .transcript_accuracy import is_noise_label, is_written_without_blanks

Characters = tuple[int, int]

SIGN_SPELLINGS = str.maketrans("’ʼ＇‐‑", "'''--")


@dataclass(frozen=True)
class FoldedText:
    """Folded letters of a text, and the characters that each stands for.

    `letters` are composed, in small letters, without signs and blanks; `ranges` hold the characters
    of each letter with its accents; `signs` hold what stands between each letter and the one before
    it.
    """

    letters: str
    ranges: list[Characters]
    signs: list[str]

    @classmethod
    @lru_cache(maxsize=4096)  # words come again and again
    def fold(cls, text: str) -> FoldedText:
        clusters: list[Characters] = []
        for index, character in enumerate(text):
            category = unicodedata.category(character)
            is_continued = bool(clusters) and clusters[-1][1] == index
            if is_continued and (category[0] == "M" or category == "Cf"):
                clusters[-1] = (clusters[-1][0], index + 1)
            elif is_letter(character):
                clusters.append((index, index + 1))
        letters, ranges, signs = "", [], []
        previous_stop = 0
        for start, stop in clusters:
            folded = _fold_letter(text[start:stop])
            letters += folded
            ranges += [(start, stop)] * len(folded)
            gap = text[previous_stop:start].translate(SIGN_SPELLINGS)
            signs += [gap] + [""] * (len(folded) - 1)
            previous_stop = stop
        return cls(letters, ranges, signs)

    def characters(self, start: int, stop: int) -> Characters:
        return self.ranges[start][0], self.ranges[stop - 1][1]

    def is_boundary(self, position: int) -> bool:
        """Whether a word of the text may begin or end before a letter."""
        if position in (0, len(self.letters)) or self.signs[position]:
            return True
        if self.ranges[position - 1] == self.ranges[position]:
            return False
        return any(map(is_written_without_blanks, self.letters[position - 1 : position + 1]))

    def find_all(self, letters: str) -> Iterator[int]:
        position = self.letters.find(letters)
        while position >= 0:
            yield position
            position = self.letters.find(letters, position + 1)


@dataclass(frozen=True)
class _Match:
    """A word at letters [start, stop) of a text, behind the match before it; and what they all cover."""

    word: int
    start: int
    stop: int
    score: int
    previous: _Match | None


def best_matches(words: Sequence[str], text: FoldedText) -> Iterator[_Match]:
    """Matches in order that cover most letters, the last first."""
    # Of matches that end where a word of the text ends, those that score more than all that end earlier.
    front = [_Match(-1, 0, 0, 0, None)]
    unfinished: dict[int, _Match] = {}  # by their ends, inside a word of the text
    for index, word in enumerate(words):
        folded_word = FoldedText.fold("" if is_noise_label(word) else word)
        new_matches = []
        for start in text.find_all(folded_word.letters) if folded_word.letters else ():
            stop = start + len(folded_word.letters)
            previous = (
                front[bisect_right(front, start, key=lambda match: match.stop) - 1]
                if text.is_boundary(start)
                else unfinished.get(start)
            )
            if previous is None:
                continue
            # "in a" is rather two words than "ina"
            has_other_signs = text.signs[start + 1 : stop] != folded_word.signs[1:]
            score = previous.score + 4 * (stop - start) - has_other_signs
            new_matches.append(_Match(index, start, stop, score, previous))
        for match in new_matches:
            if text.is_boundary(match.stop):
                _add_to_front(front, match)
            elif match.stop not in unfinished or unfinished[match.stop].score <= match.score:
                unfinished[match.stop] = match
    best: _Match | None = front[-1]
    while best is not None and best.previous is not None:
        yield best
        best = best.previous


def _add_to_front(front: list[_Match], match: _Match) -> None:
    position = bisect_left(front, match.stop, key=lambda other: other.stop)
    if front[position - 1].score >= match.score:
        return
    end = position
    while end < len(front) and front[end].score <= match.score:
        end += 1
    if end < len(front) and end == position and front[end].stop == match.stop:
        return
    front[position:end] = [match]


def is_letter(character: str) -> bool:
    return unicodedata.category(character)[0] in "LN" and character.translate(SIGN_SPELLINGS) != "'"


def _fold_letter(letter: str) -> str:
    visible = "".join(c for c in letter if unicodedata.category(c) != "Cf")
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKD", visible).casefold())


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
