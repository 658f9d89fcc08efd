"""What all figures share: colours, sizes, names, and the cells of one panel with their colour
scale.

In: layers of a `MixingMap`. Out: drawing on an Axes that the caller owns. Nothing here touches
global state of matplotlib, so a user's own style is left as it is. Names are drawn as plain text:
"$" in a word or a model's name is a letter, not mathematics.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap
from matplotlib.figure import Figure, SubFigure
from matplotlib.markers import CARETLEFT
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from ...files.whole_files import whole_file
from ...inputs.words.cue_and_target import Cue, cue_words
from ...inputs.words.spans import Span
from ...mixing.maps.measure_facts import measure_label
from ...mixing.maps.mixing_map import MixingMap

TICK_SIZE, LABEL_SIZE, TITLE_SIZE = 7, 8, 9  # points
NARROW = 3.7  # inches: a column of a paper, a phone held upright
LAYER_LABEL = "layer (counted from 0)"
DEPTH_LABEL = "relative depth (0 first layer, 1 last)"
SHARE_LABEL = "share of row (%)"
CUE_LABEL = "cue contribution (%)"
INIT_DASHES: dict[str, Any] = {
    "trained": "-",
    "random": "--",
}  # of curves; what is neither is dotted

# One map for each purpose, all perceptually uniform, zero is light. Missing values are a grey that
# none of them holds.
SHARE_COLORS, SPECTROGRAM_COLORS = "magma_r", "gray_r"
DIFFERENCE_COLORS = "RdBu_r"  # signed: zero is white, told apart by colour-blind readers
MISSING = "0.78"
# Okabe & Ito 2008: told apart by colour-blind readers. The first two are kept for the words of the
# question.
CUE_COLOR, TARGET_COLOR, CELL_COLOR = "#0072B2", "#D55E00", "#009E73"
MARK = CARETLEFT  # beside the deciding row; its tip touches the cells
LINE_COLORS = ("#000000", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#0072B2", "#D55E00")

# Inches that one line of tick labels takes, and about what one letter of it is wide.
LINE_PITCH, LETTER_WIDTH = 0.115, 0.062
_MOST_SHARP_CELLS = 20_000
# Ink of numbers on cells with shares, whose scale a dark page reverses: on cells that are light on
# paper, on those that are light when reversed (a page makes this ink dark there), and on those
# between, which are dark on both.
_ON_LIGHT, _ON_DARK, _BETWEEN = "#0a0a0a", "#fefefe", "#ffffff"
_ON_LIGHT_ALWAYS = "#0b0b0b"  # on light cells of a scale that stays


class ShownFigure(Figure):
    """A figure that a notebook shows by itself, without pyplot and its list of open figures."""

    def _repr_png_(self) -> bytes:
        return png_bytes(self)


def png_bytes(figure: Figure) -> bytes:
    """Return the figure as the bytes of a PNG file."""
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=120)
    return buffer.getvalue()


def write_figure(figure: Figure, path: Path, **options: Any) -> None:
    """Write a figure as PNG, PDF or SVG, whole or not at all; options as for `savefig`.

    The same figure gives the same bytes: no date is written into it.
    """
    kind = path.suffix.removeprefix(".")
    undated = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind, {})
    with whole_file(path) as unfinished:
        figure.savefig(unfinished, format=kind, metadata=undated, **options)


def new_figure(width: float, height: float) -> ShownFigure:
    """Empty white figure of this size in inches, laid out so that labels do not collide."""
    return ShownFigure(figsize=(width, height), layout="constrained", facecolor="white")


def shorten_text(text: str, most: int = 22) -> str:
    """Text on one line, cut in the end if it is longer than `most` letters.

    Examples
    --------
    >>> shorten_text("anticonstitutionnellement", 12)
    'anticonstit…'
    """
    line = " ".join(str(text).split())
    return line if len(line) <= most else line[: most - 1] + "…"


def wrap_text(text: str, inches: float) -> str:
    """Text in lines that fit this width in the size of tick labels."""
    return "\n".join(textwrap.wrap(text, max(int(inches / LETTER_WIDTH), 20)))


def model_name(name: object) -> str:
    """Name of a model; of a local folder only its last part."""
    text = str(name)
    return shorten_text(
        text.rstrip("/\\").replace("\\", "/").rpartition("/")[2] if text[:1] in "/.~" else text, 40
    )


def model_title(provenance: Mapping[str, Any]) -> str:
    """Model of a map, and whether its weights are random."""
    return model_name(provenance["model"]) + (
        " (random)" if provenance.get("init") == "random" else ""
    )


def fed_text(provenance: Mapping[str, Any], most: int = 80) -> str:
    """Who wrote what the decoder was fed, and what it is, where that is not the text that was
    given; else nothing."""
    told, text = provenance.get("decoder_text_by"), provenance.get("decoder_text") or ""
    return f"{told}: {shorten_text(text, most)}" if told else ""


def map_subtitle(mixing_map: MixingMap) -> str:
    """Measure and stack, whether the map was rolled out, and of which head it is if of one."""
    steps = mixing_map.provenance.get("steps", [])
    rolled = ", rolled out" if any(step.startswith("rollout") for step in steps) else ""
    heads = [f", {step.removesuffix(' alone')}" for step in steps if step.startswith("head ")]
    return f"{measure_label(mixing_map.measure)}, {mixing_map.stack}{rolled}{''.join(heads)}"


def layer_title(mixing_map: MixingMap, layer: int, name: str = ", strength") -> str:
    """A layer, and how far its attention block moves the map's targets, where that is known."""
    if mixing_map.mixing_strength is None:
        return f"layer {layer}"
    strength = mixing_map.mixing_strength[mixing_map.layers.index(layer)].mean()
    return f"layer {layer}{name} {strength:.2g}"


