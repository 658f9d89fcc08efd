"""Compare the layers of a model with each other, with other models, and with external features.

In: a model, what it is compared with, clips, untrained twins. Out: a `SimilarityResult`: each pair of a
layer and a feature, beside units that are shuffled and beside untrained twins. What units are compared,
and how, is in `unit_reader` and `measure_table`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student

from ...adapters.model import Model
from ...errors import InputError
from ...files.json_files import JsonObject
from ...inputs.clips.clip import Clip
from ...inputs.sentences.sentence import Sentence
from ..statistics.intervals import mean_interval, twin_difference_interval
from ..statistics.twin_rank_test import FALSE_CLAIM_RATE, rank_p, twin_limits
from .grouped_units import SimilarityEstimate
from .measure_table import SimilarityMeasure, find_similarity
from .similarity_result import SimilarityResult
from .unit_reader import FeatureSource, LayerFeatures, ModelSource, UnitReader

_PAIR_COLUMNS = "stack layer feature feature_stack feature_layer value low high".split()
_TWIN_COLUMNS = (
    "twins random twin_low twin_high difference difference_low difference_high p claim"
).split()
_SCALE = 100.0  # the rank test takes spreads below 0.001 as that


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
        With words, or with phones for ``level="phone"``.
    level : {"word", "phone", "syllable", "frame"}
        Units: states are averaged over each. Of frames, the label is their phone, or else their word.
    measure : {"cka", "cca", "rsa", "abx", "mutual_information"}
        Or a name added to `SIMILARITY_MEASURES`.
    stacks : str or sequence of str, optional
        "encoder", "decoder"; by default the one that reads the input. Of model `b` the same.
    twins : iterable of Model or of functions that load one
        Untrained twins of `a`. Conclusions about training need 39.
    shuffles : int
        How often the units of `b` are shifted against those of `a`, by more than a group of clips;
        "related" needs 19.
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
    found = find_similarity(measure, options)
    if shuffles < 0:
        raise InputError(f"expected shuffles of 0 or more, found {shuffles}")
    stack_names = (stacks,) if isinstance(stacks, str) else stacks
    reader = UnitReader(clips, level, group=group, units_per_clip=units_per_clip)
    model = a if isinstance(a, Model) else a()
    first = reader.read_model(model, stack_names)
    b = "label" if b is None and found.needs_labels else b
    second = first if b is None else reader.read_sources(b, stack_names)
    comparison = _Comparison(found, options, reader, first, second)
    own = comparison.prepare(first)
    other = own if b is None else comparison.prepare_second(second)
    estimates = comparison.compare(own, other)
    drawn = [
        [each.value for each in comparison.compare(own, comparison.prepare_second(second, offset))]
        for offset in comparison.draw_offsets(shuffles, seed)
    ]
    twin_estimates = []
    for source in twins:
        twin = comparison.prepare(reader.read_model(source, stack_names))
        twin_estimates.append(comparison.compare(twin, twin if b is None else other))
    table = comparison.describe_pairs(first, second, estimates)
    table = table.join(_compare_shuffled(estimates, drawn))
    table = table.join(_compare_twins(estimates, twin_estimates))
    provenance: JsonObject = {"model": model.name, "init": model.init, "seed": model.seed}
    provenance |= {"level": level, "measure": measure, "label": found.label, "ties": reader.ties}
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
                wanted, found = ("labels", "features")[:: 1 if measure.needs_labels else -1]
                raise InputError(
                    f"measure {measure.name!r} compares layers with {wanted}; {each.name!r} has {found}"
                )
        self._is_complete = reader.select_complete([*first, *second])
        # units lie in the order of groups
        self._groups = pd.factorize(reader.units["group"][self._is_complete])[0]
        indices = range(len(first))
        self._pairs: list[tuple[int, int]] = (
            list(itertools.combinations(indices, 2))
            if second is first
            else list(itertools.product(indices, range(len(second))))
        )

    def prepare(self, features: Sequence[LayerFeatures]) -> list[Any]:
        """Prepare the layers of a model."""
        return [
            self._measure.prepare(each.values[self._is_complete], self._groups, **self._options)
            for each in features
        ]

    def prepare_second(self, features: Sequence[LayerFeatures], offset: int = 0) -> list[Any]:
        """Prepare what layers are compared with, its units shifted by an offset."""
        values = [np.roll(each.values[self._is_complete], offset, axis=0) for each in features]
        return [
            self._measure.prepare_second(each, self._groups, **self._options) for each in values
        ]

    def compare(self, first: Sequence[Any], second: Sequence[Any]) -> list[SimilarityEstimate]:
        """Compare all pairs of prepared features."""
        return [self._measure.compare(first[i], second[j]) for i, j in self._pairs]

    def draw_offsets(self, count: int, seed: int) -> list[int]:
        """Draw by how many units to shift: at least by the largest group."""
        largest = int(np.bincount(self._groups).max())
        offsets = np.arange(largest, len(self._groups) - largest + 1)
        return [int(each) for each in np.random.default_rng(seed).permutation(offsets)[:count]]

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


def _compare_shuffled(
    estimates: Sequence[SimilarityEstimate], drawn: Sequence[Sequence[float]]
) -> pd.DataFrame:
    """Average the shuffles of each pair, and compute p corrected over all pairs."""
    values = np.array([[each.value for each in estimates], *drawn])
    columns = {"shuffled": values[1:].mean(axis=0) if len(drawn) else np.nan}
    return pd.DataFrame({**columns, "p_shuffled": rank_p(_SCALE * values)[0]})


def _compare_twins(
    estimates: Sequence[SimilarityEstimate], twins: Sequence[Sequence[SimilarityEstimate]]
) -> pd.DataFrame:
    """Compare each pair with those of the twins: by its rank, and by its groups of clips.

    The rank (`rank_p`) is exact for these clips, whatever the number of pairs. A claim also needs an
    interval of the difference over groups and twins without zero, at a level that is corrected over
    all pairs (Bonferroni): other clips would give other values.
    """
    values = np.array([[each.value for each in pairs] for pairs in (estimates, *twins)])
    p = rank_p(_SCALE * values)
    rows = []
    for index, estimate in enumerate(estimates):
        of_twins = values[1:, index]
        row: dict[str, object] = {"twins": len(twins), "claim": ""}
        if len(twins):
            groups = [pairs[index].pseudo_values for pairs in twins]
            differences = estimate.pseudo_values - np.mean(groups, axis=0)
            low, high = twin_difference_interval(differences, of_twins)
            is_above, is_below = p[:, index] <= FALSE_CLAIM_RATE / 2 + 1e-9
            if (is_above or is_below) and _is_sure(differences, of_twins, len(estimates)):
                row["claim"] = "more" if is_above else "less"
            row |= dict(zip(("twin_low", "twin_high"), twin_limits(of_twins), strict=True))
            row |= {"random": of_twins.mean(), "difference": estimate.value - of_twins.mean()}
            row |= {"difference_low": low, "difference_high": high}
        rows.append({**row, "p": np.minimum(1, 2 * p[:, index].min())})
    return pd.DataFrame(rows, columns=_TWIN_COLUMNS)


def _is_sure(differences: np.ndarray, twins: np.ndarray, pair_count: int) -> bool:
    """Tell whether the mean difference is not zero for other clips and twins, at a corrected level.

    Both intervals must exclude zero: that of `mean_interval` over groups; and Student's over twins and
    groups, with one more group that lies as far on the other side as any, because a sample may lack a
    kind of clip (as in `twin_rank_test`).
    """
    level = 1 - FALSE_CLAIM_RATE / pair_count
    low, high = mean_interval(differences, level=level)
    sizes = differences * np.sign(differences.mean())
    cautious = np.append(sizes, -np.abs(sizes).max())
    reaches = [
        student.ppf((1 + level) / 2, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
        for values in (cautious, twins)
    ]
    return bool((low > 0 or high < 0) and cautious.mean() > np.hypot(*reaches))
