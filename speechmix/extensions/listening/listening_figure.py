"""Draw how many items need the sound, are solved without it, or follow the text, for one or several models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from ...reporting.plots.figure_style import (
    LABEL_SIZE,
    LINE_COLORS,
    add_legend,
    legend_line,
    model_title,
    style_curve_axis,
)
from .shares import ALL_ITEMS, SHARES, SOLVED, SOLVED_WITHOUT

if TYPE_CHECKING:
    from .listening_result import Listening

_SPREAD = 0.4  # of a row, over which the models of a share lie


def model_labels(results: Sequence[Listening]) -> list[str]:
    """Return a label of its own for each model, with a number where two have the same name."""
    titles = [model_title(result.provenance) for result in results]
    if len({*titles}) == len(titles):
        return titles
    return [f"{number}. {title}" for number, title in enumerate(titles, 1)]


def listening_panel(results: Sequence[Listening], *, ax: Axes | None = None) -> Axes:
    """Draw the shares of items with their intervals.

    Parameters
    ----------
    results : sequence of Listening
        One for each model, over the same items.
    ax : Axes, optional
        Default: a new figure of pyplot.

    Returns
    -------
    Axes
        Lines are 95 % intervals over groups of items, missing for few groups. A grey tick is the share that guessing
        solves.
    """
    if ax is None:
        from matplotlib import pyplot

        height = 1.0 + 0.28 * len(SHARES) + 0.12 * len(SHARES) * len(results)
        ax = pyplot.figure(
            figsize=(5.2, height), layout="constrained", facecolor="white"
        ).subplots()
    offsets = np.linspace(-_SPREAD / 2, _SPREAD / 2, len(results)) if len(results) > 1 else [0.0]
    colors = [LINE_COLORS[(5 + index) % len(LINE_COLORS)] for index in range(len(results))]
    share_names = {name for result in results for name in result.shares["share"]}
    names = [name for name in SHARES if name in share_names]
    for result, offset, color in zip(results, offsets, colors, strict=True):
        of_all = result.shares[result.shares["kind"] == ALL_ITEMS]
        for share in of_all.to_dict("records"):
            row = names.index(share["share"])
            value, low, high = (100 * share[key] for key in ("value", "low", "high"))
            ax.plot([low, high], [row + offset] * 2, color=color, linewidth=1.2)
            ax.plot(value, row + offset, "o", color=color, markersize=4)
            if share["share"] in (SOLVED, SOLVED_WITHOUT) and share["chance"] > 0:
                edges = [row - 0.32, row + 0.32]
                ax.plot([100 * share["chance"]] * 2, edges, color="0.6", linewidth=0.8)
    lows = [result.shares[["value", "low"]].min().min() for result in results]
    ax.set(
        xlim=(100 * min(0, *lows) - 3, 103), ylim=(len(names) - 0.5, -0.5), yticks=range(len(names))
    )
    ax.set_yticklabels(names)
    ax.set_xlabel("share of items (%)", size=LABEL_SIZE)
    style_curve_axis(ax)
    if len(results) > 1:
        entries = [
            legend_line(color=color, marker="o", markersize=4, label=name)
            for color, name in zip(colors, model_labels(results), strict=True)
        ]
        add_legend(ax, entries, columns=1, loc="upper center", bbox_to_anchor=(0.5, -0.22))
    return ax
