"""How cue contribution is spread over clips: a mean can hide that half of the clips have all and
half have nothing.

In: a tidy table, as in `cue_tables`. Out: for each measure a box and a dot for every clip (group),
trained beside random, at one layer.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ...errors import InputError
from ...evaluation.statistics.grouped_means import decode_labels, grouped_means, select_cells
from ...mixing.maps.measure_facts import measure_label
from . import panels
from .cue_tables import ordered_values, select_cue_rows
from .curve_tables import unit_means
from .panels import CUE_LABEL, LABEL_SIZE, LINE_COLORS, TICK_SIZE, TITLE_SIZE

_COLORS = {"trained": LINE_COLORS[5], "random": "0.55"}
_MOST_DOTS = 2000
_GOLDEN = 0.6180339887  # multiples of it, less their whole part, spread dots evenly without chance


def best_layers(table: pd.DataFrame) -> pd.Series:
    """Layer with the largest mean of trained - random (or of what there is), by model, stack and
    measure.

    For a figure only: the largest of many layers is large by selection alone.
    """
    return _best_layers(unit_means(select_cue_rows(table)))


def _best_layers(of_units: pd.DataFrame) -> pd.Series:
    keys = ["model", "stack", "measure", "layer", "init"]
    means = pd.DataFrame(
        grouped_means(of_units, keys, "contribution")
        .set_index(keys)["contribution"]
        .unstack("init")
    )
    means.columns = decode_labels(means.columns)
    gain = (
        means["trained"] - means["random"]
        if {"trained", "random"} <= set(means)
        else means.iloc[:, 0]
    )
    best = (
        gain.dropna()
        .groupby(level=["model", "stack", "measure"], sort=False, observed=True)
        .idxmax()
    )
    return best.map(lambda key: key[-1])


def clip_distribution(
    table: pd.DataFrame, *, layer: int | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the contributions of single clips (groups) of one model and stack, measures side by
    side.

    Parameters
    ----------
    table : DataFrame
        Columns model, init, clip, stack, layer, measure, contribution (0 to 1); one model and
        stack.
    layer : int, optional
        Counted from 0; by default for each measure the one where trained - random is largest.
    ax : Axes, optional
        By default a new figure.

    Returns
    -------
    Axes

    Raises
    ------
    InputError
        If a column is missing, no row is left, or there are several models or stacks.
    """
    rows = select_cue_rows(table if layer is None else table[table["layer"] == layer])
    several = [name for name in ("model", "stack") if rows[name].nunique() > 1]
    if several:
        raise InputError(
            f"clip_distribution draws one {several[0]}, found "
            f"{', '.join(rows[several[0]].unique())}"
        )
    spread = _spread(rows, unit_means(rows))
    figure = None
    if ax is None:
        figure = panels.new_figure(0.9 * len(spread.layers) + 2.0, 2.8)
        ax = figure.add_subplot()
    _draw(ax, spread)
    if figure is not None:
        ax.set_title(
            f"{panels.model_name(rows['model'].iloc[0])}, {rows['stack'].iloc[0]}",
            size=TITLE_SIZE,
            parse_math=False,
        )
        panels.add_legend(figure, _handles(_inits(rows)), columns=2, loc="outside lower center")
    return ax


@dataclass(frozen=True)
class ClipSpread:
    """Contributions of single units of one model and stack: the layer of each measure, and the
    values there by init."""

    layers: Mapping[str, int]
    values: Mapping[tuple[str, str], np.ndarray]  # by (measure, init)
    largest: float  # in any layer


def _spread(rows: pd.DataFrame, means: pd.DataFrame) -> ClipSpread:
    """What is drawn of the rows of one model and stack, `select_cue_rows`, and of their `unit_means`."""
    best = _best_layers(means).droplevel(["model", "stack"])
    layers, values = {measure: best[measure] for measure in ordered_values(rows, "measure")}, {}
    for measure, layer in layers.items():
        here = means[(means["measure"] == measure) & (means["layer"] == layer)]
        for init in _COLORS:
            values[measure, init] = here.loc[here["init"] == init, "contribution"].to_numpy()
    return ClipSpread(layers, values, means["contribution"].max())


def _draw(ax: Axes, spread: ClipSpread) -> None:
    for place, measure in enumerate(spread.layers):
        for shift, init in ((-0.2, "trained"), (0.2, "random")):
            values = spread.values[measure, init]
            if len(values):
                _draw_spread(ax, place + shift, values, _COLORS[init])
    labels = [
        measure_label(name).replace(" ", "\n") + f"\nlayer {layer}"
        for name, layer in spread.layers.items()
    ]
    ax.set_xticks(range(len(labels)), labels, size=TICK_SIZE, parse_math=False)
    panels.style_curve_axis(ax)
    ax.set_xlim(-0.6, len(labels) - 0.4)
    ax.set_ylim(0, max(ax.get_ylim()[1], 1.05 * spread.largest))  # other panels may share the axis
    ax.set_ylabel(CUE_LABEL, size=LABEL_SIZE)


