"""The cue's contribution over layers in one clip: a panel for each stack, a line for each measure,
thin ones for twins.

In: a `Clip` and its maps. Out: curves by (measure, stack) and the rows they are of; or drawing in a
part of a figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import SubFigure
from matplotlib.lines import Line2D

from ...errors import InputError
from ...evaluation.cue_contribution import ROW_NAMES, choose_row_kind, cue_contribution
from ...inputs.clips.clip import Clip
from ...mixing.maps.measure_facts import measure_label
from ...mixing.maps.mixing_map import MixingMap
from . import panels
from .panels import CUE_LABEL, LABEL_SIZE, LAYER_LABEL, LINE_COLORS

Key = tuple[str, str]  # measure, stack


def clip_curve_table(
    clip: Clip, maps: Mapping[Key, MixingMap]
) -> tuple[dict[Key, np.ndarray], dict[str, str]]:
    """Cue contribution of every map that holds both words (one of prepared inputs, or of other
    rows, does not); its rows."""
    contributions: dict[Key, np.ndarray] = {}
    named_rows: dict[str, str] = {}
    if clip.cue is not None and clip.target is not None:
        for key, mixing_map in maps.items():
            rows = choose_row_kind(mixing_map)
            try:
                contributions[key] = cue_contribution(
                    mixing_map, cue=clip.cue, target=clip.target, rows=rows
                )
            except InputError:
                continue
            named_rows[key[1]] = ROW_NAMES[rows]
    return contributions, named_rows


def draw_clip_curves(
    part: SubFigure,
    maps: Mapping[Key, MixingMap],
    contributions: Mapping[Key, np.ndarray],
    untrained: Sequence[Mapping[Key, np.ndarray]],
    named_rows: Mapping[str, str],
) -> None:
    """Cue contribution over layers: a panel for each stack, a line for each measure, thin ones for
    twins."""
    stacks = list(dict.fromkeys(stack for _, stack in contributions))
    measures = list(dict.fromkeys(measure for measure, _ in contributions))
    axes = part.subplots(1, len(stacks), sharey=True, squeeze=False)[0]
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
            _percent(curve),
            label=measure_label(measure),
            linewidth=1.4,
            marker="o",
            markersize=3,
            color=color,
        )
        for of_twin in untrained:
            if key in of_twin and len(of_twin[key]) == len(curve):
                ax.plot(
                    layers,
                    _percent(of_twin[key]),
                    linewidth=0.7,
                    linestyle="--",
                    marker=".",
                    markersize=2,
                    color=color,
                )
    for ax, stack in zip(axes, stacks, strict=True):
        panels.style_layer_axis(ax)
        title = ", ".join(filter(None, [stack, named_rows.get(stack)]))
        ax.set_title(title, size=LABEL_SIZE, pad=3, parse_math=False)
        ax.set_xlabel(LAYER_LABEL, size=LABEL_SIZE)
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel(CUE_LABEL, size=LABEL_SIZE)
    handles = list(lines.values())
    if any(untrained):
        handles.append(
            Line2D([], [], linewidth=0.7, linestyle="--", color="0.3", label="untrained twin")
        )
    panels.add_legend(part, handles, columns=4, loc="outside upper center")


def _percent(curve: np.ndarray) -> np.ndarray:
    return 100 * np.asarray(curve, dtype=float)
