"""Draw one clip with its maps.

In: a `Clip` and its maps. Out: a Figure: waveform and spectrogram (seconds; up to 8 kHz, the upper limit of
the models' input) with the words on top, a row of word-by-word maps for each measure and stack below, in
some layers, and, where cue and target are known, the cue contribution over layers at the bottom, that of
untrained twins as a thin line.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.patches import Patch

from ...errors import InputError
from ...evaluation.cue_contribution import (
    ROW_NAMES,
    choose_row_kind,
    cue_contribution,
    deciding_row,
)
from ...inputs.audio.spectrograms import mel_spectrogram, waveform_envelope
from ...inputs.clips.clip import Clip
from ...inputs.words.cue_and_target import cue_text
from ...inputs.words.multipart_words import list_parts
from ...inputs.words.timed_words import Word
from ...mixing.maps.measure_registry import measure_label
from ...mixing.maps.mixing_map import MixingMap
from . import figure_style as unit_labels
from . import map_cells
from .figure_style import (
    CUE_COLOR,
    CUE_LABEL,
    LABEL_SIZE,
    LAYER_LABEL,
    LETTER_WIDTH,
    LINE_COLORS,
    LINE_PITCH,
    SHARE_LABEL,
    TARGET_COLOR,
    TICK_SIZE,
    TITLE_SIZE,
    ShownFigure,
    add_legend,
    legend_line,
    model_title,
    png_bytes,
    shorten_text,
    style_layer_axis,
    wrap_text,
)

_SAMPLE_RATE = 16_000
_MIN_POWER, _MIN_LEVEL = 1e-10, -80  # of silence; decibels below the loudest that are drawn
# In samples, 25 and 10 ms; the zero-padded FFT leaves no mel band empty.
_WINDOW, _HOP, _FFT, _MELS = 400, 160, 1024, 80


def word_roles(clip: Clip) -> dict[int, tuple[str, str]]:
    """Return role and colour of the clip's cue words and target, by word index."""
    cue_roles = dict.fromkeys(clip.cue_words, ("cue", CUE_COLOR))
    return (
        cue_roles if clip.target is None else {**cue_roles, clip.target: ("target", TARGET_COLOR)}
    )


def clip_word(clip: Clip, index: int) -> Word:
    """Return a word of a clip by its index."""
    return (clip.words or ())[index]


# Inches around panels whose places are computed: a layout engine would take half of the time.
_LEFT, _RIGHT, _GAP = 0.6, 0.95, 0.12
_BAR_WIDTH, _BAR_DISTANCE = 0.13, 0.12
_WAVE_HEIGHT, _SPECTRUM_HEIGHT, _TIME_HEIGHT, _TEXT_HEIGHT = 0.55, 1.1, 0.42, 0.24


def _add_panel(
    figure: Figure | SubFigure,
    left: float,
    top: float,
    width: float,
    height: float,
    **options: Any,
) -> Axes:
    """Add axes at a place in inches, from the left and from the top."""
    figure_width, figure_height = _size(figure)
    bottom = 1 - (top + height) / figure_height
    return figure.add_axes(
        (left / figure_width, bottom, width / figure_width, height / figure_height), **options
    )


def _size(figure: Figure | SubFigure) -> tuple[float, float]:
    """Return width and height in inches."""
    return figure.bbox.width / figure.figure.dpi, figure.bbox.height / figure.figure.dpi


def _word_label_height(clip: Clip, inches: float) -> float:
    words = clip.words or ()
    if not words or _labels_fit(clip, inches):
        return 0.2
    return unit_labels.text_inches(shorten_text(word.text) for word in words) + 0.1


def sound_height(clip: Clip, inches: float) -> float:
    """Return the height in inches that `draw_sound` needs."""
    panels = _WAVE_HEIGHT + _GAP + _SPECTRUM_HEIGHT + _TIME_HEIGHT
    return _TEXT_HEIGHT + _word_label_height(clip, inches) + panels


