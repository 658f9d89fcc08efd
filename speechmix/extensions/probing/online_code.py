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

Label predictors for the online code: logistic regressions and label frequencies.

In: states and class numbers that were sent, states of the next block. Out: log2 probabilities of
each predictor.

A single strength of the penalty suits neither all numbers of items nor all labels: where labels are
random, a weak penalty costs twice the bits of a uniform code; where labels are separable, a strong
one forgoes most of the compression. So `online_code` mixes all of them (`mixture_costs`). Two
predictors ignore the states: the uniform code and the frequencies of the labels sent so far. They
keep a code of unreadable labels as short as one without a probe.

Perceptron probe of the published online code, and its training.

In: states and class numbers as tensors. Out: a probe that returns logits. Nothing here looks at the
items that are scored.

The online code as the Value Zeroing paper's release computes it, bugs included.

In: states and class numbers. Out: what each item is said to cost. Kept apart, for nothing else may
learn from it.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LRScheduler

from ...errors import InputError

# Receives states [n, D] and class numbers [n] that were sent, the number of classes, and states [m,
# D] to predict.
Predictors = Callable[[np.ndarray, np.ndarray, int, np.ndarray], np.ndarray]

PENALTY_STRENGTHS = (
    1e-4,
    1e-3,
    1e-2,
    0.1,
    1.0,
    10.0,
    100.0,
)  # C of scikit-learn: the inverse of the L2 penalty's weight
SWITCH_PROBABILITY = 0.1  # probability that the best predictor changes from one block to the next
_ITERATIONS = 5000


def logistic_predictors(
    states: np.ndarray, classes: np.ndarray, count: int, test_states: np.ndarray
) -> np.ndarray:
    """Compute log2 probabilities by the uniform code, label frequencies, and a logistic regression
    for each of `PENALTY_STRENGTHS`.

    Parameters
    ----------
    states : ndarray [n, D]
        States that were sent, of mean 0 and variance 1 in each dimension.
    classes : ndarray of int [n]
    count : int
        Number of classes.
    test_states : ndarray [m, D]
        States whose labels are predicted.

    Returns
    -------
    ndarray [2 + len(PENALTY_STRENGTHS), m, count]

    Examples
    --------
    >>> states = np.array([[-1.0], [1.0], [-1.0], [1.0]])
    >>> (2 ** logistic_predictors(states, np.array([0, 1, 0, 1]), 2, states[:1])).shape
    (9, 1, 2)
    """
    counts = np.bincount(classes, minlength=count)
    log_frequencies = np.log2(
        (counts + 0.5) / (len(classes) + 0.5 * count)
    )  # Krichevsky & Trofimov 1981
    seen_classes = np.flatnonzero(counts)
    shape = (2 + len(PENALTY_STRENGTHS), len(test_states), count)
    bits = np.broadcast_to(log_frequencies, shape).copy()
    bits[0] = -np.log2(count)
    if len(seen_classes) > 1:
        # A class that was never sent keeps its smoothed probability; the classifier divides the
        # rest.
        log_seen_share = np.logaddexp2.reduce(log_frequencies[seen_classes])
        for row, strength in enumerate(PENALTY_STRENGTHS, start=2):
            bits[row][:, seen_classes] = log_seen_share + _logistic_bits(
                states, classes, test_states, strength
            )
    return bits


