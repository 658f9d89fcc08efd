"""Words with times from the files people have: Praat TextGrid, CTM, JSON, TSV and CSV; and back to
TextGrid.

In: a path. Out: a list of `Word` in time order, checked (labels, order, overlaps). One small
example of every format is in ``data_templates/``. Silence is left out; speech that the aligner
could not name (MFA's "spn" and "<unk>") stays a word, because it sounds.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path

from ...errors import InputError
from ...files.json_files import Json, JsonObject, parse_json
from ...files.table_files import read_table
from ...files.text_files import read_text
from ..words.multipart_words import GAP
from ..words.timed_words import Word
from ..words.word_checks import check_words
from .textgrid import read_textgrid, tier_words, write_textgrid

__all__ = ["read_words", "word_file_kind", "words_from_items", "write_textgrid"]

_KINDS = {".textgrid": "textgrid", ".ctm": "ctm", ".json": "json", ".tsv": "table", ".csv": "table"}
_LABELS, _STARTS, _ENDS = ("word", "text", "label"), ("start", "start_sec"), ("end", "end_sec")
_SHORTEST = 0.02  # seconds of a word that is placed between others
_SCORES = ("score", "confidence", "probability")


def word_file_kind(path: str | PathLike[str]) -> str:
    """Kind of a word file by its ending: "textgrid", "ctm", "json" or "table".

    Raises
    ------
    InputError
        For another ending.

    Examples
    --------
    >>> word_file_kind("speaker.TextGrid")
    'textgrid'
    """
    suffix = Path(path).suffix
    if suffix.lower() not in _KINDS:
        raise InputError(
            f"{path}: expected a word file ending in .TextGrid, .ctm, .json, .tsv or .csv, found "
            f"{suffix!r}"
        )
    return _KINDS[suffix.lower()]


def read_words(
    path: str | PathLike[str], *, tier: str | None = None, utterance: str | None = None
) -> list[Word]:
    """Read the words of one recording, with times in seconds.

    Parameters
    ----------
    path : path of a .TextGrid, .ctm, .json, .tsv or .csv file
    tier : str, optional
        Tier of a TextGrid (or of MFA's JSON). Default: the one called words, word, mots, ... (also
        "speaker - words"), else the only interval tier.
    utterance : str, optional
        Which recording of a CTM that holds several; default: the one named like the file. Not used
        by the others, nor if a CTM holds only one.

    Raises
    ------
    InputError
        If the file is missing or not of its format, the tier or utterance is not there or not
        certain, it has no words, or their times cannot be right.
    """
    path = Path(path)
    readers: dict[str, Callable[[], list[Word]]] = {
        "textgrid": lambda: read_textgrid(path, tier=tier),
        "ctm": lambda: _read_ctm(path, utterance),
        "json": lambda: _read_json(path, tier),
        "table": lambda: _read_table(path),
    }
    return list(check_words(readers[word_file_kind(path)](), where=str(path)))


def words_from_items(items: Sequence[object], *, where: str = "words") -> list[Word]:
    """Words from JSON items: ``[text, start, end]`` or ``{"word": ..., "start": ..., "end": ...}``.

    A word in pieces is ``[text, [[start, end], ...]]`` or ``{"word": ..., "pieces": [[start, end],
    ...]}``. The label may also be called text or label, the times start_sec and end_sec or (as
    transformers writes them) ``"timestamp": [start, end]``, the score confidence or probability. Of
    objects, words without any times (numerals of WhisperX) are placed between the words around
    them, with a warning, or left out where there is no room.

    Raises
    ------
    InputError
        For an item with a part missing.

    Examples
    --------
    >>> words_from_items([["les", 0.1, 0.2], {"text": " livres", "timestamp": [0.2, 0.7]}])[1]
    Word(text='livres', start=0.2, end=0.7, score=None)
    """
    if not isinstance(items, Sequence) or isinstance(items, str):
        raise InputError(f"{where}: expected a list of words, found {type(items).__name__}")
    words: list[Word | str] = []  # a label alone where an aligner gave no times
    for index, item in enumerate(items):
        if pieces := _pieces_of(item):
            words.append(_in_pieces(item, pieces, where=f"{where}: word {index}"))
            continue
        if isinstance(item, dict):
            times = item.get("timestamp")
            times = times if isinstance(times, (list, tuple)) and len(times) == 2 else (None, None)
            parts = (
                _first(item, _LABELS),
                _first(item, _STARTS, times[0]),
                _first(item, _ENDS, times[-1]),
            )
            score = _first(item, _SCORES)
        elif isinstance(item, Sequence) and not isinstance(item, str) and len(item) in (3, 4):
            parts, score = tuple(item[:3]), item[3] if len(item) == 4 else None
        else:
            parts, score = (None,) * 3, None
        if (
            isinstance(item, dict)
            and isinstance(parts[0], str)
            and parts[0].strip()
            and parts[1:] == (None, None)
        ):
            words.append(parts[0].strip())
            continue
        if None in parts:
            raise InputError(
                f"{where}: word {index} must be [text, start, end] or have word, start, end; found "
                f"{item!r}"
            )
        label, start, end = parts
        words.append(_word(label, start, end, score, where=f"{where}: word {index}"))
    return _with_times(words, where)


def _with_times(words: Sequence[Word | str], where: str) -> list[Word]:
    """Place words without times, such as numerals of WhisperX, between the words around them; leave
    out what has no room.

    Raises
    ------
    InputError
        If no word has times.
    """
    timed = [word for word in words if isinstance(word, Word)]
    untimed = [word for word in words if isinstance(word, str)]
    if not untimed:
        return timed
    if not timed:
        raise InputError(
            f"{where}: word 0 must be [text, start, end] or have word, start, end; found "
            f"{untimed[0]!r} alone"
        )
    placed: list[Word] = []
    left_out: list[str] = []
    waiting: list[str] = []
    for word in words:
        if isinstance(word, str):
            waiting.append(word)
            continue
        start, room = (placed[-1].end, word.start - placed[-1].end) if placed else (0.0, 0.0)
        if waiting and room / len(waiting) >= _SHORTEST:
            each = room / len(waiting)
            placed += [
                Word(text, start + i * each, start + (i + 1) * each)
                for i, text in enumerate(waiting)
            ]
        else:
            left_out += waiting
        placed.append(word)
        waiting = []
    left_out += waiting
    spread = [text for text in untimed if text not in left_out]
    what = f"placed between the words around them: {', '.join(spread[:5])}" if spread else ""
    what += ("; " if spread and left_out else "") + (
        f"left out: {', '.join(left_out[:5])}" if left_out else ""
    )
    warnings.warn(f"{where}: {len(untimed)} words have no times; {what}", stacklevel=3)
    return placed


def _pieces_of(item: object) -> Json:
    """Pieces of a word's JSON item; none of most."""
    if isinstance(item, dict):
        return item.get("pieces")
    if (
        isinstance(item, (list, tuple))
        and len(item) in (2, 5)
        and isinstance(item[-1], (list, tuple))
    ):
        return item[-1]
    return None


