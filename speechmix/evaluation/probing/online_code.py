"""Minimum description length of labels given states: how many bits does it take to send the labels to one who has the states?

    L = t_1 log2 K + sum_i  -log2 p(labels of block i + 1 | probe trained on the first t_i)      compression = N log2 K / L

Online code (Voita & Titov 2020, Information-Theoretic Probing with Minimum Description Length, EMNLP; protocol E3): labels
are sent in blocks; the first by a uniform code, each further one by the probe that the receiver can train on what was sent
before. Easy to read means few bits, from few examples. Compression is 1 where nothing can be read.

``mode="correct"`` is that. ``mode="reference"`` repeats the released code of the Value Zeroing paper, faults and all, for
nothing else can be held against its figures: cross-entropy of a softmax's output ("double softmax": no item costs less than
0.313 nats), the first block in bits and the rest in nats, a learning rate that is zero after one epoch, the minimum over
epochs on the scored block, and blocks whose floors lose a few items that are counted all the same. There a constant probe has
compression 1.44 and a perfect one 3.14 (for its 2138 items); 1.44 is chance.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from ...errors import InputError
from .networks import Network, Training, logits_of, perceptron, trained
from .reference_code import reference_costs

FRACTIONS = (0.008, 0.016, 0.032, 0.0625, 0.125, 0.25, 0.5, 1.0)  # of the items, sent after each block
MODES = ("correct", "reference")


@dataclass(frozen=True, eq=False)
class Code:
    """What sending the labels took.

    Parameters
    ----------
    length : float
        Bits; in "reference" mode bits of the first block and nats of the others.
    compression : float
        N log2 K / length.
    of_items : ndarray [N]
        What each item took, in the order of the items; NaN of one that "reference" lost.
    """

    length: float
    compression: float
    of_items: np.ndarray


def online_code(
    states: np.ndarray,
    labels: Sequence[str] | np.ndarray,
    groups: Sequence[str] | np.ndarray | None = None,
    *,
    mode: str = "correct",
    seed: int = 0,
    network: Network = perceptron,
    training: Training | None = None,
) -> Code:
    """Length of the online code of labels given states, and how much that compresses them.

    Parameters
    ----------
    states : ndarray [N, D]
    labels : sequence of str [N]
    groups : sequence of str [N], optional
        In "correct" mode items of a group are sent in one block, so that a word is not sent to one who was just told it.
    mode : {"correct", "reference"}
        See above. "correct" scales states by what was sent, stops by a part of what was sent, and keeps the best epoch's probe.
    seed : int
        Of the order, the weights and the dropout; the caller's random numbers stay as they are.
    network : callable
        ``network(width, labels)`` makes a probe that gives logits.
    training : Training, optional

    Returns
    -------
    Code

    Raises
    ------
    InputError
        If there are fewer than two labels, or no state for each.

    Examples
    --------
    >>> labels = ["sg", "pl"] * 32
    >>> from speechmix.evaluation.probing.networks import Constant
    >>> nothing = online_code(np.zeros((64, 4)), labels, network=lambda width, count: Constant(count))
    >>> round(nothing.length, 6), round(nothing.compression, 6)
    (64.0, 1.0)
    """
    names, classes = np.unique(np.asarray(labels, dtype=str), return_inverse=True)
    if len(states) != len(classes) or len(names) < 2 or np.ndim(states) != 2:
        raise InputError(
            f"expected states [N, D] and N labels of two kinds or more, found {np.shape(states)} and {len(classes)} labels "
            f"({', '.join(names)})"
        )
    if mode not in MODES:
        raise InputError(f"mode should be one of {MODES}, found {mode!r}")
    x, y = torch.as_tensor(np.asarray(states), dtype=torch.float32), torch.as_tensor(classes)
    options: dict[str, Any] = {"seed": seed, "network": network, "training": training or Training()}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if mode == "correct":
            of_items = _correct_costs(x, y, groups, len(names), **options)
        else:
            of_items = reference_costs(x, y, len(names), **options)
    length = float(np.nansum(of_items))
    return Code(length, len(y) * float(np.log2(len(names))) / length, of_items)


def _correct_costs(
    x: Tensor,
    y: Tensor,
    groups: Sequence[str] | np.ndarray | None,
    count: int,
    *,
    seed: int,
    network: Network,
    training: Training,
) -> np.ndarray:
    """Bits of each item."""
    order, ends = blocks(len(y), groups, seed=seed)
    of_items = np.full(len(y), np.log2(count))
    for start, stop in itertools.pairwise(ends):
        sent, scored = order[:start], order[start:stop]
        scale = _scale(x[sent])
        probe = trained(scale(x[sent]), y[sent], count, network, training)
        of_items[scored] = F.cross_entropy(logits_of(probe, scale(x[scored])), y[scored], reduction="none") / np.log(2)
    return of_items


def blocks(
    count: int, groups: Sequence[str] | np.ndarray | None = None, *, seed: int = 0
) -> tuple[np.ndarray, list[int]]:
    """Order in which items are sent, whole groups behind each other, and where blocks end (at the end of a group).

    Examples
    --------
    >>> order, ends = blocks(8, list("aabbccdd"))
    >>> sorted(order.tolist()) == list(range(8)), ends
    (True, [2, 4, 8])
    """
    generator = np.random.default_rng(seed)
    names = np.arange(count).astype(str) if groups is None else np.asarray(groups, dtype=str)
    place = generator.permutation(count)  # within a group, too, items come in random order
    _, first = np.unique(names[place], return_index=True)
    lead = {str(names[place[at]]): at for at in first}
    order = place[np.argsort([lead[str(name)] for name in names[place]], kind="stable")]
    group_ends = np.flatnonzero(names[order][1:] != names[order][:-1]) + 1
    group_ends = np.append(group_ends, count)
    # Each block ends with the first group that reaches its share.
    reached = np.searchsorted(group_ends, np.maximum(np.ceil(np.array(FRACTIONS) * count - 1e-9), 1))
    return order, sorted({int(group_ends[min(at, len(group_ends) - 1)]) for at in reached})


def _scale(sent: Tensor) -> Callable[[Tensor], Tensor]:
    """Dimensions to mean 0 and variance 1 of what was sent; those that do not vary stay as they are."""
    mean, deviation = sent.mean(dim=0), sent.std(dim=0, unbiased=False)
    deviation = torch.where(deviation > 0, deviation, 1)
    return lambda states: (states - mean) / deviation
