"""Draw what sets of features explain of the states of each layer."""

from __future__ import annotations

import pandas as pd
from matplotlib.figure import Figure

from ...reporting.plots.figure_style import (
    LABEL_SIZE,
    LAYER_LABEL,
    LINE_COLORS,
    TITLE_SIZE,
    add_legend,
    legend_line,
    model_name,
    new_figure,
    style_curve_axis,
)


def encoding_figure(table: pd.DataFrame) -> Figure:
    """Draw shares of the variance of states over layers: a row for each model, a panel for each stack.

    Parameters
    ----------
    table : DataFrame
        Rows of `Encoding.to_dataframe()`. Black is all sets together, a coloured line what only that
        set explains, with its 95 % interval; dashed: mean of the untrained twins.

    Examples
    --------
    >>> table = pd.DataFrame({"model": "m", "init": "trained", "stack": "encoder", "layer": [0, 1], "set": "all",
    ...                       "share": [0.2, 0.3], "low": 0.1, "high": 0.4, "untrained": [0.1, 0.1]})
    >>> encoding_figure(table).axes[0].get_title()
    'encoder'
    """
    trained = table[table["init"] == "trained"]
    models, stacks = list(trained["model"].unique()), list(trained["stack"].unique())
    colors = dict(zip(table["set"].unique(), LINE_COLORS, strict=False))
    figure = new_figure(max(3.2 * len(stacks) + 0.4, 4.4), 2.6 * len(models) + 0.6)
    axes = figure.subplots(len(models), len(stacks), sharey=True, squeeze=False)
    for (model, stack, name), rows in trained.groupby(["model", "stack", "set"], sort=False):
        ax, color = axes[models.index(model), stacks.index(stack)], colors[name]
        ax.plot(rows["layer"], rows["share"], color=color, marker="o", markersize=3)
        ax.fill_between(
            rows["layer"], rows["low"], rows["high"], color=color, alpha=0.15, linewidth=0
        )
        ax.plot(rows["layer"], rows["untrained"], color=color, linestyle="--", linewidth=1)
        ax.set_title(
            stack if len(models) == 1 else f"{model_name(model)}, {stack}",
            size=TITLE_SIZE,
            parse_math=False,
        )
        ax.axhline(0, color="0.6", linewidth=0.7)
        ax.set_xticks(sorted(trained.loc[trained["stack"] == stack, "layer"].unique()))
        style_curve_axis(ax)
    for ax in axes[-1]:
        ax.set_xlabel(LAYER_LABEL, size=LABEL_SIZE)
    figure.supylabel("share of variance", size=LABEL_SIZE)
    handles = [
        legend_line(color=color, label="all sets" if name == "all" else str(name))
        for name, color in colors.items()
    ]
    if trained["untrained"].notna().any():
        handles.append(legend_line(color="0.4", linestyle="--", label="untrained twins"))
    add_legend(figure, handles, columns=3, loc="outside lower center")
    return figure
