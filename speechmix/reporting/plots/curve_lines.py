"""Draw the lines of a curve figure: colours, dashes, bands and legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .figure_style import (
    INIT_DASHES,
    INIT_LABELS,
    LineStyle,
    add_legend,
    legend_line,
    model_name,
    wrap_text,
)
from .paper_figure_data import PUBLISHED_SUFFIX
from .strength_strips import IDLE_COLOR, line_pieces

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
