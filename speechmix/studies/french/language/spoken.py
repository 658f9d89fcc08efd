"""Spoken form of a written French sentence, linked word by word.

In: a text. Out: its written words, half-open character ranges, each with the words that are said
for it. Elided words (l', qu') and clitics (-t-il) are written words of their own, a number is one.
Aligners and word error rates need the spoken side, cue and target live on the written one. Numbers
are cardinals, ordinals with their ending, decimals, clock times and common signs; Roman numerals
only as ordinals (XIXe); what else is written in figures is said figure by figure.

Tokenize French text; tell vowel from consonant onset and liaison.

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


_UNITS = (
    "zéro un deux trois quatre cinq six sept huit neuf dix onze douze treize quatorze quinze seize "
    "dix-sept dix-huit dix-neuf"
).split()
_TENS = {
    20: "vingt",
    30: "trente",
    40: "quarante",
    50: "cinquante",
    60: "soixante",
    80: "quatre-vingt",
}
_SCALES = ((10**9, "milliard"), (10**6, "million"))
_SIGNS = {
    "%": "pour cent",
    "‰": "pour mille",
    "€": "euros",
    "$": "dollars",
    "£": "livres",
    "&": "et",
    "+": "plus",
    "=": "égale",
    "°": "degrés",
    "@": "arobase",
    "§": "paragraphe",
    "m.": "monsieur",
    "mm.": "messieurs",
    "mme": "madame",
    "mlle": "mademoiselle",
    "dr": "docteur",
    "n°": "numéro",
}
_ROMAN = {"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}
_SIGN_PATTERN = r"%|‰|€|\$|£|&|\+|=|n°|°|@|§|\b(?:MM?\.(?=\s*[A-Z])|Mme\b|Mlle\b|Dr\b)"
_NUMBER_PATTERN = re.compile(
    r"(?P<hours>\b\d{1,2}) ?h(?: ?(?P<minutes>\d{2}))?(?![\w])"
    r"|(?P<ordinal>\b\d+|\b(?:[IVX]|[IVXLC]{2,}))(?P<ending>(?<=\b1)(?:er|re)s?|(?<=\bI)er|(?:i?[eè]me|e)s?)\b"
    r"|(?<![\d,.])(?P<whole>\d{1,3}(?:[ \u00a0\u202f]\d{3})+(?!\d)|\d+)(?:,(?P<decimals>\d+))?"
    rf"|(?P<sign>{_SIGN_PATTERN})"
)


class WrittenWord(NamedTuple):
    """A written word and what is said for it.

    Start and stop are a half-open range of characters in the text as given. Spoken words are in
    lower case, with œ as oe and straight apostrophes, without hyphens: each part is a word.
    """

    start: int
    stop: int
    spoken_words: tuple[str, ...]


def split_written_words(text: str) -> list[WrittenWord]:
    """Cut a sentence into written words; punctuation is none.

    Examples
    --------
    >>> text = "« L’enfant a-t-il 21 € ? »"
    >>> [(word_text(word, text), *word.spoken_words) for word in split_written_words(text)]
    [('L’', "l'"), ('enfant', 'enfant'), ('a', 'a'), ('t-il', 't', 'il'), ('21', 'vingt', 'et',
    'un'), ('€', 'euros')]
    """
    number_words = [
        WrittenWord(
            *_trim_range(text, *match.span()), tuple(_split_spoken_words(_spell_match(match)))
        )
        for match in _NUMBER_PATTERN.finditer(text)
    ]
    words = [word for word in number_words if word.spoken_words]
    for token in tokenize(text):
        if any(
            word.start < token.stop and token.start < word.stop
            for word in words[: len(number_words)]
        ):
            continue
        start, stop = _trim_range(text, token.start, token.stop)
        spoken_words = tuple(_split_spoken_words(token.key))
        if spoken_words:
            words.append(WrittenWord(start, stop, spoken_words))
    return sorted(words)


def word_text(word: WrittenWord, text: str) -> str:
    return text[word.start : word.stop]


def spoken_text(text: str) -> str:
    """Return a text as it is spoken: words separated by spaces, elided ones as well.

    Examples
    --------
    >>> spoken_text("Le 1er mai, à 14h30, l'œuf coûtait 3,50 €.")
    "le premier mai à quatorze heures trente l' oeuf coûtait trois virgule cinquante euros"
    """
    return " ".join(
        spoken_word for word in split_written_words(text) for spoken_word in word.spoken_words
    )


def spell_number(number: int) -> str:
    """Spell a number from 0 to 999,999,999,999.

    Examples
    --------
    >>> spell_number(80), spell_number(71), spell_number(2_200_381)
    ('quatre-vingts', 'soixante et onze', 'deux millions deux cent mille trois cent
    quatre-vingt-un')
    """
    number_words = []
    for scale, name in _SCALES:
        if number >= scale:
            scale_count, number = divmod(number, scale)
            number_words.append(
                f"{_spell_below_thousand(scale_count)} {name}{'s' * (scale_count > 1)}"
            )
    if number >= 1000:
        scale_count, number = divmod(number, 1000)
        # "quatre-vingts" and "cents" lose their s before "mille", which is a number; "millions" is
        # a noun.
        number_words += (
            []
            if scale_count == 1
            else [re.sub(r"(?<=vingt)s$|(?<=cent)s$", "", _spell_below_thousand(scale_count))]
        )
        number_words.append("mille")
    if number or not number_words:
        number_words.append(_spell_below_thousand(number))
    return " ".join(number_words)


def _spell_below_thousand(number: int) -> str:
    hundreds, remainder = divmod(number, 100)
    number_words = (
        []
        if not hundreds
        else ["cent"]
        if hundreds == 1
        else [_UNITS[hundreds], "cent" + "s" * (remainder == 0)]
    )
    if remainder or not hundreds:
        number_words.append(_spell_below_hundred(remainder))
    return " ".join(number_words)


def _spell_below_hundred(number: int) -> str:
    if number < 20:
        return _UNITS[number]
    ten = number // 10 * 10 if number < 60 else number // 20 * 20
    remainder = number - ten
    if remainder == 0:
        return _TENS[ten] + "s" * (ten == 80)
    joiner = " et " if remainder in (1, 11) and ten != 80 else "-"
    return f"{_TENS[ten]}{joiner}{_UNITS[remainder]}"


def _spell_ordinal(number: int, ending: str) -> str:
    if number == 1:
        return "première" if ending.startswith("r") else "premier"
    word = re.sub(r"(?<!troi)s$", "", spell_number(number))  # quatre-vingts, deux cents
    word = re.sub("cinq$", "cinqu", re.sub("neuf$", "neuv", re.sub("e$", "", word)))
    return f"{word}ième"


def _spell_match(match: re.Match[str]) -> str:
    groups = match.groupdict()
    if groups["sign"]:
        return _SIGNS[groups["sign"].lower()]
    if groups["hours"]:
        hours = int(groups["hours"])
        minutes = spell_number(int(groups["minutes"])) if int(groups["minutes"] or 0) else ""
        return f"{'une' if hours == 1 else spell_number(hours)} heure{'s' * (hours > 1)} {minutes}"
    if groups["ordinal"]:
        number = groups["ordinal"]
        return _spell_ordinal(
            int(number) if number.isdigit() else _parse_roman(number.lower()), groups["ending"]
        )
    decimals = groups["decimals"] or ""
    zero_count = len(decimals) - len(decimals.lstrip("0")) if decimals.strip("0") else len(decimals)
    number_words = [_spell_digits(re.sub(r"\D", "", groups["whole"]))]
    number_words += (
        [
            "virgule",
            *["zéro"] * zero_count,
            *([_spell_digits(decimals[zero_count:])] if decimals[zero_count:] else []),
        ]
        if decimals
        else []
    )
    return " ".join(number_words)


def _spell_digits(figures: str) -> str:
    if len(figures) > 12 or (len(figures) > 1 and figures[0] == "0"):
        return " ".join(_UNITS[int(figure)] for figure in figures)
    return spell_number(int(figures))


def _parse_roman(number: str) -> int:
    values = [_ROMAN[letter] for letter in number]
    return sum(
        -v if next_value > v else v for v, next_value in zip(values, [*values[1:], 0], strict=True)
    )


def _split_spoken_words(words: str) -> list[str]:
    """Words of something said; an apostrophe at the end marks an elision and stays."""
    return [
        spoken_word
        for spoken_word in re.split(r"[-\s~_]+", words)
        if any(c.isalnum() for c in spoken_word)
    ]


def _trim_range(text: str, start: int, stop: int) -> tuple[int, int]:
    """Leave out the hyphen before a clitic, and spaces."""
    while start < stop and text[start] in "-~ ":
        start += 1
    while stop > start and text[stop - 1] in "-~ ":
        stop -= 1
    return start, stop
