"""Label predictors for the online code: logistic regressions and label frequencies.

In: states and class numbers that were sent, states of the next block. Out: log2 probabilities of
each predictor.

A single strength of the penalty suits neither all numbers of items nor all labels: where labels are
random, a weak penalty costs twice the bits of a uniform code; where labels are separable, a strong
one forgoes most of the compression. So `online_code` mixes all of them (`mixture_costs`). Two
predictors ignore the states: the uniform code and the frequencies of the labels sent so far. They
keep a code of unreadable labels as short as one without a probe.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np

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