def _logistic_bits(
    states: np.ndarray, classes: np.ndarray, test_states: np.ndarray, strength: float
) -> np.ndarray:
    """Compute log2 probabilities of the classes that were sent, [m, classes sent]."""
    import sklearn
    from scipy.special import log_softmax
    from sklearn.linear_model import LogisticRegression

    with (
        sklearn.config_context(assume_finite=True, skip_parameter_validation=True),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", RuntimeWarning)
        classifier = LogisticRegression(C=strength, max_iter=_ITERATIONS).fit(states, classes)
        logits = classifier.decision_function(test_states)
    # Not scikit-learn's log probabilities: those of sure predictions are minus infinity.
    logits = np.stack([np.zeros_like(logits), logits], axis=1) if logits.ndim == 1 else logits
    bits: np.ndarray = log_softmax(logits, axis=1) / np.log(2)
    return bits


def mixture_costs(bits: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute the cost of each item of a block by a Bayesian mixture of predictors, and the new
    weights.

    Parameters
    ----------
    bits : ndarray [P, m]
        Log2 probability of each item's own label by each predictor.
    weights : ndarray [P]
        Of the predictors, before the block; their sum is 1.

    Returns
    -------
    costs : ndarray [m]
        Bits. Their sum is -log2 sum_p weights[p] 2^(sum of bits[p]), at most -log2 weights[p] more
        than any predictor alone.
    weights : ndarray [P]

    Examples
    --------
    >>> costs, weights = mixture_costs(np.array([[-1.0, -1.0], [-3.0, -3.0]]), np.array([0.5, 0.5]))
    >>> round(float(costs.sum()), 3), weights.round(3).tolist()
    (2.913, [0.941, 0.059])
    """
    with np.errstate(divide="ignore"):
        sums = np.log2(weights)[:, None] + np.cumsum(
            np.column_stack([np.zeros(len(bits)), bits]), axis=1
        )
    log_evidence = np.logaddexp2.reduce(sums, axis=0)
    return -np.diff(log_evidence), 2 ** (sums[:, -1] - log_evidence[-1])


def switch_weights(weights: np.ndarray) -> np.ndarray:
    """Return the weights before the next block, where another predictor may be best (van Erven et
    al. 2012)."""
    return (1 - SWITCH_PROBABILITY) * weights + SWITCH_PROBABILITY / len(weights)


Network = Callable[[int, int], nn.Module]


@dataclass(frozen=True)
class Training:
    """How the network is trained; the defaults are the published setting.

    Parameters
    ----------
    epochs, patience, batch_size : int
    learning_rate : float
        Of AdamW.
    """

    epochs: int = 15
    patience: int = 5
    batch_size: int = 128
    learning_rate: float = 1e-3


def build_perceptron(width: int, labels: int) -> nn.Module:
    """Build the published probe: dropout .2, linear to 128, ReLU, layer norm, dropout .3, linear to
    the labels' logits."""
    return nn.Sequential(
        nn.Dropout(0.2),
        nn.Linear(width, 128),
        nn.ReLU(),
        nn.LayerNorm(128),
        nn.Dropout(0.3),
        nn.Linear(128, labels),
    )


class ConstantProbe(nn.Module):
    """A probe that finds all labels equally likely, whatever the state."""

    def __init__(self, labels: int):
        super().__init__()
        self._logits = nn.Parameter(torch.zeros(labels), requires_grad=False)

    def forward(self, states: Tensor) -> Tensor:
        return self._logits.expand(len(states), -1)


def train_epoch(
    probe: nn.Module,
    x: Tensor,
    y: Tensor,
    training: Training,
    loss_of: Callable[[Tensor, Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
    schedule: LRScheduler,
) -> None:
    """Train on all items once, in random order."""
    probe.train()
    for batch in torch.split(torch.randperm(len(y)), training.batch_size):
        optimizer.zero_grad()
        loss_of(probe(x[batch]), y[batch]).backward()
        optimizer.step()
        schedule.step()


def compute_logits(probe: nn.Module, x: Tensor) -> Tensor:
    probe.eval()
    with torch.no_grad():
        logits: Tensor = probe(x)
    return logits


# Shares of the items in each block; each is rounded down by itself, so a few items are lost.
_BLOCK_SHARES = (0.008, 0.008, 0.016, 0.0305, 0.0625, 0.125, 0.25, 0.5)


def reference_costs(
    x: Tensor, y: Tensor, count: int, *, seed: int, network: Network, training: Training
) -> np.ndarray:
    """Compute the bits of items of the first block and the nats of others [N]; NaN for items lost
    by rounding.

    Raises
    ------
    InputError
        If there are too few items for a first block.
    """
    order = np.random.default_rng(seed).permutation(len(y))
    ends = np.cumsum([int(len(y) * share) for share in _BLOCK_SHARES])
    if ends[0] < 1:
        raise InputError(
            f"mode='reference' needs {int(np.ceil(1 / _BLOCK_SHARES[0]))} items at least, found {len(y)}"
        )
    item_costs = np.full(len(y), np.nan)  # floors lose the last ones
    item_costs[order[: ends[0]]] = np.log2(count)
    for start, stop in itertools.pairwise(ends):
        sent_indices, scored_indices = order[:start], order[start:stop]
        item_costs[scored_indices] = _min_epoch_losses(
            x[sent_indices],
            y[sent_indices],
            x[scored_indices],
            y[scored_indices],
            count,
            network,
            training,
        )
    return item_costs


def _min_epoch_losses(
    x: Tensor,
    y: Tensor,
    scored_x: Tensor,
    scored_y: Tensor,
    count: int,
    network: Network,
    training: Training,
) -> np.ndarray:
    """Return the losses of test items in the epoch with the smallest sum."""
    probe = network(x.shape[1], count)
    weights = [weight for weight in probe.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(
        weights or [nn.Parameter(torch.zeros(1))], lr=training.learning_rate
    )
    step_count = -(-len(y) // training.batch_size)  # of one epoch: the rate falls to zero within it
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: max(0.0, 1 - step / step_count)
    )
    smallest_losses, previous_sum, worse_count = np.full(len(scored_y), np.inf), float("inf"), 0
    for _ in range(training.epochs if weights else 1):
        if weights:
            train_epoch(probe, x, y, training, _double_softmax, optimizer, schedule)
        losses = _double_softmax(
            compute_logits(probe, scored_x), scored_y, reduction="none"
        ).numpy()
        smallest_losses = losses if losses.sum() < smallest_losses.sum() else smallest_losses
        worse_count = (
            worse_count + 1 if losses.sum() >= previous_sum else 0
        )  # than the epoch before, not than the best
        previous_sum = float(losses.sum())
        if (
            worse_count >= training.patience or schedule.get_last_lr()[0] == 0
        ):  # without a rate all further epochs are alike
            break
    return smallest_losses


def _double_softmax(logits: Tensor, true: Tensor, reduction: str = "mean") -> Tensor:
    return F.cross_entropy(logits.softmax(dim=-1), true, reduction=reduction)


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
