"""Make one row of the annotated data set from a pair.

In: a clip's line with words and times, and one of its pairs. Out: a dictionary with the columns of
`dataset.SCHEMA`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from ...files.json_files import Json, JsonObject
from ...inputs.words.multipart_words import GAP
from .contrasts import IMPERSONAL, NUMBER_ACROSS_PERSONS, PERSON, TENSE
from .cue_number_pairs import find_cue_pair
from .pair_template import BALANCE_COLUMNS

_PAIR_FIELDS = ("template", "number", "person", "tense", "lemma", "contrast", "meaning", "foil")
_CUE_FIELDS = ("audible", "liaison", "distance", "numeral", "attractor")
_MAX_DISTANCE = 3  # words from cue to target, from which on distances count as one
# Both numbers exist in the others.
_ONE_NUMBER_CONTRASTS = (NUMBER_ACROSS_PERSONS, PERSON, TENSE, IMPERSONAL)


def make_example_row(line: Mapping[str, Json], pair: Mapping[str, Json]) -> JsonObject:
    """Row of the data set for a pair; cue and target are None if they are no single words."""
    text = line["text"]
    words = [
        {"text": text[a:b], "start": start, "end": end, "score": score, "from": a, "to": b}
        for a, b, start, end, score in line["words"]
    ]
    example = {
        "name": example_name(line, pair),
        "clip": line["key"],
        "audio": line["path"],
        **{name: line[name] for name in ("text", "language", "seconds", "alignment", "doubts")},
        "sound": line.get("sound"),
        "alignment_score": line["score"],
        "words": words,
        "meta": json.dumps(line["meta"], ensure_ascii=False, sort_keys=True),
        "models": [],
        **{name: pair.get(name) for name in (*_PAIR_FIELDS, *_CUE_FIELDS)},
    }
    for role in ("cue", "target", "via"):
        span = pair.get(role)
        example[role] = _find_word_index(words, span)
        example[f"{role}_word"] = text[slice(*span)] if span else None
    example["cue_indices"] = [_find_word_index(words, span) for span in cue_spans(pair)]
    separator = (
        GAP if pair.get("joined_cue") else " "
    )  # by which the reader knows a cue in several parts
    example["cue_word"] = separator.join(text[slice(*span)] for span in cue_spans(pair))
    target = example["target"]
    example["position"] = (
        None if target is None else ("start", "middle", "end")[3 * target // len(words)]
    )
    return example


def cue_spans(pair: Mapping[str, Json]) -> list[tuple[int, int]]:
    """Characters of each of the cue's words."""
    return [(start, stop) for start, stop in (pair["cue"], *(pair.get("further_cues") or ()))]


def _find_word_index(words: Sequence[Mapping[str, Json]], span: Sequence[int] | None) -> int | None:
    """Index of the one word that is at these characters; None if there are several, or none."""
    indices = [
        i
        for i, word in enumerate(words)
        if span and word["from"] < span[1] and span[0] < word["to"]
    ]
    return indices[0] if len(indices) == 1 else None


def example_name(line: Mapping[str, Json], pair: Mapping[str, Json]) -> str:
    """Name of an example: the clip's, the template's, and where in the text cue and target
    begin."""
    return f"{line['key']}.{pair['template']}.{pair['cue'][0]}-{pair['target'][0]}"


def balance_values(example: Mapping[str, Json]) -> dict[str, str]:
    """Return an example's values in the columns of `BALANCE_COLUMNS`.

    Distances of three words and more are one value. Where a contrast has one number alone (je
    parle, il fait), there is none to balance.

    Examples
    --------
    >>> values = balance_values({"contrast": "person", "number": "s", "distance": 4, "cue_word": "il"})
    >>> values["number"], values["distance"]
    ('', '3+')
    """
    values = {column: str(example.get(column)) for column in BALANCE_COLUMNS}
    distance = example.get("distance")
    values["cue_pair"] = find_cue_pair(example.get("cue_word"))
    values["distance"] = (
        str(distance) if distance is None or distance < _MAX_DISTANCE else f"{_MAX_DISTANCE}+"
    )
    if example.get("contrast") in _ONE_NUMBER_CONTRASTS:
        values["number"] = ""
    return values
