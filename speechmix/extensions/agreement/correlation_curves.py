"""Draw how well measures correlate with a reference map over layers, and the outlier weights of two
norms.

In: means of `speechmix.extensions.agreement.distance_metric_effect`, and a table of
`speechmix.extensions.agreement.norm_outlier_weights`. Out: a Figure in the manner of Figures 4 and 5 of Modarressi
et al. 2022 (GlobEnc), the published numbers beside one's own: open markers on dotted lines.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ...errors import InputError
from ...mixing.maps.measure_registry import measure_label
from ...reporting.plots.cue_tables import read_published_data
from ...reporting.plots.figure_style import (
    CUE_COLOR,
    LABEL_SIZE,
    LAYER_LABEL,
    LINE_COLORS,
    TICK_SIZE,
    TITLE_SIZE,
    LineStyle,
    add_legend,
    legend_line,
    model_name,
    new_figure,
    style_layer_axis,
    wrap_text,
)

COLUMNS = (
    "model",
    "init",
    "stack",
    "measure",
    "layer",
    "statistic",
    "mean",
    "low",
    "high",
    "items",
)
_CONTROLS: dict[str, LineStyle] = {
    "identity": {"linestyle": "--", "color": "0.2"},
    "random": {"linestyle": "--", "color": "0.6"},
}
_PUBLISHED: LineStyle = {
    "linestyle": ":",
    "marker": "o",
    "markersize": 3,
    "markerfacecolor": "white",
    "linewidth": 0.9,
}


def correlation_figure(
    means: pd.DataFrame,
    *,
    statistic: str = "pearson",
    outliers: pd.DataFrame | None = None,
    draw_published: bool = True,
    note: str = "",
) -> Figure:
    """Draw correlations over layers with their intervals, and the outlier weights to the right.

    Parameters
    ----------
    means : DataFrame
        From `mean_correlations`, of one model and stack; the reference of all is `hta`, or is named
        in `note`.
    statistic : {"pearson", "spearman"}
    outliers : DataFrame, optional
        From `outlier_weights`, of the same model.
    draw_published : bool
        Draw the published curves of the measures that are there: Pearson's, with the diagonal.
        Spearman's, and r without the diagonal (means that lack the row "identity"), have none.
    note : str
        A line below, e.g. where the sentences come from.

    Returns
    -------
    Figure

    Raises
    ------
    InputError
        If a column is missing, or there are several models or stacks.
    """
    missing_columns = [column for column in COLUMNS if column not in means.columns]
    if missing_columns:
        raise InputError(
            f"expected means with the columns {', '.join(COLUMNS)}; missing: {', '.join(missing_columns)}"
        )
    mixed_columns = [name for name in ("model", "init", "stack") if means[name].nunique() > 1]
    drawn_rows = means[means["statistic"] == statistic]
    if mixed_columns or drawn_rows.empty:
        found_text = (
            ", ".join(f"{name} {sorted(means[name].unique())}" for name in mixed_columns)
            or f"no {statistic!r}"
        )
        raise InputError(
            f"expected means of one model and stack with {statistic}, found {found_text}: draw one at "
            "a time"
        )
    has_diagonal = "identity" in set(drawn_rows["measure"])
    draw_published = draw_published and statistic == "pearson" and has_diagonal
    note_lines = _note_lines(note, draw_published, has_diagonal)
    width = 4.3 + (3.3 if outliers is not None else 0.0)
    figure = new_figure(
        width,
        3.1 + 0.13 * len("\n".join(wrap_text(t, width) for t in note_lines).split("\n")),
    )
    axes = figure.subplots(
        1,
        1 if outliers is None else 2,
        squeeze=False,
        width_ratios=[4.3, 3.3][: 1 + (outliers is not None)],
    )[0]
    handles = _draw_correlations(axes[0], drawn_rows, draw_published)
    first_row = drawn_rows.iloc[0]
    axes[0].set_title(
        f"{model_name(first_row['model'])}, {first_row['init']}, {first_row['stack']} "
        f"({int(drawn_rows['items'].max()):,} items)",
        size=TITLE_SIZE,
        loc="left",
        parse_math=False,
    )
    axes[0].set_ylabel(f"{statistic.capitalize()}'s r with the reference map", size=LABEL_SIZE)
    if outliers is not None:
        _draw_outliers(axes[1], outliers, draw_published)
    add_legend(
        figure, handles, columns=3 if outliers is not None else 2, loc="outside upper center"
    )
    if note_lines:
        figure.supxlabel(
            "\n".join(wrap_text(text, width) for text in note_lines),
            size=TICK_SIZE,
            x=0.01,
            ha="left",
            parse_math=False,
        )
    return figure


def published_correlations() -> pd.DataFrame:
    """Return GlobEnc's Figure 4: Pearson's r of single-layer maps with HTA.

    The columns are measure, layer (from 0), statistic, mean.
    """
    content = read_published_data("globenc_hta")
    rows = [
        (measure, layer, content["statistic"], value)
        for measure, values in content["correlations"].items()
        for layer, value in enumerate(values)
    ]
    return pd.DataFrame(rows, columns=["measure", "layer", "statistic", "mean"])


def published_outlier_weights() -> pd.DataFrame:
    """Return GlobEnc's Figure 5: r of the two norms' outlier weights; columns layer (from 0) and
    correlation."""
    return pd.DataFrame(
        enumerate(read_published_data("globenc_hta")["outlier_weights"]),
        columns=["layer", "correlation"],
    )


def _draw_correlations(ax: Axes, means: pd.DataFrame, draw_published: bool) -> list[Line2D]:
    """Draw a line for each measure; returns the legend's entries."""
    handles = []
    curves = published_correlations()
    for color, (measure, measure_rows) in zip(
        _line_colors(means), means.groupby("measure", sort=False), strict=True
    ):
        measure_rows = measure_rows.sort_values("layer")
        style: LineStyle = {"color": color, "linewidth": 1.4, "zorder": 2} | _CONTROLS.get(
            str(measure), {}
        )
        marker_style: LineStyle = {"marker": "o", "markersize": 4} if len(measure_rows) == 1 else {}
        ax.plot(measure_rows["layer"], measure_rows["mean"], **style, **marker_style)
        ax.fill_between(
            measure_rows["layer"],
            measure_rows["low"],
            measure_rows["high"],
            color=color,
            alpha=0.18,
            linewidth=0,
        )
        handles.append(legend_line(label=measure_label(str(measure)), **style))
        published_curve = curves[curves["measure"] == measure]
        if draw_published and len(published_curve):
            ax.plot(published_curve["layer"], published_curve["mean"], color=color, **_PUBLISHED)
    if draw_published and means["measure"].isin(curves["measure"]).any():
        handles.append(legend_line(label="published", color="0.4", **_PUBLISHED))
    ax.axhline(0, color="0.6", linewidth=0.8)
    ax.set_ylim(top=1.02)
    ax.set_xlabel(LAYER_LABEL, size=LABEL_SIZE)
    style_layer_axis(ax)
    return handles


