"""Cue contribution of many clips: lines over layers with their spread, and the published heat maps.

In: a tidy pandas table, one row per model, init ("trained" or "random"), seed, clip, stack, layer and measure, with the
cue's contribution between 0 and 1. Out: Figures. Seeds of a random twin are averaged for each clip first, then clips.
The heat maps have the look of Figures 1 and 2 of Mohebbi et al. 2023 (Homophone Disambiguation Reveals Patterns of
Context Mixing in Speech Transformers, EMNLP).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..errors import InputError
from . import panels
from .panels import LABEL_SIZE, LAYER_LABEL, LINE_COLORS, TICK_SIZE, TITLE_SIZE

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("model", "init", "clip", "stack", "layer", "measure", "contribution")

_MOST_SINGLE_CLIPS = 10
_DASHES = {"trained": "-", "random": "--"}


def cue_figure(
    table: pd.DataFrame, *, stacks: Sequence[str] | None = None, measures: Sequence[str] | None = None
) -> Figure:
    """Draw cue contribution over layers: a panel for each stack and measure, a line for each model and init.

    Lines are means over clips, bands the middle half of the clips; up to 10 clips are drawn one by one as well. Trained
    models are solid, random twins dashed.

    Parameters
    ----------
    table : DataFrame
        Columns model, init, clip, stack, layer, measure, contribution (0 to 1); seed and others are averaged over.
    stacks, measures : sequence of str, optional
        Which panels, in this order; all of the table by default.

    Returns
    -------
    Figure

    Raises
    ------
    InputError
        If a column is missing or no row is left.
    """
    means = _clip_means(table, stacks, measures)
    stacks = _order(means, "stack", stacks)
    measures = _order(means, "measure", measures)
    lines = list(means[["model", "init"]].drop_duplicates().itertuples(index=False, name=None))
    models = list(dict.fromkeys(model for model, _ in lines))
    color = {model: LINE_COLORS[i % len(LINE_COLORS)] for i, model in enumerate(models)}
    figure = panels.new_figure(max(3.0 * len(stacks) + 0.5, 4.2), 2.1 * len(measures) + 0.45 + 0.16 * len(lines) / 2)
    axes = figure.subplots(len(measures), len(stacks), sharey=True, squeeze=False)
    for row, measure in zip(axes, measures, strict=True):
        for ax, stack in zip(row, stacks, strict=True):
            panel = means[(means["stack"] == stack) & (means["measure"] == measure)]
            for model, init in lines:
                mine = panel[(panel["model"] == model) & (panel["init"] == init)]
                _draw_line(ax, mine, color[model], init)
            panels.style_layer_axis(ax)
            ax.set_title(f"{panels.spoken(measure)}, {stack} ({_counted(panel)})", size=TITLE_SIZE, parse_math=False)
    axes[0, 0].set_ylim(bottom=0)
    for ax in axes[-1]:
        ax.set_xlabel(LAYER_LABEL, size=LABEL_SIZE)
    figure.supylabel("cue contribution (%)", size=LABEL_SIZE)
    handles = [
        Line2D([], [], color=color[model], linewidth=1.3, label=f"{panels.model_name(model)}, {init}",
               **_style(color[model], init, single=means["layer"].nunique() == 1))
        for model, init in lines
    ]  # fmt: skip
    panels.add_legend(figure, handles, columns=2, loc="outside lower center")
    return figure


def cue_heat_map(table: pd.DataFrame) -> Figure:
    """Draw mean cue contribution, layers downwards and measures to the right, the random twin beside the trained model.

    Parameters
    ----------
    table : DataFrame
        As for `cue_figure`. Each model has a row of panels of its own.

    Returns
    -------
    Figure

    Raises
    ------
    InputError
        If a column is missing or no row is left.
    """
    means = _clip_means(table, None, None)
    stacks, measures = _order(means, "stack", None), _order(means, "measure", None)
    models = list(means["model"].unique())
    grids = {
        (model, stack, init): _grid(part, measures)
        for (model, stack, init), part in means.groupby(["model", "stack", "init"], sort=False)
    }
    # A gap (None) parts one stack from the next.
    sides = [side for stack in stacks for side in (None, *_sides(means, stack))][1:]
    depth = [max(len(grid[0]) for key, grid in grids.items() if key[0] == model) for model in models]
    widths = [0.05 if side is None else 0.5 * len(measures) + 0.1 for side in sides]
    heights = [max(0.19 * n + 0.1, 0.07 * len(panels.model_name(m))) for n, m in zip(depth, models, strict=True)]
    figure = panels.new_figure(
        max(sum(widths) + 0.3 * len(stacks) + 1.5, 3.2), max(sum(heights) + 0.45 * len(models) + 0.75, 2.0)
    )
    axes = figure.subplots(len(models), len(sides), squeeze=False, height_ratios=heights, width_ratios=widths)
    values = [grid[1] for grid in grids.values()]
    limits = (0.0, max(float(np.ma.filled(array, 0.0).max()) for array in values) or 1.0)
    titled: set[tuple[str, str]] = set()
    for row, model in zip(axes, models, strict=True):
        for column, (ax, side) in enumerate(zip(row, sides, strict=True)):
            if side is None or (model, *side) not in grids:
                ax.set_axis_off()
                continue
            stack, init = side
            layers, array = grids[model, stack, init]
            cells = _draw_numbers(ax, array, layers, measures, limits)
            if side not in titled:  # the topmost panel of a column: a model may lack the stack
                titled.add(side)
                ax.set_title(f"{stack}, {init}", size=TITLE_SIZE, parse_math=False)
            ax.tick_params(labelleft=column == 0 or sides[column - 1] is None)
        drawn = next(ax for ax in row if ax.axison)
        drawn.set_ylabel(panels.model_name(model), size=LABEL_SIZE, parse_math=False)
    figure.supylabel(LAYER_LABEL, size=LABEL_SIZE)
    figure.suptitle(f"cue contribution, mean over {_counted(means)}", size=TITLE_SIZE)
    panels.add_color_bar(figure, cells, axes, values=values, label="cue contribution (%)", inches=sum(heights))
    return figure


def _clip_means(table: pd.DataFrame, stacks, measures) -> pd.DataFrame:
    """One row per model, init, clip, stack, layer and measure: the mean over seeds, in percent."""
    missing = [column for column in COLUMNS if column not in table.columns]
    if missing:
        raise InputError(f"expected a table with the columns {', '.join(COLUMNS)}; {', '.join(missing)} not found")
    kept = table[np.isfinite(table["contribution"].to_numpy(dtype=float))]
    for column, wanted in (("stack", stacks), ("measure", measures)):
        if wanted is not None:
            kept = kept[kept[column].isin(list(wanted))]
    if kept.empty:
        raise InputError(
            f"no contribution left to draw: of {len(table)} rows, with the stacks {list(table['stack'].unique())} and "
            f"measures {list(table['measure'].unique())}, none was chosen and finite"
        )
    means = kept.groupby(list(COLUMNS[:-1]), sort=False)["contribution"].mean().mul(100).reset_index()
    # Trained before random, models in the order of the table.
    place = {model: i for i, model in enumerate(means["model"].unique())}
    order = means["init"].ne("trained") + 2 * means["model"].map(place)
    return means.assign(_order=order).sort_values(["_order", "layer"], kind="stable").drop(columns="_order")


def _order(means: pd.DataFrame, column: str, wanted: Sequence[str] | None) -> list[str]:
    present = list(means[column].unique())
    return present if wanted is None else [name for name in wanted if name in present]


def _sides(means: pd.DataFrame, stack: str) -> list[tuple[str, str]]:
    inits = means.loc[means["stack"] == stack, "init"].unique()
    return [(stack, init) for init in sorted(inits, key=lambda init: (init != "trained", init))]


def _counted(panel: pd.DataFrame) -> str:
    counts = panel.groupby(["model", "init"])["clip"].nunique()
    if counts.empty:
        return "no clips"
    low, high = counts.min(), counts.max()
    return f"{high} clip{'s' if high > 1 else ''}" if low == high else f"{low} to {high} clips"


def _style(color: str, init: str, *, single: bool) -> dict:
    """Trained models solid, random twins dashed; filled and hollow dots where there is one layer and so no line."""
    dots = {"marker": "o", "markerfacecolor": color if init == "trained" else "white"} if single else {}
    return {"linestyle": _DASHES.get(init, ":"), **dots}


def _draw_line(ax: Axes, mine: pd.DataFrame, color: str, init: str) -> None:
    """Mean, middle half and, where there are few, the single clips."""
    if mine.empty:
        return
    clips = mine.pivot(index="layer", columns="clip", values="contribution").sort_index()
    layers = clips.index.to_numpy()
    style = {"color": color, **_style(color, init, single=len(layers) == 1)}
    if clips.shape[1] > 1:
        low, high = clips.quantile(0.25, axis=1), clips.quantile(0.75, axis=1)
        if len(layers) == 1:  # a band over one layer would have no width
            ax.vlines(layers, low, high, color=color, alpha=0.4, linewidth=3)
        ax.fill_between(layers, low, high, color=color, alpha=0.15, linewidth=0)
        if clips.shape[1] <= _MOST_SINGLE_CLIPS:
            ax.plot(layers, clips, linewidth=0.5, alpha=0.4, markersize=2.5, **style)
    ax.plot(layers, clips.mean(axis=1), linewidth=1.4, markersize=5, **style)


def _grid(part: pd.DataFrame, measures: Sequence[str]) -> tuple[list[int], np.ma.MaskedArray]:
    """Layers, and the mean over clips as [layers, measures]."""
    pivot = part.pivot_table(index="layer", columns="measure", values="contribution", aggfunc="mean")
    pivot = pivot.sort_index().reindex(columns=list(measures))
    return [int(layer) for layer in pivot.index], np.ma.masked_invalid(pivot.to_numpy(dtype=float))


def _draw_numbers(ax: Axes, array: np.ma.MaskedArray, layers: Sequence[int], measures: Sequence[str], limits):
    """Cells with the number in each, dark on light and light on dark."""
    cells = panels.draw_cells(ax, array, limits=limits)
    ax.set_aspect("auto")
    for (i, j), value in np.ndenumerate(np.ma.filled(array, np.nan)):
        if np.isfinite(value):
            red, green, blue, _ = cells.to_rgba(value)
            light = 0.299 * red + 0.587 * green + 0.114 * blue > 0.5
            ax.text(j + 0.5, i + 0.52, f"{value:.1f}", size=TICK_SIZE, ha="center", va="center",
                    color="black" if light else "white")  # fmt: skip
    ax.set_xticks(
        np.arange(len(measures)) + 0.5, [panels.spoken(m).replace(" ", "\n") for m in measures], size=TICK_SIZE,
        parse_math=False,
    )  # fmt: skip
    ax.set_yticks(np.arange(len(layers)) + 0.5, list(map(str, layers)), size=TICK_SIZE)
    return cells
