"""Cue and target: which words of a clip or of a sentence the question is about.

In: words, and requests as a user gives them. Out: indices. The target is one word. The cue is one
word, or several that are one cue together: determiner and noun for the verb (Mohebbi et al. 2023,
where the columns of both are summed). The cue of one word is its index, that of several a tuple of
indices in the order of the text; `cue_words` gives a tuple for both.

Labels of words inside sentences: told apart where they are repeated, and with one period at the end.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, cast

from ...errors import InputError
from .word_lookup import WordRequest, find_matches, find_word, normalize_word

if TYPE_CHECKING:
    from .timed_words import Word
    from .word_lookup import TextWord


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
