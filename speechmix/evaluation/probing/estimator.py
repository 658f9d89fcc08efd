"""Estimator: a user-supplied scikit-learn classifier as a probe, checked before it is fitted."""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from ...errors import InputError


@runtime_checkable
class Estimator(Protocol):
    """A classifier with the interface of scikit-learn; a pipeline is one, too."""

    def fit(self, states: np.ndarray, labels: np.ndarray, /) -> object: ...

    def predict(self, states: np.ndarray, /) -> np.ndarray: ...


EstimatorType = TypeVar("EstimatorType", bound=Estimator)


def clone_estimator(estimator: EstimatorType) -> EstimatorType:
    """Return an unfitted copy of a classifier, with the same parameters.

    Raises
    ------
    InputError
        If it lacks `fit` or `predict`, cannot be cloned, or is no classifier.
    """
    from sklearn.base import BaseEstimator, clone, is_classifier

    message = "estimator should be a scikit-learn classifier, such as SVC() or a pipeline"
    if isinstance(estimator, type) or not isinstance(estimator, Estimator):
        raise InputError(f"{message}, with fit() and predict(); found {estimator!r}")
    if isinstance(estimator, BaseEstimator) and not is_classifier(estimator):
        raise InputError(f"{message}; {estimator!r} predicts no labels")
    try:
        copy: EstimatorType = clone(estimator)
    except (TypeError, RuntimeError) as error:
        raise InputError(f"{message}; {estimator!r} cannot be cloned: {error}") from error
    return copy