def color_map(name: str) -> Colormap:
    """Colour map by name, with missing values in grey."""
    from matplotlib import colormaps

    return colormaps[name].with_extremes(bad=MISSING)


def displayed_shares(mixing_map: MixingMap, *, normalize: bool = True) -> np.ma.MaskedArray:
    """What is drawn: shares of each row in percent, or scores as they are; mean over heads; [L,
    W_t, W_s].

    A row with a score that is not finite has no shares, so the whole of it is masked.
    """
    if normalize:
        return np.ma.masked_invalid(
            100.0 * mixing_map.normalized().mean_heads().scores.astype(np.float64)
        )
    return np.ma.masked_invalid(mixing_map.mean_heads().scores.astype(np.float64))


def color_limits(values: Collection[np.ma.MaskedArray]) -> tuple[float, float]:
    """Limits of the colour scale that several maps share.

    Rows with a single source are left out (the first position of a causal stack: always 100 %),
    because they would bleach all others; they are drawn in the last colour and the colour bar ends
    in an arrow.
    """
    arrays = [np.ma.filled(array, 0.0) for array in values]
    rows = [array[np.count_nonzero(array, axis=-1) > 1] for array in arrays]
    scaled = [array for array in rows if array.size] or arrays
    top = max((float(array.max(initial=0.0)) for array in scaled), default=0.0)
    return min(float(array.min(initial=0.0)) for array in arrays), top or 1.0


def limits_around_zero(values: Collection[np.ma.MaskedArray]) -> tuple[float, float]:
    """Limits of the colour scale that several maps of differences share: as far below zero as
    above."""
    most = (
        max((float(np.abs(array).max()) for array in values if np.ma.count(array)), default=0.0)
        or 1.0
    )
    return -most, most


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
        interpolation="none" if values.size <= _MOST_SHARP_CELLS else "auto",
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
    bold: np.ndarray | None = None,
    places: int = 1,
) -> None:
    """Write the number into each cell, dark on light and light on dark."""
    for (row, column), value in np.ndenumerate(np.ma.filled(values, np.nan)):
        if np.isfinite(value):
            ax.text(
                column + 0.5,
                row + 0.52,
                f"{round(value, places) + 0.0:.{places}f}",
                size=TICK_SIZE,
                ha="center",
                va="center",
                fontweight="bold" if bold is not None and bold[row, column] else "normal",
                color=_ink(cells, value),
            )


