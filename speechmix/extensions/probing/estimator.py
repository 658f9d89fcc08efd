"""Estimator: a user-supplied scikit-learn classifier or regressor as a probe, checked before it is fitted."""

from __future__ import annotations

from typing import Protocol, TypeVar, runtime_checkable

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
