"""DeletionCurves: what removing tokens in a measure's order left, as points, means and metrics.

In: curves and metrics of each text (`deletion.py`). Out: mean curves, a table of metrics with
intervals over texts, a leaderboard beside the baselines, and all of it as text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from ...errors import InputError
from .leaderboard import ROW, leaderboard, sentence, summary

_GRID = np.arange(
    0, 101, 5
)  # percent of tokens, at which curves of texts of different lengths are averaged
_TEXT_METRICS = ("comprehensiveness", "sufficiency", "deletion", "insertion")
_TEXT_SHARES = (10, 20, 50, 100)


@dataclass(frozen=True, eq=False)
class DeletionCurves:
    """Deletion curves of labelled texts.

    Parameters
    ----------
    values : DataFrame
        One number for each text, order and metric; columns as those of `Trial.values`.
    points : DataFrame
        Every point of every curve: item, group, stack, measure, aggregation, layer, share (percent
        of tokens), count (tokens), removed (probability without them), kept (with them alone).
    texts : DataFrame
        item, group, label (that is asked for), probability (of the whole text), gold
        (``meta["label"]``), right, units.
    left_out : DataFrame
        Columns item, what, reason.
    provenance : dict
        Model and options.
    """

    values: pd.DataFrame
    points: pd.DataFrame
    texts: pd.DataFrame
    left_out: pd.DataFrame
    provenance: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def table(self) -> pd.DataFrame:
        """Metrics, mean over texts with 95 % intervals; columns as those of `Trial.table`."""
        return summary(self.values)

    @property
    def accuracy(self) -> float:
        """Share of the texts with a label of their own that the model gives that label; NaN if none
        has one."""
        right = self.texts["right"].dropna() if len(self.texts) else pd.Series(dtype=float)
        return float(right.astype(bool).mean()) if len(right) else float("nan")

    def leaderboard(self, metric: str = "comprehensiveness") -> pd.DataFrame:
        """Measures by one metric, best first, each against random order, length and position; see
        `leaderboard.leaderboard`."""
        return leaderboard(self.values, judge=self._judge(), metric=metric)

    def sentence(self, metric: str = "comprehensiveness") -> str:
        """Who wins by one metric, and how surely; or that no measure is better than the
        baselines."""
        told = sentence(self.leaderboard(metric), judge=self._judge(), metric=metric)
        return told.replace(" clips in ", " texts in ")

    def mean_curves(self) -> pd.DataFrame:
        """Mean over texts at each bin; of curves one by one at every 5 % of the tokens, between
        points on a straight line.

        Columns stack, measure, aggregation, share, removed, kept.
        """
        self._judge()
        points = self.points
        if self.provenance.get("bins") is None:
            keys = ["item", *ROW]
            points = pd.concat(
                [_at_grid(part, keys) for _, part in points.groupby(keys, sort=False)]
            )
        return points.groupby([*ROW, "share"], sort=False)[["removed", "kept"]].mean().reset_index()

    def text(self) -> str:
        """What the model makes of the texts; then for each measure the probability left, and the
        metrics."""
        means = self.mean_curves()
        shown = [
            share
            for share in means["share"].unique()
            if self.provenance.get("bins") or share in _TEXT_SHARES
        ]
        left = means[means["share"].isin(shown) & (means["share"] > 0)]
        left = left.pivot_table(index=ROW, columns="share", values="removed", sort=False)
        left.columns = [f"left {share:g} %" for share in left.columns]
        metrics = self.table.pivot_table(index=ROW, columns="metric", values="value", sort=False)
        both = left.join(metrics[list(_TEXT_METRICS)]).reset_index().drop(columns="stack")
        return f"{self._told()}\n{both.to_string(index=False, float_format='{:.2f}'.format)}"

    def _told(self) -> str:
        count, mean = len(self.texts), self.texts["probability"].mean()
        right = (
            ""
            if np.isnan(self.accuracy)
            else f" {100 * self.accuracy:.0f} % of the labels are right."
        )
        texts = f"{count} text{'' if count == 1 else 's'}"
        return (
            f"{self.provenance.get('model')}: {texts}, {self._judge()}; probability of the label "
            "with all "
            f"{self.provenance.get('units')}s {mean:.2f}.{right}"
        )

    def _judge(self) -> str:
        if self.values.empty:
            reasons = "; ".join(self.left_out["reason"].head(3))
            raise InputError(f"no text could be judged: {reasons or 'there were none'}")
        return str(self.values["judge"].iloc[0])

    def __repr__(self) -> str:
        return f"DeletionCurves({self.provenance.get('model')}: {len(self.texts)} texts)"


def _at_grid(part: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """One text's curve at the grid's shares."""
    at = {name: np.interp(_GRID, part["share"], part[name]) for name in ("removed", "kept")}
    return pd.DataFrame({**{key: part[key].iloc[0] for key in keys}, "share": _GRID, **at})
