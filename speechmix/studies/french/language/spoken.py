"""A French sentence as it is written and as it is spoken, linked: "80 %" is quatre-vingts pour
cent.

In: a text. Out: its written words, half-open character ranges, each with the words that are said
for it. Elided words (l', qu') and clitics (-t-il) are written words of their own, a number is one.
Aligners and word error rates need the spoken side, cue and target live on the written one. Numbers
are cardinals, ordinals with their ending, decimals, clock times and common signs; Roman numerals
only as ordinals (XIXe); what else is written in figures is said figure by figure.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from .text import tokenize

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
_SIGN = r"%|‰|€|\$|£|&|\+|=|n°|°|@|§|\b(?:MM?\.(?=\s*[A-Z])|Mme\b|Mlle\b|Dr\b)"
_NUMBER = re.compile(
    r"(?P<hours>\b\d{1,2}) ?h(?: ?(?P<minutes>\d{2}))?(?![\w])"
    r"|(?P<ordinal>\b\d+|\b(?:[IVX]|[IVXLC]{2,}))(?P<ending>(?<=\b1)(?:er|re)s?|(?<=\bI)er|(?:i?[eè]me|e)s?)\b"
    r"|(?<![\d,.])(?P<whole>\d{1,3}(?:[ \u00a0\u202f]\d{3})+(?!\d)|\d+)(?:,(?P<decimals>\d+))?"
    rf"|(?P<sign>{_SIGN})"
)


class WrittenWord(NamedTuple):
    """A written word and what is said for it.

    Parameters
    ----------
    start, stop : int
        Half-open range of characters in the text as given.
    spoken : tuple of str
        Lower case, œ as oe, straight apostrophes; without hyphens, each part a word.
    """

    start: int
    stop: int
    spoken: tuple[str, ...]


def written_words(text: str) -> list[WrittenWord]:
    """Cut a sentence into written words; punctuation is none.

    Examples
    --------
    >>> [(word_text(word, "« L’enfant a-t-il 21 € ? »"), *word.spoken) for word in written_words("« L’enfant a-t-il 21 € ? »")]
    [('L’', "l'"), ('enfant', 'enfant'), ('a', 'a'), ('t-il', 't', 'il'), ('21', 'vingt', 'et',
    'un'), ('€', 'euros')]
    """
    figures = [
        WrittenWord(*_trimmed(text, *m.span()), tuple(_parts(_said(m))))
        for m in _NUMBER.finditer(text)
    ]
    words = [w for w in figures if w.spoken]
    for token in tokenize(text):
        if any(w.start < token.stop and token.start < w.stop for w in words[: len(figures)]):
            continue
        start, stop = _trimmed(text, token.start, token.stop)
        spoken = tuple(_parts(token.key))
        if spoken:
            words.append(WrittenWord(start, stop, spoken))
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
    return " ".join(part for word in written_words(text) for part in word.spoken)


def number_in_words(number: int) -> str:
    """Spell a number from 0 to 999,999,999,999.

    Examples
    --------
    >>> number_in_words(80), number_in_words(71), number_in_words(2_200_381)
    ('quatre-vingts', 'soixante et onze', 'deux millions deux cent mille trois cent
    quatre-vingt-un')
    """
    parts = []
    for scale, name in _SCALES:
        if number >= scale:
            many, number = divmod(number, scale)
            parts.append(f"{_below_thousand(many)} {name}{'s' * (many > 1)}")
    if number >= 1000:
        many, number = divmod(number, 1000)
        # "quatre-vingts" and "cents" lose their s before "mille", which is a number; "millions" is
        # a noun.
        parts += (
            [] if many == 1 else [re.sub(r"(?<=vingt)s$|(?<=cent)s$", "", _below_thousand(many))]
        )
        parts.append("mille")
    if number or not parts:
        parts.append(_below_thousand(number))
    return " ".join(parts)


def _below_thousand(number: int) -> str:
    hundreds, rest = divmod(number, 100)
    parts = (
        []
        if not hundreds
        else ["cent"]
        if hundreds == 1
        else [_UNITS[hundreds], "cent" + "s" * (rest == 0)]
    )
    if rest or not hundreds:
        parts.append(_below_hundred(rest))
    return " ".join(parts)


def _below_hundred(number: int) -> str:
    if number < 20:
        return _UNITS[number]
    ten = number // 10 * 10 if number < 60 else number // 20 * 20
    rest = number - ten
    if rest == 0:
        return _TENS[ten] + "s" * (ten == 80)
    joined = " et " if rest in (1, 11) and ten != 80 else "-"
    return f"{_TENS[ten]}{joined}{_UNITS[rest]}"


def _ordinal(number: int, ending: str) -> str:
    if number == 1:
        return "première" if ending.startswith("r") else "premier"
    word = re.sub(r"(?<!troi)s$", "", number_in_words(number))  # quatre-vingts, deux cents
    word = re.sub("cinq$", "cinqu", re.sub("neuf$", "neuv", re.sub("e$", "", word)))
    return f"{word}ième"


def _said(match: re.Match[str]) -> str:
    groups = match.groupdict()
    if groups["sign"]:
        return _SIGNS[groups["sign"].lower()]
    if groups["hours"]:
        hours = int(groups["hours"])
        minutes = number_in_words(int(groups["minutes"])) if int(groups["minutes"] or 0) else ""
        return (
            f"{'une' if hours == 1 else number_in_words(hours)} heure{'s' * (hours > 1)} {minutes}"
        )
    if groups["ordinal"]:
        number = groups["ordinal"]
        return _ordinal(
            int(number) if number.isdigit() else _roman(number.lower()), groups["ending"]
        )
    decimals = groups["decimals"] or ""
    zeros = len(decimals) - len(decimals.lstrip("0")) if decimals.strip("0") else len(decimals)
    parts = [_whole(re.sub(r"\D", "", groups["whole"]))]
    parts += (
        ["virgule", *["zéro"] * zeros, *([_whole(decimals[zeros:])] if decimals[zeros:] else [])]
        if decimals
        else []
    )
    return " ".join(parts)


def _whole(figures: str) -> str:
    if len(figures) > 12 or (len(figures) > 1 and figures[0] == "0"):
        return " ".join(_UNITS[int(figure)] for figure in figures)
    return number_in_words(int(figures))


def _roman(number: str) -> int:
    values = [_ROMAN[letter] for letter in number]
    return sum(-v if later > v else v for v, later in zip(values, [*values[1:], 0], strict=True))


def _parts(words: str) -> list[str]:
    """Words of something said; an apostrophe at the end marks an elision and stays."""
    return [part for part in re.split(r"[-\s~_]+", words) if any(c.isalnum() for c in part)]


def _trimmed(text: str, start: int, stop: int) -> tuple[int, int]:
    """Leave out the hyphen before a clitic, and spaces."""
    while start < stop and text[start] in "-~ ":
        start += 1
    while stop > start and text[stop - 1] in "-~ ":
        stop -= 1
    return start, stop
