"""Draw a map at the times of its sources, under the spectrogram; and the difference of two maps.

In: a `Clip` and one of its maps (words or frames as sources). Out: drawing on an Axes whose x is
time in seconds, or a figure with the spectrogram on top. Frame i is drawn over the stretch it
stands for.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ...errors import InputError
from ...inputs.clips.clip import Clip
from ...inputs.words.spans import Span
from ...mixing.maps.mixing_map import MixingMap
from . import map_cells, unit_labels
from .figure_style import (
    LABEL_SIZE,
    LINE_PITCH,
    SHARE_LABEL,
    TICK_SIZE,
    TITLE_SIZE,
    map_subtitle,
    new_figure,
)
from .map_figures import heat_map, label_axis
from .sound_panels import clip_word, draw_boundaries, draw_spectrogram, label_words, word_roles

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
