"""A clip's words with times: are they usable, and which of them (or of a sentence's words) does
"les" mean?

In: words as a user gives them, and requests such as 3, "les", "les:2" or ("les", 2). Out: a checked
tuple of `Word` in time order, and indices into it. Nothing is guessed: a request that fits two
words is an error that lists both.
"""

from __future__ import annotations

import math
import operator
import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ..audio.frame_grid import Seconds
from .spans import Word

if TYPE_CHECKING:
    from ..sentences.sentence import TextWord

# Overlaps up to this long come from times that were rounded to milliseconds; they are trimmed.
ROUNDING_NOISE: Seconds = 0.001
# Aligners round word ends up to their own frames; an end this far behind the audio is cut to it.
END_TOLERANCE: Seconds = 0.05

# <mask>, <|endoftext|>, [MASK]: not the word between the brackets.
MARKER = r"<\|?\w+\|?>|\[[A-Z]+\]"

WordRequest = int | str | tuple[str, int]
# A word, or its parts: (text, start, end) or (text, start, end, score).
WordLike = Word | Sequence[Any]


def check_words(
    words: Iterable[WordLike], *, duration: Seconds | None = None, where: str = "words"
) -> tuple[Word, ...]:
    """Return the words as `Word`s, or say which one cannot be right.

    Overlaps up to 1 ms and starts up to 1 ms before zero are trimmed; an end up to 50 ms behind the
    audio is cut to it. Words of no length (start = end) are legal. A word may lie between the
    pieces of another.

    Parameters
    ----------
    words : iterable of Word, (text, start, end[, score[, pieces]]) or (text, pieces)
        Times in seconds; pieces are (start, end) pairs.
    duration : float, optional
        Seconds of audio; without it the end of the audio is not checked.
    where : str
        What to call the list in an error.

    Raises
    ------
    InputError
        For no words, an empty label, a time that is no number or is negative, an end before its
        start, words out of order or overlapping by more than 1 ms, a word past the audio.

    Examples
    --------
    >>> [word.text for word in check_words([("les", 0.1, 0.2), ("livres", 0.2, 0.7)], duration=1.0)]
    ['les', 'livres']
    """
    checked: list[Word] = []
    asked = [_word(item, index, where) for index, item in enumerate(words)]
    if any(word.pieces for word in asked):
        return _checked_in_pieces(asked, duration, where)
    for index, item in enumerate(asked):
        word = _within(item, index, duration, where)
        if checked:
            before = checked[-1]
            start = max(word.start, before.start)
            if before.start - word.start > ROUNDING_NOISE:
                raise InputError(
                    f"{where}: words must be in time order; {_described(word, index)} starts "
                    "before "
                    f"{_described(before, index - 1)}: sort them by start"
                )
            if before.end - word.start > ROUNDING_NOISE:
                raise InputError(
                    f"{where}: words must not overlap by more than {1000 * ROUNDING_NOISE:g} ms; "
                    f"{_described(before, index - 1)} and {_described(word, index)} share "
                    f"{1000 * (before.end - word.start):.0f} ms: correct one of the two times"
                )
            checked[-1] = Word(before.text, before.start, min(before.end, start), before.score)
            word = Word(word.text, start, max(word.end, start), word.score)
        checked.append(word)
    if not checked:
        raise InputError(
            f"{where}: expected at least one word, found none: leave `words` out if there are none "
            "yet"
        )
    return tuple(checked)


def _checked_in_pieces(
    words: Sequence[Word], duration: Seconds | None, where: str
) -> tuple[Word, ...]:
    """Words of which some are in pieces: the pieces of all are checked as words are, in the order
    of time."""
    for index, (before, word) in enumerate(pairwise(words)):
        if before.start - word.start > ROUNDING_NOISE:
            raise InputError(
                f"{where}: words must be in time order; {_described(word, index + 1)} starts "
                "before "
                f"{_described(before, index)}: sort them by start"
            )
    pieces = [(interval, index) for index, word in enumerate(words) for interval in word.intervals]
    pieces.sort(key=lambda piece: piece[0])
    alone = [
        _within(Word(words[index].text, *edges), index, duration, where) for edges, index in pieces
    ]
    placed: list[list[tuple[Seconds, Seconds]]] = [[] for _ in words]
    for piece, (_, index) in zip(
        check_words(alone, duration=duration, where=where), pieces, strict=True
    ):
        if piece.start == piece.end and words[index].pieces:
            raise InputError(
                f"{where}: {_described(words[index], index)} has a piece of no length: leave it out"
            )
        placed[index].append((piece.start, piece.end))
    return tuple(
        Word(
            word.text,
            intervals[0][0],
            intervals[-1][1],
            word.score,
            tuple(intervals) if word.pieces else (),
        )
        for word, intervals in zip(words, placed, strict=True)
    )