def _in_pieces(item: Json, pieces: Json, *, where: str) -> Word:
    """Word of a JSON item with pieces."""
    label, score = (
        (_first(item, _LABELS), _first(item, _SCORES))
        if isinstance(item, dict)
        else (item[0], None)
    )
    if label is None or not isinstance(pieces, (list, tuple)):
        raise InputError(f"{where} must have a word and pieces [[start, end], ...], found {item!r}")
    try:
        times = [(float(start), float(end)) for start, end in pieces]
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"{where}: expected pieces [[start, end], ...] in seconds, found {pieces!r:.80}"
        ) from None
    first = times[0]
    whole = _word(label, *first, score, where=where)
    try:
        return Word.of_pieces(whole.text, times, whole.score)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _read_table(path: Path) -> list[Word]:
    """A row for each word; those that have the same in a column `unit` are pieces of one word."""
    words: list[list[Word]] = []
    units: dict[str, list[Word]] = {}
    for row, cells in read_table(
        path, required=("|".join(_LABELS), "|".join(_STARTS), "|".join(_ENDS))
    ):
        if isinstance(cells, InputError):
            raise InputError(f"{path}, row {row}: {cells}")
        parts = [_first(cells, names) for names in (_LABELS, _STARTS, _ENDS)]
        if None in parts:
            raise InputError(
                f"{path}, row {row}: expected a word, a start and an end, found {cells}"
            )
        label, start, end = parts
        word = _word(label, start, end, _first(cells, _SCORES), where=f"{path}, row {row}")
        unit = cells.get("unit")
        pieces = units.setdefault(str(unit), []) if unit is not None else []
        if not pieces:
            words.append(pieces)
        pieces.append(word)
    return [
        pieces[0] if len(pieces) == 1 else _of_rows(pieces, where=str(path)) for pieces in words
    ]


