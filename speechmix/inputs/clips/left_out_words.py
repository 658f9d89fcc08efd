"""Words of a clip without those that are none, and without those that have no length.

In: checked words, and cue and target among them. Out: the words that remain, with cue and target among
these. A word without a length stays in the text: it was said, but nobody knows where. A label that is no
word leaves the text too, which a decoder is fed.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

from ...errors import InputError
from ..words.cue_and_target import RoleRequests, Roles, cue_words
from ..words.multipart_words import join_words, make_word_request, resolve_words_and_roles
from ..words.non_units import WORD, is_non_unit, unit_indices, warn_left_out
from ..words.timed_words import Word
from ..words.word_lookup import describe_word


class PlacedWords(NamedTuple):
    """Words that lie in the sound.

    `roles` are indices of "cue" and "target" among them, and `requests` find the same words again.
    `text` is all that is said, where the words alone do not tell; else None.
    """

    words: tuple[Word, ...]
    roles: Roles
    requests: RoleRequests
    text: str | None


def place_in_sound(
    words: Sequence[Word], roles: Roles, requests: RoleRequests, *, text: str | None, where: str
) -> PlacedWords:
    """Leave out what is no word, also from the text, and what has no length, with a warning.

    InputError if the cue or the target is left out, or no word remains.
    """
    indices = unit_indices(words, WORD)
    text = _without_labels(text, where=where) if text else None
    if len(indices) == len(words):
        return PlacedWords(tuple(words), roles, requests, text)
    for role, role_indices in (
        ("cue", cue_words(roles["cue"])),
        ("target", cue_words(roles["target"])),
    ):
        for index in role_indices:
            if index not in indices:
                word = describe_word(words[index], index)
                if is_non_unit(words[index].text, WORD):
                    raise InputError(f"{where}: the {role} {word} is no word: name another {role}")
                raise InputError(
                    f"{where}: the {role} {word} has no length, so that no sound is its own: correct its "
                    "times, or align the text"
                )
    warn_left_out(words, indices, WORD, where=where)
    if not indices:
        raise InputError(
            f"{where}: expected at least one word with a length, found none: leave `words` out"
        )
    kept = tuple(words[index] for index in indices)
    cue = tuple(indices.index(index) for index in cue_words(roles["cue"]))
    kept_roles = Roles(
        cue=(cue if len(cue) > 1 else cue[0]) if cue else None,
        target=None if roles["target"] is None else indices.index(roles["target"]),
    )
    spoken_words = [word for word in words if not is_non_unit(word.text, WORD)]
    if text is None and len(spoken_words) > len(kept):
        text = join_words(spoken_words)
    return PlacedWords(kept, kept_roles, _requests_for(kept, kept_roles, requests, where), text)


def _without_labels(text: str, *, where: str) -> str:
    """A text without labels in brackets that are no words, with a warning."""
    parts = text.split()
    labels = {part for part in parts if not part.isalnum() and is_non_unit(part, WORD)}
    if not labels:
        return text
    warnings.warn(
        f"{where}: left out of the text, because they are no words: "
        f"{', '.join(map(repr, sorted(labels)))}. Write a word that is said without brackets",
        stacklevel=3,
    )
    return " ".join(part for part in parts if part not in labels)


def _requests_for(
    words: tuple[Word, ...], roles: Roles, requests: RoleRequests, where: str
) -> RoleRequests:
    """The requests, if they find the same words where some are left out; else others that do."""
    try:
        if resolve_words_and_roles(words, requests, where=where)[1] == roles:
            return requests
    except InputError:
        pass
    return {
        role: requests.get(role) if indices is None else make_word_request(words, indices)
        for role, indices in (("cue", roles["cue"]), ("target", roles["target"]))
    }
