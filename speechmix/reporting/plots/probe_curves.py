"""What probes read, layer by layer: the published Figure 4, and the same above the mixing curve.

In: the tidy table of `speechmix.probe` (accuracy, or compression, 0 to 1 or bits to bits), and for
the second figure one of cue contributions. Out: a Figure. Over relative depth, the input of the
first layer left of 0. Trained models are solid with the 95 % interval over groups; random twins
dashed, with a band from the lowest to the highest twin; majority and control are lines.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ...errors import InputError
from ...evaluation.statistics.rank_test import twin_limits
from . import panels
from .cue_tables import relative_depth
from .panels import (
    DEPTH_LABEL,
    INIT_DASHES,
    LABEL_SIZE,
    LINE_COLORS,
    NARROW,
    TICK_SIZE,
    TITLE_SIZE,
    LineStyle,
)
from .published_figures import PUBLISHED, published_probing

INPUT = -1  # the layer before the first
_COLUMNS = ("model", "init", "stack", "layer")
PROBE_LABELS = {"accuracy": "accuracy (%)", "compression": "compression (N log2 K / bits)"}
_SCALES = {"accuracy": 100.0, "compression": 1.0}
_BANDS = (
    "trained: 95 % interval over groups; untrained twins: from the lowest to the highest; leftmost "
    "point: the input of the "
    "first layer"
)


def probe_figure(
    table: pd.DataFrame,
    *,
    stacks: Sequence[str] | None = None,
    rows: str | None = None,
    value: str = "accuracy",
    published: bool = False,
    narrow: bool = False,
) -> Figure:
    """Draw what probes read over relative depth: a panel for each stack (and position), a line for
    each model and init.

    Parameters
    ----------
    table : DataFrame
        `Probes.table`, or the rows of it that are to be drawn.
    stacks : sequence of str, optional
        Panels from left to right; all by default.
    rows : str, optional
        What makes rows of panels: "position", "label", "part"; by default the first of them that
        has several values.
    value : {"accuracy", "compression"}
    published : bool
        Draw the curves of the published Figure 4 beside, dotted: accuracy for number, mean over the
        target.
    narrow : bool
        All panels below each other: as wide as a column of a paper, or a phone.

    Returns
    -------
    Figure

    Raises
    ------
    InputError
        If a column is missing, no row is left, or a panel would hold several positions, labels or
        parts at once.

    Examples
    --------
    >>> table = pd.DataFrame({"model": "m", "init": "trained", "stack": "encoder", "layer": [-1, 0, 1],
    ...                       "accuracy": [0.5, 0.8, 0.9]})
    >>> probe_figure(table).axes[0].get_title()
    'encoder'
    """
    drawn = select_probes(table, value, stacks)
    rows = rows or next(
        (name for name in ("position", "label", "part") if _several(drawn, name)), None
    )
    check_panels(drawn, rows)
    if published and value != "accuracy":
        raise InputError("the published figure has accuracies: draw it beside value='accuracy'")
    curves = published_probing() if published else None
    stacks = (
        list(drawn["stack"].unique())
        if stacks is None
        else [name for name in stacks if name in set(drawn["stack"])]
    )
    lines = list(drawn[rows].unique()) if rows else [None]
    colors = probe_colors(drawn, curves)
    handles = probe_handles(drawn, curves, colors)
    n_columns, n_lines = (1, len(lines) * len(stacks)) if narrow else (len(stacks), len(lines))
    width = NARROW if narrow else max(3.2 * n_columns + 0.5, 4.4)
    figure = panels.new_figure(
        width, (2.0 if narrow else 2.4) * n_lines + legend_height(handles, narrow)
    )
    axes = figure.subplots(n_lines, n_columns, sharey=True, squeeze=False)
    for line, name in zip(axes.reshape(len(lines), len(stacks)), lines, strict=True):
        for ax, stack in zip(line, stacks, strict=True):
            here = drawn[(drawn["stack"] == stack) & ((drawn[rows] == name) if rows else True)]
            if curves is not None:
                _draw_published(ax, curves[curves["stack"] == stack], colors)
            draw_probes(ax, here, value=value, colors=colors)
            ax.set_title(
                stack if rows is None else f"{stack}, {name}", size=TITLE_SIZE, parse_math=False
            )
    for ax in axes[-1]:
        ax.set_xlabel(DEPTH_LABEL, size=LABEL_SIZE)
    figure.supylabel(PROBE_LABELS[value], size=LABEL_SIZE)
    add_probe_legend(figure, handles, narrow)
    return figure


def legend_height(handles: Sequence[Line2D], narrow: bool) -> float:
    """Inches that the legend takes below the panels."""
    return 0.8 + 0.17 * len(handles) if narrow else 0.45 + 0.09 * len(handles)


def add_probe_legend(figure: Figure, handles: Sequence[Line2D], narrow: bool) -> None:
    title = panels.wrap_text(_BANDS, figure.get_figwidth())
    panels.add_legend(
        figure, handles, columns=1 if narrow else 2, loc="outside lower center", title=title
    )


def draw_probes(
    ax: Axes, table: pd.DataFrame, *, value: str = "accuracy", colors: dict[str, str] | None = None
) -> None:
    """Draw one panel: models, their twins' band, majority and control."""
    colors, scale = colors or probe_colors(table, None), _SCALES[value]
    for model, of_model in table.groupby("model", sort=False):
        color = colors[str(model)]
        trained, random = (
            of_model[of_model["init"] == init].sort_values("depth")
            for init in ("trained", "random")
        )
        if len(random):
            by_depth = random.groupby("depth")[value]
            mean = by_depth.mean() * scale
            limits = np.array(
                [twin_limits(part.to_numpy(dtype=float) * scale) for _, part in by_depth]
            )
            top = scale if value == "accuracy" else np.inf
            ax.fill_between(
                mean.index,
                limits[:, 0].clip(0),
                limits[:, 1].clip(max=top),
                color=color,
                alpha=0.12,
                linewidth=0,
            )
            ax.plot(mean.index, mean, color=color, linestyle="--", linewidth=1.2)
        if len(trained):
            low, high = (
                trained[name] * scale if name in trained else trained[value] * np.nan
                for name in ("low", "high")
            )
            ax.fill_between(trained["depth"], low, high, color=color, alpha=0.2, linewidth=0)
            ax.plot(
                trained["depth"],
                trained[value] * scale,
                color=color,
                linewidth=1.5,
                marker="o",
                markersize=3,
            )
            if "control" in trained and trained["control"].notna().any():
                ax.plot(
                    trained["depth"],
                    trained["control"] * scale,
                    color=color,
                    linewidth=0.9,
                    linestyle=(0, (1, 2)),
                )
    chance = next((name for name in ("majority", "frequencies") if name in table), None)
    ax.axhline(
        1.0 if chance is None else float(table[chance].mean()) * scale, color="0.5", linewidth=0.9
    )
    panels.style_curve_axis(ax)
    ax.tick_params(labelsize=TICK_SIZE)


