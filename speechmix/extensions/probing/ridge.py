"""Ridge regression across folds of groups, with the penalty chosen inside the training folds.

In: inputs [N, D], values [N, K], a fold for each item. Out: held-out predictions. In each training set
inputs are scaled to mean 0 and variance 1, and with n items the coefficients b of a value minimise

    mean over items of (y - mean y - x b)^2  +  penalty |b|^2

The penalty is the one of `PENALTIES` with the smallest squared error when each of the other folds is
left out in turn (nested cross-validation), so that no item of the test fold, and no group of it, has a
part in the choice. Where inputs are sets of columns, a set can have ten times the penalty of another, or
be left out: which, is chosen likewise (banded ridge regression, Nunez-Elizalde et al. 2019, NeuroImage;
here on a coarse grid, so that a useless set costs nothing). A share of variance compares with the mean
of the training folds:

    R^2 = 1 - sum (y - predicted)^2 / sum (y - mean of the training folds)^2
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
import pandas as pd

from ...errors import InputError
from ...files.cache_keys import digest

PENALTIES = 10.0 ** np.arange(5, -5, -1)  # from the largest, which wins where all do as well
FEWEST_FOLDS = 3  # one to test, one to choose the penalty, one to train


class Fit(NamedTuple):
    """Held-out predictions [N, K], and the means [N, K] of the folds that each was trained on."""

    predicted: np.ndarray
    mean: np.ndarray


def assign_group_folds(
    groups: Sequence[str] | np.ndarray,
    keys: Sequence[str] | np.ndarray,
    *,
    folds: int = 5,
    seed: int = 0,
) -> np.ndarray:
    """Assign a fold to each item, with whole groups together and folds as large as possible.

    Values have no part in it, so that a test may shuffle them; nor have names or the order of items.

    Parameters
    ----------
    groups : sequence of str [N]
    keys : sequence of str [N]
        Content of the items, such as the hash of their sound. They order the groups.
    folds : int
        Fewer with fewer groups.
    seed : int

    Returns
    -------
    ndarray of int [N]

    Raises
    ------
    InputError
        For fewer than three groups or folds.

    Examples
    --------
    >>> assign_group_folds(["a", "a", "b", "c"], ["1", "2", "3", "4"]).tolist()
    [1, 1, 0, 2]
    """
    table = pd.DataFrame(
        {"group": np.asarray(groups, dtype=str), "key": np.asarray(keys, dtype=str)}
    )
    by_group = table.groupby("group")["key"]
    contents = by_group.unique().map(lambda keys_of_group: digest([seed, sorted(keys_of_group)]))
    contents = contents.sort_values(kind="stable")
    count = min(folds, len(contents))
    if count < FEWEST_FOLDS:
        raise InputError(
            f"a regression needs {FEWEST_FOLDS} folds and as many groups at least, found folds={folds} and "
            f"{len(contents)} groups"
        )
    counts, sizes, fold_of_group = by_group.size(), np.zeros(count), {}
    for group in contents.index:
        fold_of_group[group] = int(sizes.argmin())
        sizes[fold_of_group[group]] += counts[group]
    return table["group"].map(fold_of_group).to_numpy()


def predict_values(
    inputs: np.ndarray,
    values: np.ndarray,
    fold: np.ndarray,
    *,
    scale: bool = True,
    widths: Sequence[int] | None = None,
    blocks: np.ndarray | None = None,
) -> Fit:
    """Predict values of each item by ridge regressions that are fitted to the other folds.

    Parameters
    ----------
    inputs : ndarray [N, D]
    values : ndarray [N, K]
    fold : ndarray of int [N]
        At least three.
    scale : bool
        False to leave the variance of the inputs as it is.
    widths : sequence of int, optional
        How many columns each set of inputs has, in their order; one set by default.
    blocks : ndarray of int [K], optional
        Columns of values with the same number, from 0, share a penalty; by default each has its own.

    Returns
    -------
    Fit

    Examples
    --------
    >>> x = np.random.default_rng(0).standard_normal((60, 3))
    >>> fit = predict_values(x, x @ [[1.0], [0], [2]], np.arange(60) % 5)
    >>> round(float(np.abs(fit.predicted[:, 0] - x @ [1, 0, 2]).max()), 2)
    0.0
    """
    blocks = np.arange(values.shape[1]) if blocks is None else blocks
    widths = [inputs.shape[1]] if widths is None else widths
    weights = np.repeat(_set_weights(len(widths)), widths, axis=1)  # [W, D]
    rows = [fold == name for name in np.unique(fold)]
    errors = np.zeros((len(rows), len(weights), len(PENALTIES), blocks.max() + 1))
    for choice, weight in enumerate(weights):
        for first, second in combinations(range(len(rows)), 2):
            path = _RidgePath(inputs, values, ~(rows[first] | rows[second]), scale, weight)
            for test, inner in ((first, second), (second, first)):
                for index, predictions in enumerate(path.predict(inputs[rows[inner]])):
                    squares = ((predictions - values[rows[inner]]) ** 2).sum(axis=0)
                    errors[test, choice, index] += np.bincount(blocks, squares)
    fit = Fit(np.empty(values.shape), np.empty(values.shape))
    for is_test, of_test in zip(rows, errors, strict=True):
        best = of_test.reshape(-1, of_test.shape[-1]).argmin(axis=0)[blocks]
        for choice in np.unique(best // len(PENALTIES)):
            path = _RidgePath(inputs, values, ~is_test, scale, weights[choice])
            fit.mean[is_test] = path.mean
            first_penalty = choice * len(PENALTIES)
            for index, predictions in enumerate(path.predict(inputs[is_test]), start=first_penalty):
                fit.predicted[is_test] = np.where(
                    best == index, predictions, fit.predicted[is_test]
                )
    return fit


def _set_weights(count: int) -> np.ndarray:
    """Return the weights of sets that are tried [W, sets]: squared, they divide the penalty. Those of
    few sets come first, and win where all do as well."""
    grid = (0.0, 0.1, 1.0) if count <= 4 else (0.0, 1.0)
    weights = [set_weights for set_weights in product(grid, repeat=count) if max(set_weights) == 1]
    return np.sqrt(
        sorted(weights, key=lambda set_weights: (np.count_nonzero(set_weights), set_weights))
    )


class _RidgePath:
    """Regressions of one training set with all penalties, by one eigendecomposition."""

    def __init__(
        self,
        inputs: np.ndarray,
        values: np.ndarray,
        is_train: np.ndarray,
        scale: bool,
        weight: np.ndarray,
    ):
        self._columns = np.flatnonzero(weight)
        x, y = inputs[np.ix_(is_train, self._columns)], values[is_train]
        self._centre, self.mean = x.mean(axis=0), y.mean(axis=0)
        deviation = x.std(axis=0) if scale else np.ones(x.shape[1])
        is_constant = deviation <= 1e-12 * np.abs(x).max(axis=0, initial=0)
        self._factor = weight[self._columns] / np.where(is_constant, 1, deviation)
        x, y = (x - self._centre) * self._factor, y - self.mean
        is_wide = x.shape[1] > len(x)  # the smaller of both matrices of products
        self._eigenvalues, vectors = np.linalg.eigh(x @ x.T if is_wide else x.T @ x)
        self._loadings = x.T @ vectors if is_wide else vectors  # [D, R]
        self._targets = vectors.T @ y if is_wide else vectors.T @ (x.T @ y)  # [R, K]
        self._count = len(x)

    def predict(self, inputs: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the predictions [N, K] of each penalty."""
        projected = (inputs[:, self._columns] - self._centre) * self._factor @ self._loadings
        for penalty in PENALTIES:
            weights = self._targets / (self._eigenvalues + self._count * penalty)[:, None]
            yield self.mean + projected @ weights
