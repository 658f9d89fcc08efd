"""Draw strips of mixing strength under curves of cue contribution.

In: what `computed_curves.layer_strengths` has of a panel. Out: drawing on Axes that the caller
owns. A strength below the floor (`maps.numerics.STRENGTH_FLOOR`) means that the layer's shares are
shares of next to nothing: its points are grey.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.ticker import FixedLocator, NullLocator

from ...mixing.maps.numerics import STRENGTH_FLOOR
from .figure_style import TICK_SIZE, style_curve_axis, style_layer_axis

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
