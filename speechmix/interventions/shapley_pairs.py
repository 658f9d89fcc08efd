"""Shapley interactions of pairs of words: how much two words do together beyond what each does by
itself.

In: margins of sets of words. Out: for each pair, averaged as Shapley values are (Grabisch and
Roubens 1999, An axiomatic approach to the concept of interaction among players in cooperative
games),

    pair(i, j) = sum over sets S without i, j of  |S|! (n - |S| - 2)! / (n - 1)!  [v(S,i,j) - v(S,i) - v(S,j) + v(S)].

Above zero the two need each other; below zero one replaces the other. A Shapley value holds half of
each of its word's pairs, so opposite effects cancel in it: of an exclusive or of two words, all of
it is in the pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from math import comb

import numpy as np
import pandas as pd

from .removal_margins import Margins

COLUMNS = ("word", "label", "other_word", "other_label", "interaction", "error")
_LEAST_NATS = 0.1  # smaller interactions are not worth a warning


def exact_pairs(players: int, margins: Margins) -> np.ndarray:
    """Interactions [n, n] from the margins of all 2^n sets; symmetric, NaN on the diagonal.

    Examples
    --------
    >>> exact_pairs(2, lambda sets: 1.0 * (sets[:, 0] ^ sets[:, 1])).tolist()  # exclusive or
    [[nan, -2.0], [-2.0, nan]]
    """
    number = np.arange(2**players)
    sets = (number[:, None] >> np.arange(players)) % 2 == 1
    of_set, sizes = margins(sets), sets.sum(axis=1)
    interactions = np.full((players, players), np.nan)
    for i, j in combinations(range(players), 2):
        without = number[~sets[:, i] & ~sets[:, j]]
        weights = np.array(
            [1 / ((players - 1) * comb(players - 2, int(size))) for size in sizes[without]]
        )
        with_i, with_j = without | 1 << i, without | 1 << j
        beyond = of_set[with_i | with_j] - of_set[with_i] - of_set[with_j] + of_set[without]
        interactions[i, j] = interactions[j, i] = weights @ beyond
    return interactions


def sampled_pairs(
    players: int, margins: Margins, *, samples: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Interactions [n, n] over random orders and their reverses, and standard errors; NaN where a
    pair was met too rarely.

    Two players that follow each other in a random order have in front of them a set drawn with the
    weights of the definition. The orders are those of `sampled_values` with the same seed: one set
    more is run for each pair of neighbours.

    Examples
    --------
    >>> found, errors = sampled_pairs(3, lambda sets: 4.0 * (sets[:, 0] & sets[:, 2]), samples=20, seed=0)
    >>> found.round(9).tolist()[0], errors.round(9).tolist()[0]
    ([nan, 0.0, 4.0], [nan, 0.0, 0.0])
    """
    rng = np.random.default_rng(seed)
    drawn: dict[tuple[int, int], list[float]] = {
        pair: [] for pair in combinations(range(players), 2)
    }
    for _ in range(samples):
        order = rng.permutation(players)
        both_ways = [_beyond_of_neighbours(forth, margins) for forth in (order, order[::-1])]
        for pair, value in both_ways[0].items():  # the same pairs are neighbours in the reverse
            drawn[pair].append((value + both_ways[1][pair]) / 2)
    interactions, errors = np.full((2, players, players), np.nan)
    for (i, j), values in drawn.items():
        if len(values) > 1:
            interactions[i, j] = interactions[j, i] = np.mean(values)
            errors[i, j] = errors[j, i] = np.std(values, ddof=1) / np.sqrt(len(values))
    return interactions, errors


def _beyond_of_neighbours(order: np.ndarray, margins: Margins) -> dict[tuple[int, int], float]:
    """What each two neighbours of an order add together beyond what each adds, to the set in front
    of them."""
    count = len(order)
    along, other = (
        np.zeros((count + 1, count), dtype=bool),
        np.zeros((count - 1, count), dtype=bool),
    )
    for place, player in enumerate(order, start=1):
        along[place:, player] = True
    for place in range(count - 1):
        other[place] = along[place]
        other[place, order[place + 1]] = True
    found = margins(np.concatenate([along, other]))
    of_along, of_other = found[: count + 1], found[count + 1 :]
    return {
        (int(min(order[place : place + 2])), int(max(order[place : place + 2]))): float(
            of_along[place + 2] - of_along[place + 1] - of_other[place] + of_along[place]
        )
        for place in range(count - 1)
    }


def pair_table(
    words: Sequence[int], labels: Sequence[str], interactions: np.ndarray, errors: np.ndarray
) -> pd.DataFrame:
    """A row for each pair of words, with columns `COLUMNS`; the largest interaction first, pairs
    never met last."""
    rows = [
        (words[i], labels[i], words[j], labels[j], interactions[i, j], errors[i, j])
        for i, j in combinations(range(len(words)), 2)
    ]
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    order = (
        table["interaction"]
        .abs()
        .sort_values(ascending=False, kind="stable", na_position="last")
        .index
    )
    return table.loc[order].reset_index(drop=True)


def warning_of(pairs: pd.DataFrame, values: np.ndarray) -> str:
    """What a reader of the values must know: an interaction as large as the largest value; empty if
    there is none.

    A sampled interaction counts by what it exceeds twice its error.

    Examples
    --------
    >>> row = {"label": "not", "other_label": "bad", "interaction": 8.0, "error": 0.0}
    >>> warning_of(pd.DataFrame([row]), np.array([4.5, -1.0]))[:56]
    "'not' and 'bad' interact by +8.0 nats, and no Shapley va"
    """
    sure = pairs["interaction"].abs() - 2 * pairs["error"]
    if not (sure >= max(_LEAST_NATS, float(np.abs(values).max()))).any():
        return ""
    strongest = pairs.loc[sure.idxmax()]
    meaning = "they need each other" if strongest["interaction"] > 0 else "one replaces the other"
    return (
        f"{strongest['label']!r} and {strongest['other_label']!r} interact by "
        f"{strongest['interaction']:+.1f} nats, and no "
        f"Shapley value is larger than {np.abs(values).max():.1f}: {meaning}, and values average "
        "over that. Read the pairs "
        "(.pairs) and what each word does alone (column 'alone')"
    )