def find_word(
    words: Sequence[Word | TextWord],
    request: WordRequest,
    *,
    role: str = "word",
    where: str = "words",
) -> int:
    """Index of the word that is meant.

    Parameters
    ----------
    words : sequence of Word or TextWord
        Of a clip or of a sentence.
    request : int, str or (str, int)
        An index from 0; a word; a word and which of its occurrences, from 1: ``("les", 2)`` or
        ``"les:2"``. A string is first taken as a word, then as word:occurrence, then, if it is all
        digits, as an index. Case, punctuation at the edges, the form of the apostrophe and of
        accents (NFC or NFD) make no difference. A marker such as ``<mask>`` is that marker alone,
        never the word "mask".
    role, where : str
        What to call the request and the list in an error.

    Raises
    ------
    InputError
        If no word fits, or more than one.

    Examples
    --------
    >>> words = check_words([("Les", 0.0, 0.1), ("chats", 0.1, 0.5), ("et", 0.5, 0.6), ("les", 0.6, 0.7)])
    >>> find_word(words, "chats"), find_word(words, "les:2"), find_word(words, ("les", 1)), find_word(words, "3")
    (1, 3, 0, 3)
    """
    if isinstance(request, str):
        return _find_string(words, request, role, where)
    if isinstance(request, (tuple, list)):
        if len(request) != 2 or not isinstance(request[0], str) or not _is_index(request[1]):
            raise InputError(
                f"{where}: {role} as a pair must be (word, occurrence from 1), found {request!r}"
            )
        return _occurrence(words, request[0], operator.index(request[1]), role, where)
    if not _is_index(request):
        raise InputError(
            f"{where}: {role} must be an index, a word or (word, occurrence), found {request!r}"
        )
    return _index(words, operator.index(request), role, where)


def _find_string(words: Sequence[Word | TextWord], request: str, role: str, where: str) -> int:
    matches = matches_of(words, request)
    if len(matches) == 1:
        return matches[0]
    if matches:
        shown = ", ".join(
            f"'{words[i].text}:{n}' {_described(words[i], i)}" for n, i in enumerate(matches, 1)
        )
        raise InputError(
            f"{where}: {role} {request!r} occurs {len(matches)} times: {shown}. Choose one, "
            f"for example {role}='{request}:2', {role}=({request!r}, 2) or {role}={matches[1]} "
            "(its index)"
        )
    numbered = re.fullmatch(r"(.+):([0-9]{1,9})", request.strip())
    if numbered:
        return _occurrence(words, numbered[1], int(numbered[2]), role, where)
    if re.fullmatch(r"[0-9]{1,9}", request.strip()):
        return _index(words, int(request), role, where)
    raise _absent(words, request, role, where)


def _occurrence(
    words: Sequence[Word | TextWord], text: str, number: int, role: str, where: str
) -> int:
    matches = matches_of(words, text)
    if not matches:
        raise _absent(words, text, role, where)
    if not 1 <= number <= len(matches):
        raise InputError(
            f"{where}: {role} {text!r} occurs {len(matches)} time(s); occurrences count from 1, "
            f"found {number}"
        )
    return matches[number - 1]


def _index(words: Sequence[Word | TextWord], index: int, role: str, where: str) -> int:
    if not 0 <= index < len(words):
        raise InputError(
            f"{where}: {role} index must be 0 to {len(words) - 1}, found {index}; {_listed(words)}"
        )
    return index


