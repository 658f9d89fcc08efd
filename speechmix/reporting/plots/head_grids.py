"""Draw the heads of a map as small multiples, layers downwards and heads to the right.

In: a `MixingMap` with heads (``mix(..., heads="each")``). Out: a Figure. Rows of each head are
shares that sum to 100 %, on one colour scale; what the cue gives the target is outlined, and the
deciding row marked, where the map knows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from ...errors import InputError
from ...evaluation.cue_contribution import deciding_row
from ...evaluation.statistics.groups import choose_evenly
from ...mixing.maps.mixing_map import MixingMap
from . import figure_style as unit_labels
from . import map_cells
from .figure_style import (
    LABEL_SIZE,
    LINE_PITCH,
    SHARE_LABEL,
    TARGET_COLOR,
    TITLE_SIZE,
    ShownFigure,
    new_figure,
    shorten_text,
)
from .map_figures import check_drawable, label_axis, map_title

_MAX_LAYERS, _MAX_HEADS, _MAX_LABEL_LETTERS = 12, 16, 12
_PANELS_SIZE = (11.0, 11.0)  # inches, of all panels together
_GAP = 0.07  # inches between panels


def head_grid(
    mixing_map: MixingMap,
    *,
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
) -> ShownFigure:
    """Draw every head of every layer, with one colour scale and labels only at the outer edge.

    Parameters
    ----------
    mixing_map : MixingMap
        With heads.
    layers, heads : sequence of int, optional
        Counted from 0. By default all, or 12 layers and 16 heads evenly chosen if there are more,
        with the first and the last.

    Returns
    -------
    Figure
        A notebook shows it; `figure.savefig("x.pdf")` writes it. Its axes are the panels, layer by
        layer, then the colour bar.

    Raises
    ------
    InputError
        If the map does not keep its heads, does not have one of the layers or heads, or has no
        units.

    Examples
    --------
    >>> from speechmix.inputs.words.spans import Span
    >>> words = (Span(0, 10, "les"), Span(10, 30, "livres"))
    >>> scores = np.random.default_rng(0).random((2, 4, 2, 2))
    >>> figure = head_grid(MixingMap(scores, words, words, "attention", "encoder", (0, 5)), heads=[0, 2, 3])
    >>> [ax.get_title() for ax in figure.axes[:3]], [ax.get_ylabel() for ax in figure.axes[:6:3]]
    (['head 0', 'head 2', 'head 3'], ['layer 0', 'layer 5'])
    """
    check_drawable(mixing_map)
    if not mixing_map.has_heads:
        mixing_map.head(0)  # raises, and says what to ask for
    layers = choose_evenly(mixing_map.layers, _MAX_LAYERS) if layers is None else list(layers)
    heads = (
        choose_evenly(range(mixing_map.scores.shape[1]), _MAX_HEADS)
        if heads is None
        else list(heads)
    )
    if not layers or not heads:
        raise InputError("layers or heads is empty: name at least one, or leave it out for all")
    values = _head_shares(mixing_map, layers, heads)
    limits = map_cells.color_limits([array for layer_values in values for array in layer_values])
    grid = _Grid.from_map(mixing_map, len(layers), len(heads))
    figure = grid.figure()
    axes = figure.subplots(len(layers), len(heads), squeeze=False, gridspec_kw=grid.margins)
    for row, (row_axes, layer_values, layer) in enumerate(zip(axes, values, layers, strict=True)):
        for column, (ax, array, head) in enumerate(zip(row_axes, layer_values, heads, strict=True)):
            cells = map_cells.draw_cells(ax, array, limits=limits)
            x_unit, y_unit = _label_panel(ax, mixing_map, grid)
            ax.tick_params(left=column == 0, labelleft=column == 0)
            ax.tick_params(bottom=row == len(layers) - 1, labelbottom=row == len(layers) - 1)
            ax.set_title(f"head {head}" if row == 0 else "", size=LABEL_SIZE, pad=3)
        row_axes[0].set_ylabel(f"layer {layer}", size=LABEL_SIZE)
        if (deciding := deciding_row(mixing_map)) is not None:
            map_cells.mark_row(row_axes[-1], deciding)
    column_name, row_name = unit_labels.axis_names(mixing_map)
    figure.supxlabel(
        label_axis(column_name, x_unit),
        size=LABEL_SIZE,
        y=0.05 / figure.get_figheight(),
        va="bottom",
    )
    figure.supylabel(
        label_axis(row_name, y_unit), size=LABEL_SIZE, x=0.05 / figure.get_figwidth(), ha="left"
    )
    title = map_title(mixing_map).replace("\n", " · ")
    figure.suptitle(
        shorten_text(title, int(figure.get_figwidth() / 0.075)),
        size=TITLE_SIZE,
        parse_math=False,
    )
    arrays = [array for layer_values in values for array in layer_values]
    color_bar_axes = figure.add_axes(grid.bar)
    bar_height = grid.bar[3] * figure.get_figheight()
    map_cells.add_color_bar(
        figure,
        cells,
        None,
        values=arrays,
        label=SHARE_LABEL,
        inches=bar_height,
        bar_axes=color_bar_axes,
    )
    return figure


def _head_shares(
    mixing_map: MixingMap, layers: Sequence[int], heads: Sequence[int]
) -> list[list[np.ma.MaskedArray]]:
    """Return the shares of each row in percent, by layer and head."""
    shares_by_head = [map_cells.displayed_shares(mixing_map.head(head)) for head in heads]
    for layer in layers:
        mixing_map.layer(layer)  # raises if there is none
    return [
        [shares[mixing_map.layers.index(layer)] for shares in shares_by_head] for layer in layers
    ]


def _label_panel(ax: Axes, mixing_map: MixingMap, grid: _Grid) -> tuple[str, str]:
    """Label the units on both sides and outline the share of the cue in the target; return the
    axes' units."""
    ax.set_aspect("auto")
    provenance, deciding = mixing_map.provenance, deciding_row(mixing_map)
    highlighted_rows = {} if deciding is None else {deciding: TARGET_COLOR}
    map_cells.outline_cells(
        ax,
        mixing_map.targets,
        mixing_map.sources,
        cue=provenance.get("cue"),
        target=provenance.get("target"),
    )
    return (
        unit_labels.label_units(
            ax, "x", mixing_map.sources, inches=grid.width, max_letters=_MAX_LABEL_LETTERS
        ),
        unit_labels.label_units(
            ax,
            "y",
            mixing_map.targets,
            inches=grid.height,
            max_letters=_MAX_LABEL_LETTERS,
            highlighted_units=highlighted_rows,
        ),
    )