def _of_rows(pieces: Sequence[Word], *, where: str) -> Word:
    """Word of several rows: spelled alike in all, or in each its own part (*ne ... pas*)."""
    text = GAP.join(dict.fromkeys(piece.text for piece in pieces))
    scores = [piece.score for piece in pieces if piece.score is not None]
    try:
        return Word.of_pieces(
            text,
            [(piece.start, piece.end) for piece in pieces],
            min(scores) if len(scores) == len(pieces) else None,
        )
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _read_ctm(path: Path, utterance: str | None) -> list[Word]:
    """Lines of ``utterance channel start duration word [score]``; ``;;`` starts a comment."""
    utterances: dict[str, list[Word]] = {}
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        fields = line.split()
        if not fields or fields[0].startswith(";;"):
            continue
        if len(fields) not in (5, 6):
            raise InputError(
                f"{path}, line {number}: expected `utterance channel start duration word [score]`, "
                f"found {line!r}"
            )
        name, _, start, duration, text = fields[:5]
        words_so_far = utterances.setdefault(name, [])
        if text.lower() in ("<eps>", "<sil>", "sil"):
            continue
        score = fields[5] if len(fields) == 6 and fields[5] != "NA" else None
        word = _word(text, start, duration, score, where=f"{path}, line {number}")
        # Rounded, because 1.2 + 0.6 is 1.7999999999999998; a CTM has no more than a few decimals.
        words_so_far.append(
            Word(word.text, word.start, round(word.start + word.end, 9), word.score)
        )
    if not utterances:
        raise InputError(
            f"{path}: expected lines of `utterance channel start duration word [score]`, found none"
        )
    for called in (utterance, path.stem):
        if called in utterances:
            return utterances[called]
    if len(utterances) > 1:
        shown = ", ".join(list(utterances)[:10])
        raise InputError(
            f"{path}: holds {len(utterances)} utterances ({shown}), none called "
            f"{utterance or path.stem!r}: name one with utterance="
        )
    return next(iter(utterances.values()))


def _read_json(path: Path, tier: str | None) -> list[Word]:
    """A list of words, or an object with "words", "segments" (Whisper), "chunks" (transformers) or
    "tiers" (MFA)."""
    where = str(path)
    data = parse_json(read_text(path), where=where)
    if isinstance(data, dict) and isinstance(data.get("tiers"), dict):
        return tier_words(_json_tiers(data["tiers"], where), tier=tier, where=where)
    if isinstance(data, dict) and isinstance(data.get("segments"), list) and "words" not in data:
        words_of = [
            segment.get("words", []) for segment in data["segments"] if isinstance(segment, dict)
        ]
        if not all(isinstance(words, list) for words in words_of):
            raise InputError(
                f"{path}: expected segments with lists of words, found {str(words_of)[:200]}"
            )
        data = [word for words in words_of for word in words]
    elif isinstance(data, dict):
        keys = sorted(data)
        data = data.get("words", data.get("chunks"))
        if data is None:
            raise InputError(
                f'{path}: expected a list of words or an object with "words", found keys {keys}'
            )
    return words_from_items(data, where=where)


def _json_tiers(
    tiers: dict[str, JsonObject], where: str
) -> dict[str, list[tuple[str, float, float]]]:
    """Interval tiers of MFA's (praatio's) JSON, whose entries are [start, end, label]."""
    try:
        return {
            name: [
                (str(label), float(start), float(end)) for start, end, label in content["entries"]
            ]
            for name, content in tiers.items()
            if content.get("type", "interval") == "interval"
        }
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"{where}: expected tiers with entries [start, end, label] ({error!r})"
        ) from error


def _first(item: JsonObject, names: Sequence[str], default: object = None) -> Json:
    return next((item[name] for name in names if item.get(name) is not None), default)


def _word(text: object, start: Json, end: Json, score: Json, *, where: str) -> Word:
    """Word of four cells, whatever they hold: `float` says whether the last three are numbers."""
    try:
        times = float(start), float(end)
        score = None if score is None else float(score)
    except (TypeError, ValueError, OverflowError) as error:
        shown = ", ".join(repr(value)[:40] for value in (start, end))
        raise InputError(
            f"{where}: expected seconds as numbers with a decimal point, found {shown}, score "
            f"{score!r:.40}"
        ) from error
    return Word(str(text).strip(), *times, score)
