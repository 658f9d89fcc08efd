"""One clip at a glance: what was said and when, which word builds which in some layers, and how the cue fares.

In: a `Clip` and its maps. Out: a Figure: waveform and spectrogram with the words on top, a row of word-by-word maps for
each measure and stack below, and, where cue and target are known, the cue contribution over layers at the bottom.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure, SubFigure

from ..errors import InputError
from ..evaluation.cue import cue_contribution
from ..inputs.clips import Clip
from ..maps.mixing import MixingMap
from . import panels, unit_labels
from .panels import LABEL_SIZE, LAYER_LABEL, LINE_COLORS, SHARE_LABEL
from .sound_panels import draw_sound, roles, sound_height

Key = tuple[str, str]  # measure, stack
_Draw = Callable[[SubFigure], None]

_MOST_LETTERS = 16
_MOST_ROWS_HEIGHT = 7.5  # inches, of all rows of maps without their labels


@dataclass(frozen=True)
class _Row:
    """A row of panels: one map in some layers."""

    key: Key
    map: MixingMap
    layers: list[int]
    first: bool  # of its stack: has the titles
    labelled: bool  # the last before other sources follow: has the words below

    @property
    def values(self) -> list[np.ma.MaskedArray]:
        shares = panels.displayed(self.map)
        return [shares[self.map.layers.index(layer)] for layer in self.layers]


def clip_figure(
    clip: Clip,
    maps: Mapping[Key, MixingMap],
    *,
    layers: Sequence[int] | None = None,
    contributions: Mapping[Key, np.ndarray] | None = None,
) -> Figure:
    """Draw a clip with its maps.

    Silence and padding are left out before rows become shares, as in the cue contribution, so that the framed cells and
    the curves show the same numbers (and padding, which can hold nearly all of a row, does not bleach the words).

    Parameters
    ----------
    clip : Clip
    maps : mapping of (measure, stack) to MixingMap
        As `speechmix.mix` returns it; may be empty.
    layers : sequence of int, optional
        Counted from 0. By default the first, middle and last layer of each stack and, if cue and target are known, the
        one with the highest cue contribution by Value Zeroing.
    contributions : mapping of (measure, stack) to ndarray [L], optional
        Cue contribution, 0 to 1, in each layer of the map. By default computed from the maps if both words are known.

    Returns
    -------
    Figure

    Raises
    ------
    InputError
        If a map does not have one of the layers, or the audio cannot be read.
    """
    if contributions is None:
        contributions = _contributions(clip, maps)
    rows = _rows({key: _words_of(mixing_map) for key, mixing_map in maps.items()}, layers, contributions)
    n_columns = max((len(row.layers) for row in rows), default=0)
    sources = max((len(row.map.sources) for row in rows), default=0)
    targets = max((len(row.map.targets) for row in rows), default=0)
    panel = min(max(panels.LINE_PITCH * sources, 1.5), 2.4)
    # Many rows get lower, so that the figure stays about twice as tall as wide.
    height = max(min(max(panels.LINE_PITCH * targets, 1.4), 2.4, _MOST_ROWS_HEIGHT / max(len(rows), 1)), 0.8)
    width = max(7.5, n_columns * (panel + 0.12) + 2.0)
    parts: list[tuple[float, _Draw]] = [
        (sound_height(clip, width - 1.5), lambda part: draw_sound(part, clip, width - 1.5))
    ]
    if rows:
        parts.append((_maps_height(rows, panel, height), lambda part: _draw_maps(part, rows, clip, panel, height)))
    if contributions:
        parts.append((1.9, lambda part: _draw_curves(part, maps, contributions)))
    heights = [inches for inches, _ in parts]
    figure = panels.new_figure(width, sum(heights) + 0.2)
    models = {panels.model_title(row.map.provenance): None for row in rows if row.map.provenance.get("model")}
    title = " · ".join([panels.shortened(clip.name, 60), *models])
    figure.suptitle(title, size=panels.TITLE_SIZE, parse_math=False)
    places = figure.subfigures(len(parts), 1, squeeze=False, height_ratios=heights)[:, 0]
    for place, (_, draw) in zip(places, parts, strict=True):
        draw(place)
    return figure


def _maps_height(rows: Sequence[_Row], width: float, height: float) -> float:
    """Inches that all rows of maps take with labels and titles, panels being this large."""
    below = [unit_labels.label_room(row.map.sources, most=_MOST_LETTERS, inches=width) for row in rows if row.labelled]
    return len(rows) * (height + 0.1) + sum(below) + 0.2 * sum(row.first for row in rows) + 0.3


def _contributions(clip: Clip, maps: Mapping[Key, MixingMap]) -> dict[Key, np.ndarray]:
    """Cue contribution of every map that holds both words (a map of prepared inputs, or of other rows, does not)."""
    contributions = {}
    if clip.cue is not None and clip.target is not None:
        for key, mixing_map in maps.items():
            try:
                contributions[key] = cue_contribution(mixing_map, cue=clip.cue, target=clip.target)
            except InputError:
                continue
    return contributions


def _words_of(mixing_map: MixingMap) -> MixingMap:
    words = mixing_map.without("silence", "padding")
    return words if words.scores.size else mixing_map


def _rows(
    maps: Mapping[Key, MixingMap], layers: Sequence[int] | None, contributions: Mapping[Key, np.ndarray]
) -> list[_Row]:
    """Rows in an order in which maps of a stack, and stacks with the same sources, are neighbours."""
    stacks = list(dict.fromkeys(stack for _, stack in maps))
    words = {stack: next(m.sources for (_, name), m in maps.items() if name == stack) for stack in stacks}
    stacks = sorted(stacks, key=lambda stack: next(i for i, other in enumerate(stacks) if words[other] == words[stack]))
    keys = [key for stack in stacks for key in maps if key[1] == stack]
    layers_of = {stack: _layers_shown(maps, stack, layers, contributions) for stack in stacks}
    return [
        _Row(
            key=key,
            map=maps[key],
            layers=layers_of[key[1]],
            first=index == 0 or keys[index - 1][1] != key[1],
            labelled=index + 1 == len(keys) or maps[keys[index + 1]].sources != maps[key].sources,
        )
        for index, key in enumerate(keys)
    ]


def _layers_shown(
    maps: Mapping[Key, MixingMap], stack: str, layers: Sequence[int] | None, contributions: Mapping[Key, np.ndarray]
) -> list[int]:
    """Layers of one stack: those asked for, or first, middle, last and the peak of Value Zeroing."""
    of_stack = [mixing_map for (_, name), mixing_map in maps.items() if name == stack]
    if layers is not None:
        for mixing_map in of_stack:
            for layer in layers:
                mixing_map.layer(layer)  # raises if there is none
        return list(layers)
    common = [layer for layer in of_stack[0].layers if all(layer in other.layers for other in of_stack)]
    if not common:
        raise InputError(f"the maps of the {stack} have no layer in common: draw them in figures of their own")
    shown = {common[0], common[len(common) // 2], common[-1]}
    key = ("value_zeroing", stack)
    if key in maps and key in contributions and np.isfinite(contributions[key]).any():
        shown |= {maps[key].layers[int(np.nanargmax(contributions[key]))]} & set(common)
        # The peak was among them: fill the row with the layer farthest from all.
        while len(shown) < min(4, len(common)):
            shown.add(max(common, key=lambda layer: min(abs(layer - other) for other in shown)))
    return sorted(shown)


def _draw_maps(part: SubFigure, rows: list[_Row], clip: Clip, width: float, height: float) -> None:
    """One row of panels for each measure and stack, all on one colour scale."""
    shown = [array for row in rows for array in row.values]
    limits = panels.color_limits(shown)
    marked = {word: color for word, (_, color) in roles(clip).items()}
    # Where labels are thinned, the cue comes first among the sources and the target among the targets.
    target_first = dict(reversed(marked.items()))
    axes = part.subplots(len(rows), max(len(row.layers) for row in rows), squeeze=False)
    for row, line in zip(rows, axes, strict=True):
        for ax in line[len(row.layers) :]:
            ax.set_axis_off()
        for column, (ax, values, layer) in enumerate(zip(line, row.values, row.layers, strict=False)):
            cells = panels.draw_cells(ax, values, limits=limits)
            ax.set_aspect("auto")
            style = {"most": _MOST_LETTERS}
            unit_labels.label_units(ax, "x", row.map.sources, inches=width, highlight=marked, **style)
            unit_labels.label_units(ax, "y", row.map.targets, inches=height, highlight=target_first, **style)
            panels.outline(ax, row.map.targets, row.map.sources, cue=clip.cue, target=clip.target)
            ax.tick_params(labelleft=column == 0, labelbottom=row.labelled)
            if row.first:
                ax.set_title(f"{row.key[1]}, layer {layer}", size=LABEL_SIZE, pad=3, parse_math=False)
        line[0].set_ylabel(f"{panels.spoken(row.key[0])}\n{row.key[1]}", size=LABEL_SIZE, parse_math=False)
    framed = "; framed: what the cue gives to the target" if clip.cue_words and clip.target is not None else ""
    part.supxlabel(f"source (gives){framed}", size=LABEL_SIZE)
    part.supylabel("target (receives)", size=LABEL_SIZE)
    panels.add_color_bar(part, cells, axes, values=shown, label=SHARE_LABEL, inches=len(rows) * height)


def _draw_curves(part: SubFigure, maps: Mapping[Key, MixingMap], contributions: Mapping[Key, np.ndarray]) -> None:
    """Cue contribution over layers: a panel for each stack, a line for each measure."""
    stacks = list(dict.fromkeys(stack for _, stack in contributions))
    measures = list(dict.fromkeys(measure for measure, _ in contributions))
    axes = part.subplots(1, len(stacks), sharey=True, squeeze=False)[0]
    lines = {}
    for (measure, stack), curve in contributions.items():
        layers = maps[measure, stack].layers if (measure, stack) in maps else range(len(curve))
        (lines[measure],) = axes[stacks.index(stack)].plot(
            layers, 100 * np.asarray(curve, dtype=float), label=panels.spoken(measure), linewidth=1.2, marker="o",
            markersize=2.5, color=LINE_COLORS[measures.index(measure) % len(LINE_COLORS)],
        )  # fmt: skip
    for ax, stack in zip(axes, stacks, strict=True):
        panels.style_layer_axis(ax)
        ax.set_title(stack, size=LABEL_SIZE, pad=3, parse_math=False)
        ax.set_xlabel(LAYER_LABEL, size=LABEL_SIZE)
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel("cue contribution (%)", size=LABEL_SIZE)
    panels.add_legend(part, list(lines.values()), columns=4, loc="outside upper center")
