"""Draw what the states of phones are made of: shares by source over layers, beside the twins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.axes import Axes

from ...errors import InputError
from ...evaluation.statistics.random_twin_comparison import WHOLE_STACK
from ...reporting.plots.figure_style import (
    INIT_DASHES,
    LABEL_SIZE,
    LAYER_LABEL,
    LINE_COLORS,
    TITLE_SIZE,
    add_legend,
    legend_line,
    model_title,
    new_figure,
    style_layer_axis,
)
from .phone_sources import SOURCES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .phone_sources import PhoneSources

_COLORS = dict(zip(SOURCES, LINE_COLORS, strict=False))
_LABELS = dict(
    zip(
        SOURCES,
        ("the phone itself", "previous phone", "next phone", "rest of the word", "other words"),
        strict=True,
    )
)
_MAX_COLUMNS = 4


def phone_sources_figure(result: PhoneSources) -> Figure:
    """Draw a panel for each level (class of phones, position, condition).

    Parameters
    ----------
    result : PhoneSources

    Returns
    -------
    Figure
        Lines are the model, their bars 95 % intervals; dashed lines the mean of the untrained twins,
        bands where one more untrained model is expected.
    """
    levels = _list_levels(result)
    columns = min(len(levels), _MAX_COLUMNS)
    rows = -(-len(levels) // columns)
    figure = new_figure(max(2.3 * columns, 3.6), 2.2 * rows + 0.9)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).ravel()
    for index, (ax, level) in enumerate(zip(axes, levels, strict=False)):
        phone_sources_panel(result, level=level, ax=ax)
        if index + columns < len(levels):
            ax.set_xlabel("")
        ax.xaxis.set_tick_params(labelbottom=index + columns >= len(levels))
        if index % columns:
            ax.set_ylabel("")
    for ax in axes[len(levels) :]:
        ax.set_axis_off()
    figure.suptitle(f"{model_title(result.provenance)}: sources of phones", size=LABEL_SIZE + 1)
    handles = [legend_line(color=_COLORS[source], label=_LABELS[source]) for source in SOURCES]
    if result.provenance["twins"]:
        handles.append(legend_line(color="0.4", linestyle=INIT_DASHES["random"], label="untrained"))
    add_legend(figure, handles, columns=3, loc="outside lower center")
    return figure


def phone_sources_panel(
    result: PhoneSources, *, level: str | tuple[str, ...] | None = None, ax: Axes | None = None
) -> Axes:
    """Draw one panel of `phone_sources_figure`.

    Parameters
    ----------
    result : PhoneSources
    level : str or tuple of str, optional
        By default the first.
    ax : Axes, optional

    Raises
    ------
    InputError
        For a level that is not there.
    """
    levels = _list_levels(result)
    key = levels[0] if level is None else (level,) if isinstance(level, str) else level
    if key not in levels:
        raise InputError(f"level should be one of {', '.join(map(repr, levels))}, found {level!r}")
    shares = result.shares[result.shares["layer"] != WHOLE_STACK]
    for name, value in zip(result.by, key, strict=True):
        shares = shares[shares[name] == value]
    is_new = ax is None
    ax = new_figure(3.6, 3.2).subplots() if ax is None else ax
    for index, source in enumerate(SOURCES):
        _draw_source(ax, shares[shares["source"] == source], source, 0.06 * (index - 2))
    ax.set_ylim(0, 100)
    ax.set_xlabel(LAYER_LABEL, size=LABEL_SIZE)
    ax.set_ylabel("share of the phone's state (%)", size=LABEL_SIZE)
    counts = f"{shares['phones'].max()} phones, {shares['clips'].max()} clips"
    ax.set_title("\n".join(filter(None, (" · ".join(key), counts))), size=TITLE_SIZE - 1)
    style_layer_axis(ax)
    if is_new:
        handles = [legend_line(color=_COLORS[source], label=_LABELS[source]) for source in SOURCES]
        add_legend(ax, handles, columns=1, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return ax


def _draw_source(ax: Axes, rows: pd.DataFrame, source: str, shift: float) -> None:
    """Draw the line of a source with its intervals, the twins' behind it."""
    color, layers = _COLORS[source], rows["layer"]
    if rows["twins"].max() > 0:
        ax.plot(layers, rows["random"], INIT_DASHES["random"], color=color, linewidth=0.9)
        ax.fill_between(
            layers, rows["twin_low"], rows["twin_high"], color=color, alpha=0.15, linewidth=0
        )
    ax.vlines(layers + shift, rows["low"], rows["high"], color=color, linewidth=1)
    ax.plot(layers + shift, rows["share"], INIT_DASHES["trained"], color=color, linewidth=1.4)
    ax.plot(layers + shift, rows["share"], "o", color=color, markersize=3.2)


def _list_levels(result: PhoneSources) -> list[tuple[str, ...]]:
    """List the levels of `by`, in order; one without names if there are none."""
    if not result.by:
        return [()]
    return list(result.shares[list(result.by)].drop_duplicates().itertuples(index=False, name=None))
