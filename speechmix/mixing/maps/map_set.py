"""Maps: all maps of one item, by measure and stack.

Pool a map's tokens into words, or bytes into letters.

In: a `MixingMap` some of whose units are tokens. Out: a map of shares. Rows are normalised first,
then averaged over the tokens of a target and summed over the tokens of a source. So a word's share
in a word is the mean over the target's rows of the sum over the source's columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import InputError
from ...files.json_files import Json
from ...inputs.words.spans import Span
from .composition import compose, maps_to_compose
from .mixing_map import MixingMap

if TYPE_CHECKING:
    import pandas as pd
    from inseq import FeatureAttributionOutput
    from matplotlib.axes import Axes

    from ...inputs.clips.clip import Clip
    from ...reporting.plots.token_colours import ColouredTokens
    from .mixing_map import MixingMap


class Maps(Mapping[tuple[str, str], MixingMap]):
    """The maps of one clip, by (measure, stack)."""

    def __init__(self, maps: Mapping[tuple[str, str], MixingMap]):
        self._maps = dict(maps)

    def __getitem__(self, key: tuple[str, str]) -> MixingMap:
        if key not in self._maps:
            raise InputError(f"no map {key!r}; there are {', '.join(map(repr, self._maps))}")
        return self._maps[key]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._maps)

    def __len__(self) -> int:
        return len(self._maps)

    def __contains__(self, key: object) -> bool:
        return key in self._maps

    def composed(
        self,
        measure: str,
        *,
        share: float | None = None,
        weighted: bool | None = None,
        prefix: bool = True,
    ) -> MixingMap:
        """Encoder, cross and decoder maps of one measure in one; see
        `speechmix.mixing.maps.composition.compose`.

        Raises
        ------
        InputError
            If one of the three is not there, or they do not fit together: the error says what to
            ask `mix` for.
        """
        return compose(
            **maps_to_compose(self, measure), share=share, weighted=weighted, prefix=prefix
        )

    def to_dataframe(self) -> pd.DataFrame:
        """Return the tables of all maps below each other; see `MixingMap.to_dataframe`."""
        import pandas as pd

        return pd.concat(
            [mixing_map.to_dataframe() for mixing_map in self.values()], ignore_index=True
        )

    def plot(self, *, layer: int | None = None) -> list[Axes]:
        """Draw the heat map of each map in a figure of its own; see `MixingMap.plot`."""
        return [mixing_map.plot(layer=layer) for mixing_map in self.values()]

    def tokens(
        self,
        *,
        stack: str | None = None,
        layer: int | None = None,
        row: int | str | None = None,
        rolled_out: bool = False,
    ) -> ColouredTokens:
        """Coloured tokens of all measures below each other; see
        `speechmix.reporting.plots.compare_tokens`."""
        from ...reporting.plots.token_colours import compare_tokens

        return compare_tokens(self, stack=stack, layer=layer, row=row, rolled_out=rolled_out)

    def to_textgrid(self, path: str | Path, clip: Clip, **options: Any) -> Path:
        """Words and shares as tiers, .TextGrid for Praat, .eaf for ELAN or .csv; see
        `speechmix.mixing.maps.score_tiers.write_score_tiers`."""
        from .score_tiers import write_score_tiers

        return write_score_tiers(path, self, clip, **options)

    def to_inseq(self, measure: str | None = None) -> FeatureAttributionOutput:
        """One measure's maps (the only one by default) as an output object of Inseq; see
        `speechmix.extensions.inseq.inseq_conversion.to_inseq`."""
        from ...extension import find_export

        measure = (
            next(iter(self))[0]
            if measure is None and len({name for name, _ in self}) == 1
            else measure
        )
        output: FeatureAttributionOutput = find_export("to_inseq")(
            [mixing_map for (name, _), mixing_map in self.items() if name == measure]
        )
        return output

    def __repr__(self) -> str:
        return "Maps(" + ", ".join(f"{measure}/{stack}" for measure, stack in self._maps) + ")"


_REPLACEMENT_CHARACTER = "�"  # what a tokenizer decodes a part of a letter's bytes to


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
        letters = _group_letters(units, mixing_map.provenance)
        if len(letters) < len(units):
            mixing_map = mixing_map.normalized().pooled(letters, sources="sum", side=side)
    return mixing_map


def _group_letters(units: Sequence[Span], provenance: Mapping[str, Json]) -> list[Span]:
    """Units with the byte tokens of each letter joined."""
    letters: list[Span] = []
    for (label, word, kind), run in groupby(
        units, key=lambda span: (span.label, span.word, span.kind)
    ):
        equal_units = list(run)
        size = (
            _tokens_per_letter(label, len(equal_units), _word_text(word, provenance))
            if kind == "token"
            else 1
        )
        letters += [
            _join_tokens(equal_units[start : start + size])
            for start in range(0, len(equal_units), size)
        ]
    return letters


def _join_tokens(units: Sequence[Span]) -> Span:
    return units[0] if len(units) == 1 else replace(units[0], stop=units[-1].stop)


def _word_text(word: int | None, provenance: Mapping[str, Json]) -> str:
    """A word as the clip has it; "" if it is not known."""
    words = provenance.get("words") or []
    return str(words[word][0]) if word is not None and word < len(words) else ""


def _tokens_per_letter(label: str, count: int, word: str) -> int:
    """How many of the `count` neighbouring tokens with this label hold one letter.

    Examples
    --------
    >>> _tokens_per_letter("é", 2, "créée"), _tokens_per_letter("é", 4, "créée"), _tokens_per_letter("é", 2, "été")
    (1, 2, 2)
    """
    if label == _REPLACEMENT_CHARACTER:
        return count
    if len(label) != 1 or label.isascii():
        return 1
    repeat_count = max(
        (len(list(run)) for letter, run in groupby(word.lower()) if letter == label.lower()),
        default=0,
    )
    return count // repeat_count if repeat_count and count % repeat_count == 0 else 1
