"""Routes drawn: from the sources on the left through the layers to the row on the right, as wide as
they are strong.

In: `Routes` of `speechmix.mixing.maps.mixing_routes`. Out: a Figure, nothing written. Only layers in which
some route goes to another unit are drawn; the encoder's units stand above the decoder's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from ...mixing.maps.measure_facts import measure_label
from . import panels
from .coloured_tokens import GIVES, TAKES
from .panels import LABEL_SIZE, TICK_SIZE, TITLE_SIZE

if TYPE_CHECKING:
    from ...mixing.maps.mixing_routes import Routes

_WIDEST = 0.75  # of the distance between two units, for a route that is all of the row


def routes_figure(routes: Routes) -> Figure:
    """Draw routes; blue ones come from the encoder's side, red ones from what the decoder was fed.

    Parameters
    ----------
    routes : Routes

    Returns
    -------
    Figure
    """
    levels = _levels(routes)
    nodes = sorted(
        {node for way in routes.paths for node in way},
        key=lambda node: (node[0] == "decoder", node[1]),
    )
    heights = {node: -place - 0.6 * (node[0] == "decoder") for place, node in enumerate(nodes)}
    figure = panels.new_figure(1.15 * len(levels) + 2.4, 0.32 * len(nodes) + 1.2)
    ax = figure.subplots()
    for share, way in zip(routes.shares, routes.paths, strict=True):
        color = GIVES if way[-1][0] == "encoder" or len(routes.units) == 1 else TAKES
        xs = np.arange(len(levels))
        _draw_ribbon(ax, xs, [heights[way[level]] for level in levels], _WIDEST * share, color)
    for node in nodes:
        text = panels.shorten_text(routes.label(node), 16)
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
    names = ["source", *(_name(routes, level) for level in levels[1:])]
    ax.set_xticks(np.arange(len(levels)), names, size=TICK_SIZE, rotation=30, ha="right")
    ax.set(xlim=(-0.1, len(levels) - 0.3), ylim=(min(heights.values()) - 0.7, 0.7), yticks=[])
    for spine in ax.spines.values():
        spine.set_visible(False)
    title = (
        f"{measure_label(routes.measure)}: {len(routes.paths)} routes, {sum(routes.shares):.0%} "
        f"of {routes.target!r}"
    )
    figure.suptitle(
        panels.wrap_text(title, figure.get_figwidth()), size=TITLE_SIZE, parse_math=False
    )
    return figure


def _levels(routes: Routes) -> list[int]:
    """Places in a way, from the source on: the source itself, and each layer behind which some
    route is elsewhere."""
    count = len(routes.steps)
    moved = [
        level for level in range(count) if any(way[level] != way[level + 1] for way in routes.paths)
    ]
    return [count, *sorted(moved, reverse=True)]


def _name(routes: Routes, level: int) -> str:
    step = routes.steps[level]
    crosses = any(way[level][0] != way[level + 1][0] for way in routes.paths)
    return step.name if not crosses else f"{step.crossing}, {step.name}"


def _draw_ribbon(ax: Axes, xs: np.ndarray, heights: list[float], width: float, color: str) -> None:
    """A band that leaves and reaches each level horizontally."""
    upper, lower = (
        [(float(xs[0]), heights[0] + width / 2)],
        [(float(xs[0]), heights[0] - width / 2)],
    )
    for x, next_x, height, next_height in zip(xs, xs[1:], heights, heights[1:], strict=False):
        middle = (x + next_x) / 2
        for side, edge in ((upper, width / 2), (lower, -width / 2)):
            side += [
                (middle, height + edge),
                (middle, next_height + edge),
                (next_x, next_height + edge),
            ]
    points = [*upper, *reversed(lower), upper[0]]
    codes = [
        Path.MOVETO,
        *[Path.CURVE4] * (len(upper) - 1),
        Path.LINETO,
        *[Path.CURVE4] * (len(lower) - 1),
        Path.CLOSEPOLY,
    ]
    ax.add_patch(
        PathPatch(Path(points, codes), facecolor=color, alpha=0.45, linewidth=0.4, edgecolor=color)
    )