def draw_sound(subfigure: SubFigure, clip: Clip, inches: float, *, top: float = 0.0) -> None:
    """Draw waveform, spectrogram, word boundaries and labels in panels `inches` wide, below `top`
    inches that stay free."""
    wave_top = top + _TEXT_HEIGHT + _word_label_height(clip, inches)
    spectrum_top = wave_top + _WAVE_HEIGHT + _GAP
    wave = _add_panel(subfigure, _LEFT, wave_top, inches, _WAVE_HEIGHT)
    spectrum = _add_panel(subfigure, _LEFT, spectrum_top, inches, _SPECTRUM_HEIGHT)
    samples = clip.audio(_SAMPLE_RATE)
    seconds = len(samples) / _SAMPLE_RATE
    _draw_wave(wave, samples)
    wave.set_ylabel("wave", size=LABEL_SIZE)
    bar_left = _LEFT + inches + _BAR_DISTANCE
    bar = _add_panel(subfigure, bar_left, spectrum_top, _BAR_WIDTH, _SPECTRUM_HEIGHT)
    draw_spectrogram(subfigure, spectrum, samples, seconds, bar_axes=bar)
    draw_boundaries(clip, (wave, spectrum))
    label_words(wave, clip, inches)
    roles_by_color = {
        color: (role, cue)
        for role, cue, color in (
            ("cue", clip.cue, CUE_COLOR),
            ("target", clip.target, TARGET_COLOR),
        )
    }
    handles = [
        Patch(
            color=color,
            alpha=0.6,
            label=f"{role}: {shorten_text(cue_text(clip.words or (), index))}",
        )
        for color, (role, index) in roles_by_color.items()
        if index is not None
    ]
    if handles:  # beside the axis label, where nothing else is
        add_legend(spectrum, handles, columns=2, loc="upper right", bbox_to_anchor=(1.0, -0.13))
    if clip.text:
        # Sits above the words, so that the figure's own title stays free for whoever draws the
        # figure.
        subfigure.suptitle(
            shorten_text(clip.text, int((inches + 1.0) / 0.075)),
            size=LABEL_SIZE,
            y=1 - (top + 0.04) / _size(subfigure)[1],
            parse_math=False,
        )


def sound_picture(clip: Clip, *, width: float = 9.0, height: float = 2.0) -> bytes:
    """Draw waveform above spectrogram without axes, as the bytes of a PNG file."""
    figure = Figure(figsize=(width, height), facecolor="white")
    wave, spectrum = figure.add_axes((0, 2 / 3, 1, 1 / 3)), figure.add_axes((0, 0, 1, 2 / 3))
    samples = clip.audio(_SAMPLE_RATE)
    _draw_wave(wave, samples)
    draw_spectrogram(None, spectrum, samples, len(samples) / _SAMPLE_RATE)
    draw_boundaries(clip, (wave, spectrum))
    for ax in (wave, spectrum):
        ax.set_axis_off()
    return png_bytes(figure)


def _draw_wave(ax: Axes, samples: np.ndarray) -> None:
    times, low, high = waveform_envelope(samples, _SAMPLE_RATE)
    ax.fill_between(times, low, high, color="0.35", linewidth=0.3)
    max_amplitude = max(float(np.abs(samples).max()), 1e-6)
    ax.set(
        xlim=(0, len(samples) / _SAMPLE_RATE),
        ylim=(-1.05 * max_amplitude, 1.05 * max_amplitude),
        yticks=[],
        xticks=[],
    )


