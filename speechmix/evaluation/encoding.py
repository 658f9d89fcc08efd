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
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..adapters.capture.hidden_states import INPUT
from ..adapters.model import Model
from ..errors import InputError
from .probing.ridge import assign_group_folds, predict_values
from .probing.scores import ratio_by_group
from .probing.unit_task import join_units
from .statistics.group_sentences import describe_item_groups
from .statistics.groups import build_item_table, content_key
from .statistics.intervals import mean_interval
from .statistics.random_twin_comparison import compare_with_twins
from .statistics.twin_rank_test import FALSE_CLAIM_RATE
from .unit_features import unit_features
from .unit_states import unit_states

if TYPE_CHECKING:
    from ..inputs.clips.clip import Clip
    from ..inputs.sentences.sentence import Sentence

ALL = "all"  # the name of all sets together
MAX_SETS = 7  # which sets to leave out is chosen among all 2^7 ways
_MODEL_KEYS = ["model", "init", "seed"]
_KEYS = [*_MODEL_KEYS, "stack", "layer", "depth", "set"]
_MISSING = ["", np.inf, -np.inf]
_MAX_VALUES = 2 * 10**7  # units x dimensions of layers that are fitted at once
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
        alone); n (units), groups;
        present (whether the interval, corrected over all rows of the model, is above 0); untrained
        (mean of twins), twins, more (whether it is more than in untrained models).
    by_group : DataFrame
        The share of each group, whose mean is the share.
    left_out : int
        Units without one of the features.
    provenance : dict
        Sets of features, level, grouping (how many groups and speakers there are).
    """

    scores: pd.DataFrame
    by_group: pd.DataFrame
    left_out: int = 0
    provenance: Mapping[str, object] = field(default_factory=dict)

    def to_dataframe(self) -> pd.DataFrame:
        """Return a copy of the scores."""
        return self.scores.copy()

    def __repr__(self) -> str:
        sets = ", ".join(self.scores["set"].unique()[1:])
        models = self.scores[["model", "init", "seed"]].drop_duplicates().shape[0]
        counts = f"{models} model{'s' * (models != 1)}, {self.scores['n'].max()} units"
        grouping = str(self.provenance.get("grouping", "")).rstrip(".")
        return f"Encoding({sets}: {'; '.join(filter(None, (counts, grouping)))})"


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
    seed : int
        Of the folds.

    Returns
    -------
    Encoding

    Raises
    ------
    InputError
        If a set is empty or unknown, no unit has all features, or there are fewer than three groups.

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
    columns: pd.DataFrame | None = None
    rows: list[Row] = []
    by_group: list[Row] = []
    left_out, used = 0, set[str]()
    for source in [models] if isinstance(models, Model) else models:
        model = source if isinstance(source, Model) else source()
        found = unit_states(
            model, items, level=level, stacks=stacks, group=group, progress=progress
        )
        units = join_units(found)
        if columns is None:
            columns = unit_features(units, items, names, level=level, table=table)
        elif level == "frame" and len(units) != len(columns):
            raise InputError(
                f"the frames of {model.name} are not those of the first model: encode one at a time"
            )
        for stack, of_stack in found.items():
            is_used, complete = _select_units(of_stack.units, columns, names)
            left_out = max(left_out, int((~is_used).sum()))
            sets = {name: _to_numbers(complete[list(set_)]) for name, set_ in features.items()}
            groups = complete["group"].to_numpy(str)
            used |= set(complete["clip"])
            keys = _content_keys(complete["clip"], items)
            fold = assign_group_folds(groups, keys, folds=folds, seed=seed)
            place = {"model": model.name, "init": model.init, "seed": model.seed, "stack": stack}
            for row, shares in _divide_variance(of_stack.values[is_used], sets, groups, fold):
                rows.append({**place, **row})
                key = {name: rows[-1][name] for name in _KEYS}
                shares_by_group = zip(np.unique(groups), shares, strict=True)
                by_group += [{**key, "group": name, "share": x} for name, x in shares_by_group]
    scores, of_groups = (pd.DataFrame(x).astype({"seed": "Int64"}) for x in (rows, by_group))
    provenance = {"features": {name: list(set_) for name, set_ in features.items()}, "level": level}
    provenance["grouping"] = describe_item_groups(items, group, names=used)
    return Encoding(conclude_shares(scores, of_groups), of_groups, left_out, provenance)


def _select_units(
    units: pd.DataFrame, columns: pd.DataFrame, names: Sequence[str]
) -> tuple[np.ndarray, pd.DataFrame]:
    """Return which units have all features [N], and these features, with clip, index and group."""
    keys = ["clip", "index", "group"]
    own = [name for name in names if name not in keys]
    table = units[keys].merge(columns[[*keys[:2], *own]], on=keys[:2], how="left")
    table[own] = table[own].mask(table[own].isin(_MISSING))
    is_complete = table[own].notna().all(axis=1).to_numpy()
    if not is_complete.any():
        missing = table[own].isna().mean().idxmax()
        raise InputError(f"no unit has all features; missing most often: {missing}")
    return is_complete, table[is_complete]


def _content_keys(clips: pd.Series, items: Sequence[Clip | Sentence]) -> list[str]:
    keys = {
        name: content_key(item, name)
        for name, item in zip(build_item_table(items)["clip"], items, strict=True)
    }
    return [keys[name] for name in clips]


def _to_numbers(columns: pd.DataFrame) -> np.ndarray:
    """Return features as numbers [N, P]; texts as one column for each value."""
    parts = []
    for name in columns:
        numbers = pd.to_numeric(columns[name], errors="coerce")
        is_text = numbers.isna().any()
        part = pd.get_dummies(columns[name].astype(str)) if is_text else numbers.to_frame()
        parts.append(part.to_numpy(dtype=float))
    return np.hstack(parts)


def _divide_variance(
    states: np.ndarray, sets: Mapping[str, np.ndarray], groups: np.ndarray, fold: np.ndarray
) -> Iterator[tuple[Row, np.ndarray]]:
    """Yield for each layer of states [N, L + 1, D] a row for all sets [N, P] together and for each,
    with the shares by group."""
    count, layers, width = states.shape
    step = max(1, _MAX_VALUES // (count * width))
    for start in range(0, layers, step):
        part = states[:, start : start + step].astype(float)
        total, of_all = _squared_errors(part, list(sets.values()), fold)
        gains = {ALL: (total - of_all, np.full(total.shape, np.nan))}
        for name in sets:
            others = [found for other, found in sets.items() if other != name]
            without = _squared_errors(part, others, fold)[1] if others else total
            alone = total - _squared_errors(part, [sets[name]], fold)[1]
            gains[name] = without - of_all, alone
        for index, (name, (gain, alone)) in product(range(part.shape[1]), gains.items()):
            of_layer, layer = total[:, index], start + index + INPUT
            shares = ratio_by_group(gain[:, index], groups, of_layer)
            row = {"layer": layer, "depth": layer / max(layers - 2, 1), "set": name}
            row |= {"share": shares.mean(), "alone": alone[:, index].sum() / of_layer.sum()}
            yield row | {"n": count, "groups": len(shares)}, shares


def _squared_errors(
    layers: np.ndarray, sets: Sequence[np.ndarray], fold: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Squared errors [N, layers] of the mean of the training folds, and of the regression."""
    values = layers.reshape(len(layers), -1)
    blocks = np.repeat(np.arange(layers.shape[1]), layers.shape[2])
    widths = [found.shape[1] for found in sets]
    fit = predict_values(np.hstack(sets), values, fold, widths=widths, blocks=blocks)
    mean, regression = (
        ((values - found) ** 2).reshape(layers.shape).sum(axis=2)
        for found in (fit.mean, fit.predicted)
    )
    return mean, regression


