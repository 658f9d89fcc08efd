"""Draw look-ahead: what a word's score loses without what comes later, over the delay and by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

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
    from matplotlib.figure import Figure

    from .look_ahead_curves import LookAhead

_LABELS = {
    "word": "attention from the word",
    "prefix": "attention from all earlier frames",
    "cut": "sound: cut off",
    "zeros": "sound: muted",
    "past": "control: as many earlier frames",
}
_STYLES = dict(
    zip(_LABELS, zip(LINE_COLORS[1:6], ("-", "-", "-", "-", "--"), strict=True), strict=True)
)
_DELAY_LABEL = "removed: what comes more than this many ms after the word"
_EFFECT_LABEL = "score lost (nats)"


def look_ahead_figure(result: LookAhead) -> Figure:
    """Draw the curves of a model, and maps of single layers where these were measured.

    Parameters
    ----------
    result : LookAhead

    Returns
    -------
    Figure
        Lines are intervals, 95 % together for all curves. In maps of layers a dot marks cells whose
        interval excludes zero; these are 95 % together for all layers.
    """
    curves = result.curves
    by_layer = curves[(curves["window"] == "1") & (curves["removal"] == "word")]
    stacks = list(by_layer["stack"].unique())
    figure = new_figure(5.0 + 2.7 * len(stacks), 3.7)
    axes = figure.subplots(
        1, 1 + len(stacks), squeeze=False, width_ratios=[1.5, *[1] * len(stacks)]
    )[0]
    look_ahead_panel(result, ax=axes[0])
    limit = max(1e-3, by_layer["effect"].abs().max()) if stacks else 0.0
    for axis, stack in zip(axes[1:], stacks, strict=True):
        _draw_layers(axis, by_layer[by_layer["stack"] == stack], stack, limit)
    figure.suptitle(f"{model_title(result.provenance)}: look-ahead", size=LABEL_SIZE + 1)
    return figure


def look_ahead_panel(result: LookAhead, *, ax: Axes | None = None) -> Axes:
    """Draw the curves of `look_ahead_figure` alone: attention of all layers, and sound."""
    curves = result.curves[
        (result.curves["window"] == "all") & (result.curves["removal"] != "chunk")
    ]
    ax = new_figure(5.4, 3.6).subplots() if ax is None else ax
    curves = curves[curves["stack"].isin([result.main_stack, "input"])]
    delays, handles = sorted(curves["ms"].unique()), []
    for index, (removal, curve) in enumerate(curves.groupby("removal", sort=False)):
        color, dash = _STYLES[str(removal)]
        positions = [delays.index(delay) + 0.11 * (index - 2) for delay in curve["ms"]]
        style: LineStyle = {"color": color, "linestyle": dash, "linewidth": 1.4}
        ax.plot(positions, curve["effect"], marker="o", markersize=2.5, **style)
        ax.vlines(positions, curve["low"], curve["high"], color=color, alpha=0.55, linewidth=1)
        handles.append(legend_line(label=_LABELS[str(removal)], **style))
    ax.axhline(0, color="0.4", linewidth=0.7)
    _label_delays(ax, delays)
    ax.set_xlabel(_DELAY_LABEL, size=LABEL_SIZE)
    ax.set_ylabel(_EFFECT_LABEL, size=LABEL_SIZE)
    style_curve_axis(ax)
    add_legend(ax, handles, columns=2, loc="upper center", bbox_to_anchor=(0.5, -0.28))
    return ax


def _label_delays(ax: Axes, delays: Sequence[float]) -> None:
    ax.set_xticks(range(len(delays)), [f"{delay:g}" for delay in delays], rotation=60)


def _draw_layers(ax: Axes, rows: pd.DataFrame, stack: str, limit: float) -> None:
    """Draw effects as a map [layers, delays]."""
    effects, low, high = (
        rows.pivot(index="layer", columns="ms", values=name).to_numpy(float)
        for name in ("effect", "low", "high")
    )
    image = ax.imshow(effects, cmap="PuOr_r", vmin=-limit, vmax=limit, aspect="auto")
    layers, columns = np.nonzero((low > 0) | (high < 0))
    ax.scatter(columns, layers, s=5, color="black")
    _label_delays(ax, sorted(rows["ms"].unique()))
    ax.set_yticks(range(len(effects)))
    ax.tick_params(labelsize=TICK_SIZE, length=2, width=0.6)
    ax.set_xlabel("ms after the word", size=LABEL_SIZE)
    ax.set_ylabel("layer (counted from 0)", size=LABEL_SIZE)
    ax.set_title(f"{stack}, one layer (dot: interval excludes 0)", size=TICK_SIZE)
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.8, pad=0.02)
    bar.set_label(_EFFECT_LABEL, size=LABEL_SIZE)
    bar.ax.tick_params(labelsize=TICK_SIZE)
