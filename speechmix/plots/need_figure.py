"""Contribution beside need: how much the cue gives in each layer, and what the decision loses without it there.

In: a table of contributions, as in `cue_tables`, and one of drops by layer (`evaluation.need.need_by_layer`). Out: a Figure. A
line of two panels for each model and stack: left the trained model over the band where a new untrained one would lie, right the
drop of the margin with the cue's values zeroed in that layer alone.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from . import panels
from .cue_curves import layer_curves
from .panels import CUE_COLOR, CUE_LABEL, LABEL_SIZE, TITLE_SIZE

DROP_LABEL = "drop of the margin (nats)"
_MOST_LINES = 9


def contribution_and_need(table: pd.DataFrame, drops: pd.DataFrame, *, measure: str = "value_zeroing") -> Figure:
    """Draw contribution and need side by side, a line for each model and stack.

    Parameters
    ----------
    table : DataFrame
        Contributions of one side of the cue; see `cue_figure`.
    drops : DataFrame
        Columns model, ablated (the stack), layer, drop, low, high; may be empty.
    measure : str
        Which measure of contribution.

    Returns
    -------
    Figure
    """
    rows = table[table["measure"] == measure]
    lines = list(rows[["model", "stack"]].drop_duplicates().itertuples(index=False, name=None))[:_MOST_LINES]
    figure = panels.new_figure(6.6, 1.55 * len(lines) + 0.7)
    axes = figure.subplots(len(lines), 2, squeeze=False)
    for number, (model, stack) in enumerate(lines):
        left, right = axes[number]
        layer_curves(rows[(rows["model"] == model) & (rows["stack"] == stack)], ax=left)
        left.set_title(f"{panels.model_name(model)}, {stack}: contribution", size=TITLE_SIZE, parse_math=False)
        left.set(ylabel="", xlabel="" if number < len(lines) - 1 else left.get_xlabel())
        left.set_ylim(bottom=0)
        _draw_drops(right, drops[(drops["model"] == model) & (drops["ablated"] == stack)])
        right.set_title("need", size=TITLE_SIZE)
        right.set_xlabel("" if number < len(lines) - 1 else panels.LAYER_LABEL, size=LABEL_SIZE)
        right.set_xlim(left.get_xlim())
    limits = [ax.get_ylim() for ax in axes[:, 1]]
    for ax in axes[:, 1]:  # one scale for what is lost, so that lines can be compared
        ax.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
    figure.supylabel(f"left: {CUE_LABEL}; right: {DROP_LABEL}", size=LABEL_SIZE)
    return figure


def _draw_drops(ax: Axes, drops: pd.DataFrame) -> None:
    drops = drops.sort_values("layer")
    ax.axhline(0, color="0.6", linewidth=0.8)
    if drops.empty:
        ax.text(0.5, 0.5, "not asked", transform=ax.transAxes, ha="center", size=LABEL_SIZE)
    errors = [drops["drop"] - drops["low"], drops["high"] - drops["drop"]]
    ax.errorbar(drops["layer"], drops["drop"], yerr=errors, fmt="o-", color=CUE_COLOR, markersize=4, linewidth=1.2)
    panels.style_layer_axis(ax)
