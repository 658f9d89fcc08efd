"""Draw the cue's contribution over layers in one clip: a panel for each stack, a line for each
measure.

In: a `Clip` and its maps. Out: curves by (measure, stack) and the rows they are of; or drawing in a
part of a figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import SubFigure

from ...errors import InputError
from ...evaluation.cue_contribution import ROW_NAMES, choose_row_kind, cue_contribution
from ...inputs.clips.clip import Clip
from ...mixing.maps.measure_facts import measure_label
from ...mixing.maps.mixing_map import MixingMap
from .figure_style import (
    CUE_LABEL,
    LABEL_SIZE,
    LAYER_LABEL,
    LINE_COLORS,
    add_legend,
    legend_line,
    style_layer_axis,
)

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
