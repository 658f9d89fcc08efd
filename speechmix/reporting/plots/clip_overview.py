"""Draw one clip with its maps: the sound with its words, maps in some layers, and the cue's
contribution.

In: a `Clip` and its maps. Out: a Figure: waveform and spectrogram with the words on top, a row of
word-by-word maps for each measure and stack below, and, where cue and target are known, the cue
contribution over layers at the bottom, that of untrained twins as a thin line.

Draw the word maps of one clip: a row of panels for each measure and stack, in some layers.

In: maps of a clip. Out: `MapRow`s, and drawing in a part of a figure that the caller owns.

Draw the cue's contribution over layers in one clip: a panel for each stack, a line for each
measure.

In: a `Clip` and its maps. Out: curves by (measure, stack) and the rows they are of; or drawing in a
part of a figure.

Choose the layers that a figure of one clip shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from ...errors import InputError
from ...evaluation.cue_contribution import (
    ROW_NAMES,
    choose_row_kind,
    cue_contribution,
    deciding_row,
)
from ...inputs.clips.clip import Clip
from ...mixing.maps.measure_registry import measure_label
from ...mixing.maps.mixing_map import MixingMap
from . import figure_style as unit_labels
from . import map_cells
from .figure_style import (
    CUE_LABEL,
    LABEL_SIZE,
    LAYER_LABEL,
    LINE_COLORS,
    LINE_PITCH,
    SHARE_LABEL,
    TARGET_COLOR,
    TITLE_SIZE,
    add_legend,
    legend_line,
    model_title,
    new_figure,
    shorten_text,
    style_layer_axis,
    wrap_text,
)
from .sound_panels import draw_sound, sound_height, word_roles

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
    axes = subfigure.subplots(1, len(stacks), sharey=True, squeeze=False)[0]
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
        ax.set_title(title, size=LABEL_SIZE, pad=3, parse_math=False)
        ax.set_xlabel(LAYER_LABEL, size=LABEL_SIZE)
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel(CUE_LABEL, size=LABEL_SIZE)
    handles = list(lines.values())
    if any(twin_contributions):
        handles.append(
            legend_line(linewidth=0.7, linestyle="--", color="0.3", label="untrained twin")
        )
    add_legend(subfigure, handles, columns=4, loc="outside upper center")


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


def map_rows_height(rows: Sequence[MapRow], width: float, height: float) -> float:
    """Compute the height in inches of all rows of maps with labels and titles."""
    label_heights = [
        unit_labels.label_inches(row.map.sources, max_letters=_MAX_LABEL_LETTERS, inches=width)
        for row in rows
        if row.has_labels
    ]
    return (
        len(rows) * (height + 0.1)
        + sum(label_heights)
        + _TITLE_HEIGHT * sum(row.is_first_of_stack for row in rows)
        + 0.3
    )


def draw_map_rows(
    subfigure: SubFigure, rows: list[MapRow], clip: Clip, width: float, height: float
) -> None:
    """Draw one row of panels for each measure and stack, on one colour scale."""
    all_values = [array for row in rows for array in row.values]
    limits = map_cells.color_limits(all_values)
    axes = subfigure.subplots(len(rows), max(len(row.layers) for row in rows), squeeze=False)
    for row, row_axes in zip(rows, axes, strict=True):
        for ax in row_axes[len(row.layers) :]:
            ax.set_axis_off()
        for column, (ax, values) in enumerate(zip(row_axes, row.values, strict=False)):
            cells = map_cells.draw_cells(ax, values, limits=limits)
            ax.set_aspect("auto")
            _label_panel(ax, row, clip, width, height)
            ax.tick_params(labelleft=column == 0, labelbottom=row.has_labels)
            if row.is_first_of_stack:
                layer = row.layers[column]
                ax.set_title(
                    f"\nlayer {layer}{', peak' if layer == row.peak else ''}",
                    size=LABEL_SIZE,
                    pad=3,
                )
        if row.is_first_of_stack:
            _write_heading(row_axes[0], row.map)
        row_axes[0].set_ylabel(
            f"{measure_label(row.key[0])}\n{row.key[1]}", size=LABEL_SIZE, parse_math=False
        )
    width_inches = 0.9 * subfigure.bbox.width / subfigure.figure.dpi
    subfigure.supxlabel(wrap_text(_legend_text(rows, clip), width_inches), size=LABEL_SIZE)
    map_cells.add_color_bar(
        subfigure, cells, axes, values=all_values, label=SHARE_LABEL, inches=len(rows) * height
    )


def _label_panel(ax: Axes, row: MapRow, clip: Clip, width: float, height: float) -> None:
    """Label words and tokens; outline the share of the cue in the target; mark the deciding row."""
    role_colors = {word: color for word, (_, color) in word_roles(clip).items()}
    # Where labels are thinned, the cue comes first among the sources and the target among the
    # targets.
    target_first = dict(reversed(role_colors.items()))
    deciding = deciding_row(row.map)
    row_colors = {} if deciding is None else {deciding: TARGET_COLOR}
    unit_labels.label_units(
        ax,
        "x",
        row.map.sources,
        inches=width,
        highlight=role_colors,
        max_letters=_MAX_LABEL_LETTERS,
    )
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
    heading = ax.annotate(
        f"{mixing_map.stack}: row = {row}, column = {column}",
        (0, 1),
        (0, 15),
        xycoords="axes fraction",
        textcoords="offset points",
        size=LABEL_SIZE,
        parse_math=False,
        annotation_clip=False,
    )
    heading.set_in_layout(False)  # it runs on over the other panels, above their titles


def _legend_text(rows: Sequence[MapRow], clip: Clip) -> str:
    """Explain outline, mark and peak layers."""
    notes = []
    if clip.cue_words and clip.target is not None:
        notes.append("outlined: share of the cue in the target")
    if any(deciding_row(row.map) is not None for row in rows):
        notes.append(
            "\N{BLACK LEFT-POINTING SMALL TRIANGLE} deciding row: here the model chooses between target and foil"
        )
    if any(row.peak is not None for row in rows):
        notes.append("peak: largest share of the cue by Value Zeroing")
    return "; ".join(notes)


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
    width = max(7.5, n_columns * (panel_width + 0.12) + 2.0)
    figure_parts: list[tuple[float, _DrawFunction]] = [
        (
            sound_height(clip, width - 1.5),
            lambda subfigure: draw_sound(subfigure, clip, width - 1.5),
        )
    ]
    if rows:
        figure_parts.append(
            (
                map_rows_height(rows, panel_width, height),
                lambda subfigure: draw_map_rows(subfigure, rows, clip, panel_width, height),
            )
        )
    if contributions:
        twin_contributions = [clip_curve_table(clip, maps_of_twin)[0] for maps_of_twin in twins]
        key_order = list(dict.fromkeys([row.key for row in rows] + list(contributions)))
        contributions = {key: contributions[key] for key in key_order if key in contributions}
        figure_parts.append(
            (
                1.9,
                lambda subfigure: draw_clip_curves(
                    subfigure, maps, contributions, twin_contributions, row_names
                ),
            )
        )
    heights = [inches for inches, _ in figure_parts]
    figure = new_figure(width, sum(heights) + 0.2)
    models = {
        model_title(row.map.provenance): None for row in rows if row.map.provenance.get("model")
    }
    title = " · ".join([shorten_text(clip.name, 60), *models])
    figure.suptitle(title, size=TITLE_SIZE, parse_math=False)
    subfigures = figure.subfigures(len(figure_parts), 1, squeeze=False, height_ratios=heights)[:, 0]
    for subfigure, (_, draw) in zip(subfigures, figure_parts, strict=True):
        draw(subfigure)
    return figure


def _without_pauses(mixing_map: MixingMap) -> MixingMap:
    words = mixing_map.without("silence", "padding")
    return words if words.scores.size else mixing_map
