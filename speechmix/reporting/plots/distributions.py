"""Draw how cue contribution is spread over clips.

In: a tidy table, as in `cue_tables`. Out: for each measure a box and a dot for every clip (group),
trained beside random, at one layer.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ...errors import InputError
from ...evaluation.statistics.grouped_means import decode_labels, grouped_means, select_cells
from ...mixing.maps.measure_registry import measure_label
from .cue_tables import clip_group_means, ordered_values, select_cue_rows
from .figure_style import (
    CUE_LABEL,
    INIT_LABELS,
    LABEL_SIZE,
    LINE_COLORS,
    NARROW_WIDTH,
    TICK_SIZE,
    TITLE_PITCH,
    TITLE_SIZE,
    add_legend,
    model_name,
    new_figure,
    style_curve_axis,
    wrap_text,
    wrap_title,
)

_LABEL_ROOM = 0.7  # inches of the labels beside the panels
_COLORS = {"trained": LINE_COLORS[5], "random": "0.55"}
_MAX_DOTS = 2000
# The fractional parts of its multiples spread dots evenly without chance.
_GOLDEN_RATIO = 0.6180339887


def best_layers(table: pd.DataFrame) -> pd.Series:
    """Find the layer with the largest mean difference trained - random (or the largest mean), by
    model, stack and measure.

    For a figure only: the largest of many layers is large by selection alone.
    """
    return _find_best_layers(clip_group_means(select_cue_rows(table)))


def _find_best_layers(unit_table: pd.DataFrame) -> pd.Series:
    keys = ["model", "stack", "measure", "layer", "init"]
    means = pd.DataFrame(
        grouped_means(unit_table, keys, "contribution")
        .set_index(keys)["contribution"]
        .unstack("init")
    )
    means.columns = decode_labels(means.columns)
    differences = (
        means["trained"] - means["random"]
        if {"trained", "random"} <= set(means)
        else means.iloc[:, 0]
    )
    best_keys = (
        differences.dropna()
        .groupby(level=["model", "stack", "measure"], sort=False, observed=True)
        .idxmax()
    )
    return best_keys.map(lambda key: key[-1])


def clip_distribution(
    table: pd.DataFrame, *, layer: int | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the contributions of single clips (groups) of one model and stack, measures side by
    side.

    Parameters
    ----------
    table : DataFrame
        Columns model, init, clip, stack, layer, measure, contribution (0 to 1); one model and
        stack.
    layer : int, optional
        Counted from 0; by default for each measure the one where trained - random is largest.
    ax : Axes, optional
        By default a new figure.

    Returns
    -------
    Axes

    Raises
    ------
    InputError
        If a column is missing, no row is left, or there are several models or stacks.
    """
    rows = select_cue_rows(table if layer is None else table[table["layer"] == layer])
    mixed_columns = [name for name in ("model", "stack") if rows[name].nunique() > 1]
    if mixed_columns:
        raise InputError(
            f"clip_distribution draws one {mixed_columns[0]}, found "
            f"{', '.join(rows[mixed_columns[0]].unique())}"
        )
    spread = _compute_spread(rows, clip_group_means(rows))
    figure = None
    if ax is None:
        figure = new_figure(0.9 * len(spread.layers) + 2.0, 2.8)
        ax = figure.add_subplot()
    _draw_panel(ax, spread)
    if figure is not None:
        ax.set_title(
            wrap_title(
                f"{model_name(rows['model'].iloc[0])}, {rows['stack'].iloc[0]}",
                figure.get_figwidth() - _LABEL_ROOM,
            ),
            size=TITLE_SIZE,
            y=1,
            parse_math=False,
        )
        add_legend(
            figure, _legend_handles(_init_names(rows)), columns=2, loc="outside lower center"
        )
    return ax


@dataclass(frozen=True)
class ClipSpread:
    """Contributions of single units of one model and stack, at one layer of each measure."""

    layers: Mapping[str, int]
    values: Mapping[tuple[str, str], np.ndarray]  # by (measure, init)
    largest: float  # in any layer


def _compute_spread(rows: pd.DataFrame, means: pd.DataFrame) -> ClipSpread:
    """Compute the panel of one model and stack."""
    best_layers = _find_best_layers(means).droplevel(["model", "stack"])
    layers, values = (
        {measure: best_layers[measure] for measure in ordered_values(rows, "measure")},
        {},
    )
    for measure, layer in layers.items():
        layer_means = means[(means["measure"] == measure) & (means["layer"] == layer)]
        for init in _COLORS:
            values[measure, init] = layer_means.loc[
                layer_means["init"] == init, "contribution"
            ].to_numpy()
    return ClipSpread(layers, values, means["contribution"].max())


def _draw_panel(ax: Axes, spread: ClipSpread) -> None:
    for measure_index, measure in enumerate(spread.layers):
        for offset, init in ((-0.2, "trained"), (0.2, "random")):
            values = spread.values[measure, init]
            if len(values):
                _draw_box_and_dots(ax, measure_index + offset, values, _COLORS[init])
    labels = [
        measure_label(name).replace(" ", "\n") + f"\nlayer {layer}"
        for name, layer in spread.layers.items()
    ]
    ax.set_xticks(range(len(labels)), labels, size=TICK_SIZE, parse_math=False)
    style_curve_axis(ax)
    ax.set_xlim(-0.6, len(labels) - 0.4)
    ax.set_ylim(0, max(ax.get_ylim()[1], 1.05 * spread.largest))  # other panels may share the axis
    ax.set_ylabel(CUE_LABEL, size=LABEL_SIZE)


