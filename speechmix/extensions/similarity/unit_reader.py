"""What is compared: states of the layers of a model, or external features, of the same units.

In: clips; a model, a table of vectors for labels, or names of features. Out: features [N, D] of units
that all sources have, in an order that does not depend on names or on the order of clips.

Units in groups, and an estimate with each group left out in turn.

In: group numbers of units, in ascending order. Out: sums over groups, and the pseudo-values of the
jackknife (Quenouille 1956, Tukey 1958), one for each independent group, whose mean and interval are
those of the estimate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.spatial.distance import cdist

from ...adapters.capture.forward_pass import INPUT
from ...adapters.model import Model
from ...errors import InputError
from ...evaluation.statistics.groups import (
    assign_item_groups,
    build_item_table,
    choose_evenly,
    content_key,
    describe_groups,
)
from ...evaluation.statistics.intervals import CORRELATION_BOUNDS, mean_interval
from ...inputs.audio.spectrograms import mel_spectrogram
from ...inputs.clips.clip import Clip
from ...inputs.sentences.sentence import Sentence
from ...inputs.words.phone_labels import articulatory_features
from ...inputs.words.unit_tiers import PHONE
from ..encoding.unit_features import unit_features
from ..states.unit_states import UnitStates, read_unit_states

ModelSource = Model | Callable[[], Model]
FeatureSource = ModelSource | str | Sequence[str] | pd.DataFrame
_MEL = {"n_fft": 512, "window": 400, "hop": 80, "n_mels": 40, "fmin": 60, "fmax": 7600}
_MEL_RATE = 16_000


class LayerFeatures(NamedTuple):
    """Features of one layer of a model, or external ones, which have neither stack nor layer."""

    name: str
    stack: str
    layer: int | None
    values: np.ndarray  # [N, D], NaN where missing; of labels [N], "" where missing


class UnitReader:
    """Reads features of the same units from models and other sources.

    Parameters
    ----------
    items, level, group, units_per_clip
        As for `speechmix.similarity`.

    Attributes
    ----------
    units : DataFrame
        Columns of `UnitStates.units`, those of the first model read.
    skipped : dict of str to str
        Items that a model does not take, and why.
    ties : str
        What makes items a group, in words.
    grouping : str
        How many groups and speakers there are.
    positions : dict of str to int
        The place of each item in `items`.
    """

    def __init__(
        self,
        items: Sequence[Clip | Sentence],
        level: str,
        *,
        group: str | None = None,
        units_per_clip: int = 50,
    ):
        if not items or units_per_clip < 1:
            raise InputError(
                f"expected clips, and units_per_clip of 1 or more, found {len(items)} clips and "
                f"{units_per_clip}"
            )
        table = build_item_table(items)
        groups, self.ties = assign_item_groups(table, items, group)
        self.grouping = describe_groups(table.assign(group=groups), self.ties)
        table["key"] = [
            (content_key(item, name), item.text or "")
            if isinstance(item, Clip)
            else (item.text, "")
            for item, name in zip(items, table["clip"], strict=True)
        ]
        table["group_key"] = table.groupby(groups)["key"].transform("min")
        order = table.sort_values(["group_key", "key"], kind="stable").index
        self._items = [items[index] for index in order]
        names = build_item_table(self._items)["clip"]
        self._by_name = dict(zip(names, self._items, strict=True))
        self.positions = dict(zip(names, map(int, order), strict=True))
        self._group_keys = dict(zip(names, table["group_key"][order].map(str), strict=True))
        self._level, self._limit = level, units_per_clip
        self.units = pd.DataFrame()
        self.skipped: dict[str, str] = {}

    def read_model(
        self, source: ModelSource, stacks: Sequence[str] | None, name: str = ""
    ) -> list[LayerFeatures]:
        """Read the states of each stack (by default the model's input stack) and layer.

        Raises
        ------
        InputError
            If the model takes none of the clips, or a stack has no such units.
        """
        model = source if isinstance(source, Model) else source()
        wanted = [model.capabilities.input_stack] if stacks is None else list(stacks)
        is_first = not len(self.units)
        units_by_clip: dict[str, pd.DataFrame] = {}
        if not is_first:
            units_by_clip = {
                str(clip): rows for clip, rows in self.units.groupby("clip", sort=False)
            }
        parts: dict[str, dict[str, np.ndarray]] = {stack: {} for stack in wanted}
        skipped: list[tuple[str, str]] = []
        options: dict[str, Any] = {"level": self._level, "stacks": wanted, "group": None}
        # clip by clip: only the chosen units are kept
        for states_by_stack in read_unit_states(
            model, self._items, skipped, progress=False, batch_bytes=0, **options
        ):
            if missing := [stack for stack in wanted if stack not in states_by_stack]:
                raise InputError(f"the {missing[0]} of {model.name} has no {self._level}s")
            if is_first:
                units_by_clip |= self._choose_units(states_by_stack[wanted[0]].units)
            for stack, states in states_by_stack.items():
                for clip in states.units["clip"].unique():
                    if clip in units_by_clip:
                        parts[stack][clip] = self._select_states(units_by_clip[clip], states)
        for clip, reason in skipped:
            self.skipped.setdefault(clip, reason)
        if not all(parts.values()):
            raise InputError(f"{model.name} has no {self._level}s of these clips")
        self.units = pd.concat(units_by_clip.values(), ignore_index=True)
        return [
            LayerFeatures(name or model.label, stack, INPUT + index, values)
            for stack in wanted
            for index, values in enumerate(_join_states(units_by_clip, parts[stack]))
        ]

    def _choose_units(self, units: pd.DataFrame) -> dict[str, pd.DataFrame]:
        """Choose units of each clip; frames get labels."""
        units_by_clip = {}
        for clip, rows in units.groupby("clip", sort=False):
            name = str(clip)
            rows = rows.iloc[choose_evenly(range(len(rows)), self._limit)]
            if self._level == "frame":
                rows = rows.assign(label=_label_frames(self._by_name[name], rows))
            units_by_clip[name] = rows.assign(group=self._group_keys[name])
        return units_by_clip

    def _select_states(self, wanted: pd.DataFrame, states: UnitStates) -> np.ndarray:
        """Return the states of the wanted units of a clip [n, L + 1, D], NaN for those that are not
        there: the same words, or what is nearest in time."""
        rows = np.flatnonzero(states.units["clip"] == wanted["clip"].iloc[0])
        units = states.units.iloc[rows]
        if self._level == "word":
            nearest = pd.Index(units["word"]).get_indexer(wanted["word"])
        else:
            middles = [(each["start"] + each["end"]).to_numpy() for each in (wanted, units)]
            nearest = np.abs(middles[0][:, None] - middles[1]).argmin(axis=1)
        values: np.ndarray = states.values[rows[nearest]].astype(float)
        values[nearest < 0] = np.nan
        return values

    def read_sources(
        self,
        sources: FeatureSource | Mapping[str, FeatureSource],
        stacks: Sequence[str] | None = None,
    ) -> list[LayerFeatures]:
        """Read one source, or several by name; see `speechmix.similarity`.

        Raises
        ------
        InputError
            For an unknown source, or units that have no such features.
        """
        if not isinstance(sources, Mapping):
            sources = {_name_source(sources): sources}
        features = []
        for name, source in sources.items():
            if isinstance(source, Model) or callable(source):
                features += self.read_model(source, stacks, name)
            else:
                features.append(LayerFeatures(name, "", None, self._read_external(source, name)))
        if not features:
            raise InputError("expected something to compare the layers with, found nothing in b")
        return features

    def _read_external(self, source: str | Sequence[str] | pd.DataFrame, name: str) -> np.ndarray:
        labels = self.units["label"].str.casefold()
        if isinstance(source, pd.DataFrame):
            return _look_up(source, labels, name)
        if isinstance(source, str) and source == "label":
            return labels.to_numpy(dtype=str)
        if isinstance(source, str) and source == "mel":
            return self._read_mel()
        names = [source] if isinstance(source, str) else list(source)
        if source == "articulation":
            names = [*articulatory_features("a")]
        if not names:
            raise InputError(f"expected names of features, found none in {name!r}")
        table = unit_features(self.units, self._items, names, level=self._level)[names]
        values = _to_numbers(table, name).to_numpy()
        spread = np.nanstd(values, axis=0)
        return values / np.where(spread > 0, spread, 1.0)

    def _read_mel(self) -> np.ndarray:
        """Average log power in mel bands over each unit [N, bands], windows of 25 ms every 5 ms."""
        values = []
        for name, units in self.units.groupby("clip", sort=False):
            clip = self._by_name[str(name)]
            if not isinstance(clip, Clip):
                raise InputError(f"{clip.name} is a text, which has no mel bands: give clips")
            power = mel_spectrogram(clip.audio(_MEL_RATE), _MEL_RATE, **_MEL)
            bands = np.log(np.maximum(power, 1e-8))
            edges = (units[["start", "end"]].to_numpy() * _MEL_RATE / _MEL["hop"]).round()
            for start, end in np.clip(edges.astype(int), 0, len(bands) - 1):
                values.append(bands[start : max(end, start + 1)].mean(axis=0))
        return np.array(values)

    def select_complete(self, features: Sequence[LayerFeatures]) -> np.ndarray:
        """Return which units all features have [N].

        Raises
        ------
        InputError
            If none.
        """
        is_complete = np.ones(len(self.units), dtype=bool)
        for each in features:
            values = each.values
            has = values != "" if values.ndim == 1 else np.isfinite(values).all(axis=1)
            if not has.any():
                raise InputError(f"no unit has features {each.name!r}: compare labels and spelling")
            is_complete &= has
        if not is_complete.any():
            names = ", ".join(dict.fromkeys(each.name for each in features))
            raise InputError(f"no unit has all of the features {names}")
        return is_complete


def _name_source(source: FeatureSource) -> str:
    """Name a source: "" is a model, which has a label of its own."""
    if isinstance(source, Model) or callable(source):
        return ""
    if isinstance(source, pd.DataFrame):
        return "table"
    if isinstance(source, str):
        return source
    if not isinstance(source, Sequence):
        raise InputError(f"expected a model, a table or names of features, found {source!r}")
    return ", ".join(source)


def _join_states(
    units_by_clip: Mapping[str, pd.DataFrame], parts: Mapping[str, np.ndarray]
) -> np.ndarray:
    """Join the states of clips [n, L + 1, D] to [L + 1, N, D]; of skipped clips they are NaN."""
    shape = next(iter(parts.values())).shape[1:]
    joined = [
        parts[clip] if clip in parts else np.full((len(units), *shape), np.nan)
        for clip, units in units_by_clip.items()
    ]
    return np.concatenate(joined).swapaxes(0, 1)


def _label_frames(item: Clip | Sentence, frames: pd.DataFrame) -> list[str]:
    """Label frames by the phone, or else the word, that they lie in; "" between them."""
    tier = (item.tiers.get(PHONE) or item.words or ()) if isinstance(item, Clip) else ()
    middles = (frames["start"] + frames["end"]) / 2
    return [
        next((each.text for each in tier if each.start <= middle < each.end), "")
        for middle in middles
    ]


def _look_up(table: pd.DataFrame, labels: pd.Series, name: str) -> np.ndarray:
    """Return the vector of each label [N, D], NaN if the table has none."""
    vectors = table.set_axis(table.index.astype(str).str.casefold())
    if vectors.index.has_duplicates:
        twice = vectors.index[vectors.index.duplicated()][0]
        raise InputError(f"the table {name!r} has two rows for {twice!r}: leave one")
    return _to_numbers(vectors, name).reindex(labels).to_numpy()


def _to_numbers(table: pd.DataFrame, name: str) -> pd.DataFrame:
    try:
        return table.astype(float)
    except ValueError as error:
        raise InputError(
            f"the columns of {name!r} should be numbers (labels are the index): {error}"
        ) from error


MIN_GROUPS = 5  # the estimators compare units of four different groups, and leave one out
MAX_PAIRED_UNITS = 6000  # a matrix of all pairs takes 8 bytes x units squared


class SimilarityEstimate(NamedTuple):
    """A similarity, and what it is without each group."""

    value: float
    without_group: np.ndarray  # [G]

    @property
    def pseudo_values(self) -> np.ndarray:
        """Return G value - (G - 1) value without group g, for each group [G]."""
        count = len(self.without_group)
        return count * self.value - (count - 1) * self.without_group

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % interval over groups; (nan, nan) for too few, see `mean_interval`."""
        return mean_interval(self.pseudo_values, bounds=CORRELATION_BOUNDS)


def group_starts(groups: np.ndarray) -> np.ndarray:
    """Return the index of the first unit of each group [G].

    Raises
    ------
    InputError
        For fewer than `MIN_GROUPS` groups, or groups in another order than 0, 0, 1, 2, 2, ...

    Examples
    --------
    >>> group_starts(np.array([0, 0, 1, 2, 3, 3, 4]))
    array([0, 2, 3, 4, 6])
    """
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    if len(starts) < MIN_GROUPS or not np.array_equal(groups[starts], np.arange(len(starts))):
        raise InputError(
            f"similarity needs units of {MIN_GROUPS} independent groups of clips or more, numbered "
            f"0, 0, 1, 2, ... in ascending order; found {len(starts)}: add clips of other sentences"
        )
    return starts


def pair_distances(features: np.ndarray, distance: str) -> np.ndarray:
    """Return the distances of all units from each other, [N, D] -> [N, N].

    Raises
    ------
    InputError
        For another distance than cosine, correlation or euclidean, and for more units than
        `MAX_PAIRED_UNITS`.
    """
    if distance not in ("cosine", "correlation", "euclidean"):
        raise InputError(f"distance should be cosine, correlation or euclidean, found {distance!r}")
    if len(features) > MAX_PAIRED_UNITS:
        raise InputError(
            f"{len(features)} units are too many to compare each with each (at most "
            f"{MAX_PAIRED_UNITS}): lower units_per_clip"
        )
    distances: np.ndarray = np.nan_to_num(cdist(features, features, distance), nan=1.0)
    return distances
