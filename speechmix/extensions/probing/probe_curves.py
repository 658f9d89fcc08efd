"""Draw the accuracy, compression or R^2 of probes over layers, as in Figure 4 of Mohebbi et al. 2023.

The input of the first layer is left of 0. Trained models are solid, with the 95 % interval over
groups; twins dashed, with a band for one more; majority and control are lines.

Draw the accuracy of a probe in each layer above the cue's contribution.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ...errors import InputError
from ...evaluation.statistics.intervals import twin_bands
from ...mixing.maps.measure_registry import measure_label
from ...reporting.plots.cue_curves import layer_curves
from ...reporting.plots.cue_tables import PUBLISHED_SUFFIX, published_probing, relative_depth
from ...reporting.plots.figure_style import (
    DEPTH_LABEL,
    INIT_DASHES,
    INIT_LABELS,
    LABEL_SIZE,
    LINE_COLORS,
    NARROW_WIDTH,
    TICK_SIZE,
    TITLE_SIZE,
    LineStyle,
    add_legend,
    legend_line,
    model_name,
    new_figure,
    style_curve_axis,
    wrap_text,
)

INPUT_LAYER = -1  # the layer before the first
_COLUMNS = ("model", "init", "stack", "layer")
PROBE_LABELS = {
    "accuracy": "accuracy (%)",
    "compression": "compression (N log2 K / bits)",
    "r2": "R² (share of variance)",
}
# Column of what a prediction without states reaches -> its name in the legend.
_CHANCE_COLUMNS = {
    "majority": "majority label",
    "frequencies": "label frequencies alone",
    "by_position": "position in the clip alone",
}
_BAND_NOTE = (
    "bands: 95 % confidence interval over groups (trained); one more untrained model; leftmost "
    "point: input of the first layer"
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
    """Draw the accuracy of probes over relative depth: a panel for each stack (and position), a
    line for each model and init.

    Parameters
    ----------
    table : DataFrame
        Rows of `Probes.to_dataframe()`.
    stacks : sequence of str, optional
        Panels from left to right; all by default.
    rows : str, optional
        What makes rows of panels: "position", "label", "part"; by default the first of them that
        has several values.
    value : {"accuracy", "compression", "r2"}
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
    probes = select_probes(table, value, stacks)
    names = ("position", "label", "part")
    rows = rows or next((name for name in names if _has_several_values(probes, name)), None)
    check_panels(probes, rows)
    if published and value != "accuracy":
        raise InputError("the published figure has accuracies: draw it beside value='accuracy'")
    curves = published_probing() if published else None
    stacks = (
        list(probes["stack"].unique())
        if stacks is None
        else [stack for stack in stacks if stack in set(probes["stack"])]
    )
    row_values = list(probes[rows].unique()) if rows else [None]
    colors = probe_colors(probes, curves)
    handles = probe_handles(probes, curves, colors)
    n_columns, n_lines = (
        (1, len(row_values) * len(stacks)) if narrow else (len(stacks), len(row_values))
    )
    width = NARROW_WIDTH if narrow else max(3.2 * n_columns + 0.5, 4.4)
    figure = new_figure(width, (2.0 if narrow else 2.4) * n_lines + legend_height(handles, narrow))
    axes = figure.subplots(n_lines, n_columns, sharey=True, squeeze=False)
    for row_axes, row_value in zip(
        axes.reshape(len(row_values), len(stacks)), row_values, strict=True
    ):
        for ax, stack in zip(row_axes, stacks, strict=True):
            in_row = (probes[rows] == row_value) if rows else True
            panel_rows = probes[probes["stack"].eq(stack) & in_row]
            if curves is not None:
                _draw_published(ax, curves[curves["stack"] == stack], colors)
            draw_probes(ax, panel_rows, value=value, colors=colors)
            ax.set_title(
                stack if rows is None else f"{stack}, {row_value}",
                size=TITLE_SIZE,
                parse_math=False,
            )
    for ax in axes[-1]:
        ax.set_xlabel(DEPTH_LABEL, size=LABEL_SIZE)
    figure.supylabel(PROBE_LABELS[value], size=LABEL_SIZE)
    add_probe_legend(figure, handles, narrow)
    return figure


def legend_height(handles: Sequence[Line2D], narrow: bool) -> float:
    """Compute the height in inches of the legend below the panels."""
    return 0.8 + 0.17 * len(handles) if narrow else 0.45 + 0.09 * len(handles)


def add_probe_legend(figure: Figure, handles: Sequence[Line2D], narrow: bool) -> None:
    title = wrap_text(_BAND_NOTE, figure.get_figwidth())
    add_legend(figure, handles, columns=1 if narrow else 2, loc="outside lower center", title=title)


