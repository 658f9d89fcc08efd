"""Draw mixing maps: one layer, or small multiples over layers.

In: a `MixingMap` with raw scores. Out: matplotlib Axes or Figure, nothing written. Rows are targets
(they receive), columns sources (they give), as everywhere; by default each row is shown as shares
that sum to 100 %. Maps with heads are normalised first and averaged after, the order of Mohebbi et
al. 2023.

Draw a map at the times of its sources, under the spectrogram; and the difference of two maps.

In: a `Clip` and one of its maps (words or frames as sources). Out: drawing on an Axes whose x is
time in seconds, or a figure with the spectrogram on top. Frame i is drawn over the stretch it
stands for.
"""

from __future__ import annotations

import base64
import html
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...errors import InputError
from ...evaluation.statistics.groups import choose_evenly
from ...inputs.clips.clip import Clip
from ...inputs.words.cue_and_target import words_between
from ...inputs.words.spans import Span
from ...mixing.maps.mixing_map import MixingMap
from . import figure_style as unit_labels
from . import map_cells
from .clip_overview import (
    clip_figure,
    clip_word,
    draw_boundaries,
    draw_spectrogram,
    label_words,
    word_roles,
)
from .cue_curves import cue_figure
from .cue_heat_maps import cue_heat_map
from .figure_style import (
    LABEL_SIZE,
    LINE_PITCH,
    SHARE_LABEL,
    TICK_SIZE,
    TITLE_SIZE,
    fed_text,
    layer_title,
    map_subtitle,
    model_title,
    new_figure,
    png_bytes,
    shorten_text,
    wrap_text,
)

__all__ = ["as_html", "clip_figure", "cue_figure", "cue_heat_map", "heat_map", "layer_grid"]

_MAX_PANELS = 12


def heat_map(
    mixing_map: MixingMap,
    *,
    layer: int | None = None,
    head: int | None = None,
    ax: Axes | None = None,
    normalize: bool = True,
    signed: bool = False,
    label: str | None = None,
) -> Axes:
    """Draw one layer of a map: targets downwards, sources to the right.

    Parameters
    ----------
    mixing_map : MixingMap
    layer : int, optional
        Counted from 0; the last layer of the map by default.
    head : int, optional
        Counted from 0, of a map that keeps its heads (``mix(..., heads="each")``); the mean over
        heads by default.
    ax : Axes, optional
        Where to draw; by default a new pyplot figure, which a notebook shows.
    normalize : bool
        Show rows as shares in percent; else scores as they are. All-zero rows stay zero.
    signed : bool
        Colours with white at zero, as far below it as above.
    label : str, optional
        What the colour bar counts.

    Returns
    -------
    Axes

    Raises
    ------
    InputError
        If the map does not have this layer or head, or has no units.

    Examples
    --------
    >>> import numpy as np
    >>> from speechmix import MixingMap, Span
    >>> words = (Span(0, 10, "les"), Span(10, 30, "livres"))
    >>> mixing_map = MixingMap(np.array([[[3.0, 1.0], [1.0, 1.0]]]), words, words, "value_zeroing", "encoder", (3,))
    >>> heat_map(mixing_map, ax=Figure().add_subplot()).get_title()
    'value zeroing, encoder, layer 3'
    """
    check_drawable(mixing_map)
    mixing_map = mixing_map if head is None else mixing_map.head(head)
    layer = mixing_map.layers[-1] if layer is None else layer
    mixing_map.layer(layer)  # raises if there is none
    values = map_cells.displayed_shares(mixing_map, normalize=normalize)[
        mixing_map.layers.index(layer)
    ]
    if ax is None:
        from matplotlib import pyplot

        width, height = (
            min(max(0.2 * len(side), 1.4), 6.6) for side in (mixing_map.sources, mixing_map.targets)
        )
        figure_size = _figure_size(mixing_map, width, height)
        ax = pyplot.figure(
            figsize=figure_size, layout="constrained", facecolor="white"
        ).add_subplot()
    else:
        window = ax.get_window_extent().transformed(ax.figure.dpi_scale_trans.inverted())
        width, height = window.width, window.height
    if signed:
        limits, cmap = map_cells.limits_around_zero([values]), map_cells.DIFFERENCE_COLORS
    else:
        limits, cmap = map_cells.color_limits([values]), map_cells.SHARE_COLORS
    cells = map_cells.draw_cells(ax, values, limits=limits, cmap=cmap)
    x_unit = unit_labels.label_units(ax, "x", mixing_map.sources, inches=width)
    y_unit = unit_labels.label_units(ax, "y", mixing_map.targets, inches=height)
    column_name, row_name = unit_labels.axis_names(mixing_map)
    ax.set_xlabel(label_axis(column_name, x_unit), size=LABEL_SIZE)
    ax.set_ylabel(label_axis(row_name, y_unit), size=LABEL_SIZE)
    layer_text = layer_title(mixing_map, layer, "\nmixing strength")
    title = f"{map_subtitle(mixing_map)}, {layer_text}"
    ax.set_title(title, size=TITLE_SIZE, parse_math=False)
    label = label or (SHARE_LABEL if normalize else _score_label(mixing_map))
    map_cells.add_color_bar(ax.figure, cells, ax, values=[values], label=label, inches=height)
    return ax


