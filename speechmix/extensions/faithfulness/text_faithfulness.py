"""Draw faithfulness on text: blank-out correlations, layers by measures; deletion curves.

In: what `speechmix.blank_out` and `speechmix.deletion_curves` found (`FaithfulnessResults`).
Out: a Figure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ...mixing.maps.measure_registry import measure_label
from ...reporting.plots import map_cells
from ...reporting.plots.figure_style import (
    LABEL_SIZE,
    LAYER_LABEL,
    LINE_COLORS,
    TICK_SIZE,
    TITLE_SIZE,
    add_legend,
    legend_line,
    model_name,
    new_figure,
    style_curve_axis,
)
from ...reporting.plots.map_cells import DIFFERENCE_COLORS
from .leaderboard import MODEL_KEYS
from .results import baseline_values, describe_text_count, layer_measure_grid

if TYPE_CHECKING:
    from .results import FaithfulnessResults

_CELL_WIDTH, _CELL_HEIGHT = 0.36, 0.19  # inches
_BASELINES = ("random", "oracle")


def blank_out_figure(results: FaithfulnessResults, *, perturbation: str | None = None) -> Figure:
    """Draw the rank correlations: layers downwards, measures to the right, a panel for each model;
    zero is white.

    Parameters
    ----------
    results : FaithfulnessResults
        Of `speechmix.blank_out`.
    perturbation : str, optional
        "blank (mask)"; by default the first of each model, the mean over fills.

    Returns
    -------
    Figure
        Rolled-out maps and means over layers stand below the layers; what random order, length and
        position get, under the title.

    Raises
    ------
    InputError
        If nothing was evaluated, or there is no such perturbation.
    """
    tables = [
        table
        for _, table in results.perturbation_table(perturbation).groupby(
            MODEL_KEYS, sort=False, dropna=False
        )
    ]
    grids = [layer_measure_grid(table) for table in tables]
    widths = [max(_CELL_WIDTH * len(grid.columns), 2.1) for grid in grids]
    cells_height = _CELL_HEIGHT * max(len(grid) for grid in grids)
    name_height = 0.06 * max(len(name) for grid in grids for name in grid.columns)
    figure = new_figure(sum(widths) + 0.6 * len(grids) + 1.0, cells_height + name_height + 1.2)
    axes = figure.subplots(1, len(grids), squeeze=False, width_ratios=widths)[0]
    values = [np.ma.masked_invalid(grid.to_numpy(dtype=float)) for grid in grids]
    for ax, grid, array, table in zip(axes, grids, values, tables, strict=True):
        cells = map_cells.draw_cells(ax, array, limits=(-1.0, 1.0), cmap=DIFFERENCE_COLORS)
        map_cells.write_numbers(ax, cells, array, decimals=2)
        ax.set(aspect="auto")
        ax.xaxis.tick_top()
        columns = [measure_label(name) for name in grid.columns]
        ax.set_xticks(
            np.arange(len(columns)) + 0.5, columns, size=TICK_SIZE, rotation=90, parse_math=False
        )
        rows = [name.removeprefix("layer ") for name in grid.index]
        ax.set_yticks(np.arange(len(rows)) + 0.5, rows, size=TICK_SIZE)
        ax.set_title(_panel_title(table), size=TITLE_SIZE, loc="left", parse_math=False)
        ax.spines[:].set_visible(False)
    axes[0].set_ylabel(LAYER_LABEL, size=LABEL_SIZE)
    map_cells.add_color_bar(
        figure, cells, list(axes), values=values, label="Spearman", inches=cells_height
    )
    provenance = results.provenance
    figure.supxlabel(
        "Spearman of the target's row with the drop of its "
        f"{str(provenance['value']).replace('_', ' ')}, each {provenance['units']} "
        "blanked;\nmean over sentences.",
        size=TICK_SIZE,
        x=0.01,
        ha="left",
        parse_math=False,
    )
    return figure


def _panel_title(table: pd.DataFrame) -> str:
    first_row = table.iloc[0]
    twin_text = "" if first_row["init"] == "trained" else ", random"
    values = baseline_values(table)
    baselines = ", ".join(
        f"{name} {values[name]:.2f}" for name in ("random", "length", "position") if name in values
    )
    name = model_name(first_row["model"])
    return f"{name}{twin_text}\n{describe_text_count(table)}\n{baselines}"


def deletion_figure(curves: FaithfulnessResults) -> Figure:
    """Draw mean probability left with the first tokens of each measure's order removed, and with
    only those kept.

    Parameters
    ----------
    curves : FaithfulnessResults
        Of `speechmix.deletion_curves`.

    Returns
    -------
    Figure
        Two panels; random order dotted, and dashed the order of what each token alone costs
        ("oracle"). A good measure is low on the left, high on the right.

    Raises
    ------
    InputError
        If nothing was evaluated.
    """
    means = curves.mean_curves()
    measures = [
        name
        for name in means["measure"].unique()
        if name not in ("length", "position", *_BASELINES)
    ]
    figure = new_figure(6.4, 2.9)
    axes = figure.subplots(1, 2, sharey=True)
    handles = [
        legend_line(color=LINE_COLORS[measure_index % len(LINE_COLORS)], label=measure_label(name))
        for measure_index, name in enumerate(measures)
    ]
    handles += [
        legend_line(color="0.55", linestyle=":", label="random"),
        legend_line(color="0.55", linestyle="--", label="oracle"),
    ]
    for ax, column, condition_text in zip(
        axes, ("removed", "kept"), ("removed", "kept alone"), strict=True
    ):
        for name, curve_line in zip([*measures, *_BASELINES], handles, strict=True):
            _draw_curve(ax, means[means["measure"] == name], column, curve_line)
        ax.set_xlabel(
            f"{curves.provenance['units']}s {condition_text}, most important first (%)",
            size=LABEL_SIZE,
        )
        style_curve_axis(ax)
        ax.set_ylim(0, min(1.0, 1.1 * float(means[["removed", "kept"]].to_numpy().max())))
    axes[0].set_ylabel("probability of the label", size=LABEL_SIZE)
    title = f"{model_name(curves.provenance['model'])}: {len(curves.texts):,} texts"
    axes[0].set_title(title, size=TITLE_SIZE, loc="left", parse_math=False)
    add_legend(figure, handles, columns=4, loc="outside lower center")
    return figure


def _draw_curve(ax: Axes, curve: pd.DataFrame, column: str, style: Line2D) -> None:
    marker = "o" if curve["share"].nunique() < 10 else ""
    ax.plot(
        curve["share"],
        curve[column],
        color=style.get_color(),
        linestyle=style.get_linestyle(),
        linewidth=1.2,
        marker=marker,
        markersize=2.5,
    )
