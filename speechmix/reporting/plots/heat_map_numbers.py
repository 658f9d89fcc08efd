"""Compute the numbers of a heat map: mean contributions, or differences of two conditions.

In: rows of `select_cue_rows` and their `clip_group_means`. Out: `CellPanels`, which
`cue_heat_maps` draws.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ...errors import InputError
from ...evaluation.statistics.grouped_means import decode_labels
from . import map_cells
from .cue_tables import clip_count_text, ordered_values, target_rows_title
from .figure_style import CUE_LABEL, INIT_LABELS, model_name

Grid = tuple[list[int], np.ma.MaskedArray]  # layers, values [layers, measures]
PanelKey = tuple[str, str, str]  # model, stack, init
_Cell = tuple[str, str, int, str]  # model, stack, layer, measure


@dataclass(frozen=True)
class CellPanels:
    """Computed panels of a heat map: numbers by (model, stack, init), with limits and labels."""

    grids: Mapping[PanelKey, Grid]
    inits_by_stack: Mapping[str, Sequence[str]]  # inits by stack
    measures: Sequence[str]
    limits: tuple[float, float]
    title: str
    label: str = CUE_LABEL
    cmap: str = map_cells.SHARE_COLORS

    def lines(self, *, narrow: bool) -> list[tuple[str, list[tuple[str, str] | None]]]:
        """List the model and panels (stack, init) of each line; None is a gap between stacks."""
        models = list(dict.fromkeys(model for model, *_ in self.grids))
        stacks = [[(stack, init) for init in inits] for stack, inits in self.inits_by_stack.items()]
        if narrow:
            return [
                (model, list(line))
                for model in models
                for line in stacks
                if any((model, *panel) in self.grids for panel in line)
            ]
        columns = [panel for line in stacks for panel in (None, *line)][1:]
        return [(model, columns) for model in models]


def compute_mean_cells(rows: pd.DataFrame, means: pd.DataFrame) -> CellPanels:
    """Compute what `cue_heat_map` draws, of `select_cue_rows` rows and their `clip_group_means`."""
    measures = ordered_values(rows, "measure")
    grids: dict[PanelKey, Grid] = {}
    for key, cell_means in means.groupby(["model", "stack", "init"], sort=False, observed=True):
        model, stack, init = map(str, key)
        grids[model, stack, init] = mean_grid(cell_means, measures)
    inits_by_stack = {
        stack: _ordered_inits(rows.loc[rows["stack"] == stack, "init"])
        for stack in ordered_values(rows, "stack")
    }
    limits = (
        0.0,
        max(float(np.ma.filled(values, 0.0).max()) for _, values in grids.values()) or 1.0,
    )
    title = "\n".join(
        filter(
            None, [f"cue contribution, mean over {clip_count_text(rows)}", target_rows_title(rows)]
        )
    )
    return CellPanels(grids, inits_by_stack, measures, limits, title)


def compute_difference_cells(
    rows: pd.DataFrame,
    means: pd.DataFrame,
    *,
    column: str = "init",
    first: str = "trained",
    second: str = "random",
) -> CellPanels:
    """Compute what `cue_difference_map` draws, of `select_cue_rows` rows and their `clip_group_means`, parted by
    the column."""
    measures = ordered_values(rows, "measure")
    grids: dict[PanelKey, Grid] = {}
    keys = [name for name in ("model", "stack", "init") if name != column]
    for key, cell_means in means.groupby(keys, sort=False, observed=True):
        minuend, subtrahend = (
            _pivot_by_layer(cell_means[_matches_name(cell_means[column], name)], measures)
            for name in (first, second)
        )
        difference = minuend - subtrahend.reindex(minuend.index)
        if difference.notna().any(axis=None):
            labels = dict(zip(keys, map(str, key), strict=True))
            panel_key = (
                labels.get("model", f"{first} - {second}"),
                labels["stack"],
                labels.get("init", "difference"),
            )
            grids[panel_key] = (
                [int(layer) for layer in difference.index],
                np.ma.masked_invalid(difference.to_numpy(dtype=float)),
            )
    if not grids:
        raise InputError(f"{first!r} and {second!r} have no layer of a stack and measure in common")
    inits_by_stack: dict[str, list[str]] = {}
    for _, stack, init in grids:
        inits_by_stack.setdefault(stack, [])
        inits_by_stack[stack] += [init] if init not in inits_by_stack[stack] else []
    condition_names = [INIT_LABELS.get(name, model_name(name)) for name in (first, second)]
    return CellPanels(
        grids,
        inits_by_stack,
        measures,
        map_cells.limits_around_zero([values for _, values in grids.values()]),
        f"cue contribution, {condition_names[0]} − {condition_names[1]} ({clip_count_text(rows)})",
        label="difference (percentage points)",
        cmap=map_cells.DIFFERENCE_COLORS,
    )


def _ordered_inits(column: pd.Series) -> list[str]:
    return sorted(column.unique(), key=lambda init: (init != "trained", init))


def _matches_name(column: pd.Series, name: str) -> pd.Series:
    """Tell which values of a column have this name, where values may be numbers."""
    return column.isin([value for value in column.unique() if str(value) == name])


def _pivot_by_layer(cell_means: pd.DataFrame, measures: Sequence[str]) -> pd.DataFrame:
    pivot = cell_means.pivot_table(
        index="layer", columns="measure", values="contribution", aggfunc="mean", observed=True
    )
    pivot.columns = decode_labels(pivot.columns)
    return pivot.sort_index().reindex(columns=list(measures))


def mean_grid(cell_means: pd.DataFrame, measures: Sequence[str]) -> Grid:
    """Return the layers, and the mean over units as [layers, measures]."""
    pivot = _pivot_by_layer(cell_means, measures)
    return [int(layer) for layer in pivot.index], np.ma.masked_invalid(pivot.to_numpy(dtype=float))