def layer_grid(mixing_map: MixingMap, *, layers: Sequence[int] | None = None) -> Figure:
    """Draw a map of every layer, with one colour scale and labels only at the outer edge.

    Parameters
    ----------
    mixing_map : MixingMap
    layers : sequence of int, optional
        Counted from 0. By default all, or 12 of them evenly chosen if there are more, with the
        first and the last.

    Returns
    -------
    Figure
        A notebook shows it; `figure.savefig("x.pdf")` writes it.

    Raises
    ------
    InputError
        If the map does not have one of the layers, or has no units.
    """
    check_drawable(mixing_map)
    layers = choose_evenly(mixing_map.layers, _MAX_PANELS) if layers is None else list(layers)
    if not layers:
        raise InputError(
            f"layers is empty: name at least one of {list(mixing_map.layers)}, or leave it out for "
            "all"
        )
    for layer in layers:
        mixing_map.layer(layer)
    values = map_cells.displayed_shares(mixing_map)[
        [mixing_map.layers.index(layer) for layer in layers]
    ]
    limits = map_cells.color_limits(list(values))
    columns, width, height = _panel_layout(mixing_map, len(layers))
    rows = math.ceil(len(layers) / columns)
    figure = new_figure(
        *_figure_size(mixing_map, width, height, columns=columns, rows=rows, max_letters=16)
    )
    axes = figure.subplots(rows, columns, squeeze=False)
    for index, ax in enumerate(axes.flat):
        if index >= len(layers):
            ax.set_axis_off()
            continue
        cells = map_cells.draw_cells(ax, values[index], limits=limits)
        ax.set_title(layer_title(mixing_map, layers[index]), size=LABEL_SIZE, pad=3)
        x_unit = unit_labels.label_units(ax, "x", mixing_map.sources, inches=width, max_letters=16)
        y_unit = unit_labels.label_units(ax, "y", mixing_map.targets, inches=height, max_letters=16)
        ax.tick_params(labelleft=index % columns == 0, labelbottom=index // columns == rows - 1)
    column_name, row_name = unit_labels.axis_names(mixing_map)
    figure.supxlabel(label_axis(column_name, x_unit), size=LABEL_SIZE)
    figure.supylabel(label_axis(row_name, y_unit), size=LABEL_SIZE)
    title_parts = map_title(mixing_map).splitlines()
    title = "\n".join(wrap_text(part, 0.75 * figure.get_figwidth()) for part in title_parts)
    figure.set_figheight(
        figure.get_figheight() + 0.16 * title.count("\n")
    )  # each line more has its room
    figure.suptitle(title, size=TITLE_SIZE, parse_math=False)
    map_cells.add_color_bar(
        figure, cells, axes, values=list(values), label=SHARE_LABEL, inches=rows * (height + 0.25)
    )
    return figure


def as_html(figure: Figure, *, caption: str) -> str:
    """Return the figure as an HTML element that needs no other file.

    It is an inline PNG with alternative text and caption (plain text, which is escaped).
    """
    data = base64.b64encode(png_bytes(figure)).decode("ascii")
    text = html.escape(caption, quote=True)
    return (
        f'<figure style="margin: 0"><img style="max-width: 100%" alt="{text}" '
        f'src="data:image/png;base64,{data}">'
        f"<figcaption>{text}</figcaption></figure>"
    )


def check_drawable(mixing_map: MixingMap) -> None:
    """Raise if a map has no cells."""
    if not mixing_map.scores.size:
        raise InputError(
            f"{mixing_map!r} has no cells to draw: keep at least one layer, target and source"
        )


def label_axis(name: str, unit: str) -> str:
    """Return an axis label with its unit, if it has one."""
    return f"{name}, {unit}" if unit else name


def _score_label(mixing_map: MixingMap) -> str:
    steps = mixing_map.provenance.get("steps", [])
    return "score (" + ", ".join(steps) + ")" if steps else "raw score"


def map_title(mixing_map: MixingMap) -> str:
    """Return the title of a map: measure, stack, model, clip, and the text that the decoder was
    fed."""
    provenance = mixing_map.provenance
    phrases = [map_subtitle(mixing_map)]
    if provenance.get("model"):
        phrases.append(model_title(provenance))
    if provenance.get("clip"):
        phrases.append(shorten_text(provenance["clip"], 40))
    if words_between(provenance.get("cue"), provenance.get("target")) == 0:
        phrases.append("adjacent cue")
    decoder_input = fed_text(provenance)
    return " · ".join(phrases) + (
        f"\n{decoder_input}" if decoder_input and mixing_map.stack != "encoder" else ""
    )


def _figure_size(
    mixing_map: MixingMap,
    width: float,
    height: float,
    *,
    columns: int = 1,
    rows: int = 1,
    max_letters: int = 22,
) -> tuple[float, float]:
    """Compute the size of a figure in inches from the size of its panels."""
    left_margin = unit_labels.label_inches(mixing_map.targets, max_letters=max_letters) + 0.3
    bottom_margin = (
        unit_labels.label_inches(mixing_map.sources, max_letters=max_letters, inches=width) + 0.3
    )
    figure_size = (
        columns * (width + 0.12) + left_margin + 0.85,
        rows * (height + 0.27) + bottom_margin + (0.3 if rows * columns > 1 else 0.1),
    )
    return max(figure_size[0], 3.2), max(figure_size[1], 2.0)


def _panel_layout(mixing_map: MixingMap, n_panels: int) -> tuple[int, float, float]:
    """Choose the columns of the grid, and width and height of a panel in inches."""
    ratio = len(mixing_map.targets) / len(mixing_map.sources)
    if ratio < 1 / 3:  # strips: below each other
        columns = 1 if n_panels <= 6 else 2
    elif n_panels <= 5:
        columns = n_panels
    else:
        columns = next((columns for columns in (4, 3, 5) if n_panels % columns == 0), 4)
    width = min(
        max(LINE_PITCH * len(mixing_map.sources), 1.4),
        10.0 / columns,
        2.6 if ratio >= 1 / 3 else 5.0,
    )
    return columns, width, min(max(width * ratio, 0.3), 2.6)


_MAX_LABELLED_ROWS = 40


def timed_map(
    mixing_map: MixingMap,
    *,
    layer: int | None = None,
    ax: Axes | None = None,
    color_bar: bool = True,
) -> Axes:
    """Draw one layer with its sources at their times: x is seconds, rows are targets.

    Parameters
    ----------
    mixing_map : MixingMap
        Sources with times (encoder, cross-attention).
    layer : int, optional
        Counted from 0; the last of the map by default.
    ax : Axes, optional
        Where to draw, e.g. under a spectrogram with which it shares x; by default a new figure.
    color_bar : bool

    Returns
    -------
    Axes

    Raises
    ------
    InputError
        If the map does not have this layer, or its sources have no times.
    """
    words = mixing_map.without("silence", "padding")
    times = sorted(
        (interval, column)
        for column, span in enumerate(words.sources)
        for interval in span.intervals
    )
    if not times or not all(source.intervals for source in words.sources):
        raise InputError(
            f"timed_map needs sources with times (encoder, cross-attention), found {mixing_map!r}"
        )
    layer = words.layers[-1] if layer is None else layer
    words.layer(layer)  # raises if there is none
    values = map_cells.displayed_shares(words)[words.layers.index(layer)]
    ax = new_figure(7.0, 2.6).add_subplot() if ax is None else ax
    edges, columns = _time_grid(times)
    cells = ax.pcolormesh(
        edges,
        np.arange(len(words.targets) + 1),
        values[:, columns].filled(np.nan) * np.where(columns < 0, np.nan, 1),
        cmap=map_cells.color_map(map_cells.SHARE_COLORS),
        vmin=0.0,
        vmax=map_cells.color_limits([values])[1],
        rasterized=True,
    )
    for gap_index in np.flatnonzero(
        columns < 0
    ):  # no source sounds here, which is not the same as a missing value
        ax.axvspan(edges[gap_index], edges[gap_index + 1], color="white", linewidth=0)
    ax.set_ylim(len(words.targets), 0)
    height = ax.get_window_extent().height / ax.figure.dpi
    unit = unit_labels.label_units(ax, "y", words.targets, inches=max(height, 0.5), max_letters=16)
    column_name, row_name = unit_labels.axis_names(words)
    ax.set_ylabel(label_axis(row_name, unit), size=LABEL_SIZE)
    ax.set_xlabel(label_axis(column_name, "time (s)"), size=LABEL_SIZE)
    ax.tick_params(labelsize=TICK_SIZE, length=2, width=0.6)
    ax.set_title(f"{map_subtitle(words)}, layer {layer}", size=TITLE_SIZE, parse_math=False)
    if color_bar:
        map_cells.add_color_bar(
            ax.figure, cells, ax, values=[values], label=SHARE_LABEL, inches=max(height, 1.0)
        )
    return ax


def sound_and_map(clip: Clip, mixing_map: MixingMap, *, layer: int | None = None) -> Figure:
    """Draw a clip's spectrogram with its words, and one layer of a map below it on the same time
    axis.

    Parameters
    ----------
    clip : Clip
    mixing_map : MixingMap
        Of that clip; word map or frame map.
    layer : int, optional
        Counted from 0; the last of the map by default.

    Raises
    ------
    InputError
        If the audio cannot be read, or see `timed_map`.
    """
    target_count = len(mixing_map.targets)
    map_height = (
        min(max(LINE_PITCH * target_count, 1.2), 4.0) if target_count <= _MAX_LABELLED_ROWS else 4.0
    )
    figure = new_figure(8.0, 2.2 + map_height + 0.7)
    sound_axes, map_axes = figure.subplots(2, 1, sharex=True, height_ratios=[2.0, map_height])
    draw_spectrogram(figure, sound_axes, clip.audio(), clip.duration)
    draw_boundaries(clip, (sound_axes,))
    label_axes = sound_axes.twiny()
    label_axes.set_xlim(0, clip.duration)
    label_words(label_axes, clip, 6.5)
    sound_axes.set_xlabel("")
    timed_map(mixing_map, layer=layer, ax=map_axes)
    for index, (_, color) in word_roles(clip).items():
        word = clip_word(clip, index)
        map_axes.vlines(
            list(itertools.chain(*word.intervals)), *map_axes.get_ylim(), color=color, linewidth=0.8
        )
    map_axes.set_xlim(0, clip.duration)
    return figure


def difference_map(
    one: MixingMap, other: MixingMap, *, layer: int | None = None, ax: Axes | None = None
) -> Axes:
    """Draw one - other in percentage points of a row, zero in white: trained - random, plural -
    singular, model A - model B.

    Parameters
    ----------
    one, other : MixingMap
        Of one measure and stack, with as many targets and sources; silence and padding are left
        out. Where labels differ both are written ("le/les").
    layer : int, optional
        Counted from 0, in both; the last that both have by default.
    ax : Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    InputError
        If the maps cannot be compared cell by cell.
    """
    one, other = (
        compared_map.without("silence", "padding").mean_heads().normalized()
        for compared_map in (one, other)
    )
    common_layers = [layer_number for layer_number in one.layers if layer_number in other.layers]
    is_comparable = (one.measure, one.stack) == (other.measure, other.stack)
    if not is_comparable or one.scores.shape[1:] != other.scores.shape[1:] or not common_layers:
        raise InputError(
            "a difference needs maps of one measure and stack, with the same numbers of units and "
            "a common layer; found "
            f"{one!r} and {other!r}"
        )
    layer = common_layers[-1] if layer is None else layer
    difference = replace(
        one,
        scores=100.0 * (one.layer(layer) - other.layer(layer))[None],
        layers=(layer,),
        mixing_strength=None,  # a difference has none
        targets=_merge_labels(one.targets, other.targets),
        sources=_merge_labels(one.sources, other.sources),
    )
    return heat_map(
        difference,
        layer=layer,
        ax=ax,
        normalize=False,
        signed=True,
        label="difference (percentage points)",
    )


def _merge_labels(spans: Sequence[Span], others: Sequence[Span]) -> tuple[Span, ...]:
    """Name both labels of spans where they differ."""
    return tuple(
        span if span.label == other.label else replace(span, label=f"{span.label}/{other.label}")
        for span, other in zip(spans, others, strict=True)
    )


def _time_grid(times: Sequence[tuple[tuple[float, float], int]]) -> tuple[np.ndarray, np.ndarray]:
    """Return edges in seconds, and for each stretch between them its source (-1 in a gap), from
    (onset, offset) and source."""
    edges: list[float] = []
    columns: list[int] = []
    for (onset, offset), column in times:
        if edges and onset > edges[-1] + 1e-6:
            edges, columns = [*edges, onset], [*columns, -1]
        edges = edges or [onset]
        edges.append(max(offset, edges[-1]))
        columns.append(column)
    return np.array(edges), np.array(columns)
