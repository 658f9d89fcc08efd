"""Words with times from the files people have: Praat TextGrid, ELAN, CTM, JSON, TSV and CSV; and back to
TextGrid.

In: a path. Out: a list of `Word` in time order, checked (labels, order, overlaps). One small
example of every format is in ``data_templates/``. Silence is left out; speech that the aligner
could not name (MFA's "spn" and "<unk>") stays a word, because it sounds.

Tiers of a file below its words: which one holds the phones, which one the syllables.

In: the interval tiers of a TextGrid, an ELAN document or a JSON file, by name. Out: `Word`s by unit,
pauses and noise left out, phones in IPA whatever alphabet the file has.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from ...errors import InputError
from ...files.json_files import JsonObject, parse_json
from ...files.text_files import read_text
from ...files.user_tables import read_table
from ..words.multipart_words import GAP
from ..words.phone_labels import convert_to_ipa
from ..words.timed_words import Word
from ..words.unit_tiers import PHONE, SYLLABLE, TIER_UNITS, Tiers
from ..words.word_checks import WORD, check_words, is_non_unit, warn_left_out
from .elan import read_elan_tiers
from .textgrid import (
    Intervals,
    bare_tier_name,
    choose_word_tier,
    read_textgrid_tiers,
    tier_words,
    units_of_intervals,
    write_textgrid,
)
from .word_items import (
    END_KEYS,
    LABEL_KEYS,
    SCORE_KEYS,
    START_KEYS,
    first_value,
    make_word,
    words_and_text_from_json,
    words_from_items,
)

# Names of tiers: Praat and MFA users', WebMAUS's, and a few languages'.
_TIER_NAMES = {
    PHONE: frozenset("phones phone phonemes phoneme phonèmes phonème phon mau".split()),
    SYLLABLE: frozenset("syllables syllable syll syllabes syllabe silben silbe mas".split()),
}


def unit_tiers_of_file(
    intervals: Intervals,
    *,
    word_tier: str,
    names: Mapping[str, str] | None,
    where: str,
    alphabet: str | None = None,
) -> dict[str, tuple[Word, ...]]:
    """Return the tiers of a file by unit.

    In a file of several speakers the word tier "Anne - words" goes with "Anne - phones". `names`
    says which tiers to take (unit -> name, in any case); by default those whose names say what they
    are. InputError, which calls the file `where`, if a named tier is not there, is there twice, has
    no labelled interval, or has phones in no known alphabet. Without `names` such phones are left
    out with a warning.

    Examples
    --------
    >>> unit_tiers_of_file({"words": [], "phones": [("l", 0.0, 0.1)]}, word_tier="words", names=None, where="a")
    {'phone': (Word(text='l', start=0.0, end=0.1, score=None),)}
    """
    tiers: dict[str, tuple[Word, ...]] = {}
    if names is None:
        for unit in TIER_UNITS:
            matches = _named_alike(list(intervals), unit, word_tier)
            if len(matches) > 1:
                warnings.warn(
                    f"{where}: {len(matches)} tiers of {unit}s, {matches}: none is read; name one with "
                    f"tiers={{{unit!r}: {matches[0]!r}}}",
                    stacklevel=2,
                )
            elif matches:
                labelled = _read_units(intervals, matches[0], unit, where)
                labelled_in_ipa = usable_units_in_ipa(
                    labelled, unit, alphabet=alphabet, where=where
                )
                tiers |= {unit: labelled_in_ipa} if labelled_in_ipa else {}
        return tiers
    for unit, name in names.items():
        matches = [other for other in intervals if other == name] or [
            other for other in intervals if bare_tier_name(other) == bare_tier_name(name)
        ]
        if len(matches) != 1:
            raise InputError(
                f"{where}: expected a tier {name!r} with the {unit}s, found {len(matches)} among the "
                f"interval tiers {list(intervals)}: name one of these"
            )
        labelled = _read_units(intervals, matches[0], unit, where)
        tiers[unit] = units_in_ipa(labelled, unit, alphabet=alphabet, where=where)
        if not tiers[unit]:
            raise InputError(
                f"{where}: expected {unit}s in tier {name!r}, found no labelled interval"
            )
    return tiers


def file_tier_names(words: Sequence[Word] | None, tiers: Tiers) -> dict[str, Sequence[Word]]:
    """Words, phones and syllables by the names that tiers have in files ("words", "phones")."""
    named = {f"{unit}s": tier for unit, tier in tiers.items()}
    return {"words": words or (), **named}


def unit_of_tier_name(name: str) -> str | None:
    """Unit that a tier's name says it holds ("Anne - phones"); None for words and other names."""
    bare_name = bare_tier_name(name).rsplit(" - ", 1)[-1].strip()
    return next((unit for unit, names in _TIER_NAMES.items() if bare_name in names), None)