def _draw_outliers(ax: Axes, outliers: pd.DataFrame, draw_published: bool) -> None:
    outliers = outliers.sort_values("layer")
    ax.fill_between(
        outliers["layer"], outliers["null_low"], outliers["null_high"], color="0.85", linewidth=0
    )
    ax.plot(outliers["layer"], outliers["null"], color="0.6", linewidth=0.8)
    ax.plot(
        outliers["layer"],
        outliers["correlation"],
        "o-",
        color=CUE_COLOR,
        markersize=3.5,
        linewidth=1.4,
    )
    if draw_published:
        published_curve = published_outlier_weights()
        ax.plot(published_curve["layer"], published_curve["correlation"], color="0.4", **_PUBLISHED)
    if outliers["correlation"].isna().all():
        ax.text(
            0.5,
            0.95,
            "no layer has three outlier dimensions",
            transform=ax.transAxes,
            size=LABEL_SIZE,
            ha="center",
        )
    ax.axhline(0, color="0.6", linewidth=0.8)
    ax.set_ylim(-1.02, 1.02)
    ax.set_title("outlier weights of the two norms", size=TITLE_SIZE, loc="left")
    ax.set_xlabel(LAYER_LABEL, size=LABEL_SIZE)
    ax.set_ylabel("Pearson's r (grey: gains permuted)", size=LABEL_SIZE)
    style_layer_axis(ax)


def _line_colors(means: pd.DataFrame) -> list[str]:
    """Assign a colour to each measure, greys to controls."""
    unused_colors = iter(LINE_COLORS * 3)
    return [
        "0.5" if measure in _CONTROLS else next(unused_colors)
        for measure in means["measure"].unique()
    ]


def _note_lines(note: str, draw_published: bool, has_diagonal: bool) -> list[str]:
    diagonal = (
        "Identity: a map of nothing but the diagonal."
        if has_diagonal
        else "The diagonal is left out."
    )
    sentences = [f"Bands: 95 % intervals of means over items. {diagonal}"]
    if draw_published:
        content = read_published_data("globenc_hta")
        sentences.append(
            f"Published: {content['source']} ({content['evidence']}; not known: "
            f"{content['unknown']})."
        )
    return [text for text in (note, *sentences) if text]
