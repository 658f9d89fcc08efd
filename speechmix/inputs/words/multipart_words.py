"""Words in several parts: *ne ... pas*, a separable verb. Several words of a clip or a sentence
that are one unit.

In: words, and requests for cue and target in which "..." (or "…") stands where other words may be:
``"ne ... pas"``. Out: the words with those that are asked for as one in the first one's place, and
the requests with its index. The label of such a word is "ne … pas"; by it a word that was joined
before is known again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ...errors import InputError
from .cue_and_target import RoleRequests, Roles, find_cue, find_cue_and_target
from .cue_and_target import cue_words as words_of
from .timed_words import Word
from .word_lookup import comparable

if TYPE_CHECKING:
    from ..words.text_words import TextWord

AnyWord = TypeVar("AnyWord", Word, "TextWord")

GAP = " … "  # between the parts of a label
_GAPS = re.compile(r"\s*(?:…|\.\.\.)\s*")


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
    parts = _GAPS.split(text.strip())
    return parts if all(any(letter.isalnum() for letter in part) for part in parts) else [text]


def words_and_roles(
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
    >>> words, roles = words_and_roles(Sentence("il ne mange pas").words, {"cue": "ne ... pas", "target": "mange"})
    >>> [word.text for word in words], roles
    (['il', 'ne … pas', 'mange'], {'cue': 1, 'target': 2})
    """
    asked = {request for role in ("cue", "target") for request in _joined_in(requests.get(role))}
    if not asked:
        return tuple(words), find_cue_and_target(words, requests, where=where)
    atoms = in_order(words)
    groups = {request: _atoms_of(request, words, atoms, where) for request in sorted(asked)}
    owners: dict[int, tuple[int, ...]] = {}
    for request, group in groups.items():
        for place in group:
            if owners.setdefault(place, group) != group:
                raise InputError(
                    f"{where}: {request!r} shares the word {atoms[place][1].text!r} with another "
                    "joined one"
                )
    units: dict[int, AnyWord] = dict(enumerate(words))
    first_of = {
        group: atoms[group[0]][0] for group in groups.values()
    }  # in whose place the joined word stands
    for group, first in first_of.items():
        members = {atoms[place][0] for place in group}
        if len(members) > 1:
            units = {index: word for index, word in units.items() if index not in members - {first}}
            units[first] = _joined([atoms[place][1] for place in group], where)
    places = {owner: index for index, owner in enumerate(units)}
    indices = {request: places[first_of[group]] for request, group in groups.items()}
    renamed = {role: _with_indices(requests.get(role), indices) for role in ("cue", "target")}
    return tuple(units.values()), find_cue_and_target(tuple(units.values()), renamed, where=where)


def in_order(words: Sequence[AnyWord]) -> list[tuple[int, AnyWord]]:
    """Words as they are said or written: the parts of joined ones apart, each with the index of the
    word that it is part of."""
    atoms = [(index, part) for index, word in enumerate(words) for part in _apart(word)]
    return sorted(atoms, key=_place_in(words)) if any(word.pieces for word in words) else atoms


def each_piece(words: Sequence[Word]) -> list[Word]:
    """Every piece of every word as an interval with a label, in the order of time, for files that
    know no words in pieces.

    Examples
    --------
    >>> [word.text for word in each_piece([Word("livres", 0, 3, pieces=((0, 1), (2, 3)))])]
    ['livres', 'livres']
    """
    if not any(word.pieces for word in words):
        return list(words)
    pieces = [
        Word(part.text, *edges, part.score)
        for _, part in in_order(words)
        for edges in part.intervals
    ]
    return sorted(pieces, key=lambda piece: piece.start)


def join_words(words: Iterable[Word]) -> str:
    """Words in a row, as they are said.

    Examples
    --------
    >>> join_words([Word("il", 0, 1), Word("ne … pas", 1, 4, pieces=((1, 2), (3, 4))), Word("mange", 2, 3)])
    'il ne mange pas'
    """
    return " ".join(part.text for _, part in in_order(list(words)))


