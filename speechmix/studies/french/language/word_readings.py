"""Grammatical readings of a spelling in the lexicon.

In: a spelling and a row of the lexicon's file. Out: a `WordReading`.
"""

from __future__ import annotations

import math
from collections.abc import Container
from typing import NamedTuple

from ....errors import InputError

# Called plural, but alike in both numbers: fois is no plural of foi.
_INVARIANT_WORDS = frozenset("fois cours avis bas rébus haras hachis hollandais épars".split())
# How the forms of a person end, where French spelling leaves no choice. Lexique calls 15 forms like
# donnes the first person plural, so that they passed for the plural of je donne, and infinitives
# the second.
_PERSON_ENDINGS = {"1p": ("ons", "mes"), "2p": ("ez", "tes"), "3p": ("nt",)}


class WordReading(NamedTuple):
    """One thing a spelling can be.

    `pos` is a universal tag (NOUN, VERB, AUX, ADJ, ADV, NUM, ...). `gender` is "m", "f" or ""
    (either); `number` is "s", "p" or "sp" (spelled alike in both). `frequency` is per million
    words, the mean of film subtitles and books in Lexique. `verb` is mood with tense, and person
    with number, such as ``("ind:pre", "3p")``; ``("inf", "")`` and ``("par:pas", "")`` have no
    person. `meaning` tells homophones of different lemmas apart in a user's table ("place" of
    there, "owner" of their).
    """

    lemma: str
    pos: str
    sound: str
    gender: str
    number: str
    frequency: float
    verb: tuple[tuple[str, str], ...]
    meaning: str = ""


def make_reading(
    form: str, row: tuple[str, ...], known_forms: Container[str], *, is_french: bool
) -> WordReading:
    """Read a row of the lexicon: (sound, lemma, pos, gender, number, frequency, verb[, meaning]).

    `known_forms` are all spellings of the lexicon; `is_french` says whether it is Lexique.
    InputError if the frequency is no number.
    """
    sound, lemma, pos, gender, number, frequency, verb, *meaning = row
    features = []
    for inflection in verb.strip('"').split(";"):
        mood_tense, _, person = (
            inflection.rpartition(":") if inflection.count(":") == 2 else (inflection, "", "")
        )
        if inflection and not (is_french and not form.endswith(_PERSON_ENDINGS.get(person, ("",)))):
            features.append((mood_tense, person))
    if is_french and pos in ("NOUN", "ADJ") and (not number or form == lemma):
        number = _infer_number(form, lemma, number, known_forms)
    try:
        frequencies = [float(value) for value in frequency.replace(",", ".").split(";") if value]
    except ValueError:
        frequencies = [math.nan]
    if not all(math.isfinite(value) for value in frequencies):
        raise InputError(
            f"lexicon: expected a frequency per million words of {form!r}, found "
            f"{frequency[:40]!r}: correct it in the lexicon's file"
        )
    mean = sum(frequencies) / max(len(frequencies), 1)
    return WordReading(lemma, pos, sound, gender, number or "sp", mean, tuple(features), *meaning)


def _infer_number(form: str, lemma: str, number: str, known_forms: Container[str]) -> str:
    """Number of a noun or adjective of Lexique, which leaves it empty where the gender is open
    (livre) or both numbers are alike (prix); fois and bijoux are lemmas.

    A lemma that is called plural is one (bijoux, gens), unless it is known to be alike in both.
    """
    if form[-1:] not in ("s", "x", "z"):
        return "s"
    if form != lemma:
        return "p" if form[:-1] in known_forms else "sp"
    return "p" if number == "p" and form not in _INVARIANT_WORDS else "sp"
