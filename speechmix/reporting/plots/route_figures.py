"""Draw routes from the sources on the left through the layers to the target on the right, as wide
as they are strong.

In: `Routes` of `speechmix.mixing.maps.composition`. Out: a Figure, nothing written. Only layers in which
some route goes to another unit are drawn; the encoder's units stand above the decoder's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from ...mixing.maps.measure_registry import measure_label
from .figure_style import LABEL_SIZE, TICK_SIZE, TITLE_SIZE, new_figure, shorten_text, wrap_text
from .token_figure import NEGATIVE_COLOR, POSITIVE_COLOR

if TYPE_CHECKING:
    from ...mixing.maps.composition import Routes

_MAX_RIBBON_WIDTH = 0.75  # of the distance between two units, for a route that is all of the row


def routes_figure(routes: Routes) -> Figure:
    """Draw routes; blue routes start in the encoder, red ones in the text that the decoder was fed.

    Parameters
    ----------
    routes : Routes

    Returns
    -------
    Figure
    """
    levels = _drawn_levels(routes)
    nodes = sorted(
        {node for route in routes.paths for node in route},
        key=lambda node: (node[0] == "decoder", node[1]),
    )
    heights = {node: -index - 0.6 * (node[0] == "decoder") for index, node in enumerate(nodes)}
    figure = new_figure(1.15 * len(levels) + 2.4, 0.32 * len(nodes) + 1.2)
    ax = figure.subplots()
    for share, route in zip(routes.shares, routes.paths, strict=True):
        color = (
            POSITIVE_COLOR
            if route[-1][0] == "encoder" or len(routes.units) == 1
            else NEGATIVE_COLOR
        )
        x_positions = np.arange(len(levels))
        _draw_ribbon(
            ax,
            x_positions,
            [heights[route[level]] for level in levels],
            _MAX_RIBBON_WIDTH * share,
            color,
        )
    for node in nodes:
        text = shorten_text(routes.label(node), 16)
        ax.text(
            -0.12, heights[node], text, ha="right", va="center", size=TICK_SIZE, parse_math=False
        )
    row = routes.paths[0][0]
    ax.text(
        len(levels) - 0.88,
        heights[row],
        f"→ {routes.target}",
        va="center",
        size=LABEL_SIZE,
        parse_math=False,
    )
    level_names = ["source", *(_level_name(routes, level) for level in levels[1:])]
    ax.set_xticks(np.arange(len(levels)), level_names, size=TICK_SIZE, rotation=30, ha="right")
    ax.set(xlim=(-0.1, len(levels) - 0.3), ylim=(min(heights.values()) - 0.7, 0.7), yticks=[])
    for spine in ax.spines.values():
        spine.set_visible(False)
    title = (
        f"{measure_label(routes.measure)}: {len(routes.paths)} routes, {sum(routes.shares):.0%} "
        f"of {routes.target!r}"
    )
    figure.suptitle(wrap_text(title, figure.get_figwidth()), size=TITLE_SIZE, parse_math=False)
    return figure


def _drawn_levels(routes: Routes) -> list[int]:
    """List the positions in a route that are drawn: the source, and each layer after which some
    route is elsewhere."""
    step_count = len(routes.steps)
    changing_levels = [
        level
        for level in range(step_count)
        if any(route[level] != route[level + 1] for route in routes.paths)
    ]
    return [step_count, *sorted(changing_levels, reverse=True)]


def _level_name(routes: Routes, level: int) -> str:
    step = routes.steps[level]
    crosses_stacks = any(route[level][0] != route[level + 1][0] for route in routes.paths)
    return step.name if not crosses_stacks else f"{step.crossing}, {step.name}"


def _draw_ribbon(
    ax: Axes, x_positions: np.ndarray, heights: list[float], width: float, color: str
) -> None:
    """Draw a band that leaves and reaches each level horizontally."""
    upper_edge, lower_edge = (
        [(float(x_positions[0]), heights[0] + width / 2)],
        [(float(x_positions[0]), heights[0] - width / 2)],
    )
    for x, next_x, height, next_height in zip(
        x_positions, x_positions[1:], heights, heights[1:], strict=False
    ):
        middle = (x + next_x) / 2
        for edge_points, edge in ((upper_edge, width / 2), (lower_edge, -width / 2)):
            edge_points += [
                (middle, height + edge),
                (middle, next_height + edge),
                (next_x, next_height + edge),
            ]
    points = [*upper_edge, *reversed(lower_edge), upper_edge[0]]
    codes = [
        Path.MOVETO,
        *[Path.CURVE4] * (len(upper_edge) - 1),
        Path.LINETO,
        *[Path.CURVE4] * (len(lower_edge) - 1),
        Path.CLOSEPOLY,
    ]
    ax.add_patch(
        PathPatch(Path(points, codes), facecolor=color, alpha=0.45, linewidth=0.4, edgecolor=color)
    )
