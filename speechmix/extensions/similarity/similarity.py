"""Compare the layers of a model with each other, with other models, and with external features.

In: a model, what it is compared with, clips, untrained twins. Out: a `SimilarityResult`: each pair of a
layer and a feature, beside units that are shuffled and beside untrained twins. What units are compared,
and how, is in `unit_reader` and `measure_table`; how they are shuffled, below.

Units that are not related: shuffled in two ways, after a slow drift over the session is removed.

In: features [N, D] of units in groups, and the order in which the groups were recorded (that of the
clips as they were given). Out: features without drift, and the units that stand in for each unit.

- *Roll*: all units are shifted by one offset, in the order of the recording. It keeps what is alike
  between neighbouring units and clips, and breaks the pairs.
- *Shuffled groups*: whole groups change places at random. It keeps what is alike within a group, and,
  where groups have as many units, the position of a unit in its group. Where groups differ in size,
  their units are put one after the other, so the units of a group may come from two neighbours.
- *Drift*: where both sides drift over a session, they are similar although they share nothing else,
  and both shuffles break that, too. So variation that is slower than `SLOWEST_PERIOD` groups is
  removed from both sides before the test: a line and cosines, as the high-pass filter of imaging
  studies (Holmes, Josephs, Buechel & Friston 1997). Labels cannot be filtered; there, states are.

The result of `speechmix.similarity`: a table of pairs, what may be concluded, figures.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ...adapters.model import Model
from ...errors import InputError
from ...evaluation.statistics.claim_rule import FEWEST_CLAIM_GROUPS, FEWEST_TWINS
from ...evaluation.statistics.intervals import (
    FEWEST_GROUPS,
    LEVEL,
    one_more_twin_intervals,
    permutation_p,
    twin_bands,
)
from ...files.json_files import JsonObject
from ...inputs.clips.clip import Clip
from ...inputs.sentences.sentence import Sentence
from .measure_table import SimilarityMeasure, find_similarity
from .unit_reader import FeatureSource, LayerFeatures, ModelSource, SimilarityEstimate, UnitReader

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAIR_KEYS = ["stack", "feature", "feature_stack"]


@dataclass(frozen=True, eq=False)
class SimilarityResult:
    """Similarities of layers and features.

    Parameters
    ----------
    table : DataFrame
        A row for each pair: stack, layer (-1 is the input of the first layer); feature, feature_stack,
        feature_layer (missing for external features); value with low, high (95 % over groups of
        clips); units, groups; without_drift (value without a slow drift over the clips, which is what
        shuffled units are compared with), shuffled (mean value of shuffled units), p_shuffled (that
        units are unrelated, corrected over all rows); twins, random (mean of the twins), twin_low,
        twin_high (where one more twin is expected), difference with difference_low, difference_high
        (to one more untrained model, 95 % together over all rows), claim ("more", "less" or "").
        Of a model and itself each pair of layers is there once.
    skipped : tuple of (str, str)
        Clips that the model does not take, and why.
    provenance : dict
    """

    table: pd.DataFrame
    skipped: tuple[tuple[str, str], ...]
    provenance: JsonObject

    def to_dataframe(self) -> pd.DataFrame:
        """Return a copy of the table."""
        return self.table.copy()

    @property
    def summary(self) -> str:
        """A sentence for each stack and feature: which layers are related, and what training adds; how
        many groups and speakers there are."""
        sentences = []
        for key, rows in self.table.groupby(PAIR_KEYS, sort=False):
            stack, feature, feature_stack = map(str, key)
            name = f"{stack} and {' '.join(filter(None, (feature, feature_stack)))}"
            sentences.append(f"{name}: {_describe_related(rows)} {_describe_training(rows)}")
        return "\n".join([*sentences, *filter(None, [self.provenance.get("grouping")])])

    def plot(self, *, feature: str | None = None, ax: Axes | None = None) -> Axes:
        """Draw layers over layers, or external features over layers; see `plots.similarity_panel`."""
        from .similarity_figure import similarity_panel

        return similarity_panel(self, feature=feature, ax=ax)

    def show(self) -> Figure:
        """Draw a panel for each stack and model; see `plots.similarity_figure`."""
        from .similarity_figure import similarity_figure

        return similarity_figure(self)


def _describe_related(rows: pd.DataFrame) -> str:
    if rows["groups"].iloc[0] < FEWEST_GROUPS:
        return f"fewer than {FEWEST_GROUPS} groups of clips allow no conclusion."
    is_related = (rows["p_shuffled"] <= 1 - LEVEL + 1e-9) & (rows["low"] > 0)
    if rows["shuffled"].isna().all():
        return "no units were shuffled."
    return (
        f"{is_related.sum()} of {len(rows)} similarities are above those of shuffled units "
        "(corrected over all, without slow drift over the clips)."
    )


def _describe_training(rows: pd.DataFrame) -> str:
    groups, twins = int(rows["groups"].iloc[0]), int(rows["twins"].max())
    if groups < FEWEST_GROUPS:
        return ""
    if twins < FEWEST_TWINS:
        return (
            f"A conclusion about training needs {FEWEST_TWINS} untrained twins, which show how much "
            f"untrained models differ; found {twins}."
        )
    if groups < FEWEST_CLAIM_GROUPS:
        return (
            f"A conclusion about training needs {FEWEST_CLAIM_GROUPS} groups of clips, found {groups}: "
            f"{FEWEST_CLAIM_GROUPS - groups} missing."
        )
    counts = [f"{(rows['claim'] == claim).sum()} are {claim} similar" for claim in ("more", "less")]
    return f"{' and '.join(counts)} than in untrained twins; the others are inconclusive."


SLOWEST_PERIOD = 10  # groups; slower variation is drift


def remove_drift(features: np.ndarray, ranks: np.ndarray) -> np.ndarray:
    """Remove variation over the order of groups that is slower than `SLOWEST_PERIOD` groups.

    Parameters
    ----------
    features : ndarray [N, D]
    ranks : ndarray of int [N]
        The place of each unit's group in the order of the recording: 0, 1, ...

    Examples
    --------
    >>> ranks = np.repeat(np.arange(20), 2)
    >>> remove_drift(3.0 * ranks[:, None] + 1, ranks).round(6).any()
    np.False_
    """
    count = int(ranks.max()) + 1
    frequencies = np.arange(0, 2 * count // SLOWEST_PERIOD + 1)
    cosines = np.cos(np.pi * frequencies * (ranks[:, None] + 0.5) / count)
    trend = np.column_stack([cosines, ranks / count])  # the first cosine is a constant
    without: np.ndarray = features - trend @ np.linalg.lstsq(trend, features, rcond=None)[0]
    return without


def roll_units(ranks: np.ndarray, count: int, *, seed: int = 0) -> list[np.ndarray]:
    """Draw rolls: for each, whose features every unit takes over [N].

    The offset is at least the largest group. There are fewer than `count` if there are no more offsets.

    Examples
    --------
    >>> [roll.tolist() for roll in roll_units(np.array([0, 0, 1, 1]), 2)]
    [[2, 3, 0, 1]]
    """
    order, largest = np.argsort(ranks, kind="stable"), int(np.bincount(ranks).max())
    offsets = np.arange(largest, len(ranks) - largest + 1)
    return [
        _assign_donors(order, np.roll(order, offset))
        for offset in np.random.default_rng(seed).permutation(offsets)[:count]
    ]


def shuffle_groups(ranks: np.ndarray, count: int, *, seed: int = 0) -> list[np.ndarray]:
    """Draw shuffles of whole groups: for each, whose features every unit takes over [N].

    Examples
    --------
    >>> shuffles = shuffle_groups(np.array([0, 0, 1, 1]), 9)
    >>> sorted({tuple(shuffle.tolist()) for shuffle in shuffles})
    [(0, 1, 2, 3), (2, 3, 0, 1)]
    """
    order, generator = np.argsort(ranks, kind="stable"), np.random.default_rng(seed)
    groups = np.split(order, np.cumsum(np.bincount(ranks))[:-1])
    return [
        _assign_donors(
            order, np.concatenate([groups[i] for i in generator.permutation(len(groups))])
        )
        for _ in range(count)
    ]


def _assign_donors(order: np.ndarray, donors: np.ndarray) -> np.ndarray:
    """Return for each unit its donor, from units in order [N] and their donors [N]."""
    assigned = np.empty(len(order), dtype=int)
    assigned[order] = donors
    return assigned


_PAIR_COLUMNS = "stack layer feature feature_stack feature_layer value low high".split()
_SHUFFLE_COLUMNS = "without_drift shuffled p_shuffled".split()
_TWIN_COLUMNS = (
    "twins random twin_low twin_high difference difference_low difference_high claim"
).split()


def similarity(
    a: ModelSource,
    b: FeatureSource | Mapping[str, FeatureSource] | None = None,
    *,
    clips: Sequence[Clip | Sentence],
    level: str = "word",
    measure: str = "cka",
    stacks: str | Sequence[str] | None = None,
    twins: Iterable[ModelSource] = (),
    shuffles: int = 19,
    group: str | None = None,
    units_per_clip: int = 50,
    seed: int = 0,
    **options: Any,
) -> SimilarityResult:
    """Measure how similar the layers of a model are to each other, to another model, or to features.

    Parameters
    ----------
    a : Model, or function that loads one
    b : Model, function that loads one, DataFrame, str, list, or mapping of names to these, optional
        Another model or checkpoint. A table with labels (words or phones) as its index, and a vector
        in each row, such as GloVe. "mel": log power in 40 mel bands, mean over the unit. Names of
        `speechmix.unit_features`, such as ``["f1", "f2"]``, each divided by its deviation;
        "articulation": all those of PanPhon. "label": for "abx" and "mutual_information", their
        default. By default the other layers of `a`.
    clips : sequence of Clip or Sentence
        With words, or with phones for ``level="phone"``; in the order in which they were recorded: a
        slow drift over it shows no relation.
    level : {"word", "phone", "syllable", "frame"}
        Units: states are averaged over each. Of frames, the label is their phone, or else their word.
    measure : {"cka", "cca", "rsa", "abx", "mutual_information"}
        Or a name added to `SIMILARITY_MEASURES`.
    stacks : str or sequence of str, optional
        "encoder", "decoder"; by default the one that reads the input. Of model `b` the same.
    twins : iterable of Model or of functions that load one
        Untrained twins of `a`; nine are usual. Conclusions about training need 5, and 15 groups.
    shuffles : int
        How often the units of `b` are shuffled against those of `a`, each of two ways: shifted by more
        than a group of clips, and groups at random. "Related" needs 19.
    group : str, optional
        A column of the clips' `meta` that says which belong together; by default speakers, or pair,
        sentence and target word. Intervals are over groups.
    units_per_clip : int
        At most, evenly chosen.
    seed : int
        Of the shuffles.
    **options
        Of the measure: batch_size (cka); components, folds (cca); distance (rsa, abx); clusters
        (mutual_information).

    Returns
    -------
    SimilarityResult

    Raises
    ------
    InputError
        For an unknown measure, option or feature, fewer than five groups of clips, or clips without
        such units.

    Examples
    --------
    >>> import speechmix
    >>> from speechmix.inputs import bundled
    >>> model = speechmix.load("bundled:tiny-french-ctc", device="cpu")
    >>> result = similarity(model, "mel", clips=bundled.clips()[:16], shuffles=0)  # synthetic
    >>> result.to_dataframe()[["layer", "feature", "units", "groups"]].head(2).values.tolist()
    [[-1, 'mel', 46, 8], [0, 'mel', 46, 8]]
    """
    similarity_measure = find_similarity(measure, options)
    if shuffles < 0:
        raise InputError(f"expected shuffles of 0 or more, found {shuffles}")
    stack_names = (stacks,) if isinstance(stacks, str) else stacks
    reader = UnitReader(clips, level, group=group, units_per_clip=units_per_clip)
    model = a if isinstance(a, Model) else a()
    first = reader.read_model(model, stack_names)
    b = "label" if b is None and similarity_measure.needs_labels else b
    second = first if b is None else reader.read_sources(b, stack_names)
    comparison = _Comparison(similarity_measure, options, reader, first, second)
    prepared_first = comparison.prepare(first)
    prepared_second = prepared_first if b is None else comparison.prepare_second(second)
    estimates = comparison.compare(prepared_first, prepared_second)
    twin_estimates = []
    for source in twins:
        twin = comparison.prepare(reader.read_model(source, stack_names))
        twin_estimates.append(comparison.compare(twin, twin if b is None else prepared_second))
    table = comparison.describe_pairs(first, second, estimates)
    table = table.join(comparison.compare_shuffled(first, second, shuffles, seed))
    table = table.join(_compare_twins(estimates, twin_estimates))
    provenance: JsonObject = {"model": model.name, "init": model.init, "seed": model.seed}
    provenance |= {
        "level": level,
        "measure": measure,
        "label": similarity_measure.label,
        "ties": reader.ties,
    }
    provenance |= {**options, "is_self": b is None, "grouping": reader.grouping}
    return SimilarityResult(table, tuple(reader.skipped.items()), provenance)


class _Comparison:
    """A measure and the pairs it compares, with the units that all features have and their groups."""

    def __init__(
        self,
        measure: SimilarityMeasure,
        options: Mapping[str, Any],
        reader: UnitReader,
        first: Sequence[LayerFeatures],
        second: Sequence[LayerFeatures],
    ):
        self._measure, self._options = measure, options
        for each in second:
            if (each.values.ndim == 1) != measure.needs_labels:
                expected_kind, actual_kind = ("labels", "features")[
                    :: 1 if measure.needs_labels else -1
                ]
                raise InputError(
                    f"measure {measure.name!r} compares layers with {expected_kind}; {each.name!r} has {actual_kind}"
                )
        self._is_complete = reader.select_complete([*first, *second])
        # units lie in the order of groups, which is not that of the recording
        units = reader.units[self._is_complete]
        self._groups = pd.factorize(units["group"])[0]
        positions = units["clip"].map(reader.positions).groupby(self._groups).transform("mean")
        self._ranks = (positions.rank(method="dense").to_numpy() - 1).astype(int)
        indices = range(len(first))
        self._pairs: list[tuple[int, int]] = (
            list(itertools.combinations(indices, 2))
            if second is first
            else list(itertools.product(indices, range(len(second))))
        )

    def prepare(self, features: Sequence[LayerFeatures]) -> list[Any]:
        """Prepare the layers of a model."""
        return self._prepare(self._select_units(features))

    def prepare_second(self, features: Sequence[LayerFeatures]) -> list[Any]:
        """Prepare what layers are compared with."""
        return self._prepare_second(self._select_units(features))

    def _select_units(self, features: Sequence[LayerFeatures]) -> list[np.ndarray]:
        return [each.values[self._is_complete] for each in features]

    def _prepare(self, features: Sequence[np.ndarray]) -> list[Any]:
        return [self._measure.prepare(each, self._groups, **self._options) for each in features]

    def _prepare_second(self, features: Sequence[np.ndarray]) -> list[Any]:
        return [
            self._measure.prepare_second(each, self._groups, **self._options) for each in features
        ]

    def compare(self, first: Sequence[Any], second: Sequence[Any]) -> list[SimilarityEstimate]:
        """Compare all pairs of prepared features."""
        return [self._measure.compare(first[i], second[j]) for i, j in self._pairs]

    def compare_shuffled(
        self,
        first: Sequence[LayerFeatures],
        second: Sequence[LayerFeatures],
        count: int,
        seed: int,
    ) -> pd.DataFrame:
        """Compare features without drift, and shuffle the second in both ways of shuffling.

        The columns: without_drift, the similarity that is tested; shuffled, the mean of all shuffles;
        p_shuffled, the larger p of both ways, corrected over all pairs.
        """
        if not count:
            return pd.DataFrame(dict.fromkeys(_SHUFFLE_COLUMNS, np.nan), range(len(self._pairs)))
        first_features, second_features = (
            [each if each.ndim == 1 else remove_drift(each, self._ranks) for each in features]
            for features in (self._select_units(first), self._select_units(second))
        )
        prepared = self._prepare(first_features)

        def list_values(donors: np.ndarray) -> list[float]:
            shuffled = self._prepare_second([each[donors] for each in second_features])
            return [estimate.value for estimate in self.compare(prepared, shuffled)]

        without_drift = list_values(np.arange(len(self._ranks)))
        drawn = [
            [list_values(donors) for donors in draw(self._ranks, count, seed=seed)]
            for draw in (roll_units, shuffle_groups)
        ]
        p = [permutation_p(np.array([without_drift, *values])) for values in drawn]
        shuffled = np.mean([value for values in drawn for value in values], axis=0)
        columns = (without_drift, shuffled, np.maximum(*p))
        return pd.DataFrame(dict(zip(_SHUFFLE_COLUMNS, columns, strict=True)))

    def describe_pairs(
        self,
        first: Sequence[LayerFeatures],
        second: Sequence[LayerFeatures],
        estimates: Sequence[SimilarityEstimate],
    ) -> pd.DataFrame:
        """Build the table of the pairs, with values and intervals."""
        rows = [
            (first[i].stack, first[i].layer, *second[j][:3], estimate.value, *estimate.interval)
            for (i, j), estimate in zip(self._pairs, estimates, strict=True)
        ]
        counts = {"units": len(self._groups), "groups": int(self._groups.max()) + 1}
        table = pd.DataFrame(rows, columns=_PAIR_COLUMNS).assign(**counts)
        return table.astype({"feature_layer": "Int64"})


def _compare_twins(
    estimates: Sequence[SimilarityEstimate], twins: Sequence[Sequence[SimilarityEstimate]]
) -> pd.DataFrame:
    """Compare each pair with those of the twins: one interval to one more untrained model.

    The intervals hold together over all pairs (`one_more_twin_intervals`), over the pseudo-values of
    the groups. A claim is made if and only if the interval excludes zero, with enough groups and twins.
    """
    columns: dict[str, object] = dict.fromkeys(_TWIN_COLUMNS, np.nan)
    columns |= {"twins": len(twins), "claim": ""}
    if len(twins):
        values = np.array([[each.value for each in pairs] for pairs in twins]).T  # [pairs, T]
        by_group = np.array([[each.pseudo_values for each in pairs] for pairs in twins])
        pseudo_values = np.array([each.pseudo_values for each in estimates])  # [pairs, G]
        differences = pseudo_values - by_group.mean(axis=0)
        low, high = one_more_twin_intervals(differences, values, rows=len(estimates))
        twin_low, twin_high = twin_bands(values, rows=len(estimates))
        may_claim = pseudo_values.shape[1] >= FEWEST_CLAIM_GROUPS and len(twins) >= FEWEST_TWINS
        columns |= {"random": values.mean(axis=1), "twin_low": twin_low, "twin_high": twin_high}
        columns["difference"] = [each.value for each in estimates] - values.mean(axis=1)
        columns |= {"difference_low": low, "difference_high": high}
        columns["claim"] = np.select(
            [may_claim & (low > 0), may_claim & (high < 0)], ["more", "less"], ""
        )
    return pd.DataFrame(columns, index=range(len(estimates)))
