"""Minimum description length of labels given states, by an online code.

    L = t_1 log2 K + sum_i  -log2 p(labels of block i + 1 | probe trained on the first t_i)      compression = N log2 K / L

Online code (Voita & Titov 2020, Information-Theoretic Probing with Minimum Description Length,
EMNLP; protocol E3): labels are sent in blocks; the first by a uniform code, each further one by the
probe that the receiver can train on what was sent before. Easy to read means few bits, from few
examples. Compression is about 1 where nothing can be read.

``mode="correct"`` is that, with L2 logistic regression as the probe. The strength of its penalty is
not fixed: all of `PENALTY_STRENGTHS` predict, beside two codes that ignore the states, and the
code mixes them by what each cost so far:

    w[p, 1] = 1 / P        w[p, i + 1] = 0.9 w[p | blocks up to i] + 0.1 / P
    L <= L of any one predictor + log2 P + 0.14 bits for each further block

The switch between blocks (van Erven, Grünwald & de Rooij 2012, Catching up Faster by Switching
Sooner, JRSS B) lets the strength change as more items are known. The code is at most four bits
longer than that of the best single regression, and than that of the better code that ignores the
states (`benchmarks/online_code.py`).

``mode="reference"`` repeats the released code of the Value Zeroing paper with its faults, because
only that can be compared with the published figures: cross-entropy of a softmax's output ("double
softmax": no item costs less than 0.313 nats), the first block in bits and the rest in nats, a
learning rate that is zero after one epoch, the minimum over epochs on the scored block, and blocks
whose floors lose a few items that are counted all the same. There a constant probe has compression
1.44 and a perfect one 3.14 (for its 2138 items); 1.44 is chance.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...errors import InputError
from .code_predictors import Predictors, logistic_predictors, mixture_costs, switch_weights
from .networks import Network, Training, build_perceptron
from .paper_online_code import reference_costs

BLOCK_FRACTIONS = (
    0.008,
    0.016,
    0.032,
    0.0625,
    0.125,
    0.25,
    0.5,
    1.0,
)  # of the items, sent after each block
MODES = ("correct", "reference")


@dataclass(frozen=True, eq=False)
class OnlineCode:
    """What sending the labels took.

    Parameters
    ----------
    length : float
        Bits; in "reference" mode bits of the first block and nats of the others.
    compression : float
        N log2 K / length.
    item_costs : ndarray [N]
        What each item took, in the order of the items; NaN of one that "reference" lost.
    """

    length: float
    compression: float
    item_costs: np.ndarray


def online_code(
    states: np.ndarray,
    labels: Sequence[str] | np.ndarray,
    groups: Sequence[str] | np.ndarray | None = None,
    *,
    mode: str = "correct",
    seed: int = 0,
    predictors: Predictors = logistic_predictors,
    network: Network = build_perceptron,
    training: Training | None = None,
) -> OnlineCode:
    """Compute the length of the online code of labels given states, and its compression.

    Parameters
    ----------
    states : ndarray [N, D]
    labels : sequence of str [N]
    groups : sequence of str [N], optional
        In "correct" mode items of a group are sent in one block, so that a word is not sent to one
        who was just told it.
    mode : {"correct", "reference"}
        See above. "correct" scales states by the mean and deviation of those that were sent.
    seed : int
        Of the order of items; in "reference" mode also of weights and dropout. The caller's random
        numbers stay as they are.
    predictors : callable
        In "correct" mode: ``predictors(states, classes, count, scored)``, as
        `logistic_predictors`.
    network : callable
        In "reference" mode: ``network(width, labels)`` makes a probe that returns logits.
    training : Training, optional
        In "reference" mode.

    Returns
    -------
    OnlineCode

    Raises
    ------
    InputError
        If there are fewer than two labels, or no state for each.

    Examples
    --------
    >>> labels = ["sg", "pl"] * 32
    >>> nothing = online_code(np.zeros((64, 4)), labels)
    >>> readable = online_code(np.array([[-1.0], [1.0]] * 32), labels)
    >>> nothing.compression < 1 < 4 < readable.compression
    True
    """
    names, classes = np.unique(np.asarray(labels, dtype=str), return_inverse=True)
    if len(states) != len(classes) or len(names) < 2 or np.ndim(states) != 2:
        raise InputError(
            f"expected states [N, D] and N labels of two kinds or more, found {np.shape(states)} "
            f"and {len(classes)} labels "
            f"({', '.join(names)})"
        )
    if mode not in MODES:
        raise InputError(f"mode should be one of {MODES}, found {mode!r}")
    if mode == "correct":
        item_costs = _compute_costs(
            np.asarray(states, dtype=float), classes, groups, len(names), seed, predictors
        )
    else:
        x, y = torch.as_tensor(np.asarray(states), dtype=torch.float32), torch.as_tensor(classes)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            item_costs = reference_costs(
                x, y, len(names), seed=seed, network=network, training=training or Training()
            )
    length = float(np.nansum(item_costs))
    return OnlineCode(length, len(classes) * float(np.log2(len(names))) / length, item_costs)


def _compute_costs(
    states: np.ndarray,
    classes: np.ndarray,
    groups: Sequence[str] | np.ndarray | None,
    count: int,
    seed: int,
    predictors: Predictors,
) -> np.ndarray:
    """Compute the bits of each item."""
    order, ends = split_blocks(len(classes), groups, seed=seed)
    item_costs, weights = np.full(len(classes), np.log2(count)), None
    for start, stop in itertools.pairwise(ends):
        sent_indices, scored_indices = order[:start], order[start:stop]
        mean, deviation = states[sent_indices].mean(axis=0), states[sent_indices].std(axis=0)
        deviation = np.where(deviation > 0, deviation, 1)
        bits = predictors(
            (states[sent_indices] - mean) / deviation,
            classes[sent_indices],
            count,
            (states[scored_indices] - mean) / deviation,
        )
        label_bits = bits[:, np.arange(len(scored_indices)), classes[scored_indices]]
        weights = (
            np.full(len(label_bits), 1 / len(label_bits))
            if weights is None
            else switch_weights(weights)
        )
        item_costs[scored_indices], weights = mixture_costs(label_bits, weights)
    return item_costs


def split_blocks(
    count: int, groups: Sequence[str] | np.ndarray | None = None, *, seed: int = 0
) -> tuple[np.ndarray, list[int]]:
    """Return the order in which items are sent, with whole groups together, and the ends of the
    blocks.

    Examples
    --------
    >>> order, ends = split_blocks(8, list("aabbccdd"))
    >>> sorted(order.tolist()) == list(range(8)), ends
    (True, [2, 4, 8])
    """
    generator = np.random.default_rng(seed)
    names = np.arange(count).astype(str) if groups is None else np.asarray(groups, dtype=str)
    permutation = generator.permutation(count)  # within a group, too, items come in random order
    _, first_places = np.unique(names[permutation], return_index=True)
    first_indices = {str(names[permutation[index]]): index for index in first_places}
    order = permutation[
        np.argsort([first_indices[str(name)] for name in names[permutation]], kind="stable")
    ]
    group_ends = np.flatnonzero(names[order][1:] != names[order][:-1]) + 1
    group_ends = np.append(group_ends, count)
    # Each block ends with the first group that reaches its share.
    group_indices = np.searchsorted(
        group_ends, np.maximum(np.ceil(np.array(BLOCK_FRACTIONS) * count - 1e-9), 1)
    )
    return order, sorted(
        {int(group_ends[min(index, len(group_ends) - 1)]) for index in group_indices}
    )
