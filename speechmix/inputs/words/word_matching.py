"""Match words with the letters of a text, in order.

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

from .text_normalization import is_noise_label, is_written_without_blanks

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
