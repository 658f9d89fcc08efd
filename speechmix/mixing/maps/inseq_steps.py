"""Inseq's generation steps: a decoder's row p predicts token p + 1, and is the step that generates
it.

In: rows and sources of a decoder map. Out: the tokens in their order, which of them are generated,
and the map's scores laid out over them: [token, step, layer, (head)], not a number (NaN) from the
generated token itself on, which gives nothing yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...errors import InputError
from ...inputs.words.spans import Span

_NEXT = "<next>"  # what the last position of a text predicts


@dataclass(frozen=True)
class GenerationSteps:
    """Generated tokens among those of the decoder: which of them each row predicts and each source
    holds.

    Parameters
    ----------
    tokens : list of Span [T]
        By what they are called; their positions do not count.
    places : list of int
        Of each source among the tokens.
    start, stop : int
        The tokens that the rows predict.
    """

    tokens: list[Span]
    places: list[int]
    start: int
    stop: int

    @classmethod
    def of(cls, rows: Sequence[Span], sources: Sequence[Span]) -> GenerationSteps:
        """Steps of a decoder map, by its units.

        Raises
        ------
        InputError
            If its rows do not follow each other.
        """
        held = {source.start: source for source in sources}
        of_itself = all(
            held.get(row.start) == row for row in rows
        )  # rows of a text are called by what they hold
        if of_itself:
            predicted = {
                row.start + 1: held.get(row.start + 1, Span(0, 1, _NEXT, "special")) for row in rows
            }
        else:
            predicted = {row.start + 1: row for row in rows}
        tokens = {**predicted, **held}
        order = {position: place for place, position in enumerate(sorted(tokens))}
        steps = [order[row.start + 1] for row in rows]
        if not steps or steps != list(range(steps[0], steps[0] + len(steps))):
            raise InputError(
                "Inseq has generation steps that follow each other: give a decoder map with all "
                "rows from the first to the "
                f"last in between, found rows at {[row.start for row in rows][:12]}"
            )
        in_order = [tokens[position] for position in sorted(tokens)]
        return cls(in_order, [order[source.start] for source in sources], steps[0], steps[-1] + 1)

    @classmethod
    def without_tokens(cls, rows: Sequence[Span]) -> GenerationSteps:
        """Steps of rows before which no decoder map tells the tokens."""
        return cls(list(rows), [], 0, len(rows))

    def laid_out(self, scores: np.ndarray) -> np.ndarray:
        """Scores [sources, G, ...] in the order of all tokens up to the last generated one, not a
        number where none is."""
        beyond = [i for i, place in enumerate(self.places) if place >= self.stop]
        if np.any(scores[beyond]):
            raise InputError(
                "a decoder map for Inseq should be causal: a row has scores behind the token it "
                "predicts"
            )
        laid = np.full((self.stop, *scores.shape[1:]), np.nan, scores.dtype)
        for source, place in enumerate(self.places):
            if place < self.stop:
                laid[place] = scores[source]
        for step in range(self.stop - self.start):
            later = laid[self.start + step :, step]
            later[later == 0] = np.nan
        return laid

    def taken_back(self, laid: np.ndarray) -> np.ndarray:
        """The scores [sources, G, ...] of what `laid_out` made."""
        scores = np.zeros((len(self.places), *laid.shape[1:]), laid.dtype)
        for source, place in enumerate(self.places):
            if place < self.stop:
                scores[source] = np.nan_to_num(laid[place], nan=0.0)
        return scores
