"""Fit a probe for each stack, position and layer, with baselines.

In: states of a task's items by one model, and how to probe. Out: rows of the tidy table, and what
was said of each item.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ...adapters.capture.forward_pass import INPUT
from ...errors import InputError
from .logistic import (
    SOLVERS,
    Estimator,
    assign_folds,
    clone_estimator,
    control_labels,
    predict_labels,
)
from .online_code import MODES, online_code
from .scores import accuracy_score, macro_f1, majority_share, ratio_interval, share_interval
from .task import Position, ProbeTask
from .value_fits import ValueFitter

METHODS = ("logistic", "online_code", "ridge")
Row = dict[str, object]
ItemStatesList = Sequence[Mapping[tuple[str, Position], np.ndarray]]


@dataclass(frozen=True)
class ProbeSettings:
    """How to probe.

    Parameters
    ----------
    method : {"logistic", "online_code", "ridge"}
        "ridge" predicts numbers.
    folds, seed : int
        Of the cross-validation; the seed also of the control task and of the online code.
    grouped : bool
        Whether groups stay within a fold (a block); False for the published folds (`assign_folds`).
    controls : int
        How often random labels are drawn for the control task.
    solver : {"lbfgs", "liblinear"}
    scale : bool
    mode : {"correct", "reference"}
        Of the online code.
    estimator : classifier or regressor of scikit-learn, optional
        Instead of the logistic or ridge regression.
    shuffles : int, optional
        Draws of the p value of "ridge": 99, with an estimator 19.
    """

    method: str = "logistic"
    folds: int = 5
    seed: int = 0
    grouped: bool = True
    controls: int = 3
    solver: str = "lbfgs"
    scale: bool = True
    mode: str = "correct"
    estimator: Estimator | None = None
    shuffles: int | None = None

    def __post_init__(self) -> None:
        if self.estimator is not None:
            if self.method == "online_code":
                raise InputError(
                    "estimator= replaces the logistic or ridge regression; leave out method='online_code'"
                )
            clone_estimator(self.estimator, predicts_values=self.method == "ridge")
        for name, allowed in (("method", METHODS), ("solver", SOLVERS), ("mode", MODES)):
            if getattr(self, name) not in allowed:
                raise InputError(
                    f"{name} should be one of {allowed}, found {getattr(self, name)!r}"
                )
        counts = self.folds, self.controls, self.shuffle_count
        if self.folds < 2 or min(counts) < 0:
            raise InputError(
                f"expected folds of 2 or more, controls and shuffles of 0 or more, found {counts}"
            )

    @property
    def shuffle_count(self) -> int:
        """How many shuffles give the p value."""
        default = 99 if self.estimator is None else 19
        return default if self.shuffles is None else self.shuffles

    @property
    def probe_name(self) -> str:
        """The method, or the class of a user-supplied estimator."""
        return self.method if self.estimator is None else type(self.estimator).__name__

    def to_dict(self) -> Row:
        """Return the settings, with a user-supplied estimator as text."""
        settings = {
            name: value
            for name, value in vars(self).items()
            if name != "estimator" and (name != "shuffles" or self.method == "ridge")
        }
        return (
            settings if self.estimator is None else {**settings, "estimator": repr(self.estimator)}
        )


def fit_probes(
    states: ItemStatesList, task: ProbeTask, settings: ProbeSettings
) -> tuple[list[Row], list[Row], list[Row]]:
    """Fit the probes of one model.

    Parameters
    ----------
    states : sequence of dict of (stack, position) to ndarray [L + 1, D], of N items
        What `task.read_item_states` gives of each of the task's items; an item may lack some, or all.
    task : Task
    settings : Settings

    Returns
    -------
    rows : list of dict
        One for each stack, position and layer.
    answers : list of dict
        One for each of them and each item.
    left_out : list of dict
        Stacks and positions that cannot be probed: stack, position, reason.
    """
    rows: list[Row] = []
    answers: list[Row] = []
    left_out: list[Row] = []
    for stack, position in dict.fromkeys(key for item_states in states for key in item_states):
        item_indices = [
            index for index, item_states in enumerate(states) if (stack, position) in item_states
        ]
        layer_states = np.stack(
            [states[index][stack, position] for index in item_indices]
        )  # [N, L + 1, D]
        location = {"stack": stack, "position": str(position)}
        try:
            fitter = _make_fitter(task, np.array(item_indices), position, settings)
            first_row = len(rows)
            for layer, states_of_layer in enumerate(layer_states.swapaxes(0, 1), start=INPUT):
                keys = {
                    **location,
                    "layer": layer,
                    "depth": layer / max(layer_states.shape[1] - 2, 1),
                }
                row, item_answers = fitter.fit(states_of_layer.astype(float))
                rows.append({**keys, "label": task.label, "method": settings.probe_name, **row})
                answers += [
                    {**keys, "label": task.label, **item_states} for item_states in item_answers
                ]
            if isinstance(fitter, ValueFitter):
                fitter.add_p(rows[first_row:])
        except InputError as error:
            left_out.append({**location, "reason": str(error)})
    return rows, answers, left_out


def _make_fitter(
    task: ProbeTask, item_indices: np.ndarray, position: Position, settings: ProbeSettings
) -> _ProbeFitter | ValueFitter:
    if settings.method != "ridge":
        return _ProbeFitter(task, item_indices, position, settings)
    return ValueFitter(task, item_indices, task.word_types(position)[item_indices], settings)


class _ProbeFitter:
    """The items of one stack and position: folds and control labels are the same in all layers."""

    def __init__(
        self, task: ProbeTask, item_indices: np.ndarray, position: Position, settings: ProbeSettings
    ):
        self._settings = settings
        self._labels, self._groups = task.labels[item_indices], task.groups[item_indices]
        self._names = [task.names[index] for index in item_indices]
        types = task.word_types(position)[item_indices]
        assign = partial(assign_folds, self._labels, folds=settings.folds, seed=settings.seed)
        self._fold = assign(self._groups, grouped=settings.grouped)
        # With one type there is nothing to draw; with types that are all different nothing to learn
        # by heart.
        control_seeds = range(settings.controls if len(set(types)) > 1 else 0)
        self._controls = [
            control_labels(self._labels, types, seed=settings.seed + draw) for draw in control_seeds
        ]
        self._control_folds = [self._assign_control_folds(control) for control in self._controls]
        needs_shared_folds = settings.method == "logistic" and len(set(types)) < len(types)
        self._shared_fold = assign(self._names) if needs_shared_folds else None

    def _assign_control_folds(self, control: np.ndarray) -> np.ndarray:
        """Folds even in the control's own labels: where they are not, a probe that knows nothing
        falls below chance."""
        settings = self._settings
        try:
            return assign_folds(
                control,
                self._groups,
                folds=settings.folds,
                seed=settings.seed,
                grouped=settings.grouped,
            )
        except InputError:  # a label of one group alone
            return self._fold

    def fit(self, states: np.ndarray) -> tuple[Row, list[Row]]:
        """Numbers of one layer, and what was said of each item."""
        row, item_answers = (
            self._fit_logistic(states)
            if self._settings.method == "logistic"
            else self._fit_online_code(states)
        )
        counts = {"n": len(self._labels), "groups": len(set(self._groups))}
        items = zip(self._names, self._groups, self._labels, strict=True)
        keys = [
            {"item": name, "group": str(group), "true": str(true)} for name, group, true in items
        ]
        return {**row, **counts}, [
            {**key, **answer} for key, answer in zip(keys, item_answers, strict=True)
        ]

    def _fit_logistic(self, states: np.ndarray) -> tuple[Row, list[Row]]:
        labels = self._labels
        predicted = self._predict(states, labels, self._fold)
        is_correct = predicted == labels
        low, high = share_interval(is_correct, self._groups)
        accuracy, majority = self._fold_mean(accuracy_score, predicted), majority_share(labels)
        control_results = [
            self._predict(states, control, fold) == control
            for control, fold in zip(self._controls, self._control_folds, strict=True)
        ]
        control = (
            np.mean(control_results, axis=0) if control_results else np.full(len(labels), np.nan)
        )
        memorised = [
            float((self._predict(states, control, self._shared_fold) == control).mean())
            for control in self._controls[:1]  # a draw is enough: nothing is held against it
            if self._shared_fold is not None
        ]
        row: Row = {
            "accuracy": accuracy,
            "low": low,
            "high": high,
            "majority": majority,
            "control": float(control.mean()),
            "gain_over_baseline": accuracy - float(np.fmax(control.mean(), majority)),
            "memorised": float(np.mean(memorised)) if memorised else np.nan,
            "macro_f1": self._fold_mean(macro_f1, predicted),
        }
        item_results = zip(predicted, is_correct, control, strict=True)
        return row, [
            {"predicted": str(p), "right": float(r), "control": float(c)}
            for p, r, c in item_results
        ]

    def _fold_mean(self, score: Callable[..., float], predicted: np.ndarray) -> float:
        """Score of all items; with the published folds the mean of the folds' scores, as
        published."""
        if self._settings.grouped:
            return score(self._labels, predicted)
        folds = [self._fold == fold_index for fold_index in np.unique(self._fold)]
        return float(
            np.mean(
                [score(self._labels[is_in_fold], predicted[is_in_fold]) for is_in_fold in folds]
            )
        )

    def _predict(self, states: np.ndarray, labels: np.ndarray, fold: np.ndarray) -> np.ndarray:
        settings = self._settings
        return predict_labels(
            states,
            labels,
            fold,
            solver=settings.solver,
            scale=settings.scale,
            estimator=settings.estimator,
        )

    def _fit_online_code(self, states: np.ndarray) -> tuple[Row, list[Row]]:
        settings, uniform = self._settings, float(np.log2(len(set(self._labels))))
        groups = self._groups if settings.grouped else None
        encode = partial(online_code, groups=groups, mode=settings.mode, seed=settings.seed)
        code = encode(states, self._labels)
        control_compressions = [
            encode(states, control).compression
            for control in self._controls
            if len(set(control)) == len(set(self._labels))
        ]
        costs = np.where(np.isnan(code.item_costs), 0, code.item_costs)
        low, high = ratio_interval(costs, self._groups)  # of the cost of an item
        control = float(np.mean(control_compressions)) if control_compressions else np.nan
        frequencies = encode(np.zeros((len(states), 1)), self._labels).compression
        row: Row = {
            "bits": code.length,
            "compression": code.compression,
            "low": uniform / high,
            "high": np.inf if low <= 0 else uniform / low,
            "frequencies": frequencies,
            "control": control,
            "gain_over_baseline": code.compression - float(np.fmax(control, frequencies)),
        }
        return row, [{"bits": float(cost)} for cost in code.item_costs]