def distribution_figure(table: pd.DataFrame, *, narrow: bool = False) -> Figure:
    """Draw `clip_distribution` for every model (rows) and stack (columns), on one scale.

    Parameters
    ----------
    table : DataFrame
    narrow : bool
        All panels below each other: as wide as a column of a paper, or a phone.
    """
    rows = select_cue_rows(table)
    return draw_spreads(compute_spreads(rows, clip_group_means(rows)), narrow=narrow)


@dataclass(frozen=True)
class ClipSpreads:
    """Computed panels of `distribution_figure`, by (model, stack)."""

    panels: Mapping[tuple[str, str], ClipSpread | None]
    stacks: Sequence[str]
    measures: Sequence[str]
    inits: Collection[str]
    units: int


def compute_spreads(rows: pd.DataFrame, means: pd.DataFrame) -> ClipSpreads:
    """Compute what `draw_spreads` draws, of `select_cue_rows` rows and their `clip_group_means`."""
    models, stacks, measures = (
        ordered_values(rows, name) for name in ("model", "stack", "measure")
    )
    spreads: dict[tuple[str, str], ClipSpread | None] = {}
    for model, stack in itertools.product(models, stacks):
        panel_rows, part_means = (
            select_cells(table, list(table), (table["model"] == model) & (table["stack"] == stack))
            for table in (rows, means)
        )
        spreads[model, stack] = _compute_spread(panel_rows, part_means) if len(panel_rows) else None
    return ClipSpreads(spreads, stacks, measures, _init_names(rows), rows["unit"].nunique())


def draw_spreads(spreads: ClipSpreads, *, narrow: bool = False) -> Figure:
    """Draw what `compute_spreads` computed; see `distribution_figure`."""
    panel_keys = [
        panel_key
        for panel_key, spread in spreads.panels.items()
        if spread is not None or not narrow
    ]
    n_columns = 1 if narrow else len(spreads.stacks)
    width = (
        NARROW_WIDTH if narrow else max((0.75 * len(spreads.measures) + 0.6) * n_columns + 0.8, 4.2)
    )
    panel_width = (width - _LABEL_ROOM) / n_columns - 0.15
    titles = [
        wrap_title(f"{model_name(model)}, {stack}", panel_width) for model, stack in panel_keys
    ]
    extra_lines = max(title.count("\n") for title in titles)
    panel_height = (2.0 if narrow else 2.5) + TITLE_PITCH * extra_lines
    figure = new_figure(width, panel_height * len(panel_keys) / n_columns + 0.4)
    axes = figure.subplots(len(panel_keys) // n_columns, n_columns, sharey=True, squeeze=False)
    for ax, key, title in zip(axes.flat, panel_keys, titles, strict=True):
        spread = spreads.panels[key]
        if spread is None:
            ax.set_axis_off()
            continue
        _draw_panel(ax, spread)
        ax.set_title(title, size=TITLE_SIZE, y=1, parse_math=False)
        ax.set_ylabel("")
    figure.supylabel(CUE_LABEL, size=LABEL_SIZE)
    dot_note = "dot: a clip (or group of clips)"
    if spreads.units > _MAX_DOTS:
        dot_note += f"; {_MAX_DOTS:,} of them, evenly chosen"
    note = f"{dot_note}; box: middle half and median; layer of the largest trained − untrained"
    add_legend(
        figure,
        _legend_handles(spreads.inits),
        columns=2,
        loc="outside lower center",
        title=wrap_text(note, figure.get_figwidth()),
    )
    return figure


def _init_names(rows: pd.DataFrame) -> set[str]:
    return set(rows["init"].unique())


def _legend_handles(inits: Collection[str]) -> list[Patch]:
    return [
        Patch(color=color, alpha=0.6, label=INIT_LABELS[init])
        for init, color in _COLORS.items()
        if init in inits
    ]


def _draw_box_and_dots(ax: Axes, x: float, values: np.ndarray, color: str) -> None:
    all_values = values = np.sort(values)
    if len(values) > _MAX_DOTS:
        values = values[np.linspace(0, len(values) - 1, _MAX_DOTS).round().astype(int)]
    offsets = (np.arange(1, len(values) + 1) * _GOLDEN_RATIO % 1 - 0.5) * 0.26
    has_few_values = len(values) <= 200
    ax.scatter(
        x + offsets,
        values,
        s=7 if has_few_values else 2,
        color=color,
        alpha=0.6 if has_few_values else 0.25,
        linewidth=0,
        rasterized=True,
    )
    ax.boxplot(
        [all_values],
        positions=[x],
        widths=0.3,
        showfliers=False,
        showcaps=False,
        manage_ticks=False,
        boxprops={"color": color, "linewidth": 1.0},
        whiskerprops={"color": color, "linewidth": 0.8},
        medianprops={"color": "black", "linewidth": 1.4},
    )
