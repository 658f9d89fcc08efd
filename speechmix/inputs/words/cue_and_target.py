"""Cue and target: which words of a clip or of a sentence the question is about.

In: words, and requests as a user gives them. Out: indices. The target is one word. The cue is one
word, or several that are one cue together: determiner and noun for the verb (Mohebbi et al. 2023,
where the columns of both are summed). The cue of one word is its index, that of several a tuple of
indices in the order of the text; `cue_words` gives a tuple for both.

Labels of words inside sentences: told apart where they are repeated, and with one period at the end.

Find a word of a clip or sentence by its text.

In: words, and requests such as 3, "les", "les:2" or ("les", 2). Out: indices. Nothing is guessed: a
request that fits two words is an error that lists both.

A word of a sentence: what it is and which characters of the text it has.
"""

from __future__ import annotations

import operator
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict, cast

from ...errors import InputError
from .timed_words import Word, format_unit
from .transcript_accuracy import normalize_text

# The ablated source: the cue or, as a control, another word of about its length.
CUE, CONTROL = "cue", "another word"


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


Cue = int | tuple[int, ...]
# One word, or several: "le club", ("le", "club"), (3, 4), ["le:2", 4], [["le", 2], "club"].
CueRequest = WordRequest | Sequence[WordRequest]


# What a user asks for, by role: a `CueRequest` for "cue", a `WordRequest` for "target", or None.
RoleRequests: TypeAlias = Mapping[str, Any]


class Roles(TypedDict):
    """Indices of cue and target; None for what is not requested."""

    cue: Cue | None
    target: int | None


def cue_words(cue: int | Iterable[int] | None) -> tuple[int, ...]:
    """Indices of a cue's words, however many they are; none without a cue.

    Examples
    --------
    >>> cue_words(3), cue_words((3, 4)), cue_words(None)
    ((3,), (3, 4), ())
    """
    if cue is None:
        return ()
    return tuple(map(operator.index, cue)) if isinstance(cue, Iterable) else (operator.index(cue),)


def cue_to_json(cue: int | Iterable[int] | None) -> int | list[int] | None:
    """A cue as JSON has it, so that what was stored equals what is said now.

    Examples
    --------
    >>> cue_to_json(3), cue_to_json((3, 4)), cue_to_json(None)
    (3, [3, 4], None)
    """
    words = list(cue_words(cue))
    return words if len(words) > 1 else next(iter(words), None)


def words_between(cue: int | Iterable[int] | None, target: int | None) -> int | None:
    """Count the words between the target and the nearest word of the cue; None without one of them.

    The cue is adjacent where there are none. Then a share of the cue may be a share of whatever
    stands beside the target: cross-attention, say, may look at the word just written.

    Examples
    --------
    >>> words_between(3, 4), words_between((0, 1), 4), words_between(4, 3), words_between(None, 3)
    (0, 2, 0, None)
    """
    distances = [abs(index - target) - 1 for index in cue_words(cue)] if target is not None else []
    return max(min(distances), 0) if distances else None


def cue_text(words: Sequence[Word | TextWord], cue: int | Iterable[int] | None) -> str:
    """The cue as it is written, its words separated by spaces; empty without a cue."""
    return " ".join(words[index].text for index in cue_words(cue))


def find_cue(words: Sequence[Word | TextWord], request: CueRequest, *, where: str = "words") -> Cue:
    """Return the index of the cue's word, or the ascending indices of its words.

    A request is one word as `find_word` takes it, or several: a list, or a string with spaces. Such
    a string is first taken as one word, then as words that follow each other; if they do so
    nowhere, each is looked up by itself, so ``"le club"`` may also be *le grand club*. ``("les",
    2)`` is the second *les*, not *les* and word 2. InputError as `find_word` for each word; if
    several words follow each other so more than once; if one is named twice.
    """
    requests = _split_request(words, request, where)
    if requests is None:
        return find_word(words, cast("WordRequest", request), role="cue", where=where)
    word_indices = [find_word(words, single, role="cue", where=where) for single in requests]
    if len(set(word_indices)) < len(word_indices):
        raise InputError(
            f"{where}: cue {request!r} names a word twice: each of a cue's words is named once"
        )
    return word_indices[0] if len(word_indices) == 1 else tuple(sorted(word_indices))


