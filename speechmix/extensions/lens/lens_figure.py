"""Draw lenses: margins by layer and word with each layer's text, and curves over clips."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ...reporting.plots.figure_style import (
    LABEL_SIZE,
    LAYER_LABEL,
    LINE_COLORS,
    TICK_SIZE,
    model_name,
    new_figure,
    shorten_text,
    style_curve_axis,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from .lens_result import LensResult

_CURVE_LABELS = {
    "accuracy": "target beats foil (share of clips)",
    "error_rate": "character error rate",
    "difference": "difference from the last layer's text",
}


def lens_panel(result: LensResult, *, ax: Axes | None = None) -> Axes:
    """Draw the margins as a map, with what each layer would have written on the right.

    Blue: the layer prefers the word. A dot marks the layer that decides it.
    """
    count, rows = len(result.choices), result.decided_layers + 1
    size = (3.6 + 0.7 * count, 1.2 + 0.24 * len(result.texts))
    ax = new_figure(*size).subplots() if ax is None else ax
    limit = np.abs(result.margins[np.isfinite(result.margins)]).max(initial=1e-9)
    style = {"cmap": "RdBu", "vmin": -limit, "vmax": limit, "aspect": "auto", "origin": "lower"}
    image = ax.imshow(result.margins, **style)
    ax.scatter(np.arange(count), rows, s=14, color="black")
    labels = [f"{c.label}\nnot {c.foil}" if c.foil else c.label for c in result.choices]
    ax.set_xticks(range(count), labels, parse_math=False)
    ax.set_yticks(range(len(result.texts)), ["input", *map(str, result.layers[1:])])
    ax.tick_params(labelsize=TICK_SIZE, length=2, width=0.6)
    ax.set_ylabel(LAYER_LABEL, size=LABEL_SIZE)
    for row, text in enumerate(result.texts):
        label = shorten_text(text, 40) or "–"
        ax.text(count - 0.4, row, label, va="center", size=TICK_SIZE, parse_math=False)
    title = f"{result.kind} lens of the {result.stack}: text by layer on the right"
    ax.set_title(title, size=TICK_SIZE)
    bar = ax.figure.colorbar(image, ax=ax, location="left", shrink=0.8, pad=1.1 / size[0])
    bar.set_label("margin (nats)", size=LABEL_SIZE)
    bar.ax.tick_params(labelsize=TICK_SIZE)
    return ax


def lens_curve_panel(
    curves: pd.DataFrame, *, value: str = "accuracy", ax: Axes | None = None
) -> Axes:
    """Draw "accuracy", "error_rate" or "difference" of `speechmix.lens_curves` over layers.

    The band is the interval of a model, the dashed line the best of its untrained twins, the grey
    line chance.
    """
    ax = new_figure(4.2, 3.0).subplots() if ax is None else ax
    for (model, rows), color in zip(curves.groupby("model", sort=False), LINE_COLORS, strict=False):
        layers, name = rows["layer"], model_name(model)
        ax.plot(layers, rows[value], color=color, marker="o", markersize=3, label=name)
        ax.fill_between(
            layers, rows[f"{value}_low"], rows[f"{value}_high"], color=color, alpha=0.15
        )
        twin = rows[f"twin_{value}"]
        ax.plot(layers, twin, color=color, linestyle="--", label=f"{name}: best untrained twin")
    if value == "accuracy":
        ax.axhline(curves["chance"].max(), color="0.6", linewidth=0.7)
    ax.set_xlabel(LAYER_LABEL, size=LABEL_SIZE)
    ax.set_ylabel(_CURVE_LABELS[value], size=LABEL_SIZE)
    style_curve_axis(ax)
    ax.set_xticks(sorted(curves["layer"].unique()))
    ax.legend(fontsize=TICK_SIZE, frameon=False)
    return ax
