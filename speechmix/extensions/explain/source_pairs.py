"""Removal of source pairs, to tell redundant sources from joint ones.

In: what each written word loses when one source is taken away, and when two are. Out: `Pair`s. What
two take away beyond the sum of what each takes alone,

    beyond(i, j) = drop(i and j) - drop(i) - drop(j) = -[v(N) - v(N - i) - v(N - j) + v(N - i - j)],

is the second difference at the whole input, with the sign turned (the interaction index of Grabisch
and Roubens 1999, An axiomatic approach to the concept of interaction among players in cooperative
games, has it for the set of all others). Above zero one source stands in for the other; below zero
either loss alone takes what there was to take.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

EITHER_OR, BOTH_NEEDED, UNDONE = "either-or", "both needed", "undone"
MOST_PAIRED = 8  # sources of one word, 28 pairs
_LEAST_NATS, _LEAST_PART = (
    0.1,
    0.25,
)  # of what is beyond the sum: in nats, and of the largest of the three drops


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
    fills : str
        With which all of this was read: those whose difference from the sum is the median over
        fills.
    """

    choice: int
    first: int
    second: int
    drop_first: float
    drop_second: float
    drop_both: float
    probability_without: float
    fills: str = ""

    @property
    def beyond(self) -> float:
        """What both take away beyond the sum of what each takes alone, in nats."""
        return self.drop_both - self.drop_first - self.drop_second

    @property
    def kind(self) -> str:
        """What two sources are to each other; nothing where both take about what the two take
        alone.

        "either-or": together they take more than either alone and their sum. "both needed": either
        alone takes what there is. "undone": the loss of one makes up for the loss of the other. The
        difference from the sum must be 0.1 nats, and a quarter of the largest of the three drops.

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


def sources_to_pair(attributions: Sequence[np.ndarray], most: int) -> list[list[int]]:
    """For each choice the sources with the largest attribution by some measure, relative to the largest of
    that measure.

    Parameters
    ----------
    attributions : sequence of ndarray [C, S]
        Of each measure; NaN where it has none.
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
    relative_sizes = []
    for values in attributions:
        filled_values = np.where(np.isfinite(values), values, -np.inf)
        largest = np.maximum(filled_values.max(axis=1, keepdims=True), 1e-300)
        relative_sizes.append(filled_values / largest)
    if not relative_sizes:
        return []
    best = np.max(relative_sizes, axis=0)
    orders = np.argsort(-best, axis=1, kind="stable")[:, :most]
    return [
        sorted(index for index in order.tolist() if best[row, index] > -np.inf)
        for row, order in enumerate(orders)
    ]


def list_source_sets(paired: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """The pairs of all choices, each once: all choices are read in the same run."""
    return list(dict.fromkeys(pair for sources in paired for pair in combinations(sources, 2)))


@dataclass(frozen=True, eq=False)
class PairRuns:
    """What choices are worth without each of two sources and without both, once with each
    combination of fills [K].

    Parameters
    ----------
    first, second, both : ndarray [K, C]
        In nats.
    probability_without : ndarray [K, C]
        Of the word, without both.
    fills : sequence of str [K]
    """

    first: np.ndarray
    second: np.ndarray
    without_both: np.ndarray
    probability_without: np.ndarray
    fills: Sequence[str]

    def typical(self, choice: int, value: float) -> int | None:
        """The combination of fills whose difference from the sum is the median; of two in the
        middle the smaller one."""
        beyond = (
            self.first[:, choice] + self.second[:, choice] - self.without_both[:, choice] - value
        )
        order = [
            index
            for index in np.argsort(beyond, kind="stable").tolist()
            if np.isfinite(beyond[index])
        ]
        middle = order[(len(order) - 1) // 2 : len(order) // 2 + 1]
        return min(middle, key=lambda index: abs(beyond[index]), default=None)


def make_pairs(
    paired: Sequence[Sequence[int]], values: np.ndarray, runs: Mapping[tuple[int, int], PairRuns]
) -> tuple[Pair, ...]:
    """Each choice's pairs, the largest difference from the sum first.

    Parameters
    ----------
    paired : sequence of sequence of int
        Sources of each choice.
    values : ndarray [C]
    runs : dict of (int, int) to PairRuns
    """
    pairs = list[Pair]()
    for choice_index, sources in enumerate(paired):
        of_choice = []
        for first, second in combinations(sources, 2):
            of_pair = runs[first, second]
            turn = of_pair.typical(choice_index, float(values[choice_index]))
            if turn is None:
                continue
            alone, other, joint_drop = (
                float(values[choice_index] - values_without[turn, choice_index])
                for values_without in (of_pair.first, of_pair.second, of_pair.without_both)
            )
            probability = float(of_pair.probability_without[turn, choice_index])
            of_choice.append(
                Pair(
                    choice_index,
                    first,
                    second,
                    alone,
                    other,
                    joint_drop,
                    probability,
                    of_pair.fills[turn],
                )
            )
        pairs += sorted(of_choice, key=lambda pair: -abs(pair.beyond))
    return tuple(pairs)
