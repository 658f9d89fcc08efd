"""Draw similarities: layers over layers, or external features over layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ...errors import InputError
from ...reporting.plots import map_cells
from ...reporting.plots.figure_style import (
    LABEL_SIZE,
    LAYER_LABEL,
    LINE_COLORS,
    TICK_SIZE,
    TITLE_SIZE,
    model_name,
    model_title,
    new_figure,
    style_layer_axis,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .similarity import SimilarityResult

_MAX_NUMBERS = 170  # cells, above which numbers are too small to read


def similarity_panel(
    result: SimilarityResult, *, feature: str | None = None, ax: Axes | None = None
) -> Axes:
    """Draw one panel of `similarity_figure`.

    Parameters
    ----------
    result : SimilarityResult
    feature : str, optional
        The model whose layers are drawn to the right, or one external feature; by default the first
        model, or else all external features.
    ax : Axes, optional

    Raises
    ------
    InputError
        For a feature that is not there.
    """
    rows = result.table
    names = list(rows["feature"].unique())
    if feature is not None and feature not in names:
        raise InputError(f"feature should be one of {', '.join(names)}, found {feature!r}")
    has_layers = rows["feature_layer"].notna()
    feature_name = next(iter(rows["feature"][has_layers]), None) if feature is None else feature
    rows = rows if feature_name is None else rows[rows["feature"] == feature_name]
    rows = rows[rows["stack"] == rows["stack"].iloc[0]]
    rows = rows[rows["feature_stack"] == rows["feature_stack"].iloc[0]]
    return _draw_rows(result, rows, ax)


def similarity_figure(result: SimilarityResult) -> Figure:
    """Draw a panel for each stack and model compared with, and one for all external features.

    Parameters
    ----------
    result : SimilarityResult

    Returns
    -------
    Figure
        Maps: bold numbers differ from untrained twins. Lines: bars are 95 % intervals over groups of
        clips, dashed lines the mean of the twins, dotted lines shuffled units; a filled marker is a
        difference from the twins that is claimed.
    """
    table = result.table
    model_of = table["feature"].where(table["feature_layer"].notna(), "")
    parts = [
        rows for _, rows in table.groupby([table["stack"], model_of, "feature_stack"], sort=False)
    ]
    figure = new_figure(3.6 * len(parts), 3.3)
    for ax, rows in zip(figure.subplots(1, len(parts), squeeze=False)[0], parts, strict=True):
        _draw_rows(result, rows, ax)
    title = f"{model_title(result.provenance)}: similarity of {result.provenance['level']}s"
    figure.suptitle(title, size=TITLE_SIZE, parse_math=False)
    return figure


def _draw_rows(result: SimilarityResult, rows: pd.DataFrame, ax: Axes | None) -> Axes:
    ax = new_figure(3.8, 3.3).subplots() if ax is None else ax
    if rows["feature_layer"].notna().all():
        _draw_layers(ax, rows, result.provenance)
    else:
        _draw_features(ax, rows)
        ax.set_ylabel(str(result.provenance["label"]), size=LABEL_SIZE)
    ax.set_title(
        f"{rows['units'].iloc[0]} units, {rows['groups'].iloc[0]} groups of clips", size=TICK_SIZE
    )
    return ax


def _draw_layers(ax: Axes, rows: pd.DataFrame, provenance: Mapping[str, object]) -> None:
    """Draw a map of layers; of a stack and itself both halves."""
    row = rows.iloc[0]
    keys = ["layer", "feature_layer"]
    values, claims = (rows.set_index(keys)[name].unstack() for name in ("value", "claim"))
    if provenance["is_self"] and row["stack"] == row["feature_stack"]:
        values, claims = (half.combine_first(half.T) for half in (values, claims))
    matrix = np.ma.masked_invalid(values.to_numpy(dtype=float))
    limits = (min(0.0, float(matrix.min())), 1.0)
    cells = map_cells.draw_cells(ax, matrix, limits=limits, cmap=map_cells.SHARE_COLORS)
    ax.set_aspect("auto")
    if matrix.size <= _MAX_NUMBERS:
        is_bold = claims.isin(["more", "less"]).to_numpy()
        map_cells.write_numbers(ax, cells, matrix, is_bold=is_bold, decimals=2)
    for ticks, names in ((ax.set_xticks, values.columns), (ax.set_yticks, values.index)):
        tick_indices = range(0, len(names), 1 + len(names) // 16)
        ticks(
            np.array(tick_indices) + 0.5,
            [str(names[index]) for index in tick_indices],
            size=TICK_SIZE,
        )
    ax.set_xlabel(f"layer, {model_name(row['feature'])} {row['feature_stack']}", size=LABEL_SIZE)
    ax.set_ylabel(f"layer, {row['stack']}", size=LABEL_SIZE)
    map_cells.add_color_bar(
        ax.figure, cells, ax, values=[matrix], label=str(provenance["label"]), inches=2.2
    )


def _draw_features(ax: Axes, rows: pd.DataFrame) -> None:
    """Draw a line for each external feature."""
    for index, (name, line) in enumerate(rows.groupby("feature", sort=False)):
        color, layers = LINE_COLORS[index % len(LINE_COLORS)], line["layer"]
        ax.plot(layers, line["value"], color=color, linewidth=1.4, label=model_name(name))
        ax.vlines(layers, line["low"], line["high"], color=color, linewidth=1)
        faces = [color if claim else "white" for claim in line["claim"]]
        ax.scatter(layers, line["value"], s=11.6, color=faces, edgecolors=color, zorder=2.1)
        if line["twins"].max() > 0:
            ax.plot(layers, line["random"], "--", color=color, linewidth=0.9)
            twin_range = (line["twin_low"], line["twin_high"])
            ax.fill_between(layers, *twin_range, color=color, alpha=0.15, linewidth=0)
        ax.plot(layers, line["shuffled"], ":", color=color, linewidth=0.9)
    if rows["twins"].max() > 0:
        ax.plot([], [], "--", color="0.4", linewidth=0.9, label="untrained twins")
    ax.plot([], [], ":", color="0.4", linewidth=0.9, label="shuffled units")
    ax.set_xlabel(LAYER_LABEL, size=LABEL_SIZE)
    style_layer_axis(ax)
    ax.legend(fontsize=TICK_SIZE, frameon=False)
