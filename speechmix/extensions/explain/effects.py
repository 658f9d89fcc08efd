"""Effects of removing sources, one or two at a time, on each written word.

In: a `Writing`, its choices and the attributions of measures. Out: `Effects`. All choices are read
in each run.

Removal of source pairs, to tell redundant sources from joint ones.

In: what each written word loses when one source is taken away, and when two are. Out: `Pair`s. What
two take away beyond the sum of what each takes alone,

    beyond(i, j) = drop(i and j) - drop(i) - drop(j) = -[v(N) - v(N - i) - v(N - j) + v(N - i - j)],

is the second difference at the whole input, with the sign turned (the interaction index of Grabisch
and Roubens 1999, An axiomatic approach to the concept of interaction among players in cooperative
games, has it for the set of all others). Above zero one source stands in for the other; below zero
either loss alone takes what there was to take.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from .choices import Choice, Readings, possible_sources
from .fills import ALTERNATIVES
from .removals import make_removals, read_without

if TYPE_CHECKING:
    from .fills import Fills
    from .generated_tokens import Writing
    from .word_attributions import Attribution

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


@dataclass(frozen=True)
class Effects:
    """What each choice is worth without its sources; arrays and pairs as in `Explanation`."""

    values: np.ndarray
    value_by_fill: np.ndarray
    value_without: np.ndarray
    probability_without: np.ndarray
    pairs: tuple[Pair, ...]


def measure_effects(
    writing: Writing,
    choices: Sequence[Choice],
    readings: Readings,
    fills: Fills,
    attributions: Mapping[str, Attribution],
    *,
    everything: bool,
    top: int,
    pairs: int,
) -> Effects:
    """Remove sources one at a time with each fill, and of each choice's first ones every two."""
    attribution_values = [attribution.values for attribution in attributions.values()]
    ranked = _sources_to_remove(
        attribution_values, len(writing.sources), everything=everything, top=top
    )
    ranked = sorted(
        {
            *ranked,
            *(index for sources in sources_to_pair(attribution_values, pairs) for index in sources),
        }
    )
    alone = [(index, f) for index in ranked for f in fills.of_source(writing.sources[index])]
    removals = [(), *(make_removals(writing, (index,), (fill,)) for index, fill in alone)]
    runs = read_without(writing, removals, readings.read)
    values = runs[0] @ readings.of_choices
    possible = possible_sources(writing, choices)
    by_fill, log_probability = (
        np.full((len(fills.all), *possible.shape), np.nan) for _ in range(2)
    )
    for (index, fill), run in zip(alone, runs[1:], strict=True):
        by_fill[fills.all.index(fill), :, index] = run @ readings.of_choices
        log_probability[fills.all.index(fill), :, index] = run @ readings.of_probabilities
    by_fill[:, ~possible] = log_probability[:, ~possible] = np.nan
    value_without, log_without = map(median_over_fills, (by_fill, log_probability))
    if any(fill.name in ALTERNATIVES for fill in fills.all):
        is_written = np.array([source.side == "written" for source in writing.sources])
        value_without[:, is_written] = closest_over_fills(values, by_fill[..., is_written])
        log_without[:, is_written] = closest_over_fills(
            runs[0] @ readings.of_probabilities, log_probability[..., is_written]
        )
    if everything and not attribution_values:
        # Occlusion is the only measure. Others choose better: of two that stand in for each other
        # it misses neither.
        attribution_values = [values[:, None] - value_without]
    paired = [
        [index for index in sources if np.isfinite(value_without[choice_index, index])]
        for choice_index, sources in enumerate(sources_to_pair(attribution_values, pairs))
    ]
    runs_of_pairs = _run_pairs(writing, list_source_sets(paired), readings, fills, by_fill)
    return Effects(
        values,
        by_fill,
        value_without,
        np.exp(log_without),
        make_pairs(paired, values, runs_of_pairs),
    )


def median_over_fills(by_fill: np.ndarray) -> np.ndarray:
    """Median over the fills that a source was removed with; NaN where it was not removed."""
    return _apply_over_fills(np.nanmedian, by_fill)


def closest_over_fills(values: np.ndarray, by_fill: np.ndarray) -> np.ndarray:
    """Value [C, S] of the fill that changes it least; the intact value where fills disagree about the direction.

    An effect that one plausible alternative does not have is that of the other alternative, not of the word.
    """
    drops = values[:, None] - by_fill
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # all-NaN: a source that was not removed
        low, high = np.nanmin(drops, axis=0), np.nanmax(drops, axis=0)
    closest = np.where(low > 0, low, np.where(high < 0, high, 0.0))
    result: np.ndarray = values[:, None] - np.where(np.isnan(low), np.nan, closest)
    return result


def range_over_fills(by_fill: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lowest and highest value over fills."""
    return _apply_over_fills(np.nanmin, by_fill), _apply_over_fills(np.nanmax, by_fill)


def _apply_over_fills(statistic: Callable[..., np.ndarray], by_fill: np.ndarray) -> np.ndarray:
    if not len(by_fill):
        return np.full(by_fill.shape[1:], np.nan)
    with warnings.catch_warnings():
        # A source that was not removed has no value.
        warnings.simplefilter("ignore", RuntimeWarning)
        return statistic(by_fill, axis=0)


def _run_pairs(
    writing: Writing,
    sets: Sequence[tuple[int, int]],
    readings: Readings,
    fills: Fills,
    by_fill: np.ndarray,
) -> dict[tuple[int, int], PairRuns]:
    """Each pair of sources removed together, with each fill of its sides."""
    units = {pair: [writing.sources[index] for index in pair] for pair in sets}
    used = {
        pair: fills.combinations(of_pair) if all(map(fills.of_source, of_pair)) else []
        for pair, of_pair in units.items()
    }
    if not used:
        return {}
    removals = [make_removals(writing, pair, together) for pair in sets for together in used[pair]]
    runs = iter(read_without(writing, removals, readings.read))
    runs_by_pair = {}
    for pair, fill_combinations in used.items():
        read = np.array([next(runs) for _ in fill_combinations])
        first, second = (
            by_fill[
                [fills.all.index(f) for c in fill_combinations for f in c if f in of_side], :, index
            ]
            for index, of_side in zip(pair, map(fills.of_source, units[pair]), strict=True)
        )
        names = [", ".join(fill.label for fill in together) for together in fill_combinations]
        probability = np.exp(read @ readings.of_probabilities)
        runs_by_pair[pair] = PairRuns(first, second, read @ readings.of_choices, probability, names)
    return runs_by_pair


def _sources_to_remove(
    attributions: Sequence[np.ndarray], count: int, *, everything: bool, top: int
) -> list[int]:
    """The sources that some measure ranks first for some word."""
    if everything:
        return list(range(count))
    first: set[int] = set()
    for values in attributions:
        for row in values:
            source_indices = np.flatnonzero(np.isfinite(row))
            first |= set(
                source_indices[np.argsort(-row[source_indices], kind="stable")][:top].tolist()
            )
    return sorted(first)
