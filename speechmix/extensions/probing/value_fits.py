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
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ...errors import InputError
from ...evaluation.statistics.groups import content_key
from ...evaluation.statistics.intervals import permutation_p
from .logistic import control_labels, predict_with_estimator, scaling_moments
from .ridge import Fit, assign_group_folds, predict_values
from .scores import ratio_interval
from .task import ProbeTask

if TYPE_CHECKING:
    from .fits import ProbeSettings

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
