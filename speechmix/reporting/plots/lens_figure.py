"""Draw lenses: margins by layer and word with each layer's text, and curves over clips."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .figure_style import (
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

    from ...interventions.lens_result import LensResult

_MOST_LETTERS = 40


def lens_panel(result: LensResult, *, ax: Axes | None = None) -> Axes:
    """Draw the margins as a map, layers upwards, with what each layer would have written.

    Parameters
    ----------
    result : LensResult
    ax : Axes, optional

    Returns
    -------
    Axes
        Blue: the layer prefers the word. A dot marks the layer that decides it.
    """
    count = len(result.choices)
    ax = (
        new_figure(3.6 + 0.7 * count, 1.2 + 0.24 * len(result.texts)).subplots()
        if ax is None
        else ax
    )
    finite = result.margins[np.isfinite(result.margins)]
    limit = max(float(np.abs(finite).max(initial=0.0)), 1e-9)
    image = ax.imshow(
        result.margins, cmap="RdBu", vmin=-limit, vmax=limit, aspect="auto", origin="lower"
    )
    rows = result.decided_layers + 1
    is_known = np.isfinite(rows)
    ax.scatter(np.flatnonzero(is_known), rows[is_known], s=14, color="black")
    labels = [f"{c.label}\nnot {c.foil}" if c.foil else c.label for c in result.choices]
    ax.set_xticks(range(count), [label.replace("$", r"\$") for label in labels])
    ax.set_yticks(range(len(result.texts)), ["input", *map(str, result.layers[1:])])
    ax.tick_params(labelsize=TICK_SIZE, length=2, width=0.6)
    ax.set_ylabel(LAYER_LABEL, size=LABEL_SIZE)
    for row, text in enumerate(result.texts):
        shown = shorten_text(text, _MOST_LETTERS).replace("$", r"\$") or "–"
        ax.text(count - 0.4, row, shown, va="center", size=TICK_SIZE, clip_on=False)
    ax.set_title(
        f"{result.kind} lens of the {result.stack}: text by layer on the right", size=TICK_SIZE
    )
    bar = ax.figure.colorbar(image, ax=ax, location="left", shrink=0.8, pad=0.2)
    bar.set_label("margin (nats)", size=LABEL_SIZE)
    bar.ax.tick_params(labelsize=TICK_SIZE)
    return ax


def lens_curve_panel(
    curves: pd.DataFrame, *, value: str = "accuracy", ax: Axes | None = None
) -> Axes:
    """Draw a value over layers, of each model with its interval and its untrained twins.

    Parameters
    ----------
    curves : DataFrame
        From `evaluation.lens_curves.lens_curves`.
    value : {"accuracy", "error_rate", "difference"}
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    ax = new_figure(4.2, 3.0).subplots() if ax is None else ax
    for (model, rows), color in zip(curves.groupby("model", sort=False), LINE_COLORS, strict=False):
        ax.plot(
            rows["layer"],
            rows[value],
            color=color,
            marker="o",
            markersize=3,
            label=model_name(model),
        )
        ax.fill_between(
            rows["layer"], rows[f"{value}_low"], rows[f"{value}_high"], color=color, alpha=0.15
        )
        if rows[f"twin_{value}"].notna().any():
            ax.plot(
                rows["layer"],
                rows[f"twin_{value}"],
                color=color,
                linestyle="--",
                label="best untrained twin",
            )
    if value == "accuracy":
        ax.axhline(0.5, color="0.6", linewidth=0.7)
    ax.set_xlabel(LAYER_LABEL, size=LABEL_SIZE)
    names = {"accuracy": "target beats foil (share of clips)", "error_rate": "character error rate"}
    ax.set_ylabel(names.get(value, "difference from the last layer's text"), size=LABEL_SIZE)
    style_curve_axis(ax)
    ax.legend(fontsize=TICK_SIZE, frameon=False)
    return ax
