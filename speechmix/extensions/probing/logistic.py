"""Logistic probe with folds that hold out words, and control labels.

In: states [N, D] of one layer and position, labels, and a fold for each item. Out: what the probe
says of each item when it was trained on the other folds. Scaling is part of the training, and
groups (items that share sentence or word) never cross folds.

The control task (Hewitt & Liang 2019, Designing and Interpreting Probes with Control Tasks, EMNLP)
gives every word type a label at random, so that nothing but the word's identity could tell it. In
folds that part the types it must come out at chance; in folds that do not, it says how much a probe
of this size memorises. Published recipe (Mohebbi et al. 2023): `PUBLISHED_OPTIONS`.

Estimator: a user-supplied scikit-learn classifier or regressor as a probe, checked before it is fitted.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from ...errors import InputError


@runtime_checkable
class Estimator(Protocol):
    """A classifier or regressor with the interface of scikit-learn; a pipeline is one, too."""

    def fit(self, states: np.ndarray, labels: np.ndarray, /) -> object: ...

    def predict(self, states: np.ndarray, /) -> np.ndarray: ...


EstimatorType = TypeVar("EstimatorType", bound=Estimator)


def clone_estimator(
    estimator: EstimatorType, *, predicts_values: bool | None = None
) -> EstimatorType:
    """Return an unfitted copy of a classifier or regressor, with the same parameters.

    Parameters
    ----------
    estimator : Estimator
    predicts_values : bool, optional
        Whether it must be a regressor (True) or a classifier (False); either by default.

    Raises
    ------
    InputError
        If it lacks `fit` or `predict`, cannot be cloned, or is of the other kind.
    """
    from sklearn.base import BaseEstimator, clone, is_classifier, is_regressor

    kind = "regressor, such as SVR()" if predicts_values else "classifier, such as SVC()"
    message = f"estimator should be a scikit-learn {kind} or a pipeline"
    if isinstance(estimator, type) or not isinstance(estimator, Estimator):
        raise InputError(f"{message}, with fit() and predict(); found {estimator!r}")
    if isinstance(estimator, BaseEstimator) and predicts_values is not None:
        if predicts_values and not is_regressor(estimator):
            raise InputError(f"{message} with method='ridge'; {estimator!r} predicts no numbers")
        if not predicts_values and not is_classifier(estimator):
            raise InputError(
                f"{message}; {estimator!r} predicts no labels (method='ridge' takes a regressor)"
            )
    try:
        copy: EstimatorType = clone(estimator)
    except (TypeError, RuntimeError) as error:
        raise InputError(f"{message}; {estimator!r} cannot be cloned: {error}") from error
    return copy


# As published: no scaling, three stratified folds of shuffled items, whatever they share.
PUBLISHED_OPTIONS: dict[str, object] = {
    "solver": "liblinear",
    "scale": False,
    "folds": 3,
    "seed": 12,
    "grouped": False,
}
Texts = Sequence[str] | np.ndarray
SOLVERS = ("lbfgs", "liblinear")
_ITERATIONS = 2000


def assign_folds(
    labels: Texts, groups: Texts, *, folds: int = 5, seed: int = 0, grouped: bool = True
) -> np.ndarray:
    """Assign a fold to each item, with whole groups together and labels as even as possible.

    Parameters
    ----------
    labels, groups : sequence of str [N]
    folds : int
        Fewer where a label has fewer groups.
    seed : int
    grouped : bool
        False for the published folds: items are shuffled by the seed, then split into consecutive
        folds with equal shares of each label, whatever they share.

    Returns
    -------
    ndarray of int [N]

    Raises
    ------
    InputError
        If there are not two labels, each in two groups (two items, ungrouped).

    Examples
    --------
    >>> assign_folds(["sg", "pl"] * 3, ["a", "a", "b", "b", "c", "c"], folds=3).tolist()
    [2, 2, 1, 1, 0, 0]
    """
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    labels, units = np.asarray(labels, dtype=str), np.asarray(groups, dtype=str)
    units = units if grouped else np.arange(len(labels)).astype(str)
    counts = {str(name): len(set(units[labels == name])) for name in np.unique(labels)}
    if len(counts) < 2 or min(counts.values()) < 2 or folds < 2:
        unit_name = "groups (items that share a sentence or word)" if grouped else "items"
        raise InputError(
            f"a probe needs folds of 2 or more and two labels, each in two {unit_name} at least; found "
            f"folds={folds} and "
            f"{', '.join(f'{name}: {count}' for name, count in counts.items()) or 'no labels'}"
        )
    count, order = min(folds, *counts.values()), np.arange(len(labels))
    if grouped:
        splits = StratifiedGroupKFold(count, shuffle=True, random_state=seed).split(
            labels, labels, units
        )
    else:
        order = np.random.default_rng(seed).permutation(
            len(labels)
        )  # as `datasets.Dataset.shuffle` of the released code
        splits = StratifiedKFold(count).split(labels, labels[order])
    fold = np.zeros(len(labels), dtype=int)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", UserWarning
        )  # that a label has fewer items than folds, which is seen to above
        for fold_index, (_, test) in enumerate(splits):
            fold[order[test]] = fold_index
    return fold


def predict_labels(
    states: np.ndarray,
    labels: Texts,
    fold: np.ndarray,
    *,
    solver: str = "lbfgs",
    scale: bool = True,
    c: float = 1,
    estimator: Estimator | None = None,
) -> np.ndarray:
    """Predict the label of each item by a probe that is trained on the other folds.

    Parameters
    ----------
    states : ndarray [N, D]
    labels : sequence of str [N]
    fold : ndarray of int [N]
        From `assign_folds`.
    solver : {"lbfgs", "liblinear"}
        "liblinear" shrinks the intercept, too, and takes more than two labels one against the rest.
    scale : bool
        Each dimension to mean 0 and variance 1, of the items that the probe is trained on.
    c : float
        Inverse strength of the L2 penalty.
    estimator : classifier of scikit-learn, optional
        Instead of the logistic regression of `solver` and `c`; a clone is fitted in each fold.

    Returns
    -------
    ndarray of str [N]

    Raises
    ------
    InputError
        If the solver is unknown, or the estimator is no classifier or cannot be fitted.

    Examples
    --------
    >>> states = np.array([[-1.0], [1.0], [-2.0], [2.0]])
    >>> predict_labels(states, ["sg", "pl", "sg", "pl"], np.array([0, 0, 1, 1])).tolist()
    ['sg', 'pl', 'sg', 'pl']
    """
    if solver not in SOLVERS:
        raise InputError(f"solver should be one of {SOLVERS}, found {solver!r}")
    import sklearn

    labels = np.asarray(labels, dtype=str)
    predicted = np.empty_like(labels)
    for fold_index in np.unique(fold):
        is_test = fold == fold_index
        classes = np.unique(labels[~is_test])
        if len(classes) < 2:  # nothing to learn
            predicted[is_test] = classes[0]
            continue
        mean, deviation = scaling_moments(states[~is_test]) if scale else (0.0, 1.0)
        train, test = ((states[rows] - mean) / deviation for rows in (~is_test, is_test))
        if estimator is not None:
            predicted[is_test] = predict_with_estimator(estimator, train, labels[~is_test], test)
            continue
        # Checks of its arguments take scikit-learn longer than the fit of a small probe.
        with sklearn.config_context(assume_finite=True, skip_parameter_validation=True):
            classifier = _make_classifier(solver, c, len(classes)).fit(train, labels[~is_test])
            predicted[is_test] = classifier.predict(test)
    return predicted


def predict_with_estimator(
    estimator: Estimator, train: np.ndarray, labels: np.ndarray, test: np.ndarray
) -> np.ndarray:
    """Fit a clone of a user-supplied classifier or regressor, and predict labels or values."""
    probe = clone_estimator(estimator)
    try:
        probe.fit(train, labels)
        return probe.predict(test)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{estimator!r} cannot be fitted to {train.shape} states: {error}"
        ) from error


def scaling_moments(states: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation of each dimension [D]; 1 for a constant one (as in
    StandardScaler)."""
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(states)
    return scaler.mean_, scaler.scale_