def draw_spectrogram(
    color_bar_figure: Figure | SubFigure | None,
    ax: Axes,
    samples: np.ndarray,
    seconds: float,
    *,
    bar_axes: Axes | None = None,
) -> None:
    """Draw the mel spectrogram of samples at 16 kHz, with its colour bar in dB if it has a figure:
    in axes of its own, or beside the spectrogram."""
    from librosa import mel_frequencies

    padded = np.pad(samples, (0, max(0, _FFT - len(samples))))
    power = mel_spectrogram(
        padded, _SAMPLE_RATE, n_fft=_FFT, window=_WINDOW, hop=_HOP, n_mels=_MELS, fmin=0, fmax=8000
    )
    level_db = np.maximum(
        10 * np.log10(np.maximum(power, _MIN_POWER) / max(power.max(), _MIN_POWER)), _MIN_LEVEL
    )
    cells = ax.pcolormesh(
        np.arange(len(power)) * _HOP / _SAMPLE_RATE,
        mel_frequencies(_MELS, fmin=0, fmax=8000),
        level_db.T,
        cmap=map_cells.SPECTROGRAM_COLORS,
        vmin=_MIN_LEVEL,
        vmax=0,
        shading="auto",
        rasterized=True,
    )
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set_yscale("symlog", linthresh=1000, base=2)  # the mel scale is linear below 1 kHz
    ax.set(xlim=(0, seconds), ylim=(0, 8000))
    ax.set_yticks(
        [0, 500, 1000, 2000, 4000, 8000], ["0", "0.5", "1", "2", "4", "8"], size=TICK_SIZE
    )
    ax.set_ylabel("kHz (mel scale)", size=LABEL_SIZE)
    ax.set_xlabel("time (s)", size=LABEL_SIZE, loc="left")
    ax.tick_params(labelsize=TICK_SIZE, length=2, width=0.6)
    if color_bar_figure is None:
        return
    placement: dict[str, Any] = {"ax": ax, "pad": 0.02, "fraction": 0.08, "aspect": 9}
    color_bar = color_bar_figure.colorbar(
        cells, ticks=[-80, -40, 0], **(placement if bar_axes is None else {"cax": bar_axes})
    )
    color_bar.set_label("dB re loudest", size=LABEL_SIZE)
    color_bar.ax.tick_params(labelsize=TICK_SIZE, length=2, width=0.6)


def draw_boundaries(clip: Clip, axes: Sequence[Axes]) -> None:
    """Draw word boundaries in each panel; shade cue and target."""
    role_colors = {word: color for word, (_, color) in word_roles(clip).items()}
    words = list(enumerate(clip.words or ()))
    for index, word in sorted(words, key=lambda item: item[0] in role_colors):
        for ax, (start, end) in itertools.product(axes, word.intervals):
            ax.vlines(
                [start, end],
                0,
                1,
                transform=ax.get_xaxis_transform(),
                color=role_colors.get(index, "0.2"),
                linewidth=1.0 if index in role_colors else 0.5,
            )
            if index in role_colors:
                ax.axvspan(start, end, color=role_colors[index], alpha=0.22, linewidth=0)


def _labels_fit(clip: Clip, inches: float) -> bool:
    """Whether the labels fit side by side above their words."""
    seconds_per_inch = clip.duration / inches
    half_widths = [
        LETTER_WIDTH * (len(label) + 1) / 2 * seconds_per_inch
        for _, label, _ in _piece_labels(clip)
    ]
    centres = [centre for _, _, centre in _piece_labels(clip)]
    return all(
        centres[i] + half_widths[i] <= centres[j] - half_widths[j]
        for i, j in itertools.pairwise(range(len(centres)))
    )


def _piece_labels(clip: Clip) -> list[tuple[int, str, float]]:
    """Return word index, text and centre in seconds of each piece of each word."""
    labels = [
        (index, shorten_text(part.text), (start + end) / 2)
        for index, part in list_parts(clip.words or ())
        for start, end in part.intervals
    ]
    return (
        sorted(labels, key=lambda label: label[2])
        if any(word.pieces for word in clip.words or ())
        else labels
    )


def label_words(wave: Axes, clip: Clip, inches: float) -> None:
    """Label the words above the waveform; where there are too many, label cue, target and some
    others."""
    wave.xaxis.tick_top()
    wave.tick_params(length=0, pad=2)
    if not clip.words:
        return
    roles, labels, is_flat = word_roles(clip), _piece_labels(clip), _labels_fit(clip, inches)
    min_gap, centres = (
        LINE_PITCH * clip.duration / inches,
        [centre for _, _, centre in labels],
    )
    preferred = [
        label_index
        for word in roles
        for label_index, (index, _, _) in enumerate(labels)
        if index == word
    ]
    label_indices = (
        range(len(labels))
        if is_flat
        else unit_labels.choose_spaced(centres, min_gap, preferred=preferred)
    )
    wave.set_xticks(
        [centres[i] for i in label_indices],
        [labels[i][1] for i in label_indices],
        size=TICK_SIZE,
        rotation=0 if is_flat else 90,
        parse_math=False,
    )
    for label_index, text in zip(label_indices, wave.get_xticklabels(), strict=True):
        if labels[label_index][0] in roles:
            text.set(color=roles[labels[label_index][0]][1], fontweight="bold")


