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
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..adapters.capture.hidden_states import INPUT
from ..adapters.model import Model
from ..errors import InputError
from .encoding_result import ENCODING_KEYS, Encoding, conclude_shares
from .probing.ridge import assign_group_folds, predict_values
from .probing.scores import ratio_by_group
from .probing.unit_task import join_units
from .statistics.groups import build_item_table, content_key
from .unit_features import unit_features
from .unit_states import UnitStates, unit_states

if TYPE_CHECKING:
    from ..inputs.clips.clip import Clip
    from ..inputs.sentences.sentence import Sentence

ALL = "all"  # the name of all sets together
MAX_SETS = 7  # which sets to leave out is chosen among all 2^7 ways
_MAX_VALUES = 2 * 10**7  # units x dimensions of layers that are fitted at once
Row = dict[str, Any]


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
        value. Units that lack a feature are left out.
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
    left_out = 0
    for model in _load_models(models):
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
            design = _Design.of_units(of_stack, columns, items, features, folds, seed)
            left_out = max(left_out, len(of_stack.units) - len(design.rows))
            keys = {"model": model.name, "init": model.init, "seed": model.seed, "stack": stack}
            for layer, row, shares in design.divide(of_stack.values):
                depth = layer / max(of_stack.values.shape[1] - 2, 1)
                place = {**keys, "layer": layer, "depth": depth}
                rows.append({**place, **row})
                key = {**place, "set": row["set"]}
                by_group += [
                    {**key, "group": name, "share": share}
                    for name, share in zip(design.group_names, shares, strict=True)
                ]
    scores = pd.DataFrame(rows).astype({"seed": "Int64"})
    of_groups = pd.DataFrame(by_group).astype({"seed": "Int64"})
    scores = conclude_shares(scores, of_groups)
    return Encoding(
        scores,
        of_groups[[*ENCODING_KEYS, "group", "share"]],
        left_out,
        {"features": {name: list(members) for name, members in features.items()}, "level": level},
    )


def _load_models(models: Model | Iterable[Model | Callable[[], Model]]) -> Iterator[Model]:
    for source in [models] if isinstance(models, Model) else models:
        yield source if isinstance(source, Model) else source()


class _Design:
    """Units of one stack with their features: the folds are the same in all layers."""

    def __init__(
        self,
        rows: np.ndarray,
        sets: Mapping[str, np.ndarray],
        groups: np.ndarray,
        fold: np.ndarray,
    ):
        self.rows, self._sets, self._groups, self._fold = rows, sets, groups, fold
        self.group_names = np.unique(groups).tolist()

    @classmethod
    def of_units(
        cls,
        found: UnitStates,
        columns: pd.DataFrame,
        items: Sequence[Clip | Sentence],
        features: Mapping[str, Sequence[str]],
        folds: int,
        seed: int,
    ) -> _Design:
        """Select the units that have all features."""
        names = list(dict.fromkeys(name for members in features.values() for name in members))
        own = [name for name in names if name not in ("clip", "index")]
        table = found.units[["clip", "index", "group"]].merge(
            columns[["clip", "index", *own]], on=["clip", "index"], how="left"
        )
        is_complete = table[own].notna().all(axis=1).to_numpy()
        if not is_complete.any():
            missing = table[own].isna().mean()
            raise InputError(
                f"no {found.level} of the {found.stack} has all features; missing most often: "
                f"{missing.idxmax()}"
            )
        number = pd.Index(build_item_table(items)["clip"]).get_indexer(pd.Index(table["clip"]))
        keys = [content_key(items[row], str(row)) for row in number[is_complete]]
        complete = table[is_complete]
        groups = complete["group"].to_numpy(str)
        sets = {name: _numeric(complete[list(members)]) for name, members in features.items()}
        return cls(
            np.flatnonzero(is_complete),
            sets,
            groups,
            assign_group_folds(groups, keys, folds=folds, seed=seed),
        )

    def divide(self, states: np.ndarray) -> Iterator[tuple[int, Row, np.ndarray]]:
        """Yield for each layer of states [N, L + 1, D] the rows of all sets and of each, with the
        shares by group."""
        step = max(1, _MAX_VALUES // (len(self.rows) * states.shape[2]))
        for start in range(0, states.shape[1], step):
            layers = states[self.rows, start : start + step].astype(float)
            total, of_all = self._errors(list(self._sets), layers)
            gains = {ALL: (total - of_all, np.full(total.shape, np.nan))}
            for name in self._sets:
                others = [other for other in self._sets if other != name]
                without = self._errors(others, layers)[1] if others else total
                gains[name] = without - of_all, total - self._errors([name], layers)[1]
            for index in range(layers.shape[1]):
                of_layer = total[:, index]
                for name, (gain, alone) in gains.items():
                    shares = ratio_by_group(gain[:, index], self._groups, of_layer)
                    row = {
                        "set": name,
                        "share": shares.mean(),
                        "n": len(gain),
                        "groups": len(shares),
                    }
                    row["alone"] = alone[:, index].sum() / of_layer.sum()
                    yield start + index + INPUT, row, shares

    def _errors(self, names: Sequence[str], layers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Squared errors [N, layers] of the mean of the training folds, and of the regression."""
        sets = [self._sets[name] for name in names]
        values = layers.reshape(len(layers), -1)
        fit = predict_values(
            np.hstack(sets),
            values,
            self._fold,
            widths=[found.shape[1] for found in sets],
            blocks=np.repeat(np.arange(layers.shape[1]), layers.shape[2]),
        )
        mean, regression = (
            ((values - found) ** 2).reshape(layers.shape).sum(axis=2)
            for found in (fit.mean, fit.predicted)
        )
        return mean, regression


def _numeric(columns: pd.DataFrame) -> np.ndarray:
    """Return features as numbers [N, P]; texts as one column for each value."""
    parts = []
    for name in columns:
        values = pd.to_numeric(columns[name], errors="coerce")
        is_number = values.notna().all()
        part = values.to_frame() if is_number else pd.get_dummies(columns[name].astype(str))
        parts.append(part.to_numpy(dtype=float))
    return np.hstack(parts)
