"""Draw the word maps of one clip: a row of panels for each measure and stack, in some layers.

In: maps of a clip. Out: `MapRow`s, and drawing in a part of a figure that the caller owns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import SubFigure

from ...evaluation.cue_contribution import deciding_row
from ...inputs.clips.clip import Clip
from ...mixing.maps.measure_facts import measure_label
from ...mixing.maps.mixing_map import MixingMap
from . import map_cells, unit_labels
from .clip_curves import MeasureAndStack
from .figure_style import LABEL_SIZE, SHARE_LABEL, TARGET_COLOR, wrap_text
from .layer_choice import choose_layers, find_value_zeroing_peak
from .sound_panels import word_roles

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
