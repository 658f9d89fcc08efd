"""User-supplied classifiers as probes: cloned in every fold, with groups and nulls as before."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from speechmix.errors import InputError
from speechmix.extensions.probing.fits import ProbeSettings, fit_probes
from speechmix.extensions.probing.logistic import assign_folds, predict_labels
from speechmix.extensions.probing.task import ProbeTask

GROUP_COUNT = 16
LABELS = np.array(["sg", "pl"] * GROUP_COUNT)
GROUPS = np.repeat([f"word {index}" for index in range(GROUP_COUNT)], 2)


def states(signal=3.0):
    values = np.random.default_rng(0).standard_normal((len(LABELS), 6))
    values[:, 0] += signal * np.where(LABELS == "pl", 1, -1)
    return values


def fit(values, **settings):
    names = tuple(f"clip {index}" for index in range(len(LABELS)))
    everything = np.array(["all"] * len(LABELS))
    items = (None,) * len(LABELS)
    task = ProbeTask("number", items, names, LABELS, GROUPS, GROUPS, everything, "the pair")
    rows, answers, left_out = fit_probes(
        [{("encoder", "target"): vector[None]} for vector in values],
        task,
        ProbeSettings(**settings),
    )
    return rows, answers, left_out


@pytest.mark.parametrize(
    ("estimator", "name"),
    [
        (SVC(kernel="linear"), "SVC"),
        (KNeighborsClassifier(3), "KNeighborsClassifier"),
        (make_pipeline(StandardScaler(), RandomForestClassifier(5, random_state=0)), "Pipeline"),
    ],
)
def test_an_estimator_reads_the_label_and_not_the_control_task(estimator, name):
    ((row,), answers, left_out) = fit(states(), estimator=estimator)
    assert (row["method"], left_out) == (name, [])
    assert row["accuracy"] > 0.9
    assert row["control"] < 0.75
    assert len(answers) == len(LABELS)
    ((noise,), _, _) = fit(states(signal=0.0), estimator=estimator)
    assert noise["accuracy"] < 0.8


def test_folds_are_the_same_and_a_clone_is_fitted():
    estimator = LogisticRegression(max_iter=2000, random_state=0)
    ((own,), _, _), ((default,), _, _) = fit(states(1.0), estimator=estimator), fit(states(1.0))
    assert not hasattr(estimator, "coef_")
    assert {**own, "method": "logistic"} == default
    fold = assign_folds(LABELS, GROUPS)
    assert (
        predict_labels(states(), LABELS, fold, estimator=estimator)
        == predict_labels(states(), LABELS, fold)
    ).all()


@pytest.mark.parametrize(
    ("estimator", "message"),
    [
        (SVC, "classifier"),
        ("svc", r"with fit\(\) and predict\(\); found 'svc'"),
        (StandardScaler(), r"with fit\(\) and predict\(\)"),
        (Ridge(), "predicts no labels"),
        (KMeans(), "predicts no labels"),
    ],
)
def test_what_is_no_classifier_is_refused(estimator, message):
    with pytest.raises(InputError, match=message):
        ProbeSettings(estimator=estimator)


def test_an_object_that_cannot_be_cloned_or_fitted_is_refused():
    class Bare:
        def fit(self, states, labels):
            return self

        def predict(self, states):
            return states[:, 0]

    with pytest.raises(InputError, match="cannot be cloned"):
        ProbeSettings(estimator=Bare())
    with pytest.raises(InputError, match="leave out method='online_code'"):
        ProbeSettings(estimator=SVC(), method="online_code")
    (rows, _, left_out) = fit(states(), estimator=KNeighborsClassifier(99))
    assert rows == []
    assert "cannot be fitted" in left_out[0]["reason"]