def _named_alike(names: list[str], unit: str, word_tier: str) -> list[str]:
    """Tiers that are called like this unit; of the words' speaker, if there are several."""
    matches = [name for name in names if unit_of_tier_name(name) == unit]
    speaker = word_tier.rsplit(" - ", 1)[0]
    of_speaker = [name for name in matches if name.rsplit(" - ", 1)[0] == speaker]
    return of_speaker or matches


def units_in_ipa(
    units: Sequence[Word], unit: str, *, alphabet: str | None, where: str
) -> tuple[Word, ...]:
    """Units of a tier, phones in IPA: see `speechmix.inputs.words.phone_labels.convert_to_ipa`."""
    return convert_to_ipa(units, alphabet=alphabet, where=where) if unit == PHONE else tuple(units)


def usable_units_in_ipa(
    units: Sequence[Word], unit: str, *, alphabet: str | None, where: str
) -> tuple[Word, ...]:
    """Units of a tier that nobody requested by name; none, with a warning, if they are phones in no
    known alphabet."""
    try:
        return units_in_ipa(units, unit, alphabet=alphabet, where=where)
    except InputError as error:
        warnings.warn(f"the {unit}s are left out: {error}", stacklevel=2)
        return ()


def _read_units(intervals: Intervals, name: str, unit: str, where: str) -> list[Word]:
    return units_of_intervals(intervals[name], unit, where=f"{where}, tier {name!r}")


__all__ = ["read_words", "word_file_kind", "words_from_items", "write_textgrid"]

_KINDS = {
    ".textgrid": "textgrid",
    ".eaf": "elan",
    ".ctm": "ctm",
    ".json": "json",
    ".tsv": "table",
    ".csv": "table",
}


def word_file_kind(path: str | PathLike[str]) -> str:
    """Return the kind of a word file: "textgrid", "elan", "ctm", "json" or "table".

    InputError for another ending of its name.
    """
    suffix = Path(path).suffix
    if suffix.lower() not in _KINDS:
        raise InputError(
            f"{path}: expected a word file ending in .TextGrid, .eaf, .ctm, .json, .tsv or .csv, found "
            f"{suffix!r}"
        )
    return _KINDS[suffix.lower()]


def read_words(
    path: str | PathLike[str], *, tier: str | None = None, utterance: str | None = None
) -> list[Word]:
    """Read the words of one recording, with times in seconds.

    Parameters
    ----------
    path : path of a .TextGrid, .eaf, .ctm, .json, .tsv or .csv file
    tier : str, optional
        Tier of a TextGrid or of ELAN (or of MFA's JSON). Default: the one called words, word, mots, ... (also
        "speaker - words"), else the only interval tier.
    utterance : str, optional
        Which recording of a CTM that holds several, or of an ELAN document of several that begin at
        different times; default: the one named like the file.

    Returns
    -------
    list of Word

    Raises
    ------
    InputError
        If the file is missing or not of its format, the tier or utterance is not there or not
        certain, it has no words, or their times cannot be right.
    """
    words = read_word_file(path, tier=tier, tiers={}, utterance=utterance).words
    if not words:
        raise InputError(f"{path}: expected words, found only tiers of phones or syllables")
    if words[-1].end == math.inf:
        raise InputError(
            f"{path}: word {len(words) - 1} must be [text, start, end], found {words[-1].text!r} without "
            "an end: read it with its sound, whose end it takes (Clip.from_file(..., words=))"
        )
    return words