MeasureAndStack = tuple[str, str]  # measure, stack


def clip_curve_table(
    clip: Clip, maps: Mapping[MeasureAndStack, MixingMap]
) -> tuple[dict[MeasureAndStack, np.ndarray], dict[str, str]]:
    """Compute the cue contribution of every map that holds both words, and name its rows."""
    contributions: dict[MeasureAndStack, np.ndarray] = {}
    row_names: dict[str, str] = {}
    cue, target = clip.cue_request, clip.target_request
    if cue is not None and target is not None:
        for key, mixing_map in maps.items():
            rows = choose_row_kind(mixing_map)
            try:
                contributions[key] = cue_contribution(mixing_map, cue=cue, target=target, rows=rows)
            except InputError:
                continue
            row_names[key[1]] = ROW_NAMES[rows]
    return contributions, row_names


def draw_clip_curves(
    subfigure: SubFigure,
    maps: Mapping[MeasureAndStack, MixingMap],
    contributions: Mapping[MeasureAndStack, np.ndarray],
    twin_contributions: Sequence[Mapping[MeasureAndStack, np.ndarray]],
    row_names: Mapping[str, str],
) -> None:
    """Draw cue contribution over layers: a panel for each stack, a line for each measure, thin
    lines for twins."""
    stacks = list(dict.fromkeys(stack for _, stack in contributions))
    measures = list(dict.fromkeys(measure for measure, _ in contributions))
    top = curves_height(len(measures)) - _CURVE_HEIGHT - _TIME_HEIGHT
    room = _size(subfigure)[0] - _LEFT - _GAP
    axes: list[Axes] = []
    for column in range(len(stacks)):
        left, width = _LEFT + column * room / len(stacks), room / len(stacks) - 2 * _GAP
        first_axes = axes[0] if axes else None
        axes.append(_add_panel(subfigure, left, top, width, _CURVE_HEIGHT, sharey=first_axes))
        axes[-1].tick_params(labelleft=column == 0)
    lines = {}
    for key, curve in contributions.items():
        measure, stack = key
        ax, color = (
            axes[stacks.index(stack)],
            LINE_COLORS[measures.index(measure) % len(LINE_COLORS)],
        )
        layers = maps[key].layers if key in maps else range(len(curve))
        (lines[measure],) = ax.plot(
            layers,
            _to_percent(curve),
            label=measure_label(measure),
            linewidth=1.4,
            marker="o",
            markersize=3,
            color=color,
        )
        for contributions_of_twin in twin_contributions:
            if key in contributions_of_twin and len(contributions_of_twin[key]) == len(curve):
                ax.plot(
                    layers,
                    _to_percent(contributions_of_twin[key]),
                    linewidth=0.7,
                    linestyle="--",
                    marker=".",
                    markersize=2,
                    color=color,
                )
    for ax, stack in zip(axes, stacks, strict=True):
        style_layer_axis(ax)
        title = ", ".join(filter(None, [stack, row_names.get(stack)]))
        ax.set_title(title, size=LABEL_SIZE, y=1, pad=3, parse_math=False)  # y: is not laid out
        ax.set_xlabel(LAYER_LABEL, size=LABEL_SIZE)
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel(CUE_LABEL, size=LABEL_SIZE)
    handles = list(lines.values())
    if any(twin_contributions):
        handles.append(
            legend_line(linewidth=0.7, linestyle="--", color="0.3", label="untrained twin")
        )
    add_legend(subfigure, handles, columns=_LEGEND_COLUMNS, loc="upper center")


_CURVE_HEIGHT, _LEGEND_COLUMNS = 1.05, 4