def _ink(cells: ScalarMappable, value: float) -> str:
    """Colour of a number on its cell."""
    place = np.asarray(cells.norm(np.array([value])))
    light, light_reversed = (
        _is_light(cmap(place)[0]) for cmap in (cells.cmap, cells.cmap.reversed())
    )
    if cells.cmap.name != SHARE_COLORS:
        return _ON_LIGHT_ALWAYS if light else _BETWEEN
    return _ON_LIGHT if light else _ON_DARK if light_reversed else _BETWEEN


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
    place: Axes | None = None,
) -> None:
    """Colour bar with label and unit; an arrow where values lie beyond it, a word on grey cells
    where there are any.

    `inches` is the height of the axes beside it; the bar is at most 4 inches long. It takes its
    room from `axes`, or fills `place`, axes of its own.
    """
    length = min(inches, 4.0)
    beyond = any(
        array.count() and float(array.max()) > cells.get_clim()[1] * (1 + 1e-9) for array in values
    )
    missing = any(np.ma.getmaskarray(array).any() for array in values)
    taken = {
        "ax": axes,
        "pad": 0.02,
        "fraction": 0.08,
        "aspect": length / 0.13,
        "shrink": length / inches,
    }
    bar = figure.colorbar(
        cells,
        extend="max" if beyond else "neither",
        extendfrac=0.12 / length,
        **(taken if place is None else {"cax": place}),
    )
    bar.set_label(
        label + ("; grey: no value" if missing else ""), size=LABEL_SIZE, parse_math=False
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
    """Draw one line around all cells in which the cue gives to the target: around each block, if
    words lie apart."""
    if cue is None or target is None:
        return
    rows = _runs([i for i, span in enumerate(targets) if span.word == target])
    columns = _runs([j for j, span in enumerate(sources) if span.word in cue_words(cue)])
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


def _runs(places: Sequence[int]) -> list[tuple[int, int]]:
    """Neighbouring places as half-open ranges.

    Examples
    --------
    >>> _runs([2, 3, 4, 7])
    [(2, 5), (7, 8)]
    """
    ranges: list[tuple[int, int]] = []
    for place in places:
        start = ranges.pop()[0] if ranges and ranges[-1][1] == place else place
        ranges.append((start, place + 1))
    return ranges


def mark_row(ax: Axes, row: int, *, color: str = TARGET_COLOR) -> None:
    """Put an arrowhead at the right edge of a row of cells, outside of them."""
    ax.plot(
        [1.0],
        [row + 0.5],
        marker=MARK,
        markersize=5,
        color=color,
        transform=ax.get_yaxis_transform(),
        clip_on=False,
        linestyle="none",
        zorder=4,
    )


def style_layer_axis(ax: Axes) -> None:
    """Whole layers on x, a light grid, no box."""
    ax.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1, steps=[1, 2, 4, 5, 10]))
    style_curve_axis(ax)


def style_curve_axis(ax: Axes) -> None:
    """Small ticks, a light grid, no box."""
    ax.tick_params(labelsize=TICK_SIZE, length=2, width=0.6)
    ax.grid(axis="y", color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def add_legend(
    holder: Figure | SubFigure | Axes,
    handles: Sequence[Artist],
    *,
    columns: int,
    title: str | None = None,
    **options: Any,
) -> None:
    """Legend without a frame, in plain text, of a figure or an Axes; the title is a note above the
    entries."""
    legend = holder.legend(
        handles=handles,
        ncols=columns,
        title=title,
        fontsize=TICK_SIZE,
        title_fontsize=TICK_SIZE,
        frameon=False,
        borderaxespad=0.2,
        **options,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
