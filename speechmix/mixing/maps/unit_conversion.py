"""The same map in other units: tokens pooled to words, and the byte tokens of one letter pooled to
that letter.

In: a `MixingMap` some of whose units are tokens. Out: a map of shares. Rows are normalised first,
then averaged over the tokens of a target and summed over the tokens of a source. So a word's share
in a word is the mean over the target's rows of the sum over the source's columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from ...files.json_files import Json
from ...inputs.words.spans import Span

if TYPE_CHECKING:
    from .mixing_map import MixingMap

_INCOMPLETE = "�"  # what a tokenizer decodes a part of a letter's bytes to


def pool_to_words(mixing_map: MixingMap) -> MixingMap:
    """Pool the tokens of each word; the map itself if no token belongs to a word.

    Examples
    --------
    >>> import numpy as np
    >>> from speechmix.mixing.maps.mixing_map import MixingMap
    >>> tokens = (Span(0, 1, "un", "token", 0), Span(1, 2, "##do", "token", 0), Span(2, 3, "it", "token", 1))
    >>> m = pool_to_words(MixingMap(np.full((1, 3, 3), 1 / 3), tokens, tokens, "attention", "decoder", (0,)))
    >>> [span.label for span in m.sources], m.scores[0, 0].round(2).tolist()
    (['undo', 'it'], [0.67, 0.33])
    """
    pooled_sides = [
        side
        for side, units in (("targets", mixing_map.targets), ("sources", mixing_map.sources))
        if any(span.kind == "token" and span.word is not None for span in units)
    ]
    if not pooled_sides:
        return mixing_map
    side = "both" if len(pooled_sides) == 2 else pooled_sides[0]
    return mixing_map.normalized().pooled(sources="sum", side=side)


def pool_to_letters(mixing_map: MixingMap) -> MixingMap:
    """Pool the tokens that hold the bytes of one letter; the map itself if there are none.

    Tokenizers of bytes split a letter that is not in their vocabulary. Each of its tokens then has
    the letter as its label, or none that can be read.

    Examples
    --------
    >>> import numpy as np
    >>> from speechmix.mixing.maps.mixing_map import MixingMap
    >>> tokens = tuple(Span(i, i + 1, label, "token", 0) for i, label in enumerate(["c", "œ", "œ", "ur"]))
    >>> clip = {"words": [["cœur", 0.0, 0.5]]}
    >>> m = pool_to_letters(MixingMap(np.full((1, 4, 4), 0.25), tokens, tokens, "attention", "decoder", (0,), clip))
    >>> [span.label for span in m.sources], m.scores[0, 0].tolist()
    (['c', 'œ', 'ur'], [0.25, 0.5, 0.25])
    """
    for side, units in (("targets", mixing_map.targets), ("sources", mixing_map.sources)):
        letters = _letters(units, mixing_map.provenance)
        if len(letters) < len(units):
            mixing_map = mixing_map.normalized().pooled(letters, sources="sum", side=side)
    return mixing_map


def _letters(units: Sequence[Span], provenance: Mapping[str, Json]) -> list[Span]:
    """Units with the byte tokens of each letter joined."""
    letters: list[Span] = []
    for (label, word, kind), run in groupby(
        units, key=lambda span: (span.label, span.word, span.kind)
    ):
        same = list(run)
        size = (
            _bytes_a_letter(label, len(same), _text_of(word, provenance)) if kind == "token" else 1
        )
        letters += [_joined(same[first : first + size]) for first in range(0, len(same), size)]
    return letters


def _joined(units: Sequence[Span]) -> Span:
    return units[0] if len(units) == 1 else replace(units[0], stop=units[-1].stop)


def _text_of(word: int | None, provenance: Mapping[str, Json]) -> str:
    """A word as the clip has it; "" if it is not known."""
    words = provenance.get("words") or []
    return str(words[word][0]) if word is not None and word < len(words) else ""


def _bytes_a_letter(label: str, count: int, word: str) -> int:
    """How many of the `count` neighbouring tokens with this label hold one letter.

    Examples
    --------
    >>> _bytes_a_letter("é", 2, "créée"), _bytes_a_letter("é", 4, "créée"), _bytes_a_letter("é", 2, "été")
    (1, 2, 2)
    """
    if label == _INCOMPLETE:
        return count
    if len(label) != 1 or label.isascii():
        return 1
    neighbours = max(
        (len(list(run)) for letter, run in groupby(word.lower()) if letter == label.lower()),
        default=0,
    )
    return count // neighbours if neighbours and count % neighbours == 0 else 1