def draw_probes(
    ax: Axes, table: pd.DataFrame, *, value: str = "accuracy", colors: dict[str, str] | None = None
) -> None:
    """Draw one panel: models, their twins' band, majority and control."""
    colors, scale = colors or probe_colors(table, None), 100.0 if value == "accuracy" else 1.0
    for model, model_rows in table.groupby("model", sort=False):
        color = colors[str(model)]
        trained_rows, twin_rows = (
            model_rows[model_rows["init"] == init].sort_values("depth")
            for init in ("trained", "random")
        )
        if len(twin_rows):
            values_by_depth = twin_rows.groupby("depth")[value]
            mean = values_by_depth.mean() * scale
            twin_values = values_by_depth.apply(list)
            values = pd.DataFrame(twin_values.to_list()).to_numpy(dtype=float) * scale
            band = np.stack(twin_bands(values, rows=len(values)))
            band = band.clip(0, scale) if value == "accuracy" else band
            ax.fill_between(mean.index, *band, color=color, alpha=0.12, linewidth=0)
            ax.plot(mean.index, mean, color=color, linestyle="--", linewidth=1.2)
        if len(trained_rows):
            low, high = (
                trained_rows[name] * scale if name in trained_rows else trained_rows[value] * np.nan
                for name in ("low", "high")
            )
            ax.fill_between(trained_rows["depth"], low, high, color=color, alpha=0.2, linewidth=0)
            ax.plot(
                trained_rows["depth"],
                trained_rows[value] * scale,
                color=color,
                linewidth=1.5,
                marker="o",
                markersize=3,
            )
            if "control" in trained_rows and trained_rows["control"].notna().any():
                ax.plot(
                    trained_rows["depth"],
                    trained_rows["control"] * scale,
                    color=color,
                    linewidth=0.9,
                    linestyle=(0, (1, 2)),
                )
    chance_column = next((name for name in _CHANCE_COLUMNS if name in table), None)
    chance = 1.0 if chance_column is None else float(table[chance_column].mean()) * scale
    ax.axhline(chance, color="0.5", linewidth=0.9)
    style_curve_axis(ax)
    ax.tick_params(labelsize=TICK_SIZE)


def select_probes(table: pd.DataFrame, value: str, stacks: Sequence[str] | None) -> pd.DataFrame:
    """Select the rows that hold a number; add their depth."""
    if value not in PROBE_LABELS:
        raise InputError(f"value should be one of {tuple(PROBE_LABELS)}, found {value!r}")
    missing_columns = [name for name in (*_COLUMNS, value) if name not in table]
    if missing_columns:
        raise InputError(
            f"expected a table of probes with the columns {', '.join((*_COLUMNS, value))}; no "
            f"{', '.join(missing_columns)}"
        )
    rows = table[table[value].notna()]
    rows = rows if stacks is None else rows[rows["stack"].isin(list(stacks))]
    if rows.empty:
        raise InputError(
            f"no {value} left to draw: {len(table)} rows, of which none has these stacks and a "
            "number"
        )
    return rows.assign(depth=relative_depth(rows))


def _has_several_values(table: pd.DataFrame, name: str) -> bool:
    return name in table and table[name].nunique() > 1


def check_panels(table: pd.DataFrame, rows: str | None) -> None:
    """Raise if a panel would hold several positions, labels or parts."""
    mixed_columns = [
        name
        for name in ("position", "label", "part")
        if name != rows and _has_several_values(table, name)
    ]
    if mixed_columns:
        listed_values = "; ".join(
            f"{name}: {', '.join(map(str, table[name].unique()))}" for name in mixed_columns
        )
        raise InputError(
            f"a panel holds probes of one kind, found {listed_values}: choose rows of the table first"
        )


def _draw_published(ax: Axes, curves: pd.DataFrame, colors: dict[str, str]) -> None:
    for (model, init), curve in curves.groupby(["model", "init"], sort=False):
        style: LineStyle = {"color": colors[str(model)], "linewidth": 0.9}
        style["linestyle"] = ":" if init == "trained" else (0, (1, 4))
        ax.plot(curve["depth"], 100 * curve["accuracy"], **style)


def probe_colors(table: pd.DataFrame, curves: pd.DataFrame | None) -> dict[str, str]:
    model_names = list(table["model"].unique()) + (
        [] if curves is None else list(curves["model"].unique())
    )
    return {
        str(name): LINE_COLORS[i % len(LINE_COLORS)]
        for i, name in enumerate(dict.fromkeys(model_names))
    }


