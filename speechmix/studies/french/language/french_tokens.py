"""Tokenize French text; tell vowel from consonant onset and liaison.

In: a sentence as it is written. Out: `Token`s, half-open character ranges in that very text, with a
key for look-ups (lower case, straight apostrophe, œ as oe, composed accents). Elided words (l',
qu') and clitics behind a hyphen (-t-il) are tokens of their own; numbers written with hyphens
(vingt-deux) are one.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from typing import NamedTuple

_LETTER_PATTERN = r"[^\W_]"
# A word with inner hyphens and apostrophes (which `_split_word` cuts), or any other sign.
_TOKEN_PATTERN = re.compile(rf"{_LETTER_PATTERN}+(?:[-'~]{_LETTER_PATTERN}+)*[-'~]?|[^\w\s]+|_+")
_APOSTROPHE_WORDS = re.compile(
    r"^(?:aujourd|prud|presqu|quelqu|entr|grand|c'est-à-dire$)", re.IGNORECASE
)
_CLITIC_PATTERN = re.compile(
    r"(?:-t)?-(?:je|tu|ils?|elles?|on|nous|vous|ce|moi|toi|lui|leur|les?|la|y|en|ci|là)(?![-'\w])",
    re.IGNORECASE,
)
_NUMBER_WORD_PATTERN = (
    r"(?:un|une|deux|trois|quatre|cinq|six|sept|huit|neuf|dix|onze|douze|treize|quatorze|quinze|seize|vingts?|trente|"
    r"quarante|cinquante|soixante|septante|octante|huitante|nonante|cents?|mille|et|million|milliard|\d+)"
)
_NUMERAL_PATTERN = re.compile(rf"{_NUMBER_WORD_PATTERN}(?:-{_NUMBER_WORD_PATTERN})*")
# Words in h- that begin with a vowel when spoken (mute h), by their beginnings; all others have an
# aspirated h, which forbids liaison. Lexique does not tell. From the usual school lists.
_MUTE_H_BEGINNINGS = re.compile(
    "|".join(
        """
        hab hagio halei halet halit halluc halog haltè haltér hameço harmoni hebdo héber hébét hébr hécat hect hégém hélas
        hélic hélio hémi hémo hépat herb hercul héréd hérés hérét hérit hermét hermin hermaph héroï hésit hétér heur(?!t)
        hexa hiber hidal hier(?!ar) hilar hindou hippique hippo hirond hispan hist hiver hom(?!ard) hôm honn honor hôpit
        hor(?!d|s) hosp host hôt huil huiss huît hum(?!er) hyd hyè hyg hym hyp hyst
        """.split()
    )
)
# A longer "word" is no French; it stays whole, so that no input takes time that grows with its
# square.
MAX_SPLIT_LENGTH = 60
_VOWELS = frozenset("aàâäeéèêëiîïoôöuùûüyœæ")
_CONSONANTAL_BEGINNING = re.compile(r"onz|ouis?$|ouistiti|uhlan|ulul|y[aeoé]|ouah")


class Token(NamedTuple):
    """One written word or sign.

    The key is for look-ups: lower case, composed, straight apostrophes, œ as oe; a clitic keeps its
    hyphen ("-il"). Start and stop are a half-open range of characters in the text as given.
    """

    key: str
    start: int
    stop: int
    is_capitalized: bool


def tokenize(text: str) -> list[Token]:
    """Cut a sentence into tokens.

    Examples
    --------
    >>> [token.key for token in tokenize("L’œuf, dit-il, a-t-elle vingt-deux ans ?")]
    ["l'", 'oeuf', ',', 'dit', '-il', ',', 'a', '-t-elle', 'vingt-deux', 'ans', '?']
    """
    normalized_text = text.replace("’", "'").replace("ʼ", "'")
    if not unicodedata.is_normalized("NFC", normalized_text):
        return _tokenize_decomposed(normalized_text)
    return [
        Token._make((key, start + begin, start + end, is_capitalized))
        for match in _TOKEN_PATTERN.finditer(normalized_text)
        for start in (match.start(),)
        for key, begin, end, is_capitalized in _split_word(match.group())
    ]


@functools.lru_cache(maxsize=2**15)
def _split_word(word: str) -> tuple[Token, ...]:
    """Tokens of what stands between spaces and signs, their places counted from its beginning."""
    if ("-" in word or "'" in word) and 1 < len(word) <= MAX_SPLIT_LENGTH:
        tokens: list[Token] = []
        _append_tokens(tokens, word, 0)
        return tuple(tokens)
    return (Token(lookup_key(word), 0, len(word), word[0].isupper()),)


def lookup_key(word: str) -> str:
    """Return the look-up form of a word."""
    key = word.lower()
    return key.replace("œ", "oe").replace("æ", "ae") if not key.isascii() else key


def _append_tokens(tokens: list[Token], word: str, start: int) -> None:
    """Split -t-il and the like off, and words that only an apostrophe joins."""
    head_end = len(word)
    clitics: list[tuple[int, int]] = []
    while clitic := _find_last_clitic(word[:head_end]):
        clitics.insert(0, (clitic, head_end))
        head_end = clitic
    head = word[:head_end]
    apostrophe = head.find("'", 0, len(head) - 1)
    if apostrophe > 0 and not _APOSTROPHE_WORDS.match(head):
        tokens.append(
            Token(
                lookup_key(head[: apostrophe + 1]), start, start + apostrophe + 1, word[0].isupper()
            )
        )
        _append_tokens(tokens, head[apostrophe + 1 :], start + apostrophe + 1)
    else:
        tokens.append(Token(lookup_key(head), start, start + len(head), word[0].isupper()))
    for begin, end in clitics:
        tokens.append(Token(lookup_key(word[begin:end]), start + begin, start + end, False))


def _find_last_clitic(word: str) -> int:
    """Return where the last clitic of a hyphenated word begins, 0 if there is none."""
    for match in _CLITIC_PATTERN.finditer(word):
        if (
            match.end() == len(word)
            and match.start() > 0
            and not _LEXICALISED_COMPOUNDS.fullmatch(lookup_key(word))
        ):
            return match.start()
    return 0


_LEXICALISED_COMPOUNDS = re.compile(
    r"rendez-vous|ceux?-(?:ci|là)|celles?-(?:ci|là)|celui-(?:ci|là)|au-delà|par-delà|là-dedans|vis-à-vis|garde-à-vous|"
    r"qu'en-dira-t-on|chez-(?:moi|soi)|sauve-qui-peut|m'as-tu-vu|laissez-(?:moi|les)-passer|jusque-là|suivez-moi"
)


def _tokenize_decomposed(normalized_text: str) -> list[Token]:
    """Tokenize the composed text and map each range back to the decomposed one."""
    composed_characters, original_positions = [], []
    position = 0
    while position < len(normalized_text):
        stop = position + 1
        while stop < len(normalized_text) and unicodedata.combining(normalized_text[stop]):
            stop += 1
        # One character stands for a letter with its marks; marks that do not compose are no matter
        # for look-ups.
        composed_characters.append(unicodedata.normalize("NFC", normalized_text[position:stop])[0])
        original_positions.append(position)
        position = stop
    original_positions.append(len(normalized_text))
    composed_text = "".join(composed_characters)
    tokens: list[Token] = []
    for match in _TOKEN_PATTERN.finditer(composed_text):
        word = match.group()
        if len(word) <= MAX_SPLIT_LENGTH:
            _append_tokens(tokens, word, match.start())
        else:
            tokens.append(Token(lookup_key(word), *match.span(), word[0].isupper()))
    return [
        Token(t.key, original_positions[t.start], original_positions[t.stop], t.is_capitalized)
        for t in tokens
    ]


def is_numeral(key: str) -> bool:
    """Whether a token is a number, in digits or in words, hyphens included.

    Examples
    --------
    >>> is_numeral("vingt-deux"), is_numeral("1914"), is_numeral("un-deux-trois"), is_numeral("grand-mère")
    (True, True, True, False)
    """
    return _NUMERAL_PATTERN.fullmatch(key) is not None


@functools.lru_cache(maxsize=2**14)
def begins_with_vowel(key: str) -> bool:
    """Whether a word is spoken with a vowel (or mute h) first, so that a liaison or an elision
    comes before it.

    Examples
    --------
    >>> [begins_with_vowel(key) for key in ("enfant", "homme", "héros", "héroïne", "onze", "yeux", "oiseau", "hibou")]
    [True, True, False, True, False, True, True, False]
    """
    if key == "yeux":
        return True
    if key[:1] == "h":
        return bool(_MUTE_H_BEGINNINGS.match(key))
    return key[:1] in _VOWELS and not _CONSONANTAL_BEGINNING.match(key)
