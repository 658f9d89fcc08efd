"""Draw cue contribution over layers as lines with their uncertainty.

In: a tidy table, as in `cue_tables`. Trained models are solid, random twins dashed, published
curves dotted. With x="depth" models of different depth lie above each other. Where the table has
mixing strengths, a strip below shows those of the trained models, and layers below the floor are
grey.

Draw the lines of a curve figure: colours, dashes, bands and legend.

Draw strips of mixing strength under curves of cue contribution.

In: what `computed_curves.layer_strengths` has of a panel. Out: drawing on Axes that the caller
owns. A strength below the floor (`maps.numerics.STRENGTH_FLOOR`) means that the layer's shares are
shares of next to nothing: its points are grey.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator

from ...errors import InputError
from ...mixing.maps.measure_registry import measure_label
from ...mixing.maps.numerics import STRENGTH_FLOOR
from .computed_curves import CueCurves, PanelCurves, compute_panel_curves, cue_curves, model_colors
from .cue_tables import (
    AS_PUBLISHED_ROWS,
    DECIDING,
    PUBLISHED_SUFFIX,
    ordered_values,
    select_cue_rows,
)
from .figure_style import (
    CUE_LABEL,
    DEPTH_LABEL,
    INIT_DASHES,
    INIT_LABELS,
    LABEL_SIZE,
    LAYER_LABEL,
    NARROW_WIDTH,
    TICK_SIZE,
    TITLE_SIZE,
    LineStyle,
    add_legend,
    legend_line,
    model_name,
    new_figure,
    style_curve_axis,
    style_layer_axis,
    wrap_text,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.gridspec import SubplotSpec

    from .computed_curves import PanelCurves


STRIP_HEIGHT = 0.45  # inches that a strip adds to its row of panels
STRIP_NOTE = (
    f"strips: mixing strength of trained models; grey: layers below {STRENGTH_FLOOR:g}, "
    "which mix almost nothing"
)
IDLE_COLOR = "0.6"
_MIN_STRENGTH = 1e-3  # what is less is drawn there, as a triangle that points down


def axes_with_strips(
    figure: Figure, n_lines: int, n_columns: int, inches: float
) -> list[tuple[Axes, Axes]]:
    """Make axes for curves, line by line, and below each the axes of its strip.

    Curves share y; `inches` is the height of a line, its strip included.
    """
    grid = figure.add_gridspec(2 * n_lines, n_columns, height_ratios=strip_ratios(inches) * n_lines)
    axes_pairs: list[tuple[Axes, Axes]] = []
    for panel_index in range(n_lines * n_columns):
        line, column = divmod(panel_index, n_columns)
        curves = figure.add_subplot(
            grid[2 * line, column], sharey=axes_pairs[0][0] if axes_pairs else None
        )
        axes_pairs.append((curves, add_strip(figure, grid[2 * line + 1, column], curves)))
        for ax in axes_pairs[-1]:
            ax.tick_params(labelleft=column == 0)
    return axes_pairs


def strip_ratios(inches: float) -> list[float]:
    """Return the heights of curves and strip, which are so many inches together."""
    return [inches - STRIP_HEIGHT, STRIP_HEIGHT]


def add_strip(figure: Figure, position: SubplotSpec, curves: Axes) -> Axes:
    """Add the axes of a strip, with the layers of the curves above."""
    curves.tick_params(labelbottom=False)
    return figure.add_subplot(position, sharex=curves)


def draw_strip(
    ax: Axes, panel: PanelCurves, *, x: str, colors: Mapping[str, str], labelled: bool = True
) -> None:
    """Draw the mixing strengths of trained models, on a logarithmic scale with the floor as a
    line."""
    max_strength = max(
        [1.0, *(float(table["strength"].max()) for table in panel.strengths.values())]
    )
    ax.set_yscale("log")
    ax.set_ylim(0.6 * _MIN_STRENGTH, 1.5 * max_strength)
    ax.axhspan(0.6 * _MIN_STRENGTH, STRENGTH_FLOOR, color="0.5", alpha=0.12, linewidth=0)
    ax.axhline(STRENGTH_FLOOR, color="0.5", linewidth=0.7, linestyle=(0, (4, 2)))
    for model, table in panel.strengths.items():
        strengths = table["strength"].to_numpy()
        heights, is_below_minimum = np.maximum(strengths, _MIN_STRENGTH), strengths < _MIN_STRENGTH
        ax.plot(table[x], heights, color=colors[model], linewidth=1.0)
        for is_in_group, marker in ((~is_below_minimum, "o"), (is_below_minimum, "v")):
            ax.plot(
                table[x][is_in_group],
                heights[is_in_group],
                color=colors[model],
                linestyle="none",
                marker=marker,
                markersize=2.5,
            )
    if x == "layer":
        style_layer_axis(ax)
    else:
        style_curve_axis(ax)
    ax.grid(visible=False)
    ax.yaxis.set_major_locator(FixedLocator([_MIN_STRENGTH, STRENGTH_FLOOR, 0.1, 1.0]))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_major_formatter(
        lambda value, _: f"{value:g}" if value in (STRENGTH_FLOOR, 1.0) else ""
    )
    ax.set_ylabel("strength" if labelled else "", size=TICK_SIZE)


def find_idle_layers(curve: pd.DataFrame, strengths: pd.DataFrame | None) -> np.ndarray:
    """Tell which points of a curve are of layers below the floor, bool [L]."""
    strength_by_layer = (
        {}
        if strengths is None
        else dict(zip(strengths["layer"], strengths["strength"], strict=True))
    )
    return np.array(
        [strength_by_layer.get(layer, np.inf) < STRENGTH_FLOOR for layer in curve["layer"]]
    )


def line_pieces(is_idle: np.ndarray) -> Iterator[tuple[slice, bool]]:
    """Split a line into pieces of one colour: indices of points, and whether an idle layer is among
    them.

    Examples
    --------
    >>> list(line_pieces(np.array([False, False, False, True])))
    [(slice(0, 3, None), False), (slice(2, 4, None), True)]
    """
    is_grey = [bool(a or b) for a, b in pairwise(is_idle)]
    start_index = 0
    for index in range(1, len(is_grey) + 1):
        if index == len(is_grey) or is_grey[index] != is_grey[start_index]:
            yield slice(start_index, index + 1), is_grey[start_index]
            start_index = index


BAND_NOTES = {
    "interval": "bands (95 %, all layers of a curve together): mean of a trained model; one more untrained model",
    "clips": "bands: the middle half of the clips",
    "none": "",
}


def add_curve_legend(
    figure: Figure,
    lines: Sequence[tuple[str, str]],
    colors: Mapping[str, str],
    notes: Sequence[str],
    *,
    single_layer: bool,
    columns: int = 2,
) -> None:
    """Add the legend of models and inits, with notes as its title."""
    handles = [
        legend_line(
            label=f"{model_name(model)}, {INIT_LABELS.get(init, init)}",
            **line_style(colors[model], model, init, single_layer=single_layer),
        )
        for model, init in lines
    ]
    title = "\n".join(wrap_text(note, figure.get_figwidth()) for note in notes if note) or None
    add_legend(figure, handles, columns=columns, loc="outside lower center", title=title)


def line_style(color: str, model: str, init: str, *, single_layer: bool) -> LineStyle:
    """Return the style of a line: trained solid, untrained dashed, published dotted; points for a
    single layer."""
    published = str(model).endswith(PUBLISHED_SUFFIX)
    marker_style = {
        "marker": "o",
        "markersize": 5,
        "markerfacecolor": color if init == "trained" else "white",
    }
    dash_style = {
        "linestyle": ":" if published and init == "trained" else INIT_DASHES.get(init, ":"),
        "linewidth": 0.9 if published else 1.4,
    }
    return {"color": color, **dash_style, **(marker_style if single_layer else {})}


def draw_line(
    ax: Axes,
    curve: pd.DataFrame,
    units: pd.DataFrame | None,
    x_column: str,
    style: LineStyle,
    is_idle: np.ndarray,
) -> None:
    """Draw mean, band and, where there are few, the single clips (groups); idle layers in grey."""
    if units is not None:
        unit_values = units.pivot(index=x_column, columns="unit", values="value").sort_index()
        ax.plot(
            unit_values.index,
            unit_values,
            **{**style, "linewidth": 0.5, "alpha": 0.4, "markersize": 2.5},
        )
    if curve["low"].notna().any():
        if len(curve) == 1:  # a band over one layer would have no width
            ax.vlines(
                curve[x_column],
                curve["low"],
                curve["high"],
                color=style["color"],
                alpha=0.4,
                linewidth=3,
            )
        ax.fill_between(
            curve[x_column],
            curve["low"],
            curve["high"],
            color=style["color"],
            alpha=0.18,
            linewidth=0,
        )
    if not is_idle.any():
        ax.plot(curve[x_column], curve["mean"], **style)
        return
    for piece, is_grey in line_pieces(is_idle):
        ax.plot(
            curve[x_column].iloc[piece],
            curve["mean"].iloc[piece],
            **(style | {"color": IDLE_COLOR} if is_grey else style),
        )
    marker_style = {
        "marker": "o",
        "markersize": 4.5,
        "markerfacecolor": "white",
        "linestyle": "none",
        "zorder": 3,
    }
    ax.plot(curve[x_column][is_idle], curve["mean"][is_idle], **style | marker_style)


_X_LABELS = {"layer": LAYER_LABEL, "depth": DEPTH_LABEL}


def layer_curves(
    table: pd.DataFrame,
    *,
    ax: Axes | None = None,
    x: str = "layer",
    band: str = "interval",
    value: str = "contribution",
    label: str = CUE_LABEL,
    colors: Mapping[str, str] | None = None,
) -> Axes:
    """Draw one stack and measure: a line for each model and init.

    Parameters
    ----------
    table : DataFrame
        Columns model, init, clip, stack, layer, measure and `value`; one stack and one measure.
    ax : Axes, optional
        By default a new figure, with title and legend, and a strip of mixing strengths where they
        are known.
    x : {"layer", "depth"}
        Layers counted from 0, or relative depth: 0 in the first layer, 1 in the last.
    band : {"interval", "clips", "none"}
        With "interval", a trained model has the 95 % interval of its mean over groups of clips
        (none below `intervals.FEWEST_GROUPS`), and two untrained twins or more have a
        band from the lowest to the highest. "clips" is the middle half of the clips.
    value, label : str
        Which column, drawn in percent, and what it is called.
    colors : mapping of model to colour, optional

    Returns
    -------
    Axes

    Raises
    ------
    InputError
        If a column is missing, no row is left, or the table holds several stacks or measures.
    """
    _check_axis(x)
    rows = _select_panel_rows(table, value)
    panel = compute_panel_curves(rows, band=band, value=value)
    colors = colors or model_colors(rows)
    figure = strip = None
    if ax is None:
        figure = new_figure(4.6, 3.2 + STRIP_HEIGHT * bool(panel.strengths))
        [ax], [strip] = _make_axes(figure, 1, 1, 3.2, with_strips=bool(panel.strengths))
    draw_curve_panel(ax, panel, x=x, label=label, colors=colors)
    if strip is not None:
        draw_strip(strip, panel, x=x, colors=colors)
        strip.set_xlabel(ax.get_xlabel(), size=LABEL_SIZE)
        ax.set_xlabel("")
    if figure is not None:
        title = f"{measure_label(rows['measure'].iloc[0])}, {rows['stack'].iloc[0]} ({panel.clip_count_text})"
        ax.set_title(title, size=TITLE_SIZE, y=1, parse_math=False)
        notes = [BAND_NOTES[band], STRIP_NOTE if panel.strengths else ""]
        add_curve_legend(
            figure, list(panel.lines), colors, notes, single_layer=rows["layer"].nunique() == 1
        )
    return ax


def draw_curve_panel(
    ax: Axes, panel: PanelCurves, *, x: str, label: str = CUE_LABEL, colors: Mapping[str, str]
) -> None:
    """Draw the lines of one panel with their bands, and label its axes; options as in
    `layer_curves`."""
    for (model, init), (curve, units) in panel.lines.items():
        style = line_style(colors[model], model, init, single_layer=len(curve) == 1)
        idle = find_idle_layers(curve, panel.strengths.get(model) if init == "trained" else None)
        draw_line(ax, curve, units, x, style, idle)
    if x == "layer":
        style_layer_axis(ax)
    else:
        style_curve_axis(ax)
    ax.set_xlabel(_X_LABELS[x], size=LABEL_SIZE)
    ax.set_ylabel(label, size=LABEL_SIZE, parse_math=False)


def cue_figure(
    table: pd.DataFrame,
    *,
    stacks: Sequence[str] | None = None,
    measures: Sequence[str] | None = None,
    rows: str = "measure",
    x: str = "layer",
    band: str = "interval",
    published: bool = False,
    target_rows: str | None = None,
    narrow: bool = False,
) -> Figure:
    """Draw cue contribution over layers: a panel for each stack and measure, a line for each model
    and init.

    Parameters
    ----------
    table : DataFrame
        Columns model, init, clip, stack, layer, measure, contribution (0 to 1). Seeds are averaged
        for each clip, clips for each `group` where there is such a column. Up to 10 clips (groups)
        are drawn one by one as well.
    stacks, measures : sequence of str, optional
        Which panels, in this order; all of the table by default.
    rows : str
        What makes the rows of panels: "measure", or a column that parts the clips, as "template",
        "number" or "cue"; then for a single measure.
    x, band
        See `layer_curves`.
    published : bool
        Draw the published curves of XLSR-53 and Whisper-medium beside them
        (`published_contributions`), dotted.
    target_rows : {"target", "deciding"}, optional
        As in `cue_heat_map`; the title says which rows are drawn.
    narrow : bool
        All panels below each other: as wide as a column of a paper, or a phone.

    Returns
    -------
    Figure

    Raises
    ------
    InputError
        If a column is missing, no row is left, or `rows` selects several measures at once.
    """
    _check_axis(x)
    target_rows = target_rows or (AS_PUBLISHED_ROWS if published else DECIDING)
    selected_rows = select_cue_rows(
        table, stacks=stacks, measures=measures, target_rows=target_rows
    )
    if rows not in selected_rows:
        raise InputError(
            f"rows={rows!r} is no column of the table; it has {', '.join(map(str, table.columns))}"
        )
    if rows != "measure" and selected_rows["measure"].nunique() > 1:
        raise InputError(
            f"rows={rows!r} draws one measure, found {', '.join(selected_rows['measure'].unique())}: "
            "choose one"
        )
    stacks, values = (
        ordered_values(selected_rows, "stack", stacks),
        ordered_values(selected_rows, rows, measures if rows == "measure" else None),
    )
    curves = cue_curves(
        selected_rows, stacks=stacks, values=values, rows=rows, band=band, published=published
    )
    return draw_cue_figure(curves, x=x, band=band, narrow=narrow)


def draw_cue_figure(
    curves: CueCurves, *, x: str, band: str = "interval", narrow: bool = False
) -> Figure:
    """Draw what `cue_curves` computed; see `cue_figure`."""
    values, stacks = curves.values, curves.stacks
    n_columns, n_lines = (1, len(values) * len(stacks)) if narrow else (len(stacks), len(values))
    width = NARROW_WIDTH if narrow else max(3.0 * n_columns + 0.5, 4.2)
    height = (1.7 if narrow else 2.1) + STRIP_HEIGHT * curves.has_strips
    figure = new_figure(width, height * n_lines + 0.6 + 0.16 * len(curves.lines) / n_columns)
    axes, strips = _make_axes(figure, n_lines, n_columns, height, with_strips=curves.has_strips)
    for panel_index, (name, stack) in enumerate(itertools.product(values, stacks)):
        ax, strip, panel = axes[panel_index], strips[panel_index], curves.panels[name, stack]
        lowest_axes = ax if strip is None else strip
        if panel is not None:
            draw_curve_panel(ax, panel, x=x, colors=curves.colors)
            if strip is not None:
                draw_strip(
                    strip, panel, x=x, colors=curves.colors, labelled=panel_index % n_columns == 0
                )
        count_text = "no clips" if panel is None else panel.clip_count_text
        ax.set_title(
            f"{measure_label(name)}, {stack} ({count_text})", size=TITLE_SIZE, y=1, parse_math=False
        )
        ax.set(xlabel="", ylabel="")
        if panel_index >= len(axes) - n_columns and panel is not None:
            lowest_axes.set_xlabel(_X_LABELS[x], size=LABEL_SIZE)
    axes[0].set_ylim(bottom=0)
    figure.supylabel(CUE_LABEL, size=LABEL_SIZE)
    if curves.title:
        figure.suptitle(
            wrap_text(curves.title, 0.75 * figure.get_figwidth()),
            size=TITLE_SIZE,
            parse_math=False,
        )
    notes = [BAND_NOTES[band], STRIP_NOTE if curves.has_strips else ""]
    add_curve_legend(
        figure,
        curves.lines,
        curves.colors,
        notes,
        single_layer=curves.single_layer,
        columns=1 if narrow else 2,
    )
    return figure


def _make_axes(
    figure: Figure, n_lines: int, n_columns: int, height: float, *, with_strips: bool
) -> tuple[list[Axes], list[Axes | None]]:
    """Make the axes of curves, which share y, and of the strips below them, if there are any."""
    if not with_strips:
        axes = list(figure.subplots(n_lines, n_columns, sharey=True, squeeze=False).flat)
        return axes, [None] * len(axes)
    pairs = axes_with_strips(figure, n_lines, n_columns, height)
    return [curves for curves, _ in pairs], [strip for _, strip in pairs]


def _check_axis(x: str) -> None:
    if x not in _X_LABELS:
        raise InputError(f"x should be 'layer' or 'depth', found {x!r}")


def _select_panel_rows(table: pd.DataFrame, value: str) -> pd.DataFrame:
    """Select the rows of a table of one stack and measure; raise if there are several."""
    rows = select_cue_rows(table, value=value)
    mixed_columns = [name for name in ("stack", "measure") if rows[name].nunique() > 1]
    if mixed_columns:
        mixed_values = "; ".join(
            f"{name}: {', '.join(map(str, rows[name].unique()))}" for name in mixed_columns
        )
        raise InputError(
            f"layer_curves draws one stack and measure, found {mixed_values}: choose, or use cue_figure"
        )
    return rows