def probe_handles(
    table: pd.DataFrame, curves: pd.DataFrame | None, colors: dict[str, str]
) -> list[Line2D]:
    handles = [
        legend_line(
            color=colors[str(model)],
            linestyle=INIT_DASHES.get(str(init), "-"),
            label=f"{model_name(model)}, {INIT_LABELS.get(str(init), init)}",
        )
        for model, init in table[["model", "init"]]
        .drop_duplicates()
        .itertuples(index=False, name=None)
    ]
    if "control" in table and table["control"].notna().any():
        handles.append(
            legend_line(
                color="0.3",
                linewidth=0.9,
                linestyle=(0, (1, 2)),
                label="control: random labels of words",
            )
        )
    for column in _CHANCE_COLUMNS:
        if column in table or (column == "frequencies" and "compression" in table):
            handles.append(legend_line(color="0.5", linewidth=0.9, label=_CHANCE_COLUMNS[column]))
    if curves is not None:
        drawn_curves = curves[curves["stack"].isin(table["stack"].unique())]
        handles += [
            legend_line(
                color=colors[str(model)],
                linestyle=":",
                label=str(model).replace(PUBLISHED_SUFFIX, " (published)"),
            )
            for model in drawn_curves["model"].unique()
        ]
    return handles


def probe_and_mixing(
    probes: pd.DataFrame,
    contributions: pd.DataFrame,
    *,
    measure: str = "value_zeroing",
    value: str = "accuracy",
    narrow: bool = False,
) -> Figure:
    """Draw the accuracy of probes above the cue's contribution, for each stack.

    Parameters
    ----------
    probes : DataFrame
        Of one position, label and part.
    contributions : DataFrame
        Cue contributions of the same models, as for `cue_figure`.
    measure : str
    value : {"accuracy", "compression"}
    narrow : bool
        Stacks below each other: as wide as a column of a paper, or a phone.

    Returns
    -------
    Figure
        A column for each stack of the contributions whose states were probed; cross-attention
        stands below the decoder, whose layers it is in. The x axis is the same above and below.

    Raises
    ------
    InputError
        As `probe_figure`; and if no stack has both.
    """
    probe_rows = select_probes(probes, value, None)
    check_panels(probe_rows, None)
    mixing = contributions[
        (contributions["measure"] == measure) & contributions["contribution"].notna()
    ]
    probed_stack = {
        stack: "decoder" if stack == "cross" else stack for stack in mixing["stack"].unique()
    }
    stack_pairs = [
        (probed, stack)
        for stack, probed in probed_stack.items()
        if probed in set(probe_rows["stack"])
    ]
    if not stack_pairs:
        raise InputError(f"no stack has both probes and contributions by {measure!r}")
    colors = probe_colors(probe_rows, None)
    mixing = mixing[mixing["model"].isin(colors)]
    handles = probe_handles(probe_rows, None, colors)
    figure, axes = _paired_axes(len(stack_pairs), legend_height(handles, narrow), narrow)
    for (probe_axes, mixing_axes), (probed, stack) in zip(axes, stack_pairs, strict=True):
        draw_probes(
            probe_axes, probe_rows[probe_rows["stack"] == probed], value=value, colors=colors
        )
        probe_axes.set_title(
            f"{probed}: {'probed' if value == 'accuracy' else value}",
            size=TITLE_SIZE,
            parse_math=False,
        )
        layer_curves(mixing[mixing["stack"] == stack], ax=mixing_axes, x="depth", colors=colors)
        mixing_axes.set_title(
            f"{'cross-attention' if stack == 'cross' else stack}: mixed",
            size=TITLE_SIZE,
            parse_math=False,
        )
        mixing_axes.set(ylabel="")
    for probe_axes, mixing_axes in axes if narrow else axes[:1]:
        mixing_axes.set_ylim(bottom=0)  # once all is drawn: the others share it
        probe_axes.set_ylabel(PROBE_LABELS[value], size=LABEL_SIZE)
        mixing_axes.set_ylabel(f"{measure_label(measure)} (%)", size=LABEL_SIZE, parse_math=False)
    add_probe_legend(figure, handles, narrow)
    return figure


def _paired_axes(stack_count: int, legend_inches: float, narrow: bool) -> tuple[Figure, np.ndarray]:
    """Make a figure with two panels for each stack; return it with the axes [stack, 2]."""
    if narrow:
        figure = new_figure(NARROW_WIDTH, 3.8 * stack_count + legend_inches)
        return figure, figure.subplots(2 * stack_count, 1, sharex=True).reshape(stack_count, 2)
    figure = new_figure(max(2.9 * stack_count + 0.5, 4.4), 4.3 + legend_inches)
    return figure, figure.subplots(2, stack_count, sharex="col", sharey="row", squeeze=False).T
