"""Logit margins of an item without given sets of words, each set run once.

In: a decision, a side of its input and what replaces words. Out: `RemovalMargins`, which Shapley values, perturbation curves
and reference perturbations read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InputError
from .input_ablation import build_word_removals, side_stack
from .removals import SOUND, Removal
from .runner import InterventionCache

if TYPE_CHECKING:
    from .decision import Decision
    from .removable_sources import Source

# Of sets [m, n] of sources that are there, Boolean: m margins, or m arrays of one shape.
MarginFunction = Callable[[np.ndarray], np.ndarray]


class RemovalMargins:
    """Margins of an item without any set of its words, each set run once.

    `side` is "sound", "text" or "both"; the fill of "both" is written as "zeros + remove".
    """

    def __init__(self, decision: Decision, side: str, fill: str):
        self.decision, self.side, self.fill = decision, side, fill
        self._cache = InterventionCache(decision)

    def __len__(self) -> int:
        """Return the number of sets that have been run."""
        return len(self._cache)

    def players(self, words: Sequence[int | Sequence[int]] | None = None) -> list[Source]:
        """Return the sources that can be removed, all or some of them; an InputError if there is
        none."""
        sources = self.decision.select_sources(side_stack(self.decision, self.side), words)
        players = [source for source in sources if not self._has_decision_position(source)]
        if not players:
            raise InputError(
                f"{self.decision.name}: there is no word to take away with {self.fill!r}: words={words}"
            )
        return players

    def margins(self, removed: Iterable[Iterable[int]]) -> np.ndarray:
        """Return the margin without each of these sets of words, in nats, [N].

        An InputError says that there is nothing to fill with, or that the position that is read
        would be removed.
        """
        sets = [tuple(sorted(set(words))) for words in removed]
        for source in self.decision.select_sources(side_stack(self.decision, self.side), None):
            if self._has_decision_position(source) and any(source.index in words for words in sets):
                raise InputError(
                    f"{self.decision.name}: the decision is read at {source.label!r}, which cannot be removed"
                )
        return self._cache.read(
            [
                build_word_removals(self.decision, words, side=self.side, fill=self.fill)
                for words in sets
            ]
        )

    def margin_function(self, players: Sequence[Source]) -> MarginFunction:
        """Return the margins as a function of which players are there, Boolean rows [m, n]."""

        def margins(sets: np.ndarray) -> np.ndarray:
            absent_words = (
                (
                    player.word_indices
                    for player, is_present in zip(players, row, strict=True)
                    if not is_present
                )
                for row in sets
            )
            return self.margins(
                [word for words in players_words for word in words]
                for players_words in absent_words
            )

        return margins

    def scaled_margins(self, gains: Sequence[dict[int, float]]) -> np.ndarray:
        """Return the margin with words scaled in the sound, for each of these gains by word, [N];
        an InputError for an item without sound."""
        if self.side != SOUND:
            raise InputError(
                f"{self.decision.name}: soft metrics scale the sound of words; tokens are there or not"
            )
        return self._cache.read(
            [tuple(Removal(SOUND, (word,), gain) for word, gain in g.items()) for g in gains]
        )

    def probabilities(self, margins: np.ndarray) -> np.ndarray:
        """Return the probability of the target against its foil, or of the target without one."""
        with np.errstate(over="ignore"):
            probabilities: np.ndarray
            if self.decision.has_foil:
                probabilities = 1 / (1 + np.exp(-margins))
            else:
                probabilities = np.exp(margins)
            return probabilities

    def _has_decision_position(self, source: Source) -> bool:
        """Whether the position that is read would be removed with a source."""
        return self.fill.endswith("remove") and bool(
            set(source.positions) & set(self.decision.read_positions)
        )
