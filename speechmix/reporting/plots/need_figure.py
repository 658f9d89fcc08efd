"""Draw contribution above need: the cue's contribution in each layer, and what the decision loses
without it.

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

from ...evaluation.cue_contribution import ROW_NAMES
from ...evaluation.statistics.grouped_means import select_cells
from .computed_curves import CueCurves, PanelCurves, compute_panel_curves, model_colors
from .cue_curves import (
    STRIP_HEIGHT,
    STRIP_NOTE,
    add_strip,
    draw_curve_panel,
    draw_strip,
    strip_ratios,
)
from .cue_tables import ordered_values, select_cue_rows
from .figure_style import (
    CUE_LABEL,
    DEPTH_LABEL,
    LABEL_SIZE,
    LAYER_LABEL,
    NARROW_WIDTH,
    add_legend,
    legend_line,
    model_name,
    new_figure,
    style_curve_axis,
    style_layer_axis,
    wrap_text,
)

DROP_LABEL = "margin lost (nats)"
_ENTRY_WIDTH = 1.85  # inches, of one entry of the legend
_LINE_HEIGHT, _NARROW_LINE_HEIGHT = 1.5, 1.75  # inches, of one line of panels


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
    return draw_need(compute_need_panels(table, drops, measure=measure), narrow=narrow)


@dataclass(frozen=True)
class _NeedPanels:
    """Computed panels of `contribution_and_need`."""

    curves: Mapping[str, PanelCurves]  # by stack
    titles: Mapping[str, str]
    colors: Mapping[str, str]  # by model
    last_layers: pd.Series  # layer, by stack and model
    drops: pd.DataFrame
    untrained_label: str  # for the legend

    @property
    def has_strips(self) -> bool:
        """Whether mixing strengths are drawn below contribution."""
        return any(panel.strengths for panel in self.curves.values())

    @property
    def x(self) -> str:
        """Relative depth, where models differ in the number of their layers."""
        return (
            "depth"
            if self.last_layers.groupby("stack", observed=True).nunique().max() > 1
            else "layer"
        )


def compute_need_panels(
    table: pd.DataFrame,
    drops: pd.DataFrame,
    *,
    measure: str = "value_zeroing",
    curves: CueCurves | None = None,
) -> _NeedPanels:
    """Compute what `draw_need` draws, once for figures of any width; see
    `contribution_and_need`. `curves` are the curves of the table, if they are at hand."""
    rows = select_cells(table, list(table), table["measure"] == measure)
    titles, panels = {}, {}
    for stack in ordered_values(rows, "stack"):
        stack_rows = select_cells(rows, list(rows), rows["stack"] == stack)
        titles[stack] = _stack_title(stack_rows, stack)
        panel = None if curves is None else curves.panels.get((measure, stack))
        panels[stack] = panel or compute_panel_curves(select_cue_rows(stack_rows))
    twins = rows.loc[rows["init"] == "random", "seed"].nunique() if "seed" in rows else 0
    untrained_label = (
        "untrained twins (band: one more untrained model)"
        if twins > 1
        else "untrained"
        if (rows["init"] == "random").any()
        else ""
    )
    last_layers = rows.groupby(["stack", "model"], observed=True)["layer"].max()
    return _NeedPanels(panels, titles, model_colors(rows), last_layers, drops, untrained_label)


def draw_need(need: _NeedPanels, *, narrow: bool = False) -> Figure:
    """Draw what `compute_need_panels` computed; see `contribution_and_need`."""
    stacks, colors, drops, x = list(need.curves), need.colors, need.drops, need.x
    n_panels = 1 if drops.empty else 2
    figure = new_figure(
        *_figure_size(len(stacks), len(colors), n_panels, narrow, with_strips=need.has_strips)
    )
    axes_by_stack = _make_axes(
        figure, len(stacks), n_panels, narrow=narrow, with_strips=need.has_strips
    )
    for stack_index, (stack, (share_axes, strip_axes, drop_axes)) in enumerate(
        zip(stacks, axes_by_stack, strict=True)
    ):
        draw_curve_panel(share_axes, need.curves[stack], x=x, colors=colors)
        share_axes.set_title(need.titles[stack], size=LABEL_SIZE, y=1, pad=3, parse_math=False)
        share_axes.set_xlabel("")
        if strip_axes is not None:
            draw_strip(
                strip_axes,
                need.curves[stack],
                x=x,
                colors=colors,
                labelled=narrow or not stack_index,
            )
        if drop_axes is not None:
            _draw_drops(
                drop_axes, drops[drops["ablated"] == stack], need.last_layers[stack], x, colors
            )
            drop_axes.set_xlim(share_axes.get_xlim())
            drop_axes.set_ylabel(DROP_LABEL if narrow or not stack_index else "", size=LABEL_SIZE)
        share_axes.set_ylabel(CUE_LABEL if narrow or not stack_index else "", size=LABEL_SIZE)
        (drop_axes or strip_axes or share_axes).set_xlabel(
            (DEPTH_LABEL if x == "depth" else LAYER_LABEL).split(" (")[0], size=LABEL_SIZE
        )
    for share_axes, _, _ in axes_by_stack if narrow else axes_by_stack[:1]:
        share_axes.set_ylim(bottom=0)  # once all is drawn: the others share it
    columns = _legend_columns(figure.get_figwidth(), narrow)
    note = STRIP_NOTE if need.has_strips else ""
    _add_need_legend(figure, list(colors), colors, need.untrained_label, columns=columns, note=note)
    return figure


def _make_axes(
    figure: Figure, n_stacks: int, n_panels: int, *, narrow: bool, with_strips: bool
) -> list[tuple[Axes, Axes | None, Axes | None]]:
    """Make the axes of each stack: contribution, the strip below it, and need.

    Narrow, a stack has a line, and need lies to the right of contribution; else a column, and need
    lies below.
    """
    line_height = _NARROW_LINE_HEIGHT if narrow else _LINE_HEIGHT
    heights = strip_ratios(line_height + STRIP_HEIGHT) if with_strips else [line_height]
    if narrow:
        grid = figure.add_gridspec(
            n_stacks * len(heights), n_panels, height_ratios=heights * n_stacks
        )
    else:
        grid = figure.add_gridspec(
            len(heights) + n_panels - 1,
            n_stacks,
            height_ratios=[*heights, *[line_height] * (n_panels - 1)],
        )
    axes_by_stack: list[tuple[Axes, Axes | None, Axes | None]] = []
    for stack_index in range(n_stacks):
        top_row, column = (stack_index * len(heights), 0) if narrow else (0, stack_index)
        shared_axes = axes_by_stack[0] if axes_by_stack and not narrow else (None, None, None)
        share_axes = figure.add_subplot(grid[top_row, column], sharey=shared_axes[0])
        strip_axes = (
            add_strip(figure, grid[top_row + 1, column], share_axes) if with_strips else None
        )
        drop_axes = None
        if n_panels > 1:
            drop_position = (
                grid[top_row : top_row + len(heights), 1]
                if narrow
                else grid[len(heights), stack_index]
            )
            drop_axes = figure.add_subplot(drop_position, sharey=shared_axes[2])
        for ax in (share_axes, strip_axes, drop_axes):
            if ax is not None and stack_index and not narrow:
                ax.tick_params(labelleft=False)
        axes_by_stack.append((share_axes, strip_axes, drop_axes))
    return axes_by_stack


def _figure_size(
    stack_count: int, model_count: int, n_panels: int, narrow: bool, *, with_strips: bool
) -> tuple[float, float]:
    """Compute the size of the figure in inches."""
    width = NARROW_WIDTH if narrow else max(1.75 * stack_count + 0.4, NARROW_WIDTH)
    legend_height = 0.3 + 0.16 * math.ceil((model_count + 1) / _legend_columns(width, narrow))
    legend_height += (0.32 if narrow else 0.16) * with_strips  # what strips are
    strip_height = STRIP_HEIGHT * with_strips
    return (
        width,
        (_NARROW_LINE_HEIGHT + strip_height) * stack_count + legend_height
        if narrow
        else _LINE_HEIGHT * n_panels + strip_height + legend_height,
    )


def _legend_columns(width: float, narrow: bool) -> int:
    """How many entries of the legend stand side by side; narrow, the one of twins fills a line."""
    return 1 if narrow else max(int(width / _ENTRY_WIDTH), 1)


def _stack_title(stack_rows: pd.DataFrame, stack: str) -> str:
    """Name a stack, and the rows of its maps that contributions are of."""
    row_kinds = set(stack_rows["rows"].unique()) if "rows" in stack_rows else set()
    names = [name for row_kind, name in ROW_NAMES.items() if row_kind in row_kinds]
    separator = "\n" if len(names) > 1 else ", "
    return f"{stack}{separator}{' or '.join(names)}" if names else stack


def _add_need_legend(
    figure: Figure,
    models: list[str],
    colors: Mapping[str, str],
    untrained_label: str,
    *,
    columns: int,
    note: str,
) -> None:
    handles = [legend_line(color=colors[model], label=model_name(model)) for model in models]
    if untrained_label:
        handles.append(legend_line(color="0.3", linestyle="--", label=untrained_label))
    title = wrap_text(note, figure.get_figwidth()) if note else None
    add_legend(figure, handles, columns=columns, loc="outside lower center", title=title)


def _draw_drops(
    ax: Axes, drops: pd.DataFrame, last_layers: pd.Series, x: str, colors: Mapping[str, str]
) -> None:
    ax.axhline(0, color="0.6", linewidth=0.8)
    if drops.empty:
        ax.text(0.5, 0.5, "not computed", transform=ax.transAxes, ha="center", size=LABEL_SIZE)
    for model, model_drops in (
        drops[drops["model"].isin(colors)].sort_values("layer").groupby("model", sort=False)
    ):
        x_values = (
            model_drops["layer"] / max(last_layers[model], 1)
            if x == "depth"
            else model_drops["layer"]
        )
        errors = [
            model_drops["drop"] - model_drops["low"],
            model_drops["high"] - model_drops["drop"],
        ]
        ax.errorbar(
            x_values,
            model_drops["drop"],
            yerr=errors,
            fmt="o-",
            color=colors[str(model)],
            markersize=3.5,
            linewidth=1.2,
        )
    if x == "layer":
        style_layer_axis(ax)
    else:
        style_curve_axis(ax)
