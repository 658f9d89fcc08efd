"""Draw decision maps: what a decision loses with each word, by layer, a panel for each stack.

In: a `DecisionMap`. Out: a Figure, nothing written. Layers go downwards and words to the right;
blue is as far below zero as red above, white is no drop. Red is what the decision leans on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from . import map_cells
from .figure_style import (
    LABEL_SIZE,
    LAYER_LABEL,
    TICK_SIZE,
    TITLE_SIZE,
    model_title,
    new_figure,
    shorten_text,
    wrap_text,
)

if TYPE_CHECKING:
    from matplotlib.cm import ScalarMappable

    from ...mixing.maps.decision_map import DecisionMap

_VALUE_LABELS = {
    "drop": "drop of the margin (nats)",
    "carried": "share of the margin carried over",
    "margin": "margin (nats)",
}
_MAX_NUMBERS = 300  # cells of a panel, above which numbers are too small to read


def decision_heat_map(
    decisions: DecisionMap,
    stack: str | None = None,
    *,
    value: str = "drop",
    ax: Axes | None = None,
) -> Axes:
    """Draw the map of one stack.

    Parameters
    ----------
    decisions : DecisionMap
    stack : str, optional
        The last by default.
    value : {"drop", "carried", "margin"}
    ax : Axes, optional
        Default: a new figure of pyplot.

    Returns
    -------
    Axes
    """
    stack = decisions.stacks[-1] if stack is None else stack
    array = np.ma.masked_invalid(decisions.scores(stack, value))
    if ax is None:
        from matplotlib import pyplot

        width, height = _panel_inches(array)
        ax = pyplot.figure(
            figsize=(width + 2.6, height + 1.3), layout="constrained", facecolor="white"
        ).subplots()
    cells = _draw_panel(ax, decisions, stack, array, map_cells.limits_around_zero([array]), value)
    ax.set_title(
        f"{shorten_text(decisions.provenance['item'], 40)}: {stack}", size=LABEL_SIZE, pad=3
    )
    if stack != "input":
        ax.set_ylabel(LAYER_LABEL, size=LABEL_SIZE)
    map_cells.add_color_bar(
        ax.figure,
        cells,
        ax,
        values=[array],
        label=_VALUE_LABELS[value],
        inches=_panel_inches(array)[1],
    )
    return ax


def decision_map(decisions: DecisionMap, *, value: str = "drop") -> Figure:
    """Draw a map of every stack, with one colour scale.

    Parameters
    ----------
    decisions : DecisionMap
        From `speechmix.knock_out`, `speechmix.patch` or `speechmix.ablate_input`.
    value : {"drop", "carried", "margin"}
        Which column; "carried" of a patch.

    Returns
    -------
    Figure
    """
    values = {
        stack: np.ma.masked_invalid(decisions.scores(stack, value)) for stack in decisions.stacks
    }
    limits = map_cells.limits_around_zero(list(values.values()))
    widths, heights = zip(*map(_panel_inches, values.values()), strict=True)
    height = max(heights)
    is_input_ablation = list(values) == ["input"]
    figure = new_figure(
        sum(widths) + 0.35 * len(widths) + (2.6 if is_input_ablation else 1.4), height + 1.3
    )
    axes = figure.subplots(1, len(values), squeeze=False, width_ratios=widths)[0]
    for ax, (stack, array) in zip(axes, values.items(), strict=True):
        cells = _draw_panel(ax, decisions, stack, array, limits, value)
        if not is_input_ablation:
            ax.set_title(stack, size=LABEL_SIZE, pad=3)
    axes[0].set_ylabel("" if is_input_ablation else LAYER_LABEL, size=LABEL_SIZE)
    intervention_names = (
        "input ablation" if is_input_ablation else ", ".join(decisions.interventions)
    )
    provenance = decisions.provenance
    item = shorten_text(provenance["item"], 40)
    title = (
        f"{model_title(provenance)}, {item}: {intervention_names}; margin {decisions.margin:.1f}"
    )
    figure.suptitle(wrap_text(title, figure.get_figwidth()), size=TITLE_SIZE, parse_math=False)
    map_cells.add_color_bar(
        figure,
        cells,
        list(axes),
        values=list(values.values()),
        label=_VALUE_LABELS[value],
        inches=height,
    )
    return figure


def _panel_inches(array: np.ma.MaskedArray) -> tuple[float, float]:
    """Width and height of a panel."""
    return max(0.5 * array.shape[1], 1.2), max(0.22 * len(array), 1.0)


def _draw_panel(
    ax: Axes,
    decisions: DecisionMap,
    stack: str,
    array: np.ma.MaskedArray,
    limits: tuple[float, float],
    value: str,
) -> ScalarMappable:
    """Draw the cells of one stack, with their words, rows and, where they fit, numbers."""
    cells = map_cells.draw_cells(ax, array, limits=limits, cmap=map_cells.DIFFERENCE_COLORS)
    ax.set_aspect("auto")
    if array.size <= _MAX_NUMBERS:
        map_cells.write_numbers(ax, cells, array, decimals=2 if value == "carried" else 1)
    words = [shorten_text(word, 12) for word in decisions.words(stack)]
    ax.set_xticks(np.arange(len(words)) + 0.5, words, size=TICK_SIZE, rotation=90, parse_math=False)
    rows = decisions.rows(stack)
    labelled_rows = range(0, len(rows), 1 + len(rows) // 32)
    ax.set_yticks(
        np.array(labelled_rows) + 0.5,
        [rows[row_index] for row_index in labelled_rows],
        size=TICK_SIZE,
        parse_math=False,
    )
    return cells