def conclude_shares(scores: pd.DataFrame, by_group: pd.DataFrame) -> pd.DataFrame:
    """Add intervals, and the comparison with untrained twins, to `Encoding.scores`; the rows of
    `by_group` are in the same order."""
    rows = by_group.groupby([key for key in _KEYS if key != "depth"], sort=False, dropna=False)
    counts = scores.groupby(_MODEL_KEYS, dropna=False)["share"].transform("size")
    limits = []
    for (_, shares), count in zip(rows["share"], counts, strict=True):
        corrected = mean_interval(shares, level=1 - FALSE_CLAIM_RATE / count)
        limits.append((*mean_interval(shares), corrected[0] > 0))
    scores = scores.copy()
    scores[["low", "high", "present"]] = pd.DataFrame(limits, index=scores.index)
    cells = ["model", "stack", "layer", "set"]
    contributions = by_group.assign(contribution=100 * by_group["share"])
    comparison = compare_with_twins(contributions, by=cells, group="group")
    scores = scores.merge(comparison[[*cells, "random", "twins", "claim"]], on=cells, how="left")
    scores["untrained"] = scores["random"] / 100
    scores["more"] = (scores["claim"] == "more") & (scores["init"] == "trained")
    order = [*_KEYS, "share", "low", "high", "alone", "n", "groups", "present", "untrained"]
    return scores.reindex(columns=[*order, "twins", "more"])