class WordFile(NamedTuple):
    """What a file says of one recording.

    Words are empty if all tiers are of phones or syllables; a last word whose end the file does not
    say ends at infinity. Tiers are as in the file: unlike the words they are not checked yet. The
    text is the file's, with capitals and punctuation (JSON of recognisers), or None.
    """

    words: list[Word]
    tiers: dict[str, tuple[Word, ...]]
    text: str | None = None


def read_word_file(
    path: str | PathLike[str],
    *,
    tier: str | None = None,
    tiers: Mapping[str, str] | None = None,
    utterance: str | None = None,
    alphabet: str | None = None,
) -> WordFile:
    """Read the words of one recording, and its phones, syllables and text where the file has them.

    Parameters
    ----------
    path, tier, utterance
        As in `read_words`.
    tiers : mapping of "phone" and "syllable" to str, optional
        Names of tiers of a TextGrid, an ELAN document or of MFA's JSON. Default: those whose names
        say what they are.
    alphabet : str, optional
        Of the phones: "ipa", "arpabet", "x-sampa" or "praat". Default: the one that they fit.

    Returns
    -------
    WordFile

    Raises
    ------
    InputError
        As `read_words`, and if a tier of `tiers` is not in the file.
    """
    path, where = Path(path), str(path)
    data = parse_json(read_text(path), where=where) if word_file_kind(path) == "json" else None
    named_tiers = data.get("tiers") if isinstance(data, dict) else None
    if named_tiers is not None and not isinstance(named_tiers, dict):
        raise InputError(
            f'{path}: expected tiers as {{"phone": [[label, start, end], ...]}}, found {named_tiers!r:.80}'
        )
    intervals = None
    if word_file_kind(path) == "textgrid":
        intervals = read_textgrid_tiers(path)
    elif word_file_kind(path) == "elan":
        intervals = read_elan_tiers(path, recording=utterance or path.stem)
    elif isinstance(named_tiers, dict) and not _has_units(named_tiers):
        intervals = _json_tiers(named_tiers, where)
    if intervals is not None:
        requested_names = {name.strip().casefold() for name in (tiers or {}).values()}
        unit_tier_names = [
            name
            for name in intervals
            if unit_of_tier_name(name) or name.strip().casefold() in requested_names
        ]
        has_words = tier is not None or not intervals or len(unit_tier_names) < len(intervals)
        word_tier = choose_word_tier(list(intervals), tier, where) if has_words else ""
        if unit := unit_of_tier_name(word_tier):
            raise InputError(
                f"{path}: tier {word_tier!r} holds {unit}s, expected words, which a decoder reads as "
                f"text: leave tier= out and give tiers={{{unit!r}: {word_tier!r}}}"
            )
        words = tier_words(intervals, tier=word_tier, where=where) if has_words else []
        file_tiers = unit_tiers_of_file(
            intervals, word_tier=word_tier, names=tiers, where=where, alphabet=alphabet
        )
        return WordFile(list(check_words(words, where=where)) if words else [], file_tiers)
    if tiers:
        raise InputError(
            f"{path}: expected a file with named tiers, found only words: leave out tiers="
        )
    readers: dict[str, Callable[[], tuple[list[Word], str | None]]] = {
        "ctm": lambda: (_read_ctm(path, utterance), None),
        "json": lambda: words_and_text_from_json(data, where=where),
        "table": lambda: (_read_table(path), None),
    }
    file_tiers = {
        unit: units
        for unit, items in (named_tiers if tiers is None and named_tiers else {}).items()
        if (
            units := usable_units_in_ipa(
                words_from_items(items, where=f"{path}, tier {unit!r}"),
                unit,
                alphabet=alphabet,
                where=where,
            )
        )
    }
    words, text = readers[word_file_kind(path)]()
    return WordFile(list(check_words(words, where=where)), file_tiers, text)


