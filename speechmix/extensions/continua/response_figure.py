"""Draw response curves of a model, and of listeners beside them."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import expit

from ...reporting.plots.figure_style import (
    LABEL_SIZE,
    LINE_COLORS,
    TICK_SIZE,
    LineStyle,
    add_legend,
    legend_line,
    model_title,
    new_figure,
    style_curve_axis,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from .response_curves import ResponseCurve


def response_panel(
    result: ResponseCurve, *, listeners: ResponseCurve | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the mean responses in each context, and on a second axis the attribution if there is one.

    Parameters
    ----------
    result : ResponseCurve
        Of a model: solid; each continuum is a thin line.
    listeners : ResponseCurve, optional
        From `read_responses`: dashed.
    ax : Axes, optional

    Returns
    -------
    Axes
        A diamond is a crossing, its bar the 95 % interval, and the dotted line the fitted curve.
    """
    ax = new_figure(4.6, 3.4).subplots() if ax is None else ax
    ax.axhline(0.5, color="0.6", linewidth=0.7)
    curves = [(result, "-"), *([(listeners, "--")] if listeners else [])]
    contexts = dict.fromkeys(context for curve, _ in curves for context in curve.table["context"])
    colors = dict(zip(contexts, cycle(LINE_COLORS[5:] + LINE_COLORS[:5]), strict=False))
    handles = []
    for curve, dash in curves:
        name = model_title(curve.provenance) if "model" in curve.provenance else "listeners"
        for row in curve.crossings.to_dict("records"):
            color = colors[row["context"]]
            style: LineStyle = {"color": color, "linestyle": dash, "marker": "o", "markersize": 3}
            part = curve.table[curve.table["context"] == row["context"]]
            means = part.pivot_table("response", "value", "group").mean(axis=1)
            ax.plot(means.index, means, **style)
            handles.append(legend_line(label=f"{name} {row['context']}".strip(), **style))
            ax.plot(row["crossing"], 0.5, "D", color=color, markersize=5)
            if curve is result:
                lines = part.pivot_table("response", "value", "continuum")
                ax.plot(lines.index, lines, color=color, linewidth=0.4, alpha=0.35)
            if row["low"] < row["high"]:
                x = np.linspace(means.index.min(), means.index.max(), 200)
                fitted = expit(row["slope"] * (x - row["crossing"]))
                ax.plot(x, fitted, color=color, linestyle=":", linewidth=0.8)
                limits = np.clip([row["low"], row["high"]], x[0], x[-1])
                ax.plot(limits, [0.5, 0.5], color=color, linewidth=4, alpha=0.4)
    if "attribution" in result.table:
        right, color = ax.twinx(), "0.45"
        shares = result.table.groupby("value")["attribution"].mean()
        right.plot(shares.index, shares, color=color, linestyle="-.", linewidth=1)
        right.set_ylabel("attribution (dash-dotted)", size=LABEL_SIZE, color=color)
        right.tick_params(labelsize=TICK_SIZE, colors=color)
        right.spines["top"].set_visible(False)
    ax.set_xlabel(result.label, size=LABEL_SIZE)
    ax.set_ylabel("probability of the target (against the foil)", size=LABEL_SIZE)
    style_curve_axis(ax)
    add_legend(ax, handles, columns=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return ax
