"""Draw many models as small multiples: a panel for each model, its stacks over relative depth.

In: a tidy table, as in `cue_tables`. With many models one panel of all curves is a muddle; here
each model has its own, all on the same axes. Trained models are solid, random twins dashed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.lines import Line2D

from ...errors import InputError
from ...mixing.maps.measure_registry import STACKS, measure_label
from ...reporting.plots.cue_tables import (
    DECIDING,
    curve_table,
    ordered_values,
    select_cue_rows,
    target_rows_title,
)
from ...reporting.plots.figure_style import (
    CUE_LABEL,
    INIT_DASHES,
    INIT_LABELS,
    LABEL_SIZE,
    TITLE_SIZE,
    add_legend,
    legend_line,
    model_name,
    new_figure,
    style_curve_axis,
    wrap_text,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Told apart by colour-blind readers, and by lightness in print without colour; the markers say it
# again.
STACK_STYLES = {"encoder": ("#000000", "o"), "decoder": ("#0072B2", "s"), "cross": ("#E69F00", "^")}
_MAX_MARKED_LAYERS = 8  # layers whose points are all marked; of more every other, third, ...


def model_panels(
    table: pd.DataFrame,
    *,
    measure: str | None = None,
    stacks: Sequence[str] | None = None,
    models: Sequence[str] | None = None,
    titles: Mapping[str, str] | None = None,
    columns: int = 3,
    band: str = "interval",
    value: str = "contribution",
    label: str = CUE_LABEL,
    target_rows: str = DECIDING,
) -> Figure:
    """Draw a panel for each model: its stacks over relative depth, trained solid and random dashed.

    Parameters
    ----------
    table : DataFrame
        Columns model, init, clip, stack, layer, measure and `value` (0 to 1), as a run's
        contributions.
    measure : str, optional
        Which; needed where the table holds several.
    stacks, models : sequence of str, optional
        Which, and in which order; all of the table by default.
    titles : mapping of model to str, optional
        What to write above a panel; the model's name by default. The number of layers is added, of
        each stack where they differ.
    columns : int
        Panels side by side.
    band : {"interval", "clips", "none"}
        As in `layer_curves`.
    value, label : str
        Which column, drawn in percent, and what it is called.
    target_rows : {"target", "deciding"}
        As in `cue_heat_map`; the title says which rows are drawn.

    Returns
    -------
    Figure

    Raises
    ------
    InputError
        If a column is missing, no row is left, a model is not in the table, or there are several
        measures to choose from.

    Examples
    --------
    >>> table = pd.DataFrame({"model": ["a", "a", "b", "b"], "init": "random", "clip": "x", "stack": "encoder",
    ...                       "layer": [0, 1, 0, 1], "measure": "attention", "contribution": [0.1, 0.3, 0.2, 0.2]})
    >>> [ax.get_title() for ax in model_panels(table, band="none").axes]
    ['a\\n2 layers', 'b\\n2 layers']
    """
    if columns < 1:
        raise InputError(f"columns should be at least 1, found {columns!r}")
    rows = select_cue_rows(
        table,
        stacks=stacks,
        measures=None if measure is None else [measure],
        value=value,
        target_rows=target_rows,
    )
    measures = list(rows["measure"].unique())
    if len(measures) > 1:
        raise InputError(
            f"model_panels draws one measure, found {', '.join(measures)}: choose with measure="
        )
    present_models = ordered_values(rows, "model")
    missing_models = [name for name in models or () if name not in present_models]
    if missing_models:
        raise InputError(
            f"no rows of {', '.join(missing_models)}; the table has {', '.join(present_models)}"
        )
    drawn_models = list(models or present_models)
    rows = rows[rows["model"].isin(drawn_models)]
    curves = curve_table(rows, band=band, value=value)
    stack_names = ordered_values(
        rows, "stack", stacks or [name for name in STACKS if name in set(rows["stack"])]
    )
    columns = min(columns, len(drawn_models))
    line_count = -(-len(drawn_models) // columns)
    figure = new_figure(2.3 * columns + 0.4, 1.95 * line_count + 0.8)
    axes = figure.subplots(line_count, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for ax, model in zip(axes, drawn_models, strict=False):
        _draw_model_curves(ax, curves[curves["model"] == model], stack_names)
        title = (titles or {}).get(model, model_name(model))
        ax.set_title(
            f"{title}\n{_layer_counts_text(rows[rows['model'] == model], stack_names)}",
            size=TITLE_SIZE,
            y=1,
            parse_math=False,
        )
    for ax in axes[len(drawn_models) :]:
        ax.remove()
    for panel_index, ax in enumerate(axes[: len(drawn_models)]):
        ax.tick_params(labelbottom=panel_index + columns >= len(drawn_models))
        if panel_index + columns >= len(drawn_models):
            ax.set_xlabel("relative depth", size=LABEL_SIZE)
    axes[0].set_ylim(bottom=0)
    figure.supylabel(f"{label}, {measure_label(measures[0])}", size=LABEL_SIZE, parse_math=False)
    if target_rows_text := target_rows_title(rows):
        figure.suptitle(
            wrap_text(target_rows_text, 0.8 * figure.get_figwidth()),
            size=TITLE_SIZE,
            parse_math=False,
        )
    inits = [init for init in INIT_DASHES if init in set(rows["init"])]
    handles = [_legend_handle(name, init) for name in stack_names for init in inits]
    add_legend(figure, handles, columns=len(stack_names), loc="outside lower center")
    return figure


def _draw_model_curves(ax: Axes, curves: pd.DataFrame, stacks: Sequence[str]) -> None:
    for stack_and_init, curve in curves.groupby(["stack", "init"], sort=False, observed=True):
        stack, init = map(str, stack_and_init)
        if stack not in stacks:
            continue
        color, marker = _stack_style(stack)
        if curve["low"].notna().any():
            ax.fill_between(
                curve["depth"], curve["low"], curve["high"], color=color, alpha=0.18, linewidth=0
            )
        ax.plot(
            curve["depth"],
            curve["mean"],
            color=color,
            linestyle=INIT_DASHES.get(init, ":"),
            linewidth=1.3,
            marker=marker,
            markersize=3.5,
            markerfacecolor=color if init == "trained" else "white",
            markevery=-(-len(curve) // _MAX_MARKED_LAYERS),
        )
    style_curve_axis(ax)
    ax.set_xticks([0, 0.5, 1], ["0", "0.5", "1"])


def _layer_counts_text(rows: pd.DataFrame, stacks: Sequence[str]) -> str:
    """Say how many layers each stack of a model has: "32, 4, 4 layers"."""
    last_layers = rows.groupby("stack", observed=True)["layer"].max()
    counts = [f"{last_layers[stack] + 1}" for stack in stacks if stack in last_layers]
    return f"{', '.join(counts if len(set(counts)) > 1 else counts[:1])} layers"


def _legend_handle(stack: str, init: str) -> Line2D:
    color, marker = _stack_style(stack)
    face_color = color if init == "trained" else "white"
    return legend_line(
        color=color,
        marker=marker,
        markersize=3.5,
        markerfacecolor=face_color,
        linewidth=1.3,
        linestyle=INIT_DASHES[init],
        label=f"{stack}, {INIT_LABELS.get(init, init)}",
    )


def _stack_style(stack: str) -> tuple[str, str]:
    return STACK_STYLES.get(stack, ("#009E73", "D"))
