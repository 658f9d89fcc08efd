"""The result of `speechmix.similarity`: a table of pairs, what may be concluded, figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from ...evaluation.statistics.claim_rule import FEWEST_CLAIM_GROUPS, FEWEST_TWINS
from ...evaluation.statistics.intervals import FEWEST_GROUPS, LEVEL
from ...files.json_files import JsonObject

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
