"""Words in several parts: French "ne ... pas", a separable verb.

They are several words of a clip or a sentence that are one unit.

In: words, and requests for cue and target in which "..." (or "…") stands where other words may be:
``"ne ... pas"``. Out: the words, with those requested as one unit at the position of the first, and
the requests with its index. The label of such a word is "ne … pas"; by it a word that was joined
before is known again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ...errors import InputError
from .cue_and_target import RoleRequests, Roles, find_cue, find_cue_and_target, normalize_word
from .cue_and_target import cue_words as list_cue_words
from .timed_words import Word
from .transcript_accuracy import is_noise_label, join_labels

if TYPE_CHECKING:
    from .cue_and_target import TextWord

AnyWord = TypeVar("AnyWord", Word, "TextWord")

GAP = " … "  # between the parts of a label
_GAP_PATTERN = re.compile(r"\s*(?:…|\.\.\.)\s*")


def split_parts(text: object) -> list[str]:
    """Parts of a word, or of a request for one, between which other words may be; one part as a
    rule.

    Examples
    --------
    >>> split_parts("ne ... pas"), split_parts("s'en … va"), split_parts("hm...")
    (['ne', 'pas'], ["s'en", 'va'], ['hm...'])
    """
    if not isinstance(text, str):
        return []
    parts = _GAP_PATTERN.split(text.strip())
    return parts if all(any(letter.isalnum() for letter in part) for part in parts) else [text]


def resolve_words_and_roles(
    words: Sequence[AnyWord], requests: RoleRequests, *, where: str = "words"
) -> tuple[tuple[AnyWord, ...], Roles]:
    """Words with those joined that cue and target ask for as one, and the indices of cue and target
    among them.

    Parameters
    ----------
    words : sequence of Word or TextWord
        In order.
    requests : mapping of "cue" and "target" to what was asked
        As `find_cue_and_target` takes them. In a string, "..." joins words into one: ``"ne ...
        pas"``, ``"ne:2 ... pas:2"``, ``"1 ... 3"``. Indices count the words after that.
    where : str
        What to call the list in an error.

    Raises
    ------
    InputError
        As `find_cue_and_target`; and if two that are joined share a word.

    Examples
    --------
    >>> from speechmix import Sentence
    >>> words, roles = resolve_words_and_roles(Sentence("il ne mange pas").words, {"cue": "ne ... pas", "target": "mange"})
    >>> [word.text for word in words], roles
    (['il', 'ne … pas', 'mange'], {'cue': 1, 'target': 2})
    """
    multipart_requests = {
        request for role in ("cue", "target") for request in _multipart_requests(requests.get(role))
    }
    if not multipart_requests:
        return tuple(words), find_cue_and_target(words, requests, where=where)
    parts = list_parts(words)
    group_by_request = {
        request: _find_parts(request, words, parts, where) for request in sorted(multipart_requests)
    }
    group_by_part: dict[int, tuple[int, ...]] = {}
    for request, group in group_by_request.items():
        for part_index in group:
            if group_by_part.setdefault(part_index, group) != group:
                raise InputError(
                    f"{where}: {request!r} shares the word {parts[part_index][1].text!r} with another "
                    "joined one"
                )
    joined_words: dict[int, AnyWord] = dict(enumerate(words))
    first_word_by_group = {
        group: parts[group[0]][0] for group in group_by_request.values()
    }  # in whose place the joined word stands
    for group, first_index in first_word_by_group.items():
        member_indices = {parts[part_index][0] for part_index in group}
        if len(member_indices) > 1:
            joined_words = {
                index: word
                for index, word in joined_words.items()
                if index not in member_indices - {first_index}
            }
            joined_words[first_index] = _join_parts(
                [parts[part_index][1] for part_index in group], where
            )
    index_by_word = {owner: index for index, owner in enumerate(joined_words)}
    indices = {
        request: index_by_word[first_word_by_group[group]]
        for request, group in group_by_request.items()
    }
    indexed_requests = {
        role: _replace_by_indices(requests.get(role), indices) for role in ("cue", "target")
    }
    return tuple(joined_words.values()), find_cue_and_target(
        tuple(joined_words.values()), indexed_requests, where=where
    )


def list_parts(words: Sequence[AnyWord]) -> list[tuple[int, AnyWord]]:
    """Words as they are said or written: the parts of joined ones apart, each with the index of the
    word that it is part of."""
    parts = [(index, part) for index, word in enumerate(words) for part in _split_word(word)]
    return sorted(parts, key=_order_key(words)) if any(word.pieces for word in words) else parts


def split_into_pieces(words: Sequence[Word]) -> list[Word]:
    """Every piece of every word as an interval with a label, in the order of time, for files that
    know no words in pieces.

    Examples
    --------
    >>> [word.text for word in split_into_pieces([Word("livres", 0, 3, pieces=((0, 1), (2, 3)))])]
    ['livres', 'livres']
    """
    if not any(word.pieces for word in words):
        return list(words)
    piece_words = [
        Word(part.text, *edges, part.score)
        for _, part in list_parts(words)
        for edges in part.intervals
    ]
    return sorted(piece_words, key=lambda piece: piece.start)


def join_words(words: Iterable[Word]) -> str:
    """Words in a row, as they are said: without labels of noise (`<unk>`), and without blanks in
    languages that write none.

    Examples
    --------
    >>> join_words([Word("il", 0, 1), Word("ne … pas", 1, 4, pieces=((1, 2), (3, 4))), Word("mange", 2, 3)])
    'il ne mange pas'
    """
    labels = (part.text for _, part in list_parts(list(words)))
    return join_labels(label for label in labels if not is_noise_label(label))


def make_word_request(
    words: Sequence[Word | TextWord], role: int | Sequence[int]
) -> int | str | list[int | str]:
    """A request that finds the same words where they are looked up anew: joined ones by the numbers
    of their parts.

    Examples
    --------
    >>> from speechmix import Sentence
    >>> make_word_request(Sentence("il ne mange pas", cue="ne ... pas").words, (1, 2))
    ['1 … 3', 2]
    """
    parts = list_parts(cast("Sequence[Word]", words))
    part_numbers_by_word: dict[int, list[str]] = {}
    for part_index, (owner, _) in enumerate(parts):
        part_numbers_by_word.setdefault(owner, []).append(str(part_index))

    def request_for_word(index: int) -> int | str:
        part_numbers = part_numbers_by_word.get(index, [])
        return GAP.join(part_numbers) if len(part_numbers) > 1 else index

    return (
        request_for_word(role)
        if isinstance(role, int)
        else [request_for_word(index) for index in role]
    )


def refuse_multipart_word(word: Word | TextWord, what: str, *, where: str) -> None:
    """Raise InputError for a word in several parts, where another spelling would replace it."""
    if word.pieces and len(split_parts(word.text)) > 1:
        raise InputError(
            f"{where}: {word.text!r} is in {len(word.pieces)} parts, and {what} needs a word in one"
        )


def _multipart_requests(request: object) -> list[str]:
    """Return the requests that are for several words as one unit."""
    entries = request if isinstance(request, (list, tuple)) else [request]
    return [entry for entry in entries if isinstance(entry, str) and len(split_parts(entry)) > 1]


def _replace_by_indices(request: object, indices: Mapping[str, int]) -> object:
    if isinstance(request, (list, tuple)):
        return [indices.get(entry, entry) if isinstance(entry, str) else entry for entry in request]
    return indices.get(request, request) if isinstance(request, str) else request


def _find_parts(
    request: str, words: Sequence[AnyWord], parts: list[tuple[int, AnyWord]], where: str
) -> tuple[int, ...]:
    """Return the positions, among the atoms, of the words requested as one unit."""
    normalized_request = _normalize_parts(request)
    matching_indices = [
        index
        for index, word in enumerate(words)
        if _normalize_parts(word.text) == normalized_request
    ]
    if len(matching_indices) == 1:
        return tuple(
            part_index
            for part_index, (owner, _) in enumerate(parts)
            if owner == matching_indices[0]
        )
    part_words = [part for _, part in parts]
    part_indices = sorted(
        chain(
            *(
                list_cue_words(find_cue(part_words, part, where=where))
                for part in split_parts(request)
            )
        )
    )
    if len(set(part_indices)) < len(part_indices):
        raise InputError(
            f"{where}: {request!r} names a word twice: each of its parts is named once"
        )
    for owner in {parts[part_index][0] for part_index in part_indices}:
        owner_parts = {part_index for part_index, (index, _) in enumerate(parts) if index == owner}
        if not owner_parts <= set(part_indices):
            raise InputError(
                f"{where}: {request!r} asks for a part of {words[owner].text!r}, which is one word "
                "already"
            )
    return tuple(part_indices)


def _normalize_parts(text: str) -> str:
    return GAP.join(normalize_word(part) for part in split_parts(text))


def _split_word(word: AnyWord) -> list[AnyWord]:
    """The parts of a joined word; any other as it is (a hesitation cut out leaves one word)."""
    parts = split_parts(word.text)
    if len(parts) == 1 or len(parts) != len(word.pieces):
        return [word]
    part_words: list[Any] = []
    for text, (start, end) in zip(parts, word.pieces, strict=True):
        part_words.append(
            Word(text, start, end, word.score)
            if isinstance(word, Word)
            else type(word)(text, start, end, word.part)
        )
    return cast("list[AnyWord]", part_words)


def _join_parts(parts: Sequence[Any], where: str) -> Any:
    """One word of several, of a clip or of a sentence."""
    text = GAP.join(part.text for part in parts)
    if isinstance(parts[0], Word):
        scores = [part.score for part in parts]
        lowest_score = None if None in scores else min(scores)
        return Word.from_pieces(text, chain(*(part.intervals for part in parts)), lowest_score)
    first, last = parts[0], parts[-1]
    if first.part != last.part:
        raise InputError(
            f"{where}: {text!r} lies in two texts, {first.part} and {last.part}; expected one"
        )
    return type(first)(
        text, first.start, last.stop, first.part, tuple((part.start, part.stop) for part in parts)
    )


def _order_key(
    words: Sequence[Word | TextWord],
) -> Callable[[tuple[int, Word | TextWord]], tuple[int, float]]:
    """By what words are in order: when they are said, or where they are written, text by text."""
    texts = list(dict.fromkeys(getattr(word, "part", "") for word in words))
    return lambda part: (texts.index(getattr(part[1], "part", "")), part[1].start)
