"""Letters that an espeak-ng voice cannot read.

In: the words of a text, and a voice. Out: the words whose letters it names instead of reading them:
*Chinese letter* for each Japanese kanji, *Cyrillic es* in a French text. espeak-ng itself does not say
so. Letters of a script that it does not read have names that begin alike, and it says these names in
the word. Words of a foreign script that it reads in another language (Greek in a French text) are no
such case.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache

from ..errors import InputError
from .espeak_library import PHONEME, run_synthesis

_LAST_LATIN = "\u024f"
_RATE, _PITCH = 300, 50
_MIN_NAME_PHONEMES = (
    4  # that the names of all letters of a script share; native letters share 0 or 1
)
_MIN_SPELLED_LETTERS = 3  # of a Latin word that is spelled; "pc" may be an abbreviation
_STRESS_MARKS = str.maketrans("", "", "ˈˌ-")


def find_unread_words(tokens: Sequence[str], voice: str, *, switches: bool) -> list[str]:
    """Return the words that a voice, an espeak-ng identifier, would spell by the names of their
    letters.

    `switches` says that the voice speaks some of them in another language: else no Latin word is
    spelled.

    Examples
    --------
    >>> from speechmix.alignment.espeak import voice_name
    >>> find_unread_words(["わたし", "日本", "λόγος"], voice_name("ja"), switches=True)
    ['日本']
    """
    return [
        token
        for token in dict.fromkeys(tokens)
        if (switches or not token.isascii()) and _is_spelled(token, voice)
    ]


def is_language_mark(name: str) -> bool:
    """Whether a phoneme event says that another language begins: "(en)", or cut to "(en-gb-x".

    Examples
    --------
    >>> is_language_mark("(en)"), is_language_mark("l")
    (True, False)
    """
    return name.startswith("(")


def _is_spelled(token: str, voice: str) -> bool:
    letters = [letter for letter in token if letter.isalpha()]
    foreign = [letter for letter in letters if letter > _LAST_LATIN]
    if any(
        _shared_name_length(_script_letters(letter), voice) >= _MIN_NAME_PHONEMES
        for letter in foreign
    ):
        spoken = _letter_phonemes(token, voice)[0]
        return any(_contains(spoken, _letter_phonemes(letter, voice)[0]) for letter in foreign)
    # A voice of another script may spell a Latin word, letter by letter, in English.
    if foreign or len(letters) < _MIN_SPELLED_LETTERS or token.isupper():
        return False
    spoken, switches = _letter_phonemes(token, voice)
    return switches and spoken == tuple(
        name for letter in letters for name in _letter_phonemes(letter, voice)[0]
    )


@lru_cache(maxsize=4096)
def _letter_phonemes(text: str, voice: str) -> tuple[tuple[str, ...], bool]:
    """Phonemes of a text, without stress, and whether the voice speaks another language in it."""
    try:
        _, events, _ = run_synthesis(text, voice, _RATE, _PITCH)
    except InputError:  # it says nothing
        return (), False
    names = [name for kind, _, _, name in events if kind == PHONEME and name]
    phonemes = tuple(name.translate(_STRESS_MARKS) for name in names if not is_language_mark(name))
    return phonemes, any(map(is_language_mark, names))


@lru_cache(maxsize=256)
def _script_letters(letter: str) -> tuple[str, ...]:
    """Five letters of the same script, far apart in its part of Unicode."""
    first = ord(letter) // 256 * 256
    letters = [
        other
        for other in map(chr, range(first, first + 256))
        if unicodedata.category(other) in ("Lo", "Ll") and _script(other) == _script(letter)
    ]
    return tuple(letters[index * (len(letters) - 1) // 4] for index in range(5)) if letters else ()


def _script(letter: str) -> str:
    return unicodedata.name(letter, "").replace("-", " ").partition(" ")[0]


@lru_cache(maxsize=256)
def _shared_name_length(letters: tuple[str, ...], voice: str) -> int:
    """Number of phonemes that a voice's names of these letters have in common at the start."""
    readings = [_letter_phonemes(letter, voice)[0] for letter in letters]
    count = 0
    for phonemes in zip(*readings, strict=False):
        if len(set(phonemes)) > 1:
            break
        count += 1
    return count


def _contains(spoken: tuple[str, ...], name: tuple[str, ...]) -> bool:
    return any(
        spoken[start : start + len(name)] == name for start in range(len(spoken) - len(name) + 1)
    )
