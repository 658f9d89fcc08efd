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

from ..inputs.words.labels_in_sentences import number_repeated
from .decision_margins import MarginFunction

PAIR_COLUMNS = ("word", "label", "other_word", "other_label", "interaction", "error")
_MIN_WARNING_NATS = 0.1  # smaller interactions are not worth a warning


def exact_interactions(players: int, margins: MarginFunction) -> np.ndarray:
    """Compute interactions [n, n] from the margins of all 2^n sets; symmetric, NaN on the diagonal."""
    set_numbers = np.arange(2**players)
    sets = (set_numbers[:, None] >> np.arange(players)) % 2 == 1
    set_margins, sizes = margins(sets), sets.sum(axis=1)
    interactions = np.full((players, players), np.nan)
    for i, j in combinations(range(players), 2):
        sets_without = set_numbers[~sets[:, i] & ~sets[:, j]]
        weights = np.array(
            [
                1 / ((players - 1) * comb(players - 2, int(set_size)))
                for set_size in sizes[sets_without]
            ]
        )
        with_i, with_j = sets_without | 1 << i, sets_without | 1 << j
        interaction = (
            set_margins[with_i | with_j]
            - set_margins[with_i]
            - set_margins[with_j]
            + set_margins[sets_without]
        )
        interactions[i, j] = interactions[j, i] = weights @ interaction
    return interactions


def sampled_interactions(
    players: int, margins: MarginFunction, *, samples: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Estimate interactions [n, n] and standard errors over random orders; NaN for pairs that occur
    too rarely.

    Two players that follow each other in a random order have in front of them a set drawn with the
    weights of the definition. The orders are those of `sampled_shapley` with the same seed: one set
    more is run for each pair of neighbours.
    """
    rng = np.random.default_rng(seed)
    values_by_pair: dict[tuple[int, int], list[float]] = {
        pair: [] for pair in combinations(range(players), 2)
    }
    for _ in range(samples):
        order = rng.permutation(players)
        direction_values = [
            _neighbour_interactions(direction, margins) for direction in (order, order[::-1])
        ]
        for pair, value in direction_values[
            0
        ].items():  # the same pairs are neighbours in the reverse
            values_by_pair[pair].append((value + direction_values[1][pair]) / 2)
    interactions, errors = np.full((2, players, players), np.nan)
    for (i, j), values in values_by_pair.items():
        if len(values) > 1:
            interactions[i, j] = interactions[j, i] = np.mean(values)
            errors[i, j] = errors[j, i] = np.std(values, ddof=1) / np.sqrt(len(values))
    return interactions, errors


def _neighbour_interactions(
    order: np.ndarray, margins: MarginFunction
) -> dict[tuple[int, int], float]:
    """Compute the interaction of each two neighbours of an order, given the set in front of
    them."""
    count = len(order)
    prefixes, skipping_prefixes = (
        np.zeros((count + 1, count), dtype=bool),
        np.zeros((count - 1, count), dtype=bool),
    )
    for index, player in enumerate(order, start=1):
        prefixes[index:, player] = True
    for index in range(count - 1):
        skipping_prefixes[index] = prefixes[index]
        skipping_prefixes[index, order[index + 1]] = True
    set_margins = margins(np.concatenate([prefixes, skipping_prefixes]))
    prefix_margins, skipping_margins = set_margins[: count + 1], set_margins[count + 1 :]
    return {
        (int(min(order[index : index + 2])), int(max(order[index : index + 2]))): float(
            prefix_margins[index + 2]
            - prefix_margins[index + 1]
            - skipping_margins[index]
            + prefix_margins[index]
        )
        for index in range(count - 1)
    }


def build_pair_table(
    words: Sequence[int], labels: Sequence[str], interactions: np.ndarray, errors: np.ndarray
) -> pd.DataFrame:
    """Build a table with a row for each pair of words (`PAIR_COLUMNS`), the largest interaction
    first."""
    rows = [
        (words[i], labels[i], words[j], labels[j], interactions[i, j], errors[i, j])
        for i, j in combinations(range(len(words)), 2)
    ]
    table = pd.DataFrame(rows, columns=list(PAIR_COLUMNS))
    order = (
        table["interaction"]
        .abs()
        .sort_values(ascending=False, kind="stable", na_position="last")
        .index
    )
    return table.loc[order].reset_index(drop=True)


def describe_interaction(pairs: pd.DataFrame, values: np.ndarray) -> str:
    """Describe an interaction as large as the largest value; empty if there is none.

    A sampled interaction counts by what it exceeds twice its error.

    Examples
    --------
    >>> row = {"word": 1, "label": "not", "other_word": 2, "other_label": "bad", "interaction": 8.0, "error": 0.0}
    >>> describe_interaction(pd.DataFrame([row]), np.array([4.5, -1.0]))[:56]
    "'not' and 'bad' interact by +8.0 nats, and no Shapley va"
    """
    certain_sizes = pairs["interaction"].abs() - 2 * pairs["error"]
    if not (certain_sizes >= max(_MIN_WARNING_NATS, float(np.abs(values).max()))).any():
        return ""
    strongest_pair = pairs.iloc[int(certain_sizes.argmax())]
    meaning = (
        "they need each other" if strongest_pair["interaction"] > 0 else "one replaces the other"
    )
    named_words = pairs[["word", "label"]].to_numpy().tolist()
    named_words += pairs[["other_word", "other_label"]].to_numpy().tolist()
    label_by_word = dict(sorted(named_words))
    name_by_word = dict(
        zip(label_by_word, number_repeated(list(label_by_word.values())), strict=True)
    )
    first, second = (name_by_word[strongest_pair[column]] for column in ("word", "other_word"))
    return (
        f"{first!r} and {second!r} interact by "
        f"{strongest_pair['interaction']:+.1f} nats, and no "
        f"Shapley value is larger than {np.abs(values).max():.1f}: {meaning}, and values average "
        "over that. Read the pairs "
        "(.pairs) and what each word does alone (column 'alone')"
    )
