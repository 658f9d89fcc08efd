"""Draw the cells of a map: colours, numbers, colour bar, and marks for cue and target.

In: layers of a `MixingMap`. Out: drawing on an Axes that the caller owns.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Rectangle

from ...inputs.words.cue_and_target import Cue, cue_words
from ...inputs.words.spans import Span
from ...mixing.maps.mixing_map import MixingMap
from .figure_style import CELL_COLOR, LABEL_SIZE, ROW_MARKER, TARGET_COLOR, TICK_SIZE

# One map for each purpose, all perceptually uniform, zero is light. Missing values are a grey that
# none of them holds.
SHARE_COLORS, SPECTROGRAM_COLORS = "magma_r", "gray_r"
DIFFERENCE_COLORS = "RdBu_r"  # signed: zero is white, told apart by colour-blind readers
MISSING_COLOR = "0.78"
_MAX_SHARP_CELLS = 20_000
# Ink of numbers on cells with shares, whose scale a dark page reverses: on cells that are light on
# paper, on those that are light when reversed (a page makes this ink dark there), and on those
# between, which are dark on both.
_ON_LIGHT_CELL, _ON_DARK_CELL, _ON_MEDIUM_CELL = "#0a0a0a", "#fefefe", "#ffffff"
_ON_FIXED_LIGHT_CELL = "#0b0b0b"  # on light cells of a scale that stays


def color_map(name: str) -> Colormap:
    """Return a colour map by name, with missing values in grey."""
    from matplotlib import colormaps

    return colormaps[name].with_extremes(bad=MISSING_COLOR)


def displayed_shares(mixing_map: MixingMap, *, normalize: bool = True) -> np.ma.MaskedArray:
    """Return the values to draw: shares of each row in percent, or raw scores; mean over heads; [L,
    W_t, W_s].

    A row with a score that is not finite has no shares, so the whole of it is masked.
    """
    if normalize:
        return np.ma.masked_invalid(
            100.0 * mixing_map.normalized().mean_heads().scores.astype(np.float64)
        )
    return np.ma.masked_invalid(mixing_map.mean_heads().scores.astype(np.float64))


def color_limits(values: Collection[np.ma.MaskedArray]) -> tuple[float, float]:
    """Return the limits of the colour scale that several maps share.

    Rows with a single source are left out (the first position of a causal stack: always 100 %),
    because they would bleach all others; they are drawn in the last colour and the colour bar ends
    in an arrow.
    """
    arrays = [np.ma.filled(array, 0.0) for array in values]
    rows = [array[np.count_nonzero(array, axis=-1) > 1] for array in arrays]
    scaled_rows = [array for array in rows if array.size] or arrays
    largest = max((float(array.max(initial=0.0)) for array in scaled_rows), default=0.0)
    return min(float(array.min(initial=0.0)) for array in arrays), largest or 1.0


def limits_around_zero(values: Collection[np.ma.MaskedArray]) -> tuple[float, float]:
    """Return the limits of a colour scale of differences, as far below zero as above."""
    largest = (
        max((float(np.abs(array).max()) for array in values if np.ma.count(array)), default=0.0)
        or 1.0
    )
    return -largest, largest


def draw_cells(
    ax: Axes, values: np.ma.MaskedArray, *, limits: tuple[float, float], cmap: str = SHARE_COLORS
) -> ScalarMappable:
    """Draw [rows, columns] with row 0 at the top; cell (i, j) has its centre at (j + 0.5, i +
    0.5)."""
    rows, columns = values.shape
    cells = ax.imshow(
        values,
        extent=(0, columns, rows, 0),
        # Few cells are kept as they are in vector files; many are averaged where a pixel holds
        # several.
        interpolation="none" if values.size <= _MAX_SHARP_CELLS else "auto",
        cmap=color_map(cmap),
        vmin=limits[0],
        vmax=limits[1],
    )
    ax.set(
        xlim=(0, columns),
        ylim=(rows, 0),
        aspect="equal" if 1 / 3 <= rows / columns <= 3 else "auto",
    )
    ax.tick_params(length=2, width=0.6, pad=2)
    for spine in ax.spines.values():
        spine.set_linewidth(0.6)
    return cells


def write_numbers(
    ax: Axes,
    cells: ScalarMappable,
    values: np.ma.MaskedArray,
    *,
    is_bold: np.ndarray | None = None,
    decimals: int = 1,
    number_format: Callable[[float], str] | None = None,
) -> None:
    """Write the number into each cell, dark on light and light on dark."""
    for (row, column), value in np.ndenumerate(np.ma.filled(values, np.nan)):
        if np.isfinite(value):
            ax.text(
                column + 0.5,
                row + 0.52,
                number_format(value)
                if number_format
                else f"{round(value, decimals) + 0.0:.{decimals}f}",
                size=TICK_SIZE,
                ha="center",
                va="center",
                fontweight="bold" if is_bold is not None and is_bold[row, column] else "normal",
                color=_number_color(cells, value),
            )


def _number_color(cells: ScalarMappable, value: float) -> str:
    """Return the colour of a number on its cell."""
    scale_position = np.asarray(cells.norm(np.array([value])))
    is_light, is_light_reversed = (
        _is_light(cmap(scale_position)[0]) for cmap in (cells.cmap, cells.cmap.reversed())
    )
    if cells.cmap.name != SHARE_COLORS:
        return _ON_FIXED_LIGHT_CELL if is_light else _ON_MEDIUM_CELL
    return _ON_LIGHT_CELL if is_light else _ON_DARK_CELL if is_light_reversed else _ON_MEDIUM_CELL


def _is_light(color: Iterable[float]) -> bool:
    red, green, blue, *_ = color
    return bool(0.299 * red + 0.587 * green + 0.114 * blue > 0.5)


def add_color_bar(
    figure: Figure | SubFigure,
    cells: ScalarMappable,
    axes: Axes | Iterable[Axes] | None,
    *,
    values: Collection[np.ma.MaskedArray],
    label: str,
    inches: float,
    bar_axes: Axes | None = None,
) -> None:
    """Add a colour bar with label and unit; an arrow shows that values lie beyond it.

    `inches` is the height of the axes beside it; the bar is at most 4 inches long. It takes its
    room from `axes`, or fills `bar_axes`, axes of its own.
    """
    bar_length = min(inches, 4.0)
    has_larger_values = any(
        array.count() and float(array.max()) > cells.get_clim()[1] * (1 + 1e-9) for array in values
    )
    has_missing_values = any(np.ma.getmaskarray(array).any() for array in values)
    placement = {
        "ax": axes,
        "pad": 0.02,
        "fraction": 0.08,
        "aspect": bar_length / 0.13,
        "shrink": bar_length / inches,
    }
    bar = figure.colorbar(
        cells,
        extend="max" if has_larger_values else "neither",
        extendfrac=0.12 / bar_length,
        **(placement if bar_axes is None else {"cax": bar_axes}),
    )
    bar.set_label(
        label + ("; grey: no value" if has_missing_values else ""),
        size=LABEL_SIZE,
        parse_math=False,
    )
    bar.ax.tick_params(labelsize=TICK_SIZE, length=2, width=0.6)
    bar.outline.set_linewidth(0.6)


def outline_cells(
    ax: Axes,
    targets: Sequence[Span],
    sources: Sequence[Span],
    *,
    cue: Cue | None,
    target: int | None,
) -> None:
    """Outline the cells with the share of the cue in the target."""
    if cue is None or target is None:
        return
    rows = _merge_indices([i for i, span in enumerate(targets) if span.word == target])
    columns = _merge_indices([j for j, span in enumerate(sources) if span.word in cue_words(cue)])
    for (top, bottom), (left, right) in itertools.product(rows, columns):
        ax.add_patch(
            Rectangle(
                (left, top),
                right - left,
                bottom - top,
                fill=False,
                edgecolor=CELL_COLOR,
                linewidth=1.4,
                zorder=3,
            )
        )


def _merge_indices(indices: Sequence[int]) -> list[tuple[int, int]]:
    """Merge neighbouring indices to half-open ranges.

    Examples
    --------
    >>> _merge_indices([2, 3, 4, 7])
    [(2, 5), (7, 8)]
    """
    ranges: list[tuple[int, int]] = []
    for index in indices:
        start = ranges.pop()[0] if ranges and ranges[-1][1] == index else index
        ranges.append((start, index + 1))
    return ranges


def mark_row(ax: Axes, row: int, *, color: str = TARGET_COLOR) -> None:
    """Put an arrowhead at the right edge of a row of cells, outside of them."""
    ax.plot(
        [1.0],
        [row + 0.5],
        marker=ROW_MARKER,
        markersize=5,
        color=color,
        transform=ax.get_yaxis_transform(),
        clip_on=False,
        linestyle="none",
        zorder=4,
    )