def _is_index(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def matches_of(words: Sequence[Word | TextWord], text: str) -> list[int]:
    """Indices of the words that a spelling fits."""
    if _is_marker(text):
        return [
            index
            for index, word in enumerate(words)
            if word.text.strip().casefold() == text.strip().casefold()
        ]
    spelling = comparable(text)
    matches = [index for index, word in enumerate(words) if comparable(word.text) == spelling]
    return [index for index in matches if not _is_marker(words[index].text)] or matches


def _is_marker(text: str) -> bool:
    return re.fullmatch(MARKER, text.strip()) is not None


def comparable(text: str) -> str:
    """Form of a word in which two spellings of it are equal: case, edge punctuation, apostrophes,
    NFC.

    Examples
    --------
    >>> comparable("« Livres. »"), comparable("aujourd’hui")
    ('livres', "aujourd'hui")
    """
    folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold())
    folded = re.sub("[’ʼ＇]", "'", folded)
    inner = [i for i, letter in enumerate(folded) if unicodedata.category(letter)[0] not in "PSZ"]
    return folded[inner[0] : inner[-1] + 1] if inner else folded.strip()


def _word(item: object, index: int, where: str) -> Word:
    if not isinstance(item, Word):
        in_pieces = (
            isinstance(item, Sequence) and len(item) == 2 and isinstance(item[1], (list, tuple))
        )
        if (
            isinstance(item, str)
            or not isinstance(item, Sequence)
            or not (in_pieces or 3 <= len(item) <= 5)
        ):
            raise InputError(f"{where}: word {index} must be (text, start, end), found {item!r}")
        try:
            item = Word.of_pieces(*item) if in_pieces else Word(*item)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
    if not isinstance(item.text, str) or not item.text.strip():
        raise InputError(
            f"{where}: word {index} at {item.start} s has no label, found {item.text!r}: name or "
            "remove it"
        )
    try:
        start, end = float(item.start), float(item.end)
        score = None if item.score is None else float(item.score)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{where}: word {index} {item.text!r} has a time or score that is no number: {item}"
        ) from error
    if not (math.isfinite(start) and math.isfinite(end)):
        raise InputError(
            f"{where}: word {index} {item.text!r} must have finite times, found {start} to {end}"
        )
    return Word(item.text.strip(), start, end, score, item.pieces)


def _within(word: Word, index: int, duration: Seconds | None, where: str) -> Word:
    """Check a word against itself and the audio; trim what is rounding."""
    if word.end < word.start:
        raise InputError(
            f"{where}: {_described(word, index)} ends before it starts: exchange or correct its "
            "times"
        )
    if word.start < -ROUNDING_NOISE:
        raise InputError(
            f"{where}: {_described(word, index)} has a negative time: times count from the clip's "
            "start"
        )
    start, end = max(0.0, word.start), max(0.0, word.end)
    if duration is not None:
        # The last clause spares a word of no length that sits exactly on the audio's end.
        if start > duration or (start == duration and end > start):
            raise InputError(
                f"{where}: {_described(word, index)} starts past the end of the audio "
                f"({duration:.3f} s): "
                "do words and audio belong together, and are the times seconds?"
            )
        if end > duration + END_TOLERANCE:
            raise InputError(
                f"{where}: {_described(word, index)} ends {1000 * (end - duration):.0f} ms past "
                "the end of the audio "
                f"({duration:.3f} s), expected at most {1000 * END_TOLERANCE:g} ms: correct the "
                "time or the audio"
            )
        end = min(end, duration)
    return Word(word.text, start, end, word.score)


def _described(word: Word | TextWord, index: int) -> str:
    if isinstance(word, Word):
        times = " and ".join(f"{start:.3f} to {end:.3f}" for start, end in word.intervals)
        return f"word {index} {word.text!r} ({times} s)"
    return f"word {index} {word.text!r} (at character {word.start} of the {word.part})"


def _listed(words: Sequence[Word | TextWord], most: int = 40) -> str:
    shown = ", ".join(f"{index} {word.text!r}" for index, word in enumerate(words[:most]))
    return f"the words are {shown}" + (
        f" and {len(words) - most} more" if len(words) > most else ""
    )


def _absent(words: Sequence[Word | TextWord], text: str, role: str, where: str) -> InputError:
    asked = comparable(text)
    near = dict.fromkeys(
        word.text for word in words if asked and asked in re.split(r"[^\w]+", comparable(word.text))
    )
    hint = (
        f": {asked!r} is a part of {', '.join(map(repr, near))}, which is one word here"
        if near
        else ""
    )
    return InputError(
        f"{where}: {role} {text!r} is not one of the words; {_listed(words)}. Choose one of "
        f"these{hint}"
    )
