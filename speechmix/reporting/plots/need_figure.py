"""Contribution and need together: how much the cue gives in each layer, and what the decision loses
without it there.

In: a table of contributions, as in `cue_tables`, and one of drops by layer
(`evaluation.cue_need.measure_layer_need`). Out: a Figure. For each stack two panels, a colour for each
model: the trained model over the band from its lowest to its highest untrained twin, and the drop
of the margin with the cue's values zeroed in that layer alone. Where the table has mixing
strengths, a strip shows them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ...evaluation.cue_contribution import ROW_NAMES
from ...evaluation.statistics.grouped_means import select_cells
from . import panels
from .computed_curves import PanelCurves, model_colors, panel_curves
from .cue_curves import draw_curve_panel
from .cue_tables import ordered_values, select_cue_rows
from .panels import CUE_LABEL, DEPTH_LABEL, LABEL_SIZE, LAYER_LABEL, NARROW
from .strength_strips import STRIP_HEIGHT, STRIP_NOTE, add_strip, draw_strip, strip_ratios

DROP_LABEL = "margin lost (nats)"
_ENTRY = 1.85  # inches, of one entry of the legend
_LINE, _NARROW_LINE = 1.5, 1.75  # inches, of one line of panels


def contribution_and_need(
    table: pd.DataFrame,
    drops: pd.DataFrame,
    *,
    measure: str = "value_zeroing",
    narrow: bool = False,
) -> Figure:
    """Draw contribution above need, a column for each stack and a colour for each model.

    Parameters
    ----------
    table : DataFrame
        Contributions of one side of the cue; see `cue_figure`.
    drops : DataFrame
        Columns model, ablated (the stack), layer, drop, low, high; where it is empty contribution
        is drawn alone.
    measure : str
        Which measure of contribution.
    narrow : bool
        Stacks below each other, contribution left of need: as wide as a column of a paper, or a
        phone.

    Returns
    -------
    Figure
        Over layers, or over relative depth where models differ in the number of theirs.
    """
    return draw_need(need_panels(table, drops, measure=measure), narrow=narrow)


@dataclass(frozen=True)
class _NeedPanels:
    """What `contribution_and_need` draws, computed."""

    curves: Mapping[str, PanelCurves]  # by stack
    titles: Mapping[str, str]
    colors: Mapping[str, str]  # by model
    last: pd.Series  # layer, by stack and model
    drops: pd.DataFrame
    untrained: str  # for the legend

    @property
    def has_strips(self) -> bool:
        """Whether mixing strengths are drawn below contribution."""
        return any(panel.strengths for panel in self.curves.values())

    @property
    def x(self) -> str:
        """Relative depth, where models differ in the number of their layers."""
        return "depth" if self.last.groupby("stack", observed=True).nunique().max() > 1 else "layer"


def need_panels(
    table: pd.DataFrame, drops: pd.DataFrame, *, measure: str = "value_zeroing"
) -> _NeedPanels:
    """Compute what `draw_need` draws, once for figures of any width; see
    `contribution_and_need`."""
    rows = select_cells(table, list(table), table["measure"] == measure)
    titles, curves = {}, {}
    for stack in ordered_values(rows, "stack"):
        of_stack = select_cells(rows, list(rows), rows["stack"] == stack)
        titles[stack] = _title(of_stack, stack)
        curves[stack] = panel_curves(select_cue_rows(of_stack))
    twins = rows.loc[rows["init"] == "random", "seed"].nunique() if "seed" in rows else 0
    untrained = (
        "untrained (band: lowest to highest twin)"
        if twins > 1
        else "untrained"
        if (rows["init"] == "random").any()
        else ""
    )
    last = rows.groupby(["stack", "model"], observed=True)["layer"].max()
    return _NeedPanels(curves, titles, model_colors(rows), last, drops, untrained)


def draw_need(computed: _NeedPanels, *, narrow: bool = False) -> Figure:
    """Draw what `need_panels` computed; see `contribution_and_need`."""
    stacks, colors, drops, x = list(computed.curves), computed.colors, computed.drops, computed.x
    n_panels = 1 if drops.empty else 2
    figure = panels.new_figure(
        *_size(len(stacks), len(colors), n_panels, narrow, with_strips=computed.has_strips)
    )
    lines = _lines_of(figure, len(stacks), n_panels, narrow=narrow, with_strips=computed.has_strips)
    for number, (stack, (given, strip, lost)) in enumerate(zip(stacks, lines, strict=True)):
        draw_curve_panel(given, computed.curves[stack], x=x, colors=colors)
        given.set_title(computed.titles[stack], size=LABEL_SIZE, pad=3, parse_math=False)
        given.set_xlabel("")
        if strip is not None:
            draw_strip(
                strip, computed.curves[stack], x=x, colors=colors, labelled=narrow or not number
            )
        if lost is not None:
            _draw_drops(lost, drops[drops["ablated"] == stack], computed.last[stack], x, colors)
            lost.set_xlim(given.get_xlim())
            lost.set_ylabel(DROP_LABEL if narrow or not number else "", size=LABEL_SIZE)
        given.set_ylabel(CUE_LABEL if narrow or not number else "", size=LABEL_SIZE)
        (lost or strip or given).set_xlabel(
            (DEPTH_LABEL if x == "depth" else LAYER_LABEL).split(" (")[0], size=LABEL_SIZE
        )
    for given, _, _ in lines if narrow else lines[:1]:
        given.set_ylim(bottom=0)  # once all is drawn: the others share it
    columns, note = (
        max(int(figure.get_figwidth() / _ENTRY), 1),
        STRIP_NOTE if computed.has_strips else "",
    )
    _add_legend(figure, list(colors), colors, computed.untrained, columns=columns, note=note)
    return figure


def _lines_of(
    figure: Figure, n_stacks: int, n_panels: int, *, narrow: bool, with_strips: bool
) -> list[tuple[Axes, Axes | None, Axes | None]]:
    """Axes of each stack: of contribution, of the strip below it and of need, where they are drawn.

    Narrow, a stack has a line, and need lies to the right of contribution; else a column, and need
    lies below.
    """
    line = _NARROW_LINE if narrow else _LINE
    heights = strip_ratios(line + STRIP_HEIGHT) if with_strips else [line]
    if narrow:
        grid = figure.add_gridspec(
            n_stacks * len(heights), n_panels, height_ratios=heights * n_stacks
        )
    else:
        grid = figure.add_gridspec(
            len(heights) + n_panels - 1,
            n_stacks,
            height_ratios=[*heights, *[line] * (n_panels - 1)],
        )
    lines: list[tuple[Axes, Axes | None, Axes | None]] = []
    for number in range(n_stacks):
        top, column = (number * len(heights), 0) if narrow else (0, number)
        first = lines[0] if lines and not narrow else (None, None, None)
        given = figure.add_subplot(grid[top, column], sharey=first[0])
        strip = add_strip(figure, grid[top + 1, column], given) if with_strips else None
        lost = None
        if n_panels > 1:
            place = grid[top : top + len(heights), 1] if narrow else grid[len(heights), number]
            lost = figure.add_subplot(place, sharey=first[2])
        for ax in (given, strip, lost):
            if ax is not None and number and not narrow:
                ax.tick_params(labelleft=False)
        lines.append((given, strip, lost))
    return lines


def _size(
    stacks: int, models: int, n_panels: int, narrow: bool, *, with_strips: bool
) -> tuple[float, float]:
    """Inches: room for a line of the legend for each model and one for all."""
    width = NARROW if narrow else max(1.75 * stacks + 0.4, NARROW)
    legend = 0.3 + 0.16 * math.ceil((models + 1) / max(int(width / _ENTRY), 1))
    legend += (0.32 if narrow else 0.16) * with_strips  # what strips are
    strip = STRIP_HEIGHT * with_strips
    return width, (
        _NARROW_LINE + strip
    ) * stacks + legend if narrow else _LINE * n_panels + strip + legend


def _title(of_stack: pd.DataFrame, stack: str) -> str:
    """A stack, and which rows of its maps the contributions are of."""
    names = (
        [ROW_NAMES[kind] for kind in of_stack["rows"].unique() if kind in ROW_NAMES]
        if "rows" in of_stack
        else []
    )
    return ", ".join([stack, *names])


def _add_legend(
    figure: Figure,
    models: list[str],
    colors: Mapping[str, str],
    untrained: str,
    *,
    columns: int,
    note: str,
) -> None:
    handles = [
        Line2D([], [], color=colors[model], label=panels.model_name(model)) for model in models
    ]
    if untrained:
        handles.append(Line2D([], [], color="0.3", linestyle="--", label=untrained))
    title = panels.wrap_text(note, figure.get_figwidth()) if note else None
    panels.add_legend(figure, handles, columns=columns, loc="outside lower center", title=title)


def _draw_drops(
    ax: Axes, drops: pd.DataFrame, last: pd.Series, x: str, colors: Mapping[str, str]
) -> None:
    ax.axhline(0, color="0.6", linewidth=0.8)
    if drops.empty:
        ax.text(0.5, 0.5, "not asked", transform=ax.transAxes, ha="center", size=LABEL_SIZE)
    for model, of_model in (
        drops[drops["model"].isin(colors)].sort_values("layer").groupby("model", sort=False)
    ):
        places = of_model["layer"] / max(last[model], 1) if x == "depth" else of_model["layer"]
        errors = [of_model["drop"] - of_model["low"], of_model["high"] - of_model["drop"]]
        ax.errorbar(
            places,
            of_model["drop"],
            yerr=errors,
            fmt="o-",
            color=colors[str(model)],
            markersize=3.5,
            linewidth=1.2,
        )
    if x == "layer":
        panels.style_layer_axis(ax)
    else:
        panels.style_curve_axis(ax)
