"""Perturbation curves: the probability of the decision with the first words of an order removed, or
with them alone.

Words of an item are few, so sets of them recur between orders; each is run once (`RemovalMargins`),
several in a batch. With p(k) and q(k) the probability with the first k of W words removed, and with
only those kept, p(0) = q(W) that of the whole item:

    comprehensiveness    mean over k of p(0) - p(k)       sufficiency    mean over k of p(0) - q(k)
    deletion, insertion  area under p, under q, over the share of words

One by one, the first two leave out the ends, where the order plays no part (`scores`). In bins of
b %, the first ceil(b W / 100) words go. The soft versions leave every word in, scaled by its share
s_j in its row:

    soft comprehensiveness  samples of word j times 1 - s_j  a word with all of the row is muted
    soft sufficiency        samples of word j times s_j      and it alone is left

The expectation of Zhao & Aletras's (2023) random masks, in the sound. Recognisers hear log
energies: half the amplitude is 6 dB less and leaves a word intelligible, so soft numbers are
smaller than hard ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil

import numpy as np

from ..occlusion.shapley import RemovalMargins
from .package_perturbations import RemovalEffects


def removed_counts(word_count: int, bins: Sequence[float] | None) -> list[int]:
    """Return the number of removed words at each point of a curve, from 0.

    Examples
    --------
    >>> removed_counts(3, None), removed_counts(15, (1, 20, 50))
    ([0, 1, 2, 3], [0, 1, 3, 8])
    """
    if bins is None:
        return list(range(word_count + 1))
    # Rounded first: 20 % of 15 words are 3, and 3.0000000000000004 in floating point.
    return [0, *(ceil(round(percent * word_count / 100, 9)) for percent in bins)]


def removed_shares(word_count: int, bins: Sequence[float] | None) -> np.ndarray:
    """Return the percentage of removed words at each point of a curve, [P]."""
    return np.array([0, *bins]) if bins else 100 * np.arange(word_count + 1) / word_count


def perturbation_curves(
    effects: RemovalEffects,
    words: Sequence[int],
    orders: Sequence[Sequence[int]],
    counts: Sequence[int],
) -> np.ndarray:
    """Compute curves of removal and of insertion for each order, mean over the perturbation's
    fills.

    Parameters
    ----------
    effects : RemovalEffects
        With removals.
    words : sequence of int [W]
        Indices of the item's words.
    orders : sequence of sequence of int [N, W]
        Positions in `words`, most important first.
    counts : sequence of int [P]
        How many words are removed at each point.

    Returns
    -------
    ndarray [N, 2, P]
        Probability with the first words removed, and with only those kept.
    """
    curves_by_fill = []
    for removals in effects.removals:
        # Texts are short: all sets run together. Sounds of all sets would not fit in memory.
        batches = [orders] if removals.side == "text" else [[order] for order in orders]
        curves = [_read_curves(removals, words, batch, counts) for batch in batches]
        curves_by_fill.append(np.concatenate(curves))
    means: np.ndarray = np.mean(curves_by_fill, axis=0)
    return means


def _read_curves(
    removals: RemovalMargins,
    words: Sequence[int],
    orders: Sequence[Sequence[int]],
    counts: Sequence[int],
) -> np.ndarray:
    ranked_words = [[words[index] for index in order] for order in orders]
    removed_sets = [order[:count] for order in ranked_words for count in counts]
    remaining_sets = [order[count:] for order in ranked_words for count in counts]
    probabilities = removals.probabilities(removals.margins([*removed_sets, *remaining_sets]))
    curves: np.ndarray = probabilities.reshape(2, len(orders), len(counts)).swapaxes(0, 1)
    return curves


def soft_metrics(
    removals: RemovalMargins, words: Sequence[int], vectors: Sequence[np.ndarray]
) -> list[dict[str, float]]:
    """Compute soft comprehensiveness and sufficiency of several vectors of shares [W].

    Raises
    ------
    InputError
        If no sound is changed.
    """
    gains = [dict.fromkeys(words, 1.0)]
    for shares in vectors:
        gains += [
            dict(zip(words, (1 - shares).tolist(), strict=True)),
            dict(zip(words, shares.tolist(), strict=True)),
        ]
    full_probability, *soft_probabilities = removals.probabilities(removals.scaled_margins(gains))
    pairs = np.reshape(soft_probabilities, (-1, 2))
    return [
        {
            "soft_comprehensiveness": float(full_probability - removal_probability),
            "soft_sufficiency": float(full_probability - insertion_probability),
        }
        for removal_probability, insertion_probability in pairs
    ]
