"""Encoding: how much of the variance of a layer's states do sets of features explain?

In: models, clips, sets of features of their words, phones or frames. Out: for each layer the share of
variance that all sets explain together, and the part that only one of them explains.

States y [N, D] of a layer are predicted by banded ridge regression (`probing.ridge`): folds keep groups
apart, and the penalty of each set is chosen inside the training folds, one for all dimensions. With S the
squared error of held-out states, summed over units and dimensions, and T that of the mean of the training
folds,

    share of all sets        1 - S(all) / T
    share of one set alone   1 - S(set) / T
    unique share of a set    ( S(all but this set) - S(all) ) / T

A feature may look present because it is correlated with one that is measured with error. So the unique
share is also computed with the other sets as they are expected to be without error, for several
reliabilities (below). A set is present only if the least of these shares is above zero.

Features measured with error: can a correlated feature explain a contribution away?

Where states depend on duration alone, but duration is measured with error, a feature that is correlated
with duration predicts the part of duration that the measurement misses, and looks present (Westfall &
Yarkoni 2016, Statistically controlling for confounding constructs is harder than you think). Its
contribution is that feature's own only if it is left when the error is taken into account.

In: sets of features, and the reliability of each column: the share of its variance that is no error.
Out: the sets by regression calibration (Carroll et al. 2006, Measurement error in nonlinear models,
chapter 4): a measured value w becomes the expectation of the true value, given all features,

    w - e / s^2 (w - w'),    at most w'

where w' is the prediction of w from all other columns, s^2 the variance of w - w', and e that of the
error, (1 - reliability) times the variance of w.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from ...adapters.capture.forward_pass import INPUT
from ...adapters.model import Model
from ...errors import InputError
from ...evaluation.statistics.groups import build_item_table, content_key, describe_item_groups
from ...evaluation.statistics.intervals import LEVEL, mean_interval
from ...evaluation.statistics.random_twin_comparison import compare_with_twins
from ..probing.scores import ratio_by_group
from ..probing.task import join_units
from ..probing.value_fits import assign_group_folds, predict_values
from ..states.unit_states import unit_states
from .unit_features import unit_features

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ...inputs.sentences.sentence import Sentence

LOWEST_RELIABILITY = 0.7  # that is commonly accepted (Nunnally 1978, Psychometric theory)
ERROR_STEPS = tuple(np.linspace(0, 1, 7)[1:])  # of the error: a reliability of .95, .9, ..., .7
CORRELATED = 0.5  # from which on features are said to go together


def calibrate_features(
    sets: Mapping[str, np.ndarray], reliability: Mapping[str, np.ndarray], *, step: float = 1.0
) -> dict[str, np.ndarray]:
    """Return sets of features as they are expected to be without measurement error.

    Parameters
    ----------
    sets : mapping of str to ndarray [N, P]
    reliability : mapping of str to ndarray [P]
        Of each column.
    step : float
        How much of the error there is.

    Examples
    --------
    >>> duration, frequency = np.array([[1.0], [2], [3], [4]]), np.array([[1.0], [1], [2], [2]])
    >>> sets = {"a": duration, "b": frequency}
    >>> calibrate_features(sets, {"a": np.array([0.5]), "b": np.array([1.0])})["a"].ravel()
    array([1.5, 1.5, 3.5, 3.5])
    """
    names = [name for name, columns in sets.items() for _ in range(columns.shape[1])]
    errors = step * (1 - np.concatenate([reliability[name] for name in sets]))
    columns = np.hstack(list(sets.values()))
    calibrated = columns.copy()
    for index in np.flatnonzero(errors > 0):
        rest = columns[:, index] - _predict(np.delete(columns, index, axis=1), columns[:, index])
        freedom = max(len(columns) - columns.shape[1], 1)
        unexplained = (rest**2).sum() / freedom
        error = errors[index] * columns[:, index].var()
        calibrated[:, index] -= rest * min(1.0, error / max(unexplained, np.finfo(float).tiny))
    owners = np.array(names)
    return {name: calibrated[:, owners == name] for name in sets}


def multiple_correlation(columns: np.ndarray, values: np.ndarray) -> float:
    """Return how closely values [N] follow columns [N, P]: the root of the adjusted R^2; 0 to 1.

    Examples
    --------
    >>> multiple_correlation(np.arange(9.0)[:, None], 2 * np.arange(9.0))
    1.0
    """
    total = ((values - values.mean()) ** 2).sum()
    freedom = len(values) - columns.shape[1] - 1
    if not total > 0 or freedom < 1:
        return 0.0
    unexplained = ((values - _predict(columns, values)) ** 2).sum() / total
    adjusted = 1 - unexplained * (len(values) - 1) / freedom
    return float(np.sqrt(max(adjusted, 0.0)).round(12))


def _predict(columns: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the least-squares prediction of values [N] from columns [N, P] and a constant."""
    inputs = np.column_stack([np.ones(len(values)), columns])
    predicted: np.ndarray = inputs @ np.linalg.lstsq(inputs, values, rcond=None)[0]
    return predicted


