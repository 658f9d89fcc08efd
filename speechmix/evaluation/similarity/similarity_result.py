"""The result of `speechmix.similarity`: a table of pairs, what may be concluded, figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from ...files.json_files import JsonObject
from ..statistics.intervals import FEWEST_GROUPS
from ..statistics.twin_rank_test import FALSE_CLAIM_RATE, TWINS_NEEDED

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
        clips); units, groups; shuffled (mean value of shuffled units), p_shuffled (that units are
        unrelated); twins, random (mean of the twins), twin_low, twin_high, difference with
        difference_low, difference_high (95 % over groups and twins), p (rank among the twins), claim
        ("more", "less" or ""). p, p_shuffled and claim are corrected over all rows. Of a model and
        itself each pair of layers is there once.
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
        from ...reporting.plots.similarity_figure import similarity_panel

        return similarity_panel(self, feature=feature, ax=ax)

    def show(self) -> Figure:
        """Draw a panel for each stack and model; see `plots.similarity_figure`."""
        from ...reporting.plots.similarity_figure import similarity_figure

        return similarity_figure(self)


def _describe_related(rows: pd.DataFrame) -> str:
    if rows["groups"].iloc[0] < FEWEST_GROUPS:
        return f"fewer than {FEWEST_GROUPS} groups of clips allow no conclusion."
    is_related = (rows["p_shuffled"] <= FALSE_CLAIM_RATE + 1e-9) & (rows["low"] > 0)
    if rows["p_shuffled"].isna().all():
        return "no units were shuffled."
    return (
        f"{is_related.sum()} of {len(rows)} similarities are above those of shuffled units "
        "(corrected over all)."
    )


def _describe_training(rows: pd.DataFrame) -> str:
    if rows["groups"].iloc[0] < FEWEST_GROUPS:
        return ""
    twins = int(rows["twins"].max())
    if twins < TWINS_NEEDED:
        return f"A conclusion about training needs {TWINS_NEEDED} untrained twins, found {twins}."
    counts = [f"{(rows['claim'] == claim).sum()} are {claim} similar" for claim in ("more", "less")]
    return f"{' and '.join(counts)} than in untrained twins; the others are inconclusive."
