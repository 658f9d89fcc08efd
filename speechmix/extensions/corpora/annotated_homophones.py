"""Read rows of the French homophone data set of Mohebbi et al. (2023)."""

from __future__ import annotations

import math
from dataclasses import replace

from ...files.json_files import JsonObject
from ...files.user_tables import RowError
from ...inputs.clips.corpus_row import Row
from ...inputs.words.timed_words import Word
from ...inputs.words.word_lookup import normalize_word

# What the published determiners say of their noun, in the form in which words are compared (l, not
# l').
_NUMBER_OF_DETERMINER = {
    **dict.fromkeys(("le", "la", "l", "un", "une"), "s"),
    **dict.fromkeys(("les", "des"), "p"),
}
_COLUMNS = ("transcription", "cue_word", "target_word", "alignment")


def add_annotations(row: Row, cells: JsonObject) -> Row:
    """Add words, cue and target to a row of the annotated set; return any other row as it is.

    RowError if the annotation cannot be read, or does not hold its cue and target.
    """
    if not all(name in cells for name in _COLUMNS):
        return row
    try:
        return _add_words_and_pairs(row, cells)
    except RowError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        reason = (
            "expected an alignment with intervals (word, start, end), cue and target, found "
            f"others ({error!r})"
        )
        raise RowError("unreadable row", reason[:400]) from error


def _add_words_and_pairs(row: Row, cells: JsonObject) -> Row:
    """Words, cue and target of the paper's annotated set; of determiner, noun and verb both
    readings."""
    intervals = (cells["alignment"] or {}).get("intervals") or []
    if isinstance(intervals, dict):  # a sequence of structures comes as a structure of lists
        intervals = [
            dict(zip(intervals, values, strict=True))
            for values in zip(*intervals.values(), strict=True)
        ]
    words = tuple(Word(_interval_label(i), float(i["start"]), float(i["end"])) for i in intervals)
    if not all(math.isfinite(edge) for word in words for edge in (word.start, word.end)):
        raise RowError("unreadable words", "expected finite times of words, found others")
    label = str(cells.get("label_number", "")).lower()
    number = "s" if "sing" in label else "p" if "plur" in label else None
    pairs: list[JsonObject] = []
    for target, indices in (
        ("target_word", "target_indices"),
        ("target_word_2", "target_indices_2"),
    ):
        if cells.get(target):
            pair_indices = _read_indices(cells, indices) or _find_nearest_pair(
                words, cells["cue_word"], cells[target]
            )
            if pair_indices is None or not all(
                0 <= word_index < len(words) for word_index in pair_indices
            ):
                reason = (
                    f"the words {cells['cue_word']!r} and {cells[target]!r} are not, in this "
                    "order, in its alignment"
                )
                raise RowError("pair not found", reason)
            cue_index, target_index = pair_indices
            pair = {
                "cue": cue_index,
                "target": target_index,
                "template": cells.get("template"),
                "number": number,
            }
            # Of the verb the cue is determiner and noun; the label is its number, not the noun's.
            if pairs:
                pair["cue"] = (cue_index, pairs[0]["target"])
                pairs[0]["number"] = _NUMBER_OF_DETERMINER.get(
                    normalize_word(cells["cue_word"]), number
                )
            pairs.append(pair)
    return replace(row, words=words, pairs=tuple(pairs))


def _interval_label(interval: JsonObject) -> str:
    key = next((key for key in ("word", "label") if key in interval), "text")
    return str(interval[key])


def _read_indices(cells: JsonObject, indices: str) -> tuple[int, int] | None:
    """Return the indices into the alignment's words that the data set itself holds, if it does."""
    cue, target = ((cells.get(name) or {}).get("enc") or [] for name in ("cue_indices", indices))
    return (cue[0], target[0]) if len(cue) == len(target) == 1 else None


def _find_nearest_pair(words: tuple[Word, ...], cue: str, target: str) -> tuple[int, int] | None:
    """Return the cue nearest before the last target, and the first target behind it: the published
    rule."""
    cue_indices, target_indices = (
        [
            index
            for index, word in enumerate(words)
            if normalize_word(word.text) == normalize_word(text)
        ]
        for text in (cue, target)
    )
    preceding_cues = [
        index for index in cue_indices if target_indices and index < target_indices[-1]
    ]
    return (
        (preceding_cues[-1], next(index for index in target_indices if index > preceding_cues[-1]))
        if preceding_cues
        else None
    )
