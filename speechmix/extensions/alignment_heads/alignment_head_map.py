"""Draw errors of word boundaries by layer and head of cross-attention.

In: `AlignmentHeads`. Out: an Axes or a Figure. Layers go downwards, heads to the right; chosen heads
have bold numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...reporting.plots import map_cells
from ...reporting.plots.figure_style import (
    LABEL_SIZE,
    LAYER_LABEL,
    TICK_SIZE,
    TITLE_SIZE,
    model_title,
    new_figure,
)

if TYPE_CHECKING:
    from .head_choice import AlignmentHeads

_LABELS = {
    "error": "error of word boundaries (ms)",
    "correlation": "rank correlation with effects",
}
_MAX_NUMBERS = 300  # cells, above which numbers are too small to read


def alignment_head_map(
    heads: AlignmentHeads, value: str = "error", *, ax: Axes | None = None
) -> Axes:
    """Draw one value of each head.

    Parameters
    ----------
    heads : AlignmentHeads
    value : {"error", "correlation"}
    ax : Axes, optional
        Default: a new figure of pyplot.

    Returns
    -------
    Axes
    """
    matrix, is_chosen = (
        heads.table.pivot(index="layer", columns="head", values=name).to_numpy()
        for name in (value, "chosen")
    )
    values = np.ma.masked_invalid(matrix.astype(float))
    width, height = _panel_inches(matrix.shape)
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.figure(
            figsize=(width, height), layout="constrained", facecolor="white"
        ).subplots()
    is_error = value == "error"
    limits = (0.0, float(values.max())) if is_error else map_cells.limits_around_zero([values])
    colors = map_cells.SHARE_COLORS if is_error else map_cells.DIFFERENCE_COLORS
    cells = map_cells.draw_cells(ax, values, limits=limits, cmap=colors)
    ax.set_aspect("auto")
    if values.size <= _MAX_NUMBERS:
        map_cells.write_numbers(
            ax, cells, values, is_bold=is_chosen.astype(bool), decimals=0 if is_error else 2
        )
    for ticks, size in ((ax.set_xticks, matrix.shape[1]), (ax.set_yticks, matrix.shape[0])):
        labelled = range(0, size, 1 + size // 32)
        ticks(np.array(labelled) + 0.5, [str(index) for index in labelled], size=TICK_SIZE)
    ax.set_xlabel("head", size=LABEL_SIZE)
    ax.set_ylabel(LAYER_LABEL, size=LABEL_SIZE)
    map_cells.add_color_bar(
        ax.figure, cells, ax, values=[values], label=_LABELS[value], inches=height - 0.9
    )
    return ax


def alignment_head_figure(heads: AlignmentHeads) -> Figure:
    """Draw errors, and beside them correlations with effects of removal if they were measured."""
    values = [value for value in _LABELS if value in heads.table]
    shape = heads.table["layer"].nunique(), heads.table["head"].nunique()
    width, height = _panel_inches(shape)
    figure = new_figure(width * len(values), height + 0.3)
    for ax, value in zip(figure.subplots(1, len(values), squeeze=False)[0], values, strict=True):
        alignment_head_map(heads, value, ax=ax)
    figure.suptitle(
        f"{model_title(heads.provenance)}: heads of cross-attention, chosen ones bold",
        size=TITLE_SIZE,
        parse_math=False,
    )
    return figure


def _panel_inches(shape: tuple[int, ...]) -> tuple[float, float]:
    """Width and height of a panel with its labels."""
    return max(0.4 * shape[1], 1.6) + 1.4, max(0.24 * shape[0], 1.2) + 0.9