def curves_height(measure_count: int) -> float:
    """Return the height in inches that `draw_clip_curves` needs; twins have an entry of the legend, too."""
    legend_lines = math.ceil((measure_count + 1) / _LEGEND_COLUMNS)
    return 0.3 + 0.16 * legend_lines + _CURVE_HEIGHT + _TIME_HEIGHT


def _to_percent(curve: np.ndarray) -> np.ndarray:
    return 100 * np.asarray(curve, dtype=float)


def find_value_zeroing_peak(
    maps: Mapping[MeasureAndStack, MixingMap],
    stack: str,
    contributions: Mapping[MeasureAndStack, np.ndarray],
) -> int | None:
    """Find the layer of a stack in which the cue's contribution by Value Zeroing is largest."""
    key = ("value_zeroing", stack)
    if key not in maps or key not in contributions or not np.isfinite(contributions[key]).any():
        return None
    return maps[key].layers[int(np.nanargmax(contributions[key]))]


def choose_layers(
    maps: Mapping[MeasureAndStack, MixingMap],
    stacks: Sequence[str],
    layers: Sequence[int] | None,
    peaks: Mapping[str, int | None],
) -> dict[str, list[int]]:
    """Choose the layers of each stack: those requested; or first, middle, last and peaks."""
    if layers is not None:
        if not layers:
            raise InputError("layers is empty: name at least one, or leave it out")
        for mixing_map in maps.values():
            for layer in layers:
                mixing_map.layer(layer)  # raises if there is none
        return {stack: list(layers) for stack in stacks}
    common_by_stack = {stack: common_layers(maps, stack) for stack in stacks}
    if len(set(map(tuple, common_by_stack.values()))) == 1:
        return {stack: _pick_layers(common_by_stack[stack], peaks.values()) for stack in stacks}
    return {stack: _pick_layers(common_by_stack[stack], [peaks[stack]]) for stack in stacks}


def common_layers(maps: Mapping[MeasureAndStack, MixingMap], stack: str) -> list[int]:
    """Return the layers that all maps of a stack have."""
    maps_of_stack = [mixing_map for (_, name), mixing_map in maps.items() if name == stack]
    common_layer_list = [
        layer
        for layer in maps_of_stack[0].layers
        if all(layer in other.layers for other in maps_of_stack)
    ]
    if not common_layer_list:
        raise InputError(
            f"the maps of the {stack} have no layer in common: draw them in figures of their own"
        )
    return common_layer_list


