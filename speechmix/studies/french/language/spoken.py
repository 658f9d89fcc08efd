"""Spoken form of a written French sentence, linked word by word.

In: a text. Out: its written words, half-open character ranges, each with the words that are said
for it. Elided words (l', qu') and clitics (-t-il) are written words of their own, a number is one.
Aligners and word error rates need the spoken side, cue and target live on the written one. Numbers
are cardinals, ordinals with their ending, decimals, clock times and common signs; Roman numerals
only as ordinals (XIXe); what else is written in figures is said figure by figure.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .french_tokens import tokenize

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
