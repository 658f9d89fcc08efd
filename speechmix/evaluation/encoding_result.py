"""Shares of variance that sets of features explain, and what may be concluded from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pandas as pd

from .statistics.intervals import mean_interval
from .statistics.random_twin_comparison import compare_with_twins
from .statistics.twin_rank_test import FALSE_CLAIM_RATE

ENCODING_KEYS = ["model", "init", "seed", "stack", "layer", "depth", "set"]


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
        Sets of features, level.
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
        return f"Encoding({sets}: {models} models, {self.scores['n'].max()} units)"


def conclude_shares(scores: pd.DataFrame, by_group: pd.DataFrame) -> pd.DataFrame:
    """Add intervals, and the comparison with untrained twins.

    Parameters
    ----------
    scores : DataFrame
        As `Encoding.scores` without intervals.
    by_group : DataFrame
        As `Encoding.by_group`.
    """
    keys = ["model", "init", "seed", "stack", "layer", "set"]
    groups = dict(iter(by_group.groupby(keys, sort=False, dropna=False)["share"]))
    rows_of_model = scores.groupby(["model", "init", "seed"], dropna=False)["share"].transform(
        "size"
    )
    limits = []
    for key, count in zip(
        scores[keys].itertuples(index=False, name=None), rows_of_model, strict=True
    ):
        corrected = mean_interval(groups[key], level=1 - FALSE_CLAIM_RATE / count)
        limits.append((*mean_interval(groups[key]), corrected[0] > 0))
    scores = scores.copy()
    scores[["low", "high", "present"]] = pd.DataFrame(limits, index=scores.index)
    cells = ["model", "stack", "layer", "set"]
    contributions = by_group.assign(clip=by_group["group"], contribution=100 * by_group["share"])
    comparison = compare_with_twins(contributions, by=cells, scale=None).set_index(cells)
    index = pd.MultiIndex.from_frame(scores[cells])
    scores["untrained"] = comparison["random"].reindex(index).to_numpy() / 100
    scores["twins"] = comparison["twins"].reindex(index).to_numpy()
    scores["more"] = (comparison["claim"].reindex(index) == "more").to_numpy()
    scores["more"] &= scores["init"] == "trained"
    order = [*keys[:5], "depth", "set", "share", "low", "high", "alone", "n", "groups"]
    return scores.reindex(columns=[*order, "present", "untrained", "twins", "more"])