ALL = "all"  # the name of all sets together
MAX_SETS = 7  # which sets to leave out is chosen among all 2^7 ways
_MODEL_KEYS = ["model", "init", "seed"]
_KEYS = [*_MODEL_KEYS, "stack", "layer", "depth", "set"]
_MISSING = ["", np.inf, -np.inf]
_MAX_VALUES = 2 * 10**7  # units x dimensions of layers that are fitted at once
_TWIN_COLUMNS = ["untrained", "twins", "difference", "difference_low", "difference_high"]
Row = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Encoding:
    """Shares of the variance of states that sets of features explain.

    Parameters
    ----------
    scores : DataFrame
        A row for each model, stack, layer (-1: the input of the first) and set; the set "all" is all of
        them. share (of "all": explained together; of a set: explained by nothing else) with low and
        high (95 % over groups; missing for fewer than eight groups); alone (explained by the set
        alone); least (the share that is left if the features of the other sets are measured with
        error); n (units), groups;
        present (whether the interval of `least`, corrected over all rows of the model, is above 0),
        present_if_exact (the same of `share`); untrained (mean of twins), twins, difference with
        difference_low, difference_high (of `least` to one more untrained model, 95 % together over
        all rows), more (whether it is present, and more than in untrained models).
    by_group : DataFrame
        The share and `least` of each group, whose means are those of the scores.
    left_out : int
        Units without one of the features.
    provenance : dict
        Sets of features, level, grouping (how many groups and speakers there are).
    notes : tuple of str
        Sets that go together with a feature of another set, which may be measured with error.
    """

    scores: pd.DataFrame
    by_group: pd.DataFrame
    left_out: int = 0
    provenance: Mapping[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def to_dataframe(self) -> pd.DataFrame:
        """Return a copy of the scores."""
        return self.scores.copy()

    def __repr__(self) -> str:
        sets = ", ".join(self.scores["set"].unique()[1:])
        models = self.scores[["model", "init", "seed"]].drop_duplicates().shape[0]
        counts = f"{models} model{'s' * (models != 1)}, {self.scores['n'].max()} units"
        grouping = str(self.provenance.get("grouping", "")).rstrip(".")
        line = f"Encoding({sets}: {'; '.join(filter(None, (counts, grouping)))})"
        return "\n".join([line, *(f"Note: {note}" for note in self.notes)])


def encode(
    models: Model | Iterable[Model | Callable[[], Model]],
    items: Sequence[Clip | Sentence],
    features: Mapping[str, Sequence[str]],
    *,
    level: str = "word",
    table: pd.DataFrame | None = None,
    stacks: Sequence[str] | None = None,
    group: str | None = None,
    folds: int = 5,
    reliability: float | Mapping[str, float] = LOWEST_RELIABILITY,
    seed: int = 0,
    progress: bool = False,
) -> Encoding:
    """Predict the states of each layer from sets of features, and divide the explained variance.

    Parameters
    ----------
    models : Model, or iterable of Model or of functions that load one
        A trained model and its untrained twins, which say what the architecture gives away.
    items : sequence of Clip or Sentence
    features : mapping of str to sequence of str
        Sets of features by name: ``{"sound": ["pitch", "f1"], "place": ["position"]}``. Names of
        `unit_features`; "label" is what a word or phone is called. Texts become one column for each
        value. Units that lack a feature (blank or infinite) are left out.
    level, stacks, group, progress
        As for `unit_states`.
    table : DataFrame, optional
        Values of one's own, as for `unit_features`.
    folds : int
        Of the cross-validation: three or more.
    reliability : float or mapping of str to float
        The lowest share of the variance of numeric features that is no measurement error, above 0 to
        1 (exact); of those that a mapping names, the others have 0.7. Texts are exact.
    seed : int
        Of the folds.

    Returns
    -------
    Encoding

    Raises
    ------
    InputError
        If a set is empty or unknown, no unit has all features, there are fewer than three groups, or
        a reliability is none.

    Examples
    --------
    >>> import speechmix
    >>> from speechmix.inputs import bundled
    >>> model = speechmix.load("bundled:tiny-french-ctc", device="cpu")
    >>> clips = bundled.clips()[:12]  # synthetic
    >>> sets = {"length": ["duration"], "place": ["position", "position_from_end"]}
    >>> encode(model, clips, sets).to_dataframe()["set"].unique().tolist()
    ['all', 'length', 'place']
    """
    if not 1 <= len(features) <= MAX_SETS or ALL in features or not all(features.values()):
        raise InputError(
            f"expected 1 to {MAX_SETS} sets of features by name, other than {ALL!r} and none empty; found "
            f"{dict(features)!r}"
        )
    names = list(dict.fromkeys(name for members in features.values() for name in members))
    reliabilities = _list_reliabilities(names, reliability)
    columns: pd.DataFrame | None = None
    rows: list[Row] = []
    by_group: list[Row] = []
    left_out, used, correlations = 0, set[str](), dict[tuple[str, str], float]()
    for source in [models] if isinstance(models, Model) else models:
        model = source if isinstance(source, Model) else source()
        states_by_stack = unit_states(
            model, items, level=level, stacks=stacks, group=group, progress=progress
        )
        units = join_units(states_by_stack)
        if columns is None:
            columns = unit_features(units, items, names, level=level, table=table)
        elif level == "frame" and len(units) != len(columns):
            raise InputError(
                f"the frames of {model.name} are not those of the first model: encode one at a time"
            )
        for stack, of_stack in states_by_stack.items():
            is_used, complete = _select_units(of_stack.units, columns, names)
            left_out = max(left_out, int((~is_used).sum()))
            sets = {
                name: _build_set(complete[list(set_)], reliabilities)
                for name, set_ in features.items()
            }
            for pair, found_r in _correlate_sets(sets).items():
                correlations[pair] = max(found_r, correlations.get(pair, 0.0))
            groups = complete["group"].to_numpy(str)
            used |= set(complete["clip"])
            keys = _content_keys(complete["clip"], items)
            fold = assign_group_folds(groups, keys, folds=folds, seed=seed)
            place = {"model": model.name, "init": model.init, "seed": model.seed, "stack": stack}
            for row, *shares in _divide_variance(
                of_stack.values[is_used],
                {name: each.values for name, each in sets.items()},
                groups,
                fold,
                {name: each.reliability for name, each in sets.items()},
            ):
                rows.append({**place, **row})
                key = {name: rows[-1][name] for name in _KEYS}
                by_group += [
                    {**key, "group": name, "share": share, "least": least}
                    for name, share, least in zip(np.unique(groups), *shares, strict=True)
                ]
    scores, of_groups = (pd.DataFrame(x).astype({"seed": "Int64"}) for x in (rows, by_group))
    provenance = {"features": {name: list(set_) for name, set_ in features.items()}, "level": level}
    provenance["grouping"] = describe_item_groups(items, group, names=used)
    scores = conclude_shares(scores, of_groups)
    notes = _describe_confounders(scores, correlations, reliabilities)
    return Encoding(scores, of_groups, left_out, provenance, notes)


def _select_units(
    units: pd.DataFrame, columns: pd.DataFrame, names: Sequence[str]
) -> tuple[np.ndarray, pd.DataFrame]:
    """Return which units have all features [N], and these features, with clip, index and group."""
    keys = ["clip", "index", "group"]
    feature_names = [name for name in names if name not in keys]
    table = units[keys].merge(columns[[*keys[:2], *feature_names]], on=keys[:2], how="left")
    table[feature_names] = table[feature_names].mask(table[feature_names].isin(_MISSING))
    is_complete = table[feature_names].notna().all(axis=1).to_numpy()
    if not is_complete.any():
        missing = table[feature_names].isna().mean().idxmax()
        raise InputError(f"no unit has all features; missing most often: {missing}")
    return is_complete, table[is_complete]


def _content_keys(clips: pd.Series, items: Sequence[Clip | Sentence]) -> list[str]:
    keys = {
        name: content_key(item, name)
        for name, item in zip(build_item_table(items)["clip"], items, strict=True)
    }
    return [keys[name] for name in clips]


def _list_reliabilities(
    names: Sequence[str], reliability: float | Mapping[str, float]
) -> dict[str, float]:
    """Return the reliability of each feature."""
    stated = reliability if isinstance(reliability, Mapping) else dict.fromkeys(names, reliability)
    for name, value in stated.items():
        if name not in names or not 0 < value <= 1:
            raise InputError(
                f"expected reliabilities above 0 to 1 of features ({', '.join(names)}), found {value} "
                f"of {name!r}"
            )
    return {name: float(stated.get(name, LOWEST_RELIABILITY)) for name in names}


class _FeatureSet(NamedTuple):
    """A set of features as numbers; a text is one exact column for each value."""

    values: np.ndarray  # [N, P]
    names: list[str]  # the feature of each column
    reliability: np.ndarray  # [P]


def _build_set(columns: pd.DataFrame, reliabilities: Mapping[str, float]) -> _FeatureSet:
    """Build a set from the columns of its features."""
    parts, names, reliability = [], list[str](), list[float]()
    for name in columns:
        numbers = pd.to_numeric(columns[name], errors="coerce")
        is_text = bool(numbers.isna().any())
        part = pd.get_dummies(columns[name].astype(str)) if is_text else numbers.to_frame()
        parts.append(part.to_numpy(dtype=float))
        names += [str(name)] * part.shape[1]
        reliability += [1.0 if is_text else reliabilities[str(name)]] * part.shape[1]
    return _FeatureSet(np.hstack(parts), names, np.array(reliability))


def _correlate_sets(sets: Mapping[str, _FeatureSet]) -> dict[tuple[str, str], float]:
    """Return how closely each inexact feature of another set follows a set, by (set, feature)."""
    return {
        (name, feature): multiple_correlation(each.values, other.values[:, index])
        for name, each in sets.items()
        for other_name, other in sets.items()
        for index, feature in enumerate(other.names)
        if other_name != name and other.reliability[index] < 1
    }


def _describe_confounders(
    scores: pd.DataFrame,
    correlations: Mapping[tuple[str, str], float],
    reliabilities: Mapping[str, float],
) -> tuple[str, ...]:
    """Say which sets look present and go together with a feature that may be measured with error."""
    notes = []
    for (name, feature), correlation in correlations.items():
        rows = scores[(scores["set"] == name) & scores["present_if_exact"]]
        if correlation >= CORRELATED and len(rows):
            notes.append(
                f"{name!r} goes together with {feature!r} (correlation {correlation:.2f}). If "
                f"{feature!r} is measured with error, {name!r} can look present where it is not. Rows "
                f"where it looks present: {len(rows)}; where it is, if the reliability of {feature!r} "
                f"may be as low as {reliabilities[feature]:g}: {rows['present'].sum()}"
            )
    return tuple(notes)


def _divide_variance(
    states: np.ndarray,
    sets: Mapping[str, np.ndarray],
    groups: np.ndarray,
    fold: np.ndarray,
    reliability: Mapping[str, np.ndarray],
) -> Iterator[tuple[Row, np.ndarray, np.ndarray]]:
    """Yield for each layer of states [N, L + 1, D] a row for all sets [N, P] together and for each,
    with the shares and the least shares by group."""
    count, layers, width = states.shape
    step = max(1, _MAX_VALUES // (count * width))
    variants = _vary_sets(sets, reliability)
    for start in range(0, layers, step):
        part = states[:, start : start + step].astype(float)
        total, of_all = _squared_errors(part, list(sets.values()), fold)
        gains = {ALL: ([total - of_all], np.full(total.shape, np.nan))}
        for name in sets:
            gains[name] = (
                [
                    (_squared_errors(part, others, fold)[1] if others else total) - of_all
                    for others in variants[name]
                ],
                total - _squared_errors(part, [sets[name]], fold)[1],
            )
        for index, (name, (of_variants, alone)) in product(range(part.shape[1]), gains.items()):
            of_layer, layer = total[:, index], start + index + INPUT
            by_variant = [gain[:, index] for gain in of_variants]
            shares, least = (
                ratio_by_group(gain, groups, of_layer)
                for gain in (by_variant[0], min(by_variant, key=np.sum))
            )
            row = {"layer": layer, "depth": layer / max(layers - 2, 1), "set": name}
            row |= {"share": shares.mean(), "alone": alone[:, index].sum() / of_layer.sum()}
            yield row | {"least": least.mean(), "n": count, "groups": len(shares)}, shares, least


def _vary_sets(
    sets: Mapping[str, np.ndarray], reliability: Mapping[str, np.ndarray]
) -> dict[str, list[list[np.ndarray]]]:
    """Return for each set the others: as measured, and as expected without errors of several sizes."""
    calibrated = [calibrate_features(sets, reliability, step=step) for step in ERROR_STEPS]
    varied = {}
    for name in sets:
        others = [other for other in sets if other != name]
        is_exact = all((reliability[other] == 1).all() for other in others)
        variants = [sets] if is_exact else [sets, *calibrated]
        varied[name] = [[variant[other] for other in others] for variant in variants]
    return varied


def _squared_errors(
    layers: np.ndarray, sets: Sequence[np.ndarray], fold: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Squared errors [N, layers] of the mean of the training folds, and of the regression."""
    values = layers.reshape(len(layers), -1)
    blocks = np.repeat(np.arange(layers.shape[1]), layers.shape[2])
    widths = [features.shape[1] for features in sets]
    fit = predict_values(np.hstack(sets), values, fold, widths=widths, blocks=blocks)
    mean, regression = (
        ((values - prediction) ** 2).reshape(layers.shape).sum(axis=2)
        for prediction in (fit.mean, fit.predicted)
    )
    return mean, regression


def conclude_shares(scores: pd.DataFrame, by_group: pd.DataFrame) -> pd.DataFrame:
    """Add intervals, and the comparison with untrained twins, to `Encoding.scores`; the rows of
    `by_group` are in the same order."""
    rows = by_group.groupby([key for key in _KEYS if key != "depth"], sort=False, dropna=False)
    counts = scores.groupby(_MODEL_KEYS, dropna=False)["share"].transform("size")
    limits = []
    for (_, group_shares), count in zip(rows[["share", "least"]], counts, strict=True):
        is_above = [
            mean_interval(group_shares[name], level=1 - (1 - LEVEL) / count)[0] > 0
            for name in ("least", "share")
        ]
        limits.append((*mean_interval(group_shares["share"]), *is_above))
    scores = scores.copy()
    columns = ["low", "high", "present", "present_if_exact"]
    scores[columns] = pd.DataFrame(limits, index=scores.index)
    cells = ["model", "stack", "layer", "set"]
    contributions = by_group.assign(contribution=by_group["least"])
    twins = compare_with_twins(contributions, by=cells, group="group", primary={})
    untrained = scores[scores["init"] == "random"].groupby(cells)["share"].mean()
    twins = twins.join(untrained.rename("untrained"), on=cells)
    twins = twins.rename(columns={"low": "difference_low", "high": "difference_high"})
    scores = scores.merge(twins[[*cells, *_TWIN_COLUMNS, "claim"]], on=cells, how="left")
    scores["more"] = (scores["claim"] == "more") & scores["present"] & (scores["init"] == "trained")
    order = [*_KEYS, "share", "low", "high", "alone", "least", "n", "groups", "present"]
    return scores.reindex(columns=[*order, "present_if_exact", *_TWIN_COLUMNS, "more"])