def select_probes(table: pd.DataFrame, value: str, stacks: Sequence[str] | None) -> pd.DataFrame:
    """Rows that hold a number, with their depth."""
    if value not in PROBE_LABELS:
        raise InputError(f"value should be one of {tuple(PROBE_LABELS)}, found {value!r}")
    missing = [name for name in (*_COLUMNS, value) if name not in table]
    if missing:
        raise InputError(
            f"expected a table of probes with the columns {', '.join((*_COLUMNS, value))}; no "
            f"{', '.join(missing)}"
        )
    rows = table[table[value].notna()]
    rows = rows if stacks is None else rows[rows["stack"].isin(list(stacks))]
    if rows.empty:
        raise InputError(
            f"no {value} left to draw: {len(table)} rows, of which none has these stacks and a "
            "number"
        )
    return rows.assign(depth=relative_depth(rows))


def _several(table: pd.DataFrame, name: str) -> bool:
    return name in table and table[name].nunique() > 1


def check_panels(table: pd.DataFrame, rows: str | None) -> None:
    mixed = [
        name for name in ("position", "label", "part") if name != rows and _several(table, name)
    ]
    if mixed:
        told = "; ".join(f"{name}: {', '.join(map(str, table[name].unique()))}" for name in mixed)
        raise InputError(
            f"a panel holds probes of one kind, found {told}: choose rows of the table first"
        )


def _draw_published(ax: Axes, curves: pd.DataFrame, colors: dict[str, str]) -> None:
    for (model, init), curve in curves.groupby(["model", "init"], sort=False):
        style: LineStyle = {"color": colors[str(model)], "linewidth": 0.9}
        style["linestyle"] = ":" if init == "trained" else (0, (1, 4))
        ax.plot(curve["depth"], 100 * curve["accuracy"], **style)


def probe_colors(table: pd.DataFrame, curves: pd.DataFrame | None) -> dict[str, str]:
    names = list(table["model"].unique()) + (
        [] if curves is None else list(curves["model"].unique())
    )
    return {
        str(name): LINE_COLORS[i % len(LINE_COLORS)] for i, name in enumerate(dict.fromkeys(names))
    }


def probe_handles(
    table: pd.DataFrame, curves: pd.DataFrame | None, colors: dict[str, str]
) -> list[Line2D]:
    handles = [
        Line2D(
            [],
            [],
            color=colors[str(model)],
            linestyle=INIT_DASHES.get(str(init), "-"),
            label=f"{panels.model_name(model)}, {init}",
        )
        for model, init in table[["model", "init"]]
        .drop_duplicates()
        .itertuples(index=False, name=None)
    ]
    if "control" in table and table["control"].notna().any():
        handles.append(
            Line2D(
                [],
                [],
                color="0.3",
                linewidth=0.9,
                linestyle=(0, (1, 2)),
                label="control: random labels by word",
            )
        )
    if "majority" in table or "compression" in table:
        name = "majority label" if "majority" in table else "label frequencies alone"
        handles.append(Line2D([], [], color="0.5", linewidth=0.9, label=name))
    if curves is not None:
        shown = curves[curves["stack"].isin(table["stack"].unique())]
        handles += [
            Line2D(
                [],
                [],
                color=colors[str(model)],
                linestyle=":",
                label=str(model).replace(PUBLISHED, " (published)"),
            )
            for model in shown["model"].unique()
        ]
    return handles
