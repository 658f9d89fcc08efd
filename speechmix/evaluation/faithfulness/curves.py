"""Perturbation curves: the probability of the decision with 1, 2, ... words removed, or kept, most
important first.

Words of an item are few, so sets of them recur between measures; each is run once (`RemovalMargins`),
several in a batch. The soft versions leave every word in, scaled by its share: with s_j the share
of word j in its row,

    soft comprehensiveness      samples of word j times 1 - s_j      a word with all of the row is silenced
    soft sufficiency            samples of word j times s_j          and it alone is left

The expectation of Zhao & Aletras's (2023) random masks, in the sound. Recognisers hear log
energies: half the amplitude is 6 dB less and leaves a word intelligible, so soft numbers are
smaller than hard ones.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...interventions.removal_margins import RemovalMargins
from .judges import Verdict
from .scores import of_curves, order_of


def curves_of(
    verdict: Verdict, words: Sequence[int], order: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Curves of removal and of insertion, mean over the judge's fills.

    Parameters
    ----------
    verdict : Verdict
        With removals.
    words : sequence of int [W]
        Indices of the item's words.
    order : sequence of int [W]
        Places in `words`, most important first.

    Returns
    -------
    ndarray [W + 1], ndarray [W + 1]
        Probability with the first k words removed, and with only the first k kept; k = 0, ..., W.
    """
    ranked = [words[place] for place in order]
    removed = [ranked[:count] for count in range(len(ranked) + 1)]
    absent = [ranked[count:] for count in range(len(ranked) + 1)]
    curves = []
    for removals in verdict.removals:
        probabilities = removals.probabilities(removals.margins([*removed, *absent]))
        curves.append(np.split(probabilities, 2))
    means = np.mean(curves, axis=0)
    return means[0], means[1]


def curve_metrics(
    verdict: Verdict, words: Sequence[int], vectors: Sequence[np.ndarray]
) -> list[dict[str, float]]:
    """Metrics of curves for several vectors of word scores [W]; each order is run once."""
    orders = {tuple(order_of(scores)) for scores in vectors}
    by_order = {order: of_curves(*curves_of(verdict, words, order)) for order in orders}
    return [by_order[tuple(order_of(scores))] for scores in vectors]


def soft_metrics(
    removals: RemovalMargins, words: Sequence[int], vectors: Sequence[np.ndarray]
) -> list[dict[str, float]]:
    """Soft comprehensiveness and sufficiency of several vectors of shares [W], each between 0 and
    1.

    Raises
    ------
    InputError
        If it is no sound that is taken away.
    """
    gains = [dict.fromkeys(words, 1.0)]
    for shares in vectors:
        gains += [
            dict(zip(words, (1 - shares).tolist(), strict=True)),
            dict(zip(words, shares.tolist(), strict=True)),
        ]
    intact, *others = removals.probabilities(removals.scaled(gains))
    pairs = np.reshape(others, (-1, 2))
    return [
        {"soft_comprehensiveness": float(intact - less), "soft_sufficiency": float(intact - alone)}
        for less, alone in pairs
    ]
