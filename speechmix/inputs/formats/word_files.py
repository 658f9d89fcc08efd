"""Words with times from the files people have: Praat TextGrid, ELAN, CTM, JSON, TSV and CSV; and back to
TextGrid.

In: a path. Out: a list of `Word` in time order, checked (labels, order, overlaps). One small
example of every format is in ``data_templates/``. Silence is left out; speech that the aligner
could not name (MFA's "spn" and "<unk>") stays a word, because it sounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from ...errors import InputError
from ...files.json_files import JsonObject, parse_json
from ...files.text_files import read_text
from ...files.user_tables import read_table
from ..words.multipart_words import GAP
from ..words.non_units import WORD, is_non_unit, warn_left_out
from ..words.timed_words import Word
from ..words.unit_tiers import TIER_UNITS
from ..words.word_checks import check_words
from .elan_reader import read_elan_tiers
from .file_tiers import unit_of_tier_name, unit_tiers_of_file, usable_units_in_ipa
from .json_words import words_and_text_from_json
from .textgrid import choose_word_tier, read_textgrid_tiers, tier_words, write_textgrid
from .textgrid_text import Intervals
from .word_items import (
    END_KEYS,
    LABEL_KEYS,
    SCORE_KEYS,
    START_KEYS,
    first_value,
    make_word,
    words_from_items,
)

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