def find_cue_and_target(
    words: Sequence[Word | TextWord], requests: RoleRequests, *, where: str = "words"
) -> Roles:
    """Return the indices of the cue and the target in a clip or a sentence.

    Requests are what `find_cue` and `find_word` take; a request that is None gives None. InputError
    as these two, and if the target is one of the cue's words.
    """
    cue_request, target_request = requests.get("cue"), requests.get("target")
    cue = None if cue_request is None else find_cue(words, cue_request, where=where)
    target = (
        None
        if target_request is None
        else find_word(words, target_request, role="target", where=where)
    )
    if target is not None and target in cue_words(cue):
        raise InputError(
            f"{where}: cue and target must be two words, found word {target} "
            f"{words[target].text!r} for both"
        )
    return {"cue": cue, "target": target}


def _split_request(
    words: Sequence[Word | TextWord], request: object, where: str
) -> Sequence[WordRequest] | None:
    """Split a request into words; None where it is one word."""
    if isinstance(request, str):
        requested_words = [
            requested_word
            for requested_word in request.split()
            if any(letter.isalnum() for letter in requested_word)
        ]
        numbered_match = re.fullmatch(r"(.+):[0-9]+", request.strip())
        if (
            len(requested_words) < 2
            or find_matches(words, request)
            or (numbered_match and find_matches(words, numbered_match[1]))
        ):
            return None
        part_matches = [
            set(find_matches(words, requested_word)) for requested_word in requested_words
        ]
        starts = [
            i
            for i in sorted(part_matches[0])
            if all(i + step in matches for step, matches in enumerate(part_matches))
        ]
        if len(starts) > 1:
            raise InputError(
                f"{where}: cue {request!r} occurs {len(starts)} times, from words "
                f"{', '.join(map(str, starts))} on: name "
                f"its words one by one, for example {' '.join(f'{word}:2' for word in requested_words)!r}, "
                "or by their indices"
            )
        return range(starts[0], starts[0] + len(requested_words)) if starts else requested_words
    if not isinstance(request, (list, tuple)) or _is_occurrence_request(request):
        return None
    if not request:
        raise InputError(f"{where}: expected at least one word for the cue, found {request!r}")
    return request


def _is_occurrence_request(request: Sequence[object]) -> bool:
    """Whether it is (word, occurrence), or was meant to be: ("les", "2") is refused as such, not
    taken for two words."""
    if len(request) != 2 or not isinstance(request[0], str):
        return False
    occurrence = request[1]
    return (
        occurrence.isdigit()
        if isinstance(occurrence, str)
        else not isinstance(occurrence, (list, tuple))
    )


def number_repeated(
    labels: Sequence[str], fold: Callable[[str], str] = normalize_word
) -> list[str]:
    """Labels with their occurrence, where a word is there several times; by default case and punctuation aside.

    Examples
    --------
    >>> number_repeated(["Ever", "tried,", "ever", "failed."])
    ['Ever (1)', 'tried,', 'ever (2)', 'failed.']
    """
    words = [fold(label) for label in labels]
    counts, occurrences = Counter(words), Counter[str]()
    numbered = []
    for label, word in zip(labels, words, strict=True):
        occurrences[word] += 1
        numbered.append(f"{label} ({occurrences[word]})" if counts[word] > 1 else label)
    return numbered


def name_in_sentence(label: str) -> str:
    """A label without its own punctuation, which the sentence around it would double.

    Examples
    --------
    >>> name_in_sentence("light,"), name_in_sentence("tried, (own sound)"), name_in_sentence("(end)")
    ('light', 'tried (own sound)', '(end)')
    """
    return re.sub(r"(?<=\w)[.,;:]+(?= \(|$)", "", label)


def end_sentence(sentence: str) -> str:
    """A sentence with its period, unless the label that it ends in has one.

    Examples
    --------
    >>> end_sentence("It is failed."), end_sentence("It is failed"), end_sentence("It is 'failed.'")
    ('It is failed.', 'It is failed.', "It is 'failed.'")
    """
    return sentence if sentence.rstrip("'\"”»)").endswith((".", "!", "?", "…")) else f"{sentence}."