@dataclass(frozen=True)
class _Grid:
    """Layout of the panels in inches: their size, and the margins around them."""

    rows: int
    columns: int
    width: float
    height: float
    left: float
    below: float
    above: float = 0.5
    right: float = 0.85

    @classmethod
    def from_map(cls, mixing_map: MixingMap, rows: int, columns: int) -> _Grid:
        """Lay out panels in the proportions of the map, as large as all of them may be."""
        ratio = min(max(len(mixing_map.targets) / len(mixing_map.sources), 0.4), 2.5)
        width = min(
            max(LINE_PITCH * len(mixing_map.sources), 0.8),
            1.8,
            _PANELS_SIZE[0] / columns,
        )
        height = min(width * ratio, _PANELS_SIZE[1] / rows, 2.4)
        left = unit_labels.label_inches(mixing_map.targets, max_letters=_MAX_LABEL_LETTERS) + 0.5
        below = (
            unit_labels.label_inches(
                mixing_map.sources, max_letters=_MAX_LABEL_LETTERS, inches=width
            )
            + 0.3
        )
        return cls(rows, columns, width, height, left, below)

    @property
    def size(self) -> tuple[float, float]:
        """Width and height of the whole figure."""
        wide = self.left + self.columns * self.width + (self.columns - 1) * _GAP + self.right
        tall = self.below + self.rows * self.height + (self.rows - 1) * _GAP + self.above
        return wide, tall

    def figure(self) -> ShownFigure:
        """Empty, from_map this size; placed by hand, as solving for the places from_map some hundred panels
        takes long."""
        figure = new_figure(*self.size)
        figure.set_layout_engine("none")
        return figure

    @property
    def margins(self) -> dict[str, float]:
        """Margins as matplotlib's `GridSpec` takes them."""
        wide, tall = self.size
        return {
            "left": self.left / wide,
            "right": 1 - self.right / wide,
            "bottom": self.below / tall,
            "top": 1 - self.above / tall,
            "wspace": _GAP / self.width,
            "hspace": _GAP / self.height,
        }

    @property
    def bar(self) -> tuple[float, float, float, float]:
        """Left, bottom, width and height of the colour bar as fractions of the figure."""
        wide, tall = self.size
        panels_tall = tall - self.below - self.above
        length = min(panels_tall, 4.0)
        return (
            1 - (self.right - 0.15) / wide,
            (self.below + (panels_tall - length) / 2) / tall,
            0.13 / wide,
            length / tall,
        )
