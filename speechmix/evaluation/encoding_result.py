"""Shares of variance that sets of features explain, and what may be concluded from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

import numpy as np
import pandas as pd

from ..files.text_files import write_csv
from .probing.conclusions import describe_layers
from .statistics.intervals import mean_interval
from .statistics.random_twin_comparison import compare_with_twins
from .statistics.twin_rank_test import FALSE_CLAIM_RATE, TWINS_NEEDED

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

    def write(self, folder: str | PathLike[str]) -> Path:
        """Write ``encoding.csv`` and, by group, ``encoding_groups.csv`` into a folder."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_csv(self.by_group, folder / "encoding_groups.csv")
        write_csv(self.scores, folder / "encoding.csv")
        return folder / "encoding.csv"

    def describe(self) -> list[str]:
        """Return one sentence for each trained model, stack and set with a share of its own; nothing
        is said of others."""
        trained = self.scores[(self.scores["init"] == "trained") & (self.scores["set"] != "all")]
        sentences = []
        for (model, stack, name), rows in trained.groupby(["model", "stack", "set"], sort=False):
            rows = rows.sort_values("layer")
            if not rows["present"].any():
                continue
            best = rows[rows["present"]].sort_values("share", kind="stable").iloc[-1]
            text = (
                f"{model}: {name} explains a part of the states of the {stack} that no other set explains, "
                f"{describe_layers(rows, 'present')}: at most {100 * best['share']:.1f} % of their variance "
                f"(confidence interval {100 * best['low']:.1f} to {100 * best['high']:.1f} %)."
            )
            sentences.append(f"{text} {_describe_twins(rows)}")
        return sentences

    def __repr__(self) -> str:
        sets = ", ".join(self.scores["set"].unique()[1:])
        models = self.scores[["model", "init", "seed"]].drop_duplicates().shape[0]
        return f"Encoding({sets}: {models} models, {self.scores['n'].max()} units)"


def _describe_twins(rows: pd.DataFrame) -> str:
    twins = rows["twins"].max()
    if not twins >= TWINS_NEEDED:
        return (
            f"It is not known whether training added this: the comparison needs {TWINS_NEEDED} untrained "
            f"twins, and there are {0 if np.isnan(twins) else twins:.0f}."
        )
    both = rows.assign(both=rows["present"] & rows["more"])
    if not both["both"].any():
        return "It is inconclusive whether this is more than in untrained models."
    return f"This is more than in untrained models {describe_layers(both, 'both')}."


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
