"""Find a word of a clip or sentence by its text.

In: words, and requests such as 3, "les", "les:2" or ("les", 2). Out: indices. Nothing is guessed: a
request that fits two words is an error that lists both.

A word of a sentence: what it is and which characters of the text it has.
"""

from __future__ import annotations

import operator
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import InputError
from .text_normalization import normalize_text
from .timed_words import Word, format_unit


@dataclass(frozen=True)
class TextWord:
    """A word and where it is written.

    Parameters
    ----------
    text : str
    start, stop : int
        Characters [start, stop) of its part of the sentence.
    part : {"text", "pair", "translation"}
    pieces : tuple of (int, int)
        Ranges of characters of a word in several parts (*ne ... pas*); empty for any other.
    """

    text: str
    start: int
    stop: int
    part: str = "text"
    pieces: tuple[tuple[int, int], ...] = ()

    @property
    def ranges(self) -> tuple[tuple[int, int], ...]:
        """Characters that it has: one range, or several."""
        return self.pieces or ((self.start, self.stop),)

    def __repr__(self) -> str:
        return format_unit(self)


# <mask>, <|endoftext|>, [MASK]: not the word between the brackets.
MARKER_PATTERN = r"<\|?\w+\|?>|\[[A-Z]+\]"

WordRequest = int | str | tuple[str, int]


def find_word(
    words: Sequence[Word | TextWord],
    request: WordRequest,
    *,
    role: str = "word",
    where: str = "words",
) -> int:
    """Return the index of the requested word.

    A request is an index from 0; a word; or a word and which of its occurrences, from 1: ``("les",
    2)`` or ``"les:2"``. A string is first taken as a word, then as word:occurrence, then, if it is
    all digits, as an index. Case, punctuation at the edges, the form of the apostrophe and of
    accents (NFC or NFD) make no difference. A marker such as ``<mask>`` is that marker alone, never
    the word "mask". InputError if no word fits, or more than one; it calls request and list `role`
    and `where`.
    """
    if isinstance(request, str):
        return _find_text(words, request, role, where)
    if isinstance(request, (tuple, list)):
        if len(request) != 2 or not isinstance(request[0], str) or not _is_index(request[1]):
            raise InputError(
                f"{where}: {role} as a pair must be (word, occurrence from 1), found {request!r}"
            )
        return _find_occurrence(words, request[0], operator.index(request[1]), role, where)
    if not _is_index(request):
        raise InputError(
            f"{where}: {role} must be an index, a word or (word, occurrence), found {request!r}"
        )
    return _check_index(words, operator.index(request), role, where)


def _find_text(words: Sequence[Word | TextWord], request: str, role: str, where: str) -> int:
    matches = find_matches(words, request)
    if len(matches) == 1:
        return matches[0]
    if matches:
        listing = ", ".join(
            f"'{words[i].text}:{n}' {describe_word(words[i], i)}" for n, i in enumerate(matches, 1)
        )
        raise InputError(
            f"{where}: {role} {request!r} occurs {len(matches)} times: {listing}. Choose one, "
            f"for example {role}='{request}:2', {role}=({request!r}, 2) or {role}={matches[1]} "
            "(its index)"
        )
    numbered_match = re.fullmatch(r"(.+):([0-9]{1,9})", request.strip())
    if numbered_match:
        return _find_occurrence(words, numbered_match[1], int(numbered_match[2]), role, where)
    if re.fullmatch(r"[0-9]{1,9}", request.strip()):
        return _check_index(words, int(request), role, where)
    raise _missing_word_error(words, request, role, where)


def _find_occurrence(
    words: Sequence[Word | TextWord], text: str, occurrence: int, role: str, where: str
) -> int:
    matches = find_matches(words, text)
    if not matches:
        raise _missing_word_error(words, text, role, where)
    if not 1 <= occurrence <= len(matches):
        raise InputError(
            f"{where}: {role} {text!r} occurs {len(matches)} time(s); occurrences count from 1, "
            f"found {occurrence}"
        )
    return matches[occurrence - 1]


def _check_index(words: Sequence[Word | TextWord], index: int, role: str, where: str) -> int:
    if not 0 <= index < len(words):
        raise InputError(
            f"{where}: {role} index must be 0 to {len(words) - 1}, found {index}; {_list_words(words)}"
        )
    return index


def _is_index(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def find_matches(words: Sequence[Word | TextWord], text: str) -> list[int]:
    """Indices of the words that a spelling fits."""
    if _is_marker(text):
        return [
            index
            for index, word in enumerate(words)
            if word.text.strip().casefold() == text.strip().casefold()
        ]
    normalized_text = normalize_word(text)
    matches = [
        index for index, word in enumerate(words) if normalize_word(word.text) == normalized_text
    ]
    return [index for index in matches if not _is_marker(words[index].text)] or matches


def _is_marker(text: str) -> bool:
    return re.fullmatch(MARKER_PATTERN, text.strip()) is not None


def normalize_word(text: str) -> str:
    """Form of a word in which two spellings of it are equal: case, edge punctuation, apostrophes,
    NFC, without invisible marks.

    Examples
    --------
    >>> normalize_word("« Livres. »"), normalize_word("aujourd’hui")
    ('livres', "aujourd'hui")
    """
    folded = unicodedata.normalize("NFC", normalize_text(text).casefold())
    folded = re.sub("[’ʼ＇]", "'", folded)
    letter_indices = [
        i for i, letter in enumerate(folded) if unicodedata.category(letter)[0] not in "PSZ"
    ]
    return folded[letter_indices[0] : letter_indices[-1] + 1] if letter_indices else folded.strip()


def describe_word(word: Word | TextWord, index: int, unit: str = "word") -> str:
    """A word, or another unit, of a list as errors name it: its index, text and where it is."""
    if isinstance(word, Word):
        times = " and ".join(f"{start:.3f} to {end:.3f}" for start, end in word.intervals)
        return f"{unit} {index} {word.text!r} ({times} s)"
    return f"word {index} {word.text!r} (at character {word.start} of the {word.part})"


def _list_words(words: Sequence[Word | TextWord], max_words: int = 40) -> str:
    listing = ", ".join(f"{index} {word.text!r}" for index, word in enumerate(words[:max_words]))
    return f"the words are {listing}" + (
        f" and {len(words) - max_words} more" if len(words) > max_words else ""
    )


def _missing_word_error(
    words: Sequence[Word | TextWord], text: str, role: str, where: str
) -> InputError:
    normalized_text = normalize_word(text)
    containing_words = dict.fromkeys(
        word.text
        for word in words
        if normalized_text and normalized_text in re.split(r"[^\w]+", normalize_word(word.text))
    )
    hint = (
        f": {normalized_text!r} is a part of {', '.join(map(repr, containing_words))}, which is one word here"
        if containing_words
        else ""
    )
    return InputError(
        f"{where}: {role} {text!r} is not one of the words; {_list_words(words)}. Choose one of "
        f"these{hint}"
    )