def _make_classifier(solver: str, c: float, count: int) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.multiclass import OneVsRestClassifier

    # liblinear draws the order of its coordinates: a seed makes it always the same.
    classifier = LogisticRegression(C=c, solver=solver, max_iter=_ITERATIONS, random_state=0)
    return OneVsRestClassifier(classifier) if solver == "liblinear" and count > 2 else classifier


def control_labels(labels: Texts, types: Texts, *, seed: int = 0) -> np.ndarray:
    """Draw a random label for every word type, in the proportions of the labels.

    Parameters
    ----------
    labels, types : sequence of str [N]
    seed : int

    Returns
    -------
    ndarray of str [N]

    Examples
    --------
    >>> control = control_labels(["sg", "pl", "sg", "pl"], ["cat", "cat", "dog", "dog"])
    >>> bool(control[0] == control[1] != control[2] == control[3])
    True
    """
    labels, names = np.asarray(labels, dtype=str), np.unique(np.asarray(types, dtype=str))
    sorted_labels = np.sort(labels)
    # The label at each of as many even steps through all labels: the proportions hold however few
    # types there are.
    indices = ((np.arange(len(names)) + 0.5) * len(sorted_labels) / len(names)).astype(int)
    random_labels = np.random.default_rng(seed).permutation(sorted_labels[indices])
    return random_labels[np.searchsorted(names, np.asarray(types, dtype=str))]
