"""Generation steps of Inseq: shift between decoder rows and predicted tokens.

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

_NEXT_TOKEN = "<next>"  # what the last position of a text predicts


@dataclass(frozen=True)
class GenerationSteps:
    """Generated tokens among those of the decoder: which of them each row predicts and each source
    holds.

    Parameters
    ----------
    tokens : list of Span [T]
        By what they are called; their positions do not count.
    token_indices : list of int
        Of each source among the tokens.
    start, stop : int
        The tokens that the rows predict.
    """

    tokens: list[Span]
    token_indices: list[int]
    start: int
    stop: int

    @classmethod
    def from_decoder_map(cls, rows: Sequence[Span], sources: Sequence[Span]) -> GenerationSteps:
        """Steps of a decoder map, by its units.

        Raises
        ------
        InputError
            If its rows do not follow each other.
        """
        source_by_position = {source.start: source for source in sources}
        is_named_by_input = all(
            source_by_position.get(row.start) == row for row in rows
        )  # rows of a text are called by what they hold
        if is_named_by_input:
            predicted_tokens = {
                row.start + 1: source_by_position.get(
                    row.start + 1, Span(0, 1, _NEXT_TOKEN, "special")
                )
                for row in rows
            }
        else:
            predicted_tokens = {row.start + 1: row for row in rows}
        tokens = {**predicted_tokens, **source_by_position}
        index_by_position = {
            position: token_index for token_index, position in enumerate(sorted(tokens))
        }
        steps = [index_by_position[row.start + 1] for row in rows]
        if not steps or steps != list(range(steps[0], steps[0] + len(steps))):
            raise InputError(
                "Inseq has generation steps that follow each other: give a decoder map with all "
                "rows from the first to the "
                f"last in between, found rows at {[row.start for row in rows][:12]}"
            )
        ordered_tokens = [tokens[position] for position in sorted(tokens)]
        return cls(
            ordered_tokens,
            [index_by_position[source.start] for source in sources],
            steps[0],
            steps[-1] + 1,
        )

    @classmethod
    def without_tokens(cls, rows: Sequence[Span]) -> GenerationSteps:
        """Steps of rows before which no decoder map tells the tokens."""
        return cls(list(rows), [], 0, len(rows))

    def expand_scores(self, scores: np.ndarray) -> np.ndarray:
        """Scores [sources, G, ...] in the order of all tokens up to the last generated one, not a
        number where none is."""
        late_sources = [
            i for i, token_index in enumerate(self.token_indices) if token_index >= self.stop
        ]
        if np.any(scores[late_sources]):
            raise InputError(
                "a decoder map for Inseq should be causal: a row has scores behind the token it "
                "predicts"
            )
        expanded = np.full((self.stop, *scores.shape[1:]), np.nan, scores.dtype)
        for source, token_index in enumerate(self.token_indices):
            if token_index < self.stop:
                expanded[token_index] = scores[source]
        for step in range(self.stop - self.start):
            future_scores = expanded[self.start + step :, step]
            future_scores[future_scores == 0] = np.nan
        return expanded

    def collect_scores(self, expanded: np.ndarray) -> np.ndarray:
        """The scores [sources, G, ...] of what `expand_scores` made."""
        scores = np.zeros((len(self.token_indices), *expanded.shape[1:]), expanded.dtype)
        for source, token_index in enumerate(self.token_indices):
            if token_index < self.stop:
                scores[source] = np.nan_to_num(expanded[token_index], nan=0.0)
        return scores