def _read_table(path: Path) -> list[Word]:
    """A row for each word; those that have the same in a column `unit` are pieces of one word."""
    words: list[list[Word]] = []
    pieces_by_unit: dict[str, list[Word]] = {}
    for row, cells in read_table(
        path, required=("|".join(LABEL_KEYS), "|".join(START_KEYS), "|".join(END_KEYS))
    ):
        if isinstance(cells, InputError):
            raise InputError(f"{path}, row {row}: {cells}")
        values = [first_value(cells, names) for names in (LABEL_KEYS, START_KEYS, END_KEYS)]
        if None in values:
            raise InputError(
                f"{path}, row {row}: expected a word, a start and an end, found {cells}"
            )
        label, start, end = values
        word = make_word(
            label, start, end, first_value(cells, SCORE_KEYS), where=f"{path}, row {row}"
        )
        unit = cells.get("unit")
        pieces = pieces_by_unit.setdefault(str(unit), []) if unit is not None else []
        if not pieces:
            words.append(pieces)
        pieces.append(word)
    return [
        pieces[0] if len(pieces) == 1 else _join_rows(pieces, where=str(path)) for pieces in words
    ]


def _join_rows(pieces: Sequence[Word], *, where: str) -> Word:
    """Word of several rows: spelled alike in all, or in each its own part (*ne ... pas*)."""
    text = GAP.join(dict.fromkeys(piece.text for piece in pieces))
    scores = [piece.score for piece in pieces if piece.score is not None]
    try:
        return Word.from_pieces(
            text,
            [(piece.start, piece.end) for piece in pieces],
            min(scores) if len(scores) == len(pieces) else None,
        )
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _read_ctm(path: Path, utterance: str | None) -> list[Word]:
    """Lines of ``utterance channel start duration word [score]``; ``;;`` starts a comment."""
    utterances: dict[str, list[Word]] = {}
    channels: dict[str, dict[str, None]] = {}  # of each utterance, in order
    left_out: list[Word] = []
    for line_number, line in enumerate(read_text(path).split("\n"), start=1):
        fields = line.split()
        if not fields or fields[0].startswith(";;"):
            continue
        if len(fields) not in (5, 6):
            raise InputError(
                f"{path}, line {line_number}: expected `utterance channel start duration word [score]`, "
                f"found {line!r}"
            )
        name, channel, start, duration, text = fields[:5]
        utterance_words = utterances.setdefault(name, [])
        channels.setdefault(name, {})[channel] = None
        if is_non_unit(text, WORD):
            left_out.append(Word(text, 0.0, 0.0))
            continue
        score = fields[5] if len(fields) == 6 and fields[5] != "NA" else None
        word = make_word(text, start, duration, score, where=f"{path}, line {line_number}")
        # Rounded, because 1.2 + 0.6 is 1.7999999999999998; a CTM has no more than a few decimals.
        utterance_words.append(
            Word(word.text, word.start, round(word.start + word.end, 9), word.score)
        )
    if not utterances:
        raise InputError(
            f"{path}: expected lines of `utterance channel start duration word [score]`, found none"
        )
    utterance_name = next((name for name in (utterance, path.stem) if name in utterances), None)
    if utterance_name is None and len(utterances) > 1:
        listing = ", ".join(list(utterances)[:10])
        raise InputError(
            f"{path}: holds {len(utterances)} utterances ({listing}), none called "
            f"{utterance or path.stem!r}: name one with utterance="
        )
    utterance_name = next(iter(utterances)) if utterance_name is None else utterance_name
    if len(channels[utterance_name]) > 1:
        listing = ", ".join(channels[utterance_name])
        raise InputError(
            f"{path}: utterance {utterance_name!r} has {len(channels[utterance_name])} channels ({listing}), expected one: "
            "keep the lines of the channel that the recording has"
        )
    warn_left_out(left_out, [], WORD, where=str(path))
    return utterances[utterance_name]


def _has_units(tiers: JsonObject) -> bool:
    """Whether tiers are by unit ({"phone": [[label, start, end], ...]}), not MFA's by name."""
    return (
        bool(tiers)
        and tiers.keys() <= set(TIER_UNITS)
        and all(isinstance(items, list) for items in tiers.values())
    )


def _json_tiers(tiers: dict[str, JsonObject], where: str) -> Intervals:
    """Interval tiers of MFA's (praatio's) JSON, whose entries are [start, end, label]."""
    try:
        return {
            name: [
                (str(label), float(start), float(end)) for start, end, label in content["entries"]
            ]
            for name, content in tiers.items()
            if content.get("type", "interval") in ("interval", "IntervalTier")  # of MFA, of praatio
        }
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"{where}: expected tiers with entries [start, end, label] ({error!r})"
        ) from error
