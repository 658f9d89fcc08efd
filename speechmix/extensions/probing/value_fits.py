"""Fit a probe of continuous values for each layer, with its nulls.

In: states of a task's items whose labels are numbers. Out: rows of the tidy table, and how much of each
item's variance the probe explains. The nulls:

    by_position  R^2 of the same regression from the position in the clip alone: index from both
               ends, relative position, and their squares
    control    R^2 for random values, one for each word type
    p          of R^2 among shuffles, corrected over layers (`permutation.permutation_p`). In a shuffle
               each group takes over the values of another group, each clip in it those of another
               clip, by relative position. So values keep their likeness within groups, from one unit
               to the next, and to their position. With groups of one size the test is exact.

Ridge regression across folds of groups, with the penalty chosen inside the training folds.

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
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from ...errors import InputError
from ...evaluation.statistics.groups import content_key
from ...evaluation.statistics.intervals import permutation_p
from ...files.cache_keys import digest
from .logistic import control_labels, predict_with_estimator, scaling_moments
from .scores import ratio_interval
from .task import ProbeTask

if TYPE_CHECKING:
    from .fits import ProbeSettings

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


Row = dict[str, object]


class ValueFitter:
    """The items of one stack and position: folds, shuffles and controls are the same in all layers
    and models.

    Raises
    ------
    InputError
        If a label is no number, or all are the same, or there are too few groups.
    """

    def __init__(
        self,
        task: ProbeTask,
        item_indices: np.ndarray,
        types: np.ndarray,
        settings: ProbeSettings,
    ):
        self._names = [task.names[index] for index in item_indices]
        self._groups, self._settings = task.groups[item_indices], settings
        seed = settings.seed
        values = _parse_values(task.labels[item_indices], self._names, task.label)
        keys = [content_key(task.items[index], task.names[index]) for index in item_indices]
        self._fold = assign_group_folds(self._groups, keys, folds=settings.folds, seed=seed)
        places = task.unit_places[item_indices]
        control_values = [
            control_labels(task.labels[item_indices], types, seed=seed + draw).astype(float)
            for draw in range(settings.controls if len(set(types)) > 1 else 0)
        ]
        shuffled = shuffle_values(self._groups, places, keys, settings.shuffle_count, seed=seed)
        self._columns = np.column_stack([values, *control_values, *values[shuffled]])
        self._control_count = len(control_values)
        self._position = predict_values(_position_inputs(places), values[:, None], self._fold)
        self._r2_of_columns: list[np.ndarray] = []

    def fit(self, states: np.ndarray) -> tuple[Row, list[Row]]:
        """Numbers of one layer, and how much of each item is explained."""
        fit, values = self._predict(states), self._columns
        total = (values - fit.mean) ** 2
        explained = total - (values - fit.predicted) ** 2
        r2 = explained.sum(axis=0) / total.sum(axis=0)
        self._r2_of_columns.append(r2)
        by_position = total[:, 0] - (values[:, 0] - self._position.predicted[:, 0]) ** 2
        position = float(by_position.sum() / total[:, 0].sum())
        controls = r2[1 : 1 + self._control_count]
        control = float(controls.mean()) if self._control_count else np.nan
        low, high = ratio_interval(explained[:, 0], self._groups, total[:, 0])
        deviations = (fit.predicted - fit.mean)[:, 0], (values - fit.mean)[:, 0]
        has_slope = all(np.ptp(deviation) > 0 for deviation in deviations)
        row: Row = {
            "r2": float(r2[0]),
            "low": low,
            "high": high,
            "r": float(np.corrcoef(*deviations)[0, 1]) if has_slope else np.nan,
            "by_position": position,
            "control": control,
            "gain_over_baseline": float(r2[0] - np.fmax(np.fmax(position, control), 0)),
            "p": np.nan,
            "n": len(values),
            "groups": len(set(self._groups)),
        }
        columns = {
            "item": self._names,
            "group": self._groups.tolist(),
            "true": values[:, 0],
            "predicted": fit.predicted[:, 0],
            "explained": explained[:, 0] / total[:, 0].mean(),
            "by_position": by_position / total[:, 0].mean(),
        }
        cells = zip(*columns.values(), strict=True)
        return row, [dict(zip(columns, answer, strict=True)) for answer in cells]

    def add_p(self, rows: Sequence[Row]) -> None:
        """Add the p value of each layer that was fitted, corrected over all of them."""
        table = np.array(self._r2_of_columns)  # [layers, columns]
        draws = np.delete(table, np.s_[1 : 1 + self._control_count], axis=1).T
        for row, p in zip(rows, permutation_p(draws), strict=True):
            row["p"] = float(p)

    def _predict(self, states: np.ndarray) -> Fit:
        estimator, scale = self._settings.estimator, self._settings.scale
        if estimator is None:
            return predict_values(states, self._columns, self._fold, scale=scale)
        fit = Fit(np.empty(self._columns.shape), np.empty(self._columns.shape))
        for index in np.unique(self._fold):
            is_test = self._fold == index
            mean, deviation = scaling_moments(states[~is_test]) if scale else (0.0, 1.0)
            train, test = ((states[rows] - mean) / deviation for rows in (~is_test, is_test))
            fit.mean[is_test] = self._columns[~is_test].mean(axis=0)
            for column, values in enumerate(self._columns[~is_test].T):
                predictions = predict_with_estimator(estimator, train, values, test)
                fit.predicted[is_test, column] = np.asarray(predictions, dtype=float).reshape(-1)
        return fit


def _parse_values(labels: np.ndarray, names: Sequence[str], label: str) -> np.ndarray:
    values = pd.to_numeric(pd.Series(labels), errors="coerce").to_numpy(float)
    if (wrong := np.flatnonzero(~np.isfinite(values))).size:
        raise InputError(
            f"a regression predicts numbers, found {label} {str(labels[wrong[0]])!r} of "
            f"{names[wrong[0]]}: correct it, or use method='logistic' for categories"
        )
    if len(values) < 2 or np.ptp(values) == 0:
        raise InputError(f"{label} is the same for all items: there is nothing to predict")
    return values


def shuffle_values(
    groups: np.ndarray,
    places: np.ndarray,
    keys: Sequence[str],
    count: int,
    *,
    seed: int = 0,
) -> np.ndarray:
    """Draw whose value each item takes over: that of an item of another group, at the same relative
    position in its clip.

    Parameters
    ----------
    groups : ndarray of str [N]
    places : ndarray of int [N, 3]
        Number of the clip, index of the unit in it, number of its units.
    keys : sequence of str [N]
        Content of the items; shuffles do not depend on names or on the order of items.
    count : int
    seed : int

    Returns
    -------
    ndarray of int [count, N]

    Examples
    --------
    >>> places = np.array([[0, 0, 2], [0, 1, 2], [1, 0, 2], [1, 1, 2]])
    >>> draws = shuffle_values(np.array(list("aabb")), places, list("xxyy"), 20)
    >>> sorted({tuple(draw) for draw in draws.tolist()})
    [(0, 1, 2, 3), (2, 3, 0, 1)]
    """
    generator = np.random.default_rng(seed)
    clips: dict[str, dict[int, list[int]]] = {}
    order = sorted(range(len(groups)), key=lambda i: (keys[i], places[i, 0], places[i, 1]))
    for item in order:  # groups, and clips in them, in the order of their content
        clips.setdefault(str(groups[item]), {}).setdefault(int(places[item, 0]), []).append(item)
    sequences = [[np.array(items) for items in of_group.values()] for of_group in clips.values()]
    draws = np.empty((count, len(groups)), dtype=int)
    for draw in draws:
        for sequence, donor in zip(sequences, generator.permutation(len(sequences)), strict=True):
            donors = generator.permutation(len(sequences[donor]))
            for number, items in enumerate(sequence):
                source = sequences[donor][donors[number % len(donors)]]
                draw[items] = source[np.arange(len(items)) * len(source) // len(items)]
    return draws


def _position_inputs(places: np.ndarray) -> np.ndarray:
    """Return index from both ends, relative position, and their squares [N, 6]."""
    index, last = places[:, 1].astype(float), places[:, 2] - 1.0
    linear = np.column_stack([index, last - index, index / np.maximum(last, 1)])
    return np.hstack([linear, linear**2])
