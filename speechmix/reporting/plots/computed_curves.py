"""Compute curves of cue contribution over layers, to be drawn in any width.

In: rows of a tidy table, `select_cue_rows` (see `cue_tables`). Out: of a panel its curves with their bands
(`PanelCurves`), and all panels of a figure (`CueCurves`); nothing here draws.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from ...evaluation.statistics.grouped_means import distinct_keys, select_cells
from .cue_tables import (
    PUBLISHED_CLIP,
    clip_count_text,
    clip_group_means,
    curve_table,
    matching_published_contributions,
    select_cue_rows,
    target_rows_title,
)
from .figure_style import LINE_COLORS

_MAX_SINGLE_UNITS = 10
_STRENGTH_COLUMN = "mixing_strength"  # column of a run's table of contributions
_STRENGTH_KEYS = ("model", "init", "stack", "measure", "layer", "depth", "unit", "clip")


@dataclass(frozen=True)
class PanelCurves:
    """Curves of one stack and measure: for each (model, init) its curve (`curve_table`), and its
    units if they are few.

    `strengths` has the mixing strengths of trained models by layer (`layer_strengths`), where they
    are known.
    """

    lines: Mapping[tuple[str, str], tuple[pd.DataFrame, pd.DataFrame | None]]
    clip_count_text: str
    strengths: Mapping[str, pd.DataFrame] = field(default_factory=dict)


def compute_panel_curves(
    rows: pd.DataFrame,
    *,
    band: str = "interval",
    value: str = "contribution",
    means: pd.DataFrame | None = None,
) -> PanelCurves:
    """Compute what `draw_curve_panel` draws.

    The rows come from `select_cue_rows`, of one stack and measure; `means` are their
    `clip_group_means`, if they are at hand. `band` and `value` are those of `layer_curves`.
    """
    means = clip_group_means(rows, value=value) if means is None else means
    curves, lines = curve_table(rows, band=band, value=value, means=means), {}
    for model, init in (
        curves[["model", "init"]].drop_duplicates().itertuples(index=False, name=None)
    ):
        curve = curves[(curves["model"] == model) & (curves["init"] == init)]
        if "low" in rows:
            published_rows = rows[(rows["model"] == model) & (rows["init"] == init)]
            if published_rows.low.notna().any():
                # published ranges
                curve = curve.assign(
                    low=100 * published_rows.low.to_numpy(),
                    high=100 * published_rows.high.to_numpy(),
                )
        single_units = None
        if 1 < curve["units"].iloc[0] <= _MAX_SINGLE_UNITS:
            units = means[(means["model"] == model) & (means["init"] == init)]
            single_units = units.assign(value=units[value])[["layer", "depth", "unit", "value"]]
        lines[model, init] = curve, single_units
    return PanelCurves(lines, clip_count_text(rows), layer_strengths(rows))


def layer_strengths(rows: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Compute the mean mixing strength of each layer of each trained model.

    The rows come from `select_cue_rows`, of one stack and measure; the tables have the columns
    layer, depth, strength.
    """
    if _STRENGTH_COLUMN not in rows or rows[_STRENGTH_COLUMN].isna().all():
        return {}
    is_known = rows[_STRENGTH_COLUMN].notna() & (rows["init"] == "trained")
    columns = [name for name in (*_STRENGTH_KEYS, _STRENGTH_COLUMN) if name in rows]
    known_rows = select_cells(rows, columns, is_known)
    if known_rows.empty:
        return {}
    means = clip_group_means(known_rows, value=_STRENGTH_COLUMN, scale=1)
    by_layer = means.groupby(["model", "layer", "depth"], sort=False, observed=True)[
        _STRENGTH_COLUMN
    ].mean()
    table = by_layer.rename("strength").reset_index().sort_values("layer", kind="stable")
    return {
        str(model): model_rows[["layer", "depth", "strength"]]
        for model, model_rows in table.groupby("model", sort=False, observed=True)
    }


@dataclass(frozen=True)
class CueCurves:
    """Computed panels of `cue_figure`, by (value of the rows, stack)."""

    panels: Mapping[tuple[str, str], PanelCurves | None]
    stacks: Sequence[str]
    values: Sequence[str]
    lines: Sequence[tuple[str, str]]  # (model, init) of the legend
    colors: Mapping[str, str]
    single_layer: bool
    title: str

    @property
    def has_strips(self) -> bool:
        """Whether mixing strengths are drawn below the curves."""
        return any(panel is not None and panel.strengths for panel in self.panels.values())


def cue_curves(
    table: pd.DataFrame,
    *,
    stacks: Sequence[str],
    values: Sequence[str],
    rows: str = "measure",
    band: str = "interval",
    published: bool = False,
    means: pd.DataFrame | None = None,
) -> CueCurves:
    """Compute what `draw_cue_figure` draws, once for figures of any width.

    Parameters
    ----------
    table : DataFrame
        `select_cue_rows`.
    stacks, values : sequence of str
        Panels to the right, and of the column `rows` downwards.
    rows, band, published
        See `cue_figure`.
    means : DataFrame, optional
        `clip_group_means` of the rows, if they are at hand; taken where `rows` is "measure" and nothing
        published is beside.
    """
    table = _add_published_curves(table, rows) if published else table
    panels_by_place: dict[tuple[str, str], PanelCurves | None] = {}
    for name, stack in itertools.product(values, stacks):
        panel = _filter_rows(table, stack=stack, **{rows: name})
        if published and len(panel):
            # The target's rows are chosen by now; the published curves go into their places.
            panel = select_cue_rows(panel.drop(columns="rows", errors="ignore"))
        panel_means = means if rows == "measure" and not published else None
        panel_means = (
            None if panel_means is None else _filter_rows(panel_means, stack=stack, measure=name)
        )
        panels_by_place[name, stack] = (
            compute_panel_curves(panel, band=band, means=panel_means) if len(panel) else None
        )
    return CueCurves(
        panels_by_place,
        stacks,
        values,
        list(distinct_keys(table, ["model", "init"]).itertuples(index=False, name=None)),
        model_colors(table),
        table["layer"].nunique() == 1,
        target_rows_title(table),
    )


def _filter_rows(table: pd.DataFrame, **cells: str) -> pd.DataFrame:
    """Select the rows with these values."""
    has_values = np.logical_and.reduce(
        [table[name].eq(cell).to_numpy(dtype=bool) for name, cell in cells.items()]
    )
    return table if has_values.all() else table.take(np.flatnonzero(has_values))


def _add_published_curves(table: pd.DataFrame, rows: str) -> pd.DataFrame:
    """Add published curves of the same stacks and measures to every row of panels."""
    curves = matching_published_contributions(table)
    if rows != "measure":
        curves = pd.concat([curves.assign(**{rows: name}) for name in table[rows].unique()])
    return pd.concat(
        [table, curves.assign(unit=PUBLISHED_CLIP, group=PUBLISHED_CLIP)], ignore_index=True
    )


def model_colors(table: pd.DataFrame) -> dict[str, str]:
    """Assign a colour to each model."""
    return {
        model: LINE_COLORS[i % len(LINE_COLORS)] for i, model in enumerate(table["model"].unique())
    }