def _pick_layers(common: Sequence[int], peaks: Iterable[int | None]) -> list[int]:
    """Pick the first, middle and last layer and peaks; where these are the same layer, add the one
    farthest from them."""
    available_peaks = {peak for peak in peaks if peak is not None and peak in common}
    chosen_layers = {common[0], common[len(common) // 2], common[-1]} | available_peaks
    while available_peaks and len(chosen_layers) < min(4, len(common)):
        chosen_layers.add(
            max(common, key=lambda layer: min(abs(layer - other) for other in chosen_layers))
        )
    return sorted(chosen_layers)


_MAX_LABEL_LETTERS = 16
_label_inches = partial(unit_labels.label_inches, max_letters=_MAX_LABEL_LETTERS, is_measured=True)
_TITLE_HEIGHT = 0.42  # inches, of a stack's heading and the layers' titles


@dataclass(frozen=True)
class MapRow:
    """Row of panels: one map in some layers."""

    key: MeasureAndStack
    map: MixingMap
    layers: list[int]
    peak: int | None  # the layer in which the cue gives most, if it was looked for
    is_first_of_stack: bool  # of its stack: has the titles
    has_labels: bool  # the last before other sources follow: has the words below

    @property
    def values(self) -> list[np.ma.MaskedArray]:
        shares = map_cells.displayed_shares(self.map)
        return [shares[self.map.layers.index(layer)] for layer in self.layers]


def make_map_rows(
    maps: Mapping[MeasureAndStack, MixingMap],
    layers: Sequence[int] | None,
    contributions: Mapping[MeasureAndStack, np.ndarray],
) -> list[MapRow]:
    """Order the rows so that maps of a stack, and stacks with the same sources, are neighbours."""
    stacks = list(dict.fromkeys(stack for _, stack in maps))
    sources_by_stack = {
        stack: next(m.sources for (_, name), m in maps.items() if name == stack) for stack in stacks
    }
    stacks = sorted(
        stacks,
        key=lambda stack: next(
            i
            for i, other in enumerate(stacks)
            if sources_by_stack[other] == sources_by_stack[stack]
        ),
    )
    keys = [key for stack in stacks for key in maps if key[1] == stack]
    peaks = (
        {stack: find_value_zeroing_peak(maps, stack, contributions) for stack in stacks}
        if layers is None
        else {}
    )
    layers_of = choose_layers(maps, stacks, layers, peaks)
    return [
        MapRow(
            key=key,
            map=maps[key],
            layers=layers_of[key[1]],
            peak=peaks.get(key[1]),
            is_first_of_stack=index == 0 or keys[index - 1][1] != key[1],
            has_labels=index + 1 == len(keys) or maps[keys[index + 1]].sources != maps[key].sources,
        )
        for index, key in enumerate(keys)
    ]


def _row_tops(rows: Sequence[MapRow], width: float, height: float) -> list[float]:
    """Compute where rows of maps begin, in inches from the top; behind them where the last one ends,
    its labels included."""
    tops, top = [], 0.0
    for row in rows:
        top += _TITLE_HEIGHT if row.is_first_of_stack else 0.0
        tops.append(top)
        top += height + _GAP
        if row.has_labels:
            top += _label_inches(row.map.sources, inches=width)
    return [*tops, top]


def _left_of_rows(rows: Sequence[MapRow]) -> float:
    """Compute the inches left of the maps: the name of measure and stack, and the targets."""
    return 0.4 + max(_label_inches(row.map.targets) for row in rows)


def map_rows_height(
    rows: Sequence[MapRow], clip: Clip, width: float, height: float, figure_width: float
) -> float:
    """Compute the height in inches of all rows of maps with labels and titles."""
    legend = _legend_text(rows, clip, figure_width)
    return _row_tops(rows, width, height)[-1] + 0.1 + 0.13 * (legend.count("\n") + 1)


def draw_map_rows(
    subfigure: SubFigure, rows: list[MapRow], clip: Clip, width: float, height: float
) -> None:
    """Draw one row of panels for each measure and stack, on one colour scale."""
    all_values = [array for row in rows for array in row.values]
    limits = map_cells.color_limits(all_values)
    tops, left, figure_width = (
        _row_tops(rows, width, height),
        _left_of_rows(rows),
        _size(subfigure)[0],
    )
    columns = max(len(row.layers) for row in rows)
    pitch = (figure_width - left - _RIGHT + _GAP) / columns
    for row, top in zip(rows, tops, strict=False):
        for column, values in enumerate(row.values):
            ax = _add_panel(subfigure, left + column * pitch, top, pitch - _GAP, height)
            cells = map_cells.draw_cells(ax, values, limits=limits)
            ax.set_aspect("auto")
            _label_panel(ax, row, clip, width, height, is_first=column == 0)
            if row.is_first_of_stack:
                layer = row.layers[column]
                ax.set_title(
                    f"layer {layer}{', peak' if layer == row.peak else ''}",
                    size=LABEL_SIZE,
                    y=1,
                    pad=3,
                )
            if column == 0:
                if row.is_first_of_stack:
                    _write_heading(ax, row.map)
                label = f"{measure_label(row.key[0])}\n{row.key[1]}"
                ax.set_ylabel(label, size=LABEL_SIZE, parse_math=False)
    subfigure.supxlabel(
        _legend_text(rows, clip, figure_width), size=LABEL_SIZE, y=0.04 / _size(subfigure)[1]
    )
    maps_height = tops[len(rows) - 1] + height - tops[0]
    bar_height = min(maps_height, 4.0)
    bar_left = figure_width - _RIGHT + _BAR_DISTANCE
    bar_top = tops[0] + (maps_height - bar_height) / 2
    map_cells.add_color_bar(
        subfigure,
        cells,
        None,
        values=all_values,
        label=SHARE_LABEL,
        inches=bar_height,
        bar_axes=_add_panel(subfigure, bar_left, bar_top, _BAR_WIDTH, bar_height),
    )


def _label_panel(
    ax: Axes, row: MapRow, clip: Clip, width: float, height: float, *, is_first: bool
) -> None:
    """Label words and tokens at the outer edges; outline the share of the cue in the target; mark
    the deciding row."""
    role_colors = {word: color for word, (_, color) in word_roles(clip).items()}
    # Where labels are thinned, the cue comes first among the sources and the target among the
    # targets.
    target_first = dict(reversed(role_colors.items()))
    deciding = deciding_row(row.map)
    row_colors = {} if deciding is None else {deciding: TARGET_COLOR}
    ax.set(xticks=[], yticks=[])
    if row.has_labels:
        unit_labels.label_units(
            ax,
            "x",
            row.map.sources,
            inches=width,
            highlight=role_colors,
            max_letters=_MAX_LABEL_LETTERS,
        )
    if is_first:
        unit_labels.label_units(
            ax,
            "y",
            row.map.targets,
            inches=height,
            highlight=target_first,
            highlighted_units=row_colors,
            max_letters=_MAX_LABEL_LETTERS,
        )
    map_cells.outline_cells(ax, row.map.targets, row.map.sources, cue=clip.cue, target=clip.target)
    if deciding is not None:
        map_cells.mark_row(ax, deciding)


def _write_heading(ax: Axes, mixing_map: MixingMap) -> None:
    """Write the name of a stack, and what its rows and columns are, above its first panel."""
    column, row = unit_labels.axis_names(mixing_map)
    ax.annotate(
        f"{mixing_map.stack}: row = {row}, column = {column}",
        (0, 1),
        (0, 15),
        xycoords="axes fraction",
        textcoords="offset points",
        size=LABEL_SIZE,
        parse_math=False,
        annotation_clip=False,
    )


def _legend_text(rows: Sequence[MapRow], clip: Clip, width: float) -> str:
    """Explain outline, mark and peak layers, in lines of a figure of this width in inches."""
    notes = []
    if clip.cue_words and clip.target is not None:
        notes.append("outlined: share of the cue in the target")
    if any(deciding_row(row.map) is not None for row in rows):
        notes.append(
            "\N{BLACK LEFT-POINTING SMALL TRIANGLE} deciding row: here the model chooses between target and foil"
        )
    if any(row.peak is not None for row in rows):
        notes.append("peak: largest share of the cue by Value Zeroing")
    return wrap_text("; ".join(notes), 0.9 * width)


_DrawFunction = Callable[[SubFigure], None]

_MAX_ROWS_HEIGHT = 7.5  # inches, of all rows of maps without their labels
_MAX_COLUMNS_WIDTH = 9.6  # inches, of all columns of maps


def clip_figure(
    clip: Clip,
    maps: Mapping[MeasureAndStack, MixingMap],
    *,
    layers: Sequence[int] | None = None,
    contributions: Mapping[MeasureAndStack, np.ndarray] | None = None,
    twins: Sequence[Mapping[MeasureAndStack, MixingMap]] = (),
    title: str | None = None,
) -> Figure:
    """Draw a clip with its maps.

    Silence and padding are left out before rows become shares, as in the cue contribution, so that
    the outlined cells and the curves show the same numbers (and padding, which can hold nearly all
    of a row, does not bleach the words).

    Parameters
    ----------
    clip : Clip
    maps : mapping of (measure, stack) to MixingMap
        As `speechmix.mix` returns it; may be empty.
    layers : sequence of int, optional
        Counted from 0. By default the same in all stacks: first, middle and last, and, if cue and
        target are known, the one of each stack in which the cue contribution by Value Zeroing
        peaks, which its title says. Stacks that do not have the same layers have a choice of their
        own.
    contributions : mapping of (measure, stack) to ndarray [L], optional
        Cue contribution, 0 to 1, in each layer of the map. By default computed from the maps if
        both words are known: of the deciding row where there is one, else of the target rows; the
        panel's title says which.
    twins : sequence of such mappings
        Maps of the same clip in untrained models, whose cue contribution is drawn as a thin line
        beside each curve.
    title : str, optional
        By default the names of the clip and its models.

    Returns
    -------
    Figure

    Raises
    ------
    InputError
        If a map does not have one of the layers, or the audio cannot be read.

    Examples
    --------
    >>> from speechmix.inputs.words.spans import Span
    >>> clip = Clip.from_array(np.zeros(8000), 16_000, words=[("les", 0, 0.2), ("livres", 0.2, 0.5)], cue=0, target=1)
    >>> units = (Span(0, 10, "les", word=0), Span(10, 25, "livres", word=1))
    >>> trained, twin = (MixingMap(np.array([[[3.0, 1.0], [x, 1.0]]]), units, units, "value_zeroing", "encoder", (0,))
    ...                  for x in (3.0, 1.0))
    >>> key = ("value_zeroing", "encoder")
    >>> figure = clip_figure(clip, {key: trained}, twins=[{key: twin}])
    >>> [line.get_ydata().tolist() for line in figure.axes[-1].lines]
    [[75.0], [50.0]]
    """
    row_names: dict[str, str] = {}
    if contributions is None:
        contributions, row_names = clip_curve_table(clip, maps)
    rows = make_map_rows(
        {key: _without_pauses(mixing_map) for key, mixing_map in maps.items()},
        layers,
        contributions,
    )
    n_columns = max((len(row.layers) for row in rows), default=0)
    sources = max((len(row.map.sources) for row in rows), default=0)
    targets = max((len(row.map.targets) for row in rows), default=0)
    panel_width = min(max(LINE_PITCH * sources, 1.5), 2.4, _MAX_COLUMNS_WIDTH / max(n_columns, 1))
    # Many rows get lower, so that the figure stays about twice as tall as wide.
    height = max(
        min(max(LINE_PITCH * targets, 1.4), 2.4, _MAX_ROWS_HEIGHT / max(len(rows), 1)),
        0.8,
    )
    margins = _left_of_rows(rows) + _RIGHT if rows else 0.0
    width = max(7.5, n_columns * (panel_width + _GAP) + margins)
    if title is None:
        models = {
            model_title(row.map.provenance): None for row in rows if row.map.provenance.get("model")
        }
        title = " · ".join([shorten_text(clip.name, 60), *models])
    title_height, sound_width = 0.12 + 0.17 * (title.count("\n") + 1), width - _LEFT - _RIGHT
    figure_parts: list[tuple[float, _DrawFunction]] = [
        (
            title_height + sound_height(clip, sound_width),
            lambda subfigure: draw_sound(subfigure, clip, sound_width, top=title_height),
        )
    ]
    if rows:
        figure_parts.append(
            (
                map_rows_height(rows, clip, panel_width, height, width),
                lambda subfigure: draw_map_rows(subfigure, rows, clip, panel_width, height),
            )
        )
    if contributions:
        twin_contributions = [clip_curve_table(clip, maps_of_twin)[0] for maps_of_twin in twins]
        key_order = list(dict.fromkeys([row.key for row in rows] + list(contributions)))
        contributions = {key: contributions[key] for key in key_order if key in contributions}
        figure_parts.append(
            (
                curves_height(len({measure for measure, _ in contributions})),
                lambda subfigure: draw_clip_curves(
                    subfigure, maps, contributions, twin_contributions, row_names
                ),
            )
        )
    heights = [inches for inches, _ in figure_parts]
    figure = ShownFigure(figsize=(width, sum(heights)), facecolor="white")
    figure.suptitle(title, size=TITLE_SIZE, y=1 - 0.08 / sum(heights), parse_math=False)
    subfigures = figure.subfigures(len(figure_parts), 1, squeeze=False, height_ratios=heights)[:, 0]
    for subfigure, (_, draw) in zip(subfigures, figure_parts, strict=True):
        draw(subfigure)
    return figure


def _without_pauses(mixing_map: MixingMap) -> MixingMap:
    words = mixing_map.without("silence", "padding")
    return words if words.scores.size else mixing_map
