"""From states to numbers: a probe for each stack, position and layer of a model, with its
baselines.

In: states of a task's items by one model, and how to probe. Out: rows of the tidy table, and what
was said of each item.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from ...adapters.capture.hidden_states import INPUT
from ...errors import InputError
from .logistic import SOLVERS, control_labels, folds_of, predicted_labels
from .online_code import MODES, online_code
from .positions import Position
from .scores import accuracy_score, macro_f1, majority_share, ratio_interval, share_interval
from .task import Task

METHODS = ("logistic", "online_code")
Row = dict[str, object]
StatesOfItems = Sequence[Mapping[tuple[str, Position], np.ndarray]]


@dataclass(frozen=True)
class Settings:
    """How to probe.

    Parameters
    ----------
    method : {"logistic", "online_code"}
    folds, seed : int
        Of the cross-validation; the seed also of the control task and of the online code.
    grouped : bool
        Whether groups stay within a fold (a block); False for the published folds (`folds_of`).
    controls : int
        How often random labels are drawn for the control task.
    solver : {"lbfgs", "liblinear"}
    scale : bool
    mode : {"correct", "reference"}
        Of the online code.
    """

    method: str = "logistic"
    folds: int = 5
    seed: int = 0
    grouped: bool = True
    controls: int = 3
    solver: str = "lbfgs"
    scale: bool = True
    mode: str = "correct"

    def __post_init__(self) -> None:
        for name, allowed in (("method", METHODS), ("solver", SOLVERS), ("mode", MODES)):
            if getattr(self, name) not in allowed:
                raise InputError(
                    f"{name} should be one of {allowed}, found {getattr(self, name)!r}"
                )
        if self.folds < 2 or self.controls < 0:
            raise InputError(
                f"expected folds of 2 or more and controls of 0 or more, found {self.folds}, "
                f"{self.controls}"
            )


def fitted(
    states: StatesOfItems, task: Task, settings: Settings
) -> tuple[list[Row], list[Row], list[Row]]:
    """Fit the probes of one model.

    Parameters
    ----------
    states : sequence of dict of (stack, position) to ndarray [L + 1, D], of N items
        What `positions.states_at` gives of each of the task's items; an item may lack some, or all.
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
    for stack, position in dict.fromkeys(key for of_item in states for key in of_item):
        places = [place for place, of_item in enumerate(states) if (stack, position) in of_item]
        of_layers = np.stack([states[place][stack, position] for place in places])  # [N, L + 1, D]
        where = {"stack": stack, "position": str(position)}
        try:
            probed = _Probed(task, np.array(places), position, settings)
            for layer, in_layer in enumerate(of_layers.swapaxes(0, 1), start=INPUT):
                at = {**where, "layer": layer, "depth": layer / max(of_layers.shape[1] - 2, 1)}
                row, of_items = probed.fit(in_layer.astype(float))
                rows.append({**at, "label": task.label, "method": settings.method, **row})
                answers += [{**at, "label": task.label, **of_item} for of_item in of_items]
        except InputError as error:
            left_out.append({**where, "reason": str(error)})
    return rows, answers, left_out


class _Probed:
    """The items of one stack and position: folds and control labels are the same in all layers and
    models."""

    def __init__(self, task: Task, places: np.ndarray, position: Position, settings: Settings):
        self._settings = settings
        self._labels, self._groups = task.labels[places], task.groups[places]
        self._names = [task.names[place] for place in places]
        types = task.types_at(position)[places]
        assign_folds = partial(folds_of, self._labels, folds=settings.folds, seed=settings.seed)
        self._fold = assign_folds(self._groups, grouped=settings.grouped)
        # With one type there is nothing to draw; with types that are all different nothing to learn
        # by heart.
        draws = range(settings.controls if len(set(types)) > 1 else 0)
        self._controls = [
            control_labels(self._labels, types, seed=settings.seed + draw) for draw in draws
        ]
        self._control_folds = [self._folds_of_control(control) for control in self._controls]
        by_heart = settings.method == "logistic" and len(set(types)) < len(types)
        self._shared_fold = assign_folds(self._names) if by_heart else None

    def _folds_of_control(self, control: np.ndarray) -> np.ndarray:
        """Folds even in the control's own labels: where they are not, a probe that knows nothing
        falls below chance."""
        settings = self._settings
        try:
            return folds_of(
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
        row, of_items = (
            self._logistic(states) if self._settings.method == "logistic" else self._code(states)
        )
        counts = {"n": len(self._labels), "groups": len(set(self._groups))}
        items = zip(self._names, self._groups, self._labels, strict=True)
        keys = [
            {"item": name, "group": str(group), "true": str(true)} for name, group, true in items
        ]
        return {**row, **counts}, [
            {**key, **of_item} for key, of_item in zip(keys, of_items, strict=True)
        ]

    def _logistic(self, states: np.ndarray) -> tuple[Row, list[Row]]:
        labels = self._labels
        predicted = self._predicted(states, labels, self._fold)
        right = predicted == labels
        low, high = share_interval(right, self._groups)
        accuracy, majority = self._mean_of_folds(accuracy_score, predicted), majority_share(labels)
        draws = [
            self._predicted(states, control, fold) == control
            for control, fold in zip(self._controls, self._control_folds, strict=True)
        ]
        control = np.mean(draws, axis=0) if draws else np.full(len(labels), np.nan)
        learned = [
            float((self._predicted(states, control, self._shared_fold) == control).mean())
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
            "memorised": float(np.mean(learned)) if learned else np.nan,
            "macro_f1": self._mean_of_folds(macro_f1, predicted),
        }
        verdicts = zip(predicted, right, control, strict=True)
        return row, [
            {"predicted": str(p), "right": float(r), "control": float(c)} for p, r, c in verdicts
        ]

    def _mean_of_folds(self, score: Callable[..., float], predicted: np.ndarray) -> float:
        """Score of all items; with the published folds the mean of the folds' scores, as
        published."""
        if self._settings.grouped:
            return score(self._labels, predicted)
        folds = [self._fold == number for number in np.unique(self._fold)]
        return float(
            np.mean([score(self._labels[is_here], predicted[is_here]) for is_here in folds])
        )

    def _predicted(self, states: np.ndarray, labels: np.ndarray, fold: np.ndarray) -> np.ndarray:
        return predicted_labels(
            states, labels, fold, solver=self._settings.solver, scale=self._settings.scale
        )

    def _code(self, states: np.ndarray) -> tuple[Row, list[Row]]:
        settings, uniform = self._settings, float(np.log2(len(set(self._labels))))
        groups = self._groups if settings.grouped else None
        encode = partial(online_code, groups=groups, mode=settings.mode, seed=settings.seed)
        code = encode(states, self._labels)
        drawn = [
            encode(states, control).compression
            for control in self._controls
            if len(set(control)) == len(set(self._labels))
        ]
        costs = np.where(np.isnan(code.of_items), 0, code.of_items)
        low, high = ratio_interval(costs, self._groups)  # of the cost of an item
        control = float(np.mean(drawn)) if drawn else np.nan
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
        return row, [{"bits": float(cost)} for cost in code.of_items]