def as_word_request(
    words: Sequence[Word | TextWord], role: int | Sequence[int]
) -> int | str | list[int | str]:
    """A request that finds the same words where they are looked up anew: joined ones by the numbers
    of their parts.

    Examples
    --------
    >>> from speechmix import Sentence
    >>> as_word_request(Sentence("il ne mange pas", cue="ne ... pas").words, (1, 2))
    ['1 … 3', 2]
    """
    atoms = in_order(cast("Sequence[Word]", words))
    places_of: dict[int, list[str]] = {}
    for place, (owner, _) in enumerate(atoms):
        places_of.setdefault(owner, []).append(str(place))

    def single(index: int) -> int | str:
        places = places_of.get(index, [])
        return GAP.join(places) if len(places) > 1 else index

    return single(role) if isinstance(role, int) else [single(index) for index in role]


def refuse_parts(word: Word | TextWord, what: str, *, where: str) -> None:
    """Raise for a word in several parts, where it would be replaced by another spelling.

    Raises
    ------
    InputError
    """
    if word.pieces and len(split_parts(word.text)) > 1:
        raise InputError(
            f"{where}: {word.text!r} is in {len(word.pieces)} parts, and {what} needs a word in one"
        )


def _joined_in(request: object) -> list[str]:
    """Which of what is asked for are several words in one."""
    entries = request if isinstance(request, (list, tuple)) else [request]
    return [entry for entry in entries if isinstance(entry, str) and len(split_parts(entry)) > 1]


def _with_indices(request: object, indices: Mapping[str, int]) -> object:
    if isinstance(request, (list, tuple)):
        return [indices.get(entry, entry) if isinstance(entry, str) else entry for entry in request]
    return indices.get(request, request) if isinstance(request, str) else request


def _atoms_of(
    request: str, words: Sequence[AnyWord], atoms: list[tuple[int, AnyWord]], where: str
) -> tuple[int, ...]:
    """Places among the atoms of what is asked for as one."""
    named = _comparable(request)
    alike = [index for index, word in enumerate(words) if _comparable(word.text) == named]
    if len(alike) == 1:
        return tuple(place for place, (owner, _) in enumerate(atoms) if owner == alike[0])
    plain = [part for _, part in atoms]
    places = sorted(
        chain(*(words_of(find_cue(plain, part, where=where)) for part in split_parts(request)))
    )
    if len(set(places)) < len(places):
        raise InputError(
            f"{where}: {request!r} names a word twice: each of its parts is named once"
        )
    for owner in {atoms[place][0] for place in places}:
        whole = {place for place, (index, _) in enumerate(atoms) if index == owner}
        if not whole <= set(places):
            raise InputError(
                f"{where}: {request!r} asks for a part of {words[owner].text!r}, which is one word "
                "already"
            )
    return tuple(places)


def _comparable(text: str) -> str:
    return GAP.join(comparable(part) for part in split_parts(text))


def _apart(word: AnyWord) -> list[AnyWord]:
    """The parts of a joined word; any other as it is (a hesitation cut out leaves one word)."""
    parts = split_parts(word.text)
    if len(parts) == 1 or len(parts) != len(word.pieces):
        return [word]
    made: list[Any] = []
    for text, (start, end) in zip(parts, word.pieces, strict=True):
        made.append(
            Word(text, start, end, word.score)
            if isinstance(word, Word)
            else type(word)(text, start, end, word.part)
        )
    return cast("list[AnyWord]", made)


def _joined(parts: Sequence[Any], where: str) -> Any:
    """One word of several, of a clip or of a sentence."""
    text = GAP.join(part.text for part in parts)
    if isinstance(parts[0], Word):
        scores = [part.score for part in parts]
        least = None if None in scores else min(scores)
        return Word.of_pieces(text, chain(*(part.intervals for part in parts)), least)
    first, last = parts[0], parts[-1]
    if first.part != last.part:
        raise InputError(
            f"{where}: {text!r} lies in two texts, {first.part} and {last.part}; expected one"
        )
    return type(first)(
        text, first.start, last.stop, first.part, tuple((part.start, part.stop) for part in parts)
    )


def _place_in(
    words: Sequence[Word | TextWord],
) -> Callable[[tuple[int, Word | TextWord]], tuple[int, float]]:
    """By what words are in order: when they are said, or where they are written, text by text."""
    texts = list(dict.fromkeys(getattr(word, "part", "") for word in words))
    return lambda atom: (texts.index(getattr(atom[1], "part", "")), atom[1].start)
