"""Sources silenced together: are two of them either-or, or does the word need both?

In: what each written word loses when one source is taken away, and when two are. Out: `Pair`s. What two take away beyond the
sum of what each takes alone,

    beyond(i, j) = drop(i and j) - drop(i) - drop(j) = -[v(N) - v(N - i) - v(N - j) + v(N - i - j)],

is the second difference at the whole input, with the sign turned (the interaction index of Grabisch and Roubens 1999, An
axiomatic approach to the concept of interaction among players in cooperative games, has it for the set of all others). Above
zero one source stands in for the other; below zero either loss alone takes what there was to take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

EITHER_OR, BOTH_NEEDED, UNDONE = "either-or", "both needed", "undone"
MOST_PAIRED = 8  # sources of one word, 28 pairs
_LEAST_NATS, _LEAST_PART = 0.1, 0.25  # of what is beyond the sum: in nats, and of the largest of the three drops


@dataclass(frozen=True)
class Pair:
    """Two sources of a written word, taken away alone and together.

    Parameters
    ----------
    choice : int
        Among the choices of the explanation.
    first, second : int
        Among its sources.
    drop_first, drop_second, drop_both : float
        What the choice loses, in nats.
    probability_without : float
        Of the word, without both.
    """

    choice: int
    first: int
    second: int
    drop_first: float
    drop_second: float
    drop_both: float
    probability_without: float

    @property
    def beyond(self) -> float:
        """What both take away beyond the sum of what each takes alone, in nats."""
        return self.drop_both - self.drop_first - self.drop_second

    @property
    def kind(self) -> str:
        """What two sources are to each other; nothing where both take about what the two take alone.

        "either-or": together they take more than either alone and their sum. "both needed": either alone takes what there is.
        "undone": the loss of one makes up for the loss of the other. The difference from the sum must be 0.1 nats, and a
        quarter of the largest of the three drops.

        Examples
        --------
        >>> drops = [(0.1, 0.2, 5.0), (5.0, 5.0, 5.1), (5.0, 0.0, 1.0), (2.0, 1.0, 3.1)]
        >>> [Pair(0, 0, 1, *alone_and_both, probability_without=0.1).kind for alone_and_both in drops]
        ['either-or', 'both needed', 'undone', '']
        """
        alone = (self.drop_first, self.drop_second)
        largest = max(map(abs, (*alone, self.drop_both)))
        least = max(_LEAST_NATS, _LEAST_PART * largest)
        if abs(self.beyond) < least:
            return ""
        if self.beyond > 0 and self.drop_both >= max(*alone, 0) + least:
            return EITHER_OR
        return BOTH_NEEDED if self.beyond < 0 and min(alone) >= _LEAST_PART * largest else UNDONE


def sources_to_pair(claims: Sequence[np.ndarray], most: int) -> list[list[int]]:
    """For each choice the sources that some measure claims most of, as a part of the largest that it claims.

    Parameters
    ----------
    claims : sequence of ndarray [C, S]
        Of each measure; NaN where it claims nothing.
    most : int

    Returns
    -------
    list of list of int
        Sorted by place among the sources.

    Examples
    --------
    >>> sources_to_pair([np.array([[3.0, 1.0, 2.0]]), np.array([[0.0, 9.0, 1.0]])], 2)
    [[0, 1]]
    """
    parts = []
    for values in claims:
        known = np.where(np.isfinite(values), values, -np.inf)
        largest = np.maximum(known.max(axis=1, keepdims=True), 1e-300)
        parts.append(known / largest)
    if not parts:
        return []
    best = np.max(parts, axis=0)
    orders = np.argsort(-best, axis=1, kind="stable")[:, :most]
    return [sorted(index for index in order.tolist() if best[row, index] > -np.inf) for row, order in enumerate(orders)]


def sets_of(paired: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """The pairs of all choices, each once: all choices are read in the same run."""
    return list(dict.fromkeys(pair for sources in paired for pair in combinations(sources, 2)))


def pairs_of(
    paired: Sequence[Sequence[int]],
    values: np.ndarray,
    value_without: np.ndarray,
    value_without_both: Mapping[tuple[int, int], np.ndarray],
    probability_without_both: Mapping[tuple[int, int], np.ndarray],
) -> tuple[Pair, ...]:
    """Each choice's pairs, the largest difference from the sum first.

    Parameters
    ----------
    paired : sequence of sequence of int
        Sources of each choice.
    values : ndarray [C]
    value_without : ndarray [C, S]
    value_without_both, probability_without_both : dict of (int, int) to ndarray [C]
    """
    pairs = list[Pair]()
    for place, sources in enumerate(paired):
        drops = values[place] - value_without[place]
        of_choice = [
            Pair(
                place,
                first,
                second,
                float(drops[first]),
                float(drops[second]),
                float(values[place] - value_without_both[first, second][place]),
                float(probability_without_both[first, second][place]),
            )
            for first, second in combinations(sources, 2)
        ]
        pairs += sorted(of_choice, key=lambda pair: -abs(pair.beyond))
    return tuple(pairs)
