"""Draw cue contribution as numbers in cells, layers downwards: measures to the right, or the
difference of two conditions.

In: a tidy table, as in `cue_tables`. The heat maps have the look of Figures 1 and 2 of Mohebbi et
al. 2023 (Homophone Disambiguation Reveals Patterns of Context Mixing in Speech Transformers,
EMNLP). Differences are in percentage points, with a scale that is centred at zero.

Compute the numbers of a heat map: mean contributions, or differences of two conditions.

In: rows of `select_cue_rows` and their `clip_group_means`. Out: `CellPanels`, which
`cue_heat_maps` draws.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure

from ...errors import InputError
from ...evaluation.statistics.grouped_means import decode_labels
from ...mixing.maps.measure_registry import measure_label
from . import map_cells
from .cue_tables import (
    AS_PUBLISHED_ROWS,
    DECIDING,
    PUBLISHED_SUFFIX,
    clip_count_text,
    clip_group_means,
    matching_published_contributions,
    ordered_values,
    select_cue_rows,
    target_rows_title,
)
from .figure_style import (
    CUE_LABEL,
    INIT_LABELS,
    LABEL_SIZE,
    LAYER_LABEL,
    TICK_SIZE,
    TITLE_PITCH,
    TITLE_SIZE,
    model_name,
    new_figure,
    wrap_text,
    wrap_title,
)

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


_MIN_PANEL_WIDTH = 0.78  # inches: "untrained" above it
_TITLE_ROOM = 0.75  # of a line of tick labels: letters of titles are larger


def measure_heat_map(
    table: pd.DataFrame, *, ax: Axes | None = None, measures: Sequence[str] | None = None
) -> Axes:
    """Draw mean cue contribution of one model, init and stack: layers downwards, measures to the
    right.

    Parameters
    ----------
    table : DataFrame
        Columns model, init, clip, stack, layer, measure, contribution (0 to 1); one model, init and
        stack.
    ax : Axes, optional
        By default a new figure.
    measures : sequence of str, optional

    Returns
    -------
    Axes

    Raises
    ------
    InputError
        If a column is missing, no row is left, or there are several models, inits or stacks.
    """
    rows = select_cue_rows(table, measures=measures)
    mixed_columns = [name for name in ("model", "init", "stack") if rows[name].nunique() > 1]
    if mixed_columns:
        raise InputError(
            f"measure_heat_map draws one {mixed_columns[0]}, found {', '.join(rows[mixed_columns[0]].unique())}"
        )
    measures = ordered_values(rows, "measure", measures)
    layers, values = mean_grid(clip_group_means(rows), measures)
    height = 0.19 * len(layers) + 0.1
    if ax is None:
        ax = new_figure(max(0.55 * len(measures) + 1.6, 2.8), height + 0.9).add_subplot()
    cells = _draw_numbered_cells(
        ax, values, layers, measures, limits=(0.0, float(values.max()) or 1.0)
    )
    ax.set_title(
        f"{rows['stack'].iloc[0]}, {INIT_LABELS[rows['init'].iloc[0]]} ({clip_count_text(rows)})",
        size=TITLE_SIZE,
        y=1,
        parse_math=False,
    )
    ax.set_ylabel(LAYER_LABEL, size=LABEL_SIZE)
    map_cells.add_color_bar(
        ax.figure, cells, ax, values=[values], label=CUE_LABEL, inches=max(height, 1.0)
    )
    return ax


def cue_heat_map(
    table: pd.DataFrame,
    *,
    published: bool = False,
    target_rows: str | None = None,
    narrow: bool = False,
) -> Figure:
    """Draw mean cue contribution of all models and stacks, the random twin beside the trained
    model.

    Parameters
    ----------
    table : DataFrame
        As for `measure_heat_map`. Each model has a row of panels of its own.
    published : bool
        Add the published maps of XLSR-53 and Whisper-medium, with the same stacks and measures, on
        the same scale. Their numbers were read off pictures, which the title says.
    target_rows : {"target", "deciding"}, optional
        Of decoder and cross maps, where the table has both: the mean over all tokens of the target,
        as published, or the one that decides between target and foil. By default the first where
        published maps are added, else the second. The title says which.
    narrow : bool
        Stacks below each other, without a colour bar: as wide as a column of a paper, or a phone.

    Returns
    -------
    Figure

    Raises
    ------
    InputError
        If a column is missing or no row is left.
    """
    rows = select_cue_rows(
        table, target_rows=target_rows or (AS_PUBLISHED_ROWS if published else DECIDING)
    )
    if published:
        curves = matching_published_contributions(rows)
        combined = pd.concat(
            [rows.drop(columns="unit"), curves.assign(group=curves["clip"])], ignore_index=True
        )
        rows = select_cue_rows(combined, target_rows=target_rows or AS_PUBLISHED_ROWS)
    return draw_cell_panels(compute_mean_cells(rows, clip_group_means(rows)), narrow=narrow)


def cue_difference_map(
    table: pd.DataFrame,
    *,
    column: str = "init",
    first: str = "trained",
    second: str = "random",
    narrow: bool = False,
) -> Figure:
    """Draw the difference of two conditions, first - second: trained - random, model A - model B,
    plural - singular.

    Parameters
    ----------
    table : DataFrame
        As for `measure_heat_map`.
    column, first, second : str
        Which column tells the conditions apart ("init", "model", "number", "template", ...), and
        its two values.
    narrow : bool
        As in `cue_heat_map`.

    Returns
    -------
    Figure

    Raises
    ------
    InputError
        If a column is missing, or one of the conditions is not in it.
    """
    rows = select_cue_rows(table)
    if column not in rows or not {first, second} <= set(map(str, rows[column].unique())):
        values = ", ".join(map(str, rows[column].unique())) if column in rows else "no such column"
        raise InputError(
            f"expected {first!r} and {second!r} in the column {column!r}, found {values}"
        )
    means = clip_group_means(rows, by=[column] if column not in ("init", "model") else [])
    return draw_cell_panels(
        compute_difference_cells(rows, means, column=column, first=first, second=second),
        narrow=narrow,
    )


def draw_cell_panels(cell_panels: CellPanels, *, narrow: bool = False) -> Figure:
    """Draw a row of panels for each model (if narrow, and stack), columns for stacks and inits, on
    one scale."""
    grids, inits_by_stack, measures = (
        cell_panels.grids,
        cell_panels.inits_by_stack,
        cell_panels.measures,
    )
    lines = cell_panels.lines(narrow=narrow)
    columns = max((line for _, line in lines), key=len)
    layer_counts = [
        max(
            len(grids[model, *side][0])
            for side in line
            if side is not None and (model, *side) in grids
        )
        for model, line in lines
    ]
    panel_width = max(0.5 * len(measures) + 0.1, _MIN_PANEL_WIDTH)
    column_widths = [0.05 if side is None else panel_width for side in columns]
    titles = [
        wrap_title(_panel_title(side), panel_width)
        for side in {side for _, line in lines for side in line if side is not None}
    ]
    extra_height = TITLE_PITCH * max(title.count("\n") for title in titles)
    line_heights = [
        max(0.19 * n + 0.1, 0.07 * len(model_name(m)))
        for n, (m, _) in zip(layer_counts, lines, strict=True)
    ]
    figure = new_figure(
        max(sum(column_widths) + (0.9 if narrow else 0.3 * len(inits_by_stack) + 1.5), 3.2),
        max(
            sum(line_heights)
            + ((0.6 + extra_height) * len(lines) if narrow else 0.45 * len(lines) + extra_height)
            + 0.75,
            2.0,
        ),
    )
    axes = figure.subplots(
        len(lines),
        len(columns),
        squeeze=False,
        height_ratios=line_heights,
        width_ratios=column_widths,
    )
    titled_panels: set[tuple[str, str]] = set()
    for row, (model, line) in zip(axes, lines, strict=True):
        for column_index, (ax, side) in enumerate(itertools.zip_longest(row, line)):
            if side is None or (model, *side) not in grids:
                ax.set_axis_off()
                continue
            layers, values = grids[model, *side]
            decimals = (
                0 if str(model).endswith(PUBLISHED_SUFFIX) else 1
            )  # read off a figure: whole numbers
            cells = _draw_numbered_cells(
                ax,
                values,
                layers,
                measures,
                limits=cell_panels.limits,
                cmap=cell_panels.cmap,
                decimals=decimals,
            )
            if (
                narrow or side not in titled_panels
            ):  # the topmost panel of a column: a model may lack the stack
                titled_panels.add(side)
                ax.set_title(
                    wrap_title(_panel_title(side), panel_width),
                    size=TITLE_SIZE,
                    y=1,
                    parse_math=False,
                )
            ax.tick_params(labelleft=column_index == 0 or line[column_index - 1] is None)
        first_axes = next(ax for ax in row if ax.axison)
        first_axes.set_ylabel(model_name(model), size=LABEL_SIZE, parse_math=False)
    figure.supylabel(LAYER_LABEL, size=LABEL_SIZE)
    title_lines = [
        wrap_text(line, _TITLE_ROOM * figure.get_figwidth())
        for line in cell_panels.title.split("\n")
    ]
    figure.suptitle("\n".join(title_lines), size=TITLE_SIZE, parse_math=False)
    if not narrow:
        arrays = [array for _, array in grids.values()]
        map_cells.add_color_bar(
            figure, cells, axes, values=arrays, label=cell_panels.label, inches=sum(line_heights)
        )
    return figure


def _panel_title(side: Sequence[str]) -> str:
    """Stack and init of a panel."""
    return ", ".join(INIT_LABELS.get(part, part) for part in side if part != "difference")


def _draw_numbered_cells(
    ax: Axes,
    values: np.ma.MaskedArray,
    layers: Sequence[int],
    measures: Sequence[str],
    *,
    limits: tuple[float, float],
    cmap: str = map_cells.SHARE_COLORS,
    decimals: int = 1,
) -> ScalarMappable:
    """Draw cells with their numbers."""
    cells = map_cells.draw_cells(ax, values, limits=limits, cmap=cmap)
    ax.set_aspect("auto")
    map_cells.write_numbers(ax, cells, values, decimals=decimals)
    labels = [measure_label(measure).replace(" ", "\n") for measure in measures]
    ax.set_xticks(np.arange(len(measures)) + 0.5, labels, size=TICK_SIZE, parse_math=False)
    ax.set_yticks(np.arange(len(layers)) + 0.5, list(map(str, layers)), size=TICK_SIZE)
    return cells