def distribution_figure(table: pd.DataFrame, *, narrow: bool = False) -> Figure:
    """Draw `clip_distribution` for every model (rows) and stack (columns), on one scale.

    Parameters
    ----------
    table : DataFrame
    narrow : bool
        All panels below each other: as wide as a column of a paper, or a phone.
    """
    rows = select_cue_rows(table)
    return draw_spreads(compute_spreads(rows, unit_means(rows)), narrow=narrow)


@dataclass(frozen=True)
class ClipSpreads:
    """What `distribution_figure` draws, computed: of each (model, stack), where there are rows of
    it."""

    panels: Mapping[tuple[str, str], ClipSpread | None]
    stacks: Sequence[str]
    measures: Sequence[str]
    inits: Collection[str]
    units: int


def compute_spreads(rows: pd.DataFrame, means: pd.DataFrame) -> ClipSpreads:
    """Compute what `draw_spreads` draws, of `select_cue_rows` rows and their `unit_means`."""
    models, stacks, measures = (
        ordered_values(rows, name) for name in ("model", "stack", "measure")
    )
    computed: dict[tuple[str, str], ClipSpread | None] = {}
    for model, stack in itertools.product(models, stacks):
        part, of_part = (
            select_cells(table, list(table), (table["model"] == model) & (table["stack"] == stack))
            for table in (rows, means)
        )
        computed[model, stack] = _spread(part, of_part) if len(part) else None
    return ClipSpreads(computed, stacks, measures, _inits(rows), rows["unit"].nunique())


def draw_spreads(computed: ClipSpreads, *, narrow: bool = False) -> Figure:
    """Draw what `compute_spreads` computed; see `distribution_figure`."""
    places = [
        place for place, spread in computed.panels.items() if spread is not None or not narrow
    ]
    n_columns = 1 if narrow else len(computed.stacks)
    width = (
        panels.NARROW
        if narrow
        else max((0.75 * len(computed.measures) + 0.6) * n_columns + 0.8, 4.2)
    )
    figure = panels.new_figure(width, (2.0 if narrow else 2.5) * len(places) / n_columns + 0.4)
    axes = figure.subplots(len(places) // n_columns, n_columns, sharey=True, squeeze=False)
    for ax, (model, stack) in zip(axes.flat, places, strict=True):
        spread = computed.panels[model, stack]
        if spread is None:
            ax.set_axis_off()
            continue
        _draw(ax, spread)
        ax.set_title(f"{panels.model_name(model)}, {stack}", size=TITLE_SIZE, parse_math=False)
        ax.set_ylabel("")
    figure.supylabel(CUE_LABEL, size=LABEL_SIZE)
    dots = "a dot for each clip (group of clips)"
    if computed.units > _MOST_DOTS:
        dots += f", or {_MOST_DOTS:,} evenly from least to most"
    note = f"{dots}; box: middle half and median; at the layer where trained - random is largest"
    title = panels.wrap_text(note, figure.get_figwidth())
    panels.add_legend(
        figure, _handles(computed.inits), columns=2, loc="outside lower center", title=title
    )
    return figure


def _inits(rows: pd.DataFrame) -> set[str]:
    return set(rows["init"].unique())


def _handles(inits: Collection[str]) -> list[Patch]:
    return [
        Patch(color=color, alpha=0.6, label=init)
        for init, color in _COLORS.items()
        if init in inits
    ]


def _draw_spread(ax: Axes, place: float, values: np.ndarray, color: str) -> None:
    every = values = np.sort(values)
    if len(values) > _MOST_DOTS:
        values = values[np.linspace(0, len(values) - 1, _MOST_DOTS).round().astype(int)]
    aside = (np.arange(1, len(values) + 1) * _GOLDEN % 1 - 0.5) * 0.26
    few = len(values) <= 200
    ax.scatter(
        place + aside,
        values,
        s=7 if few else 2,
        color=color,
        alpha=0.6 if few else 0.25,
        linewidth=0,
        rasterized=True,
    )
    ax.boxplot(
        [every],
        positions=[place],
        widths=0.3,
        showfliers=False,
        showcaps=False,
        manage_ticks=False,
        boxprops={"color": color, "linewidth": 1.0},
        whiskerprops={"color": color, "linewidth": 0.8},
        medianprops={"color": "black", "linewidth": 1.4},
    )
