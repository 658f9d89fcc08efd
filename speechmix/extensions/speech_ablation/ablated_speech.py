"""Draw what the target loses without a word: points with intervals, by template and number, over
untrained models.

In: means of an ablation of speech (`extensions.speech_ablation.speech_ablation`). Out: a Figure. A line of panels
for each model (and side of the cue), a panel each for cue, another word and target; from left to
right what was done.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from ...errors import InputError
from ...reporting.plots.figure_style import (
    LABEL_SIZE,
    LINE_COLORS,
    NARROW_WIDTH,
    TICK_SIZE,
    TITLE_SIZE,
    ShownFigure,
    add_legend,
    legend_line,
    model_name,
    new_figure,
    wrap_text,
)
from ...runs.results.run_folder import SPEECH_ABLATION

MEANS = f"{SPEECH_ABLATION}_means.csv"
REMOVAL_KEYS = ("silenced", "condition", "fill", "reading", "aggregation")
PART_COLUMNS = ("template", "number")
ALL_PARTS = "all"
_ALL, _MAX_SERIES, _TWIN_COLOR = "all", 8, "0.82"
_MARKERS = "osD^vP"
_READINGS = {
    "arg-max": "probability of the tokens that the intact model finds likeliest",
    "transcript": "probability of the transcript's tokens",
    "margin": "margin",
    "text": "log-probability of the text",
}
_AGGREGATIONS = {"mean": ", mean over sub-tokens", "max": ", largest change of a sub-token"}


def speech_ablation_figure(
    means: pd.DataFrame,
    *,
    reading: str = "arg-max",
    aggregation: str = "mean",
    narrow: bool = False,
) -> ShownFigure:
    """Draw mean drops by template and number.

    Parameters
    ----------
    means : DataFrame
        From `summarize_speech_ablation`.
    reading : {"arg-max", "transcript", "margin", "text"}
    aggregation : {"mean", "max"}
        Over sub-tokens; margin and text have none.
    narrow : bool
        For a column of a paper, or a phone: panels below each other.

    Returns
    -------
    Figure

    Raises
    ------
    InputError
        If the table has no such rows.
    """
    reading_rows = means[means["reading"] == reading] if len(means) else means
    rows = (
        reading_rows[reading_rows["aggregation"].isin([aggregation, ""])]
        if len(reading_rows)
        else reading_rows
    )
    if rows.empty:
        raise InputError(
            f"no mean of the reading {reading!r}, aggregation {aggregation!r}, to draw"
        )
    group_columns = [name for name in ("template", "number") if name in rows]
    rows = _add_series(rows, group_columns)
    models_and_sides = list(
        rows[["model", "side"]].drop_duplicates().itertuples(index=False, name=None)
    )
    ablated_words = [
        word for word in ("cue", "another word", "target") if word in set(rows["silenced"])
    ]
    manipulations = _list_manipulations(rows)
    width = (
        NARROW_WIDTH if narrow else max(0.5 * len(manipulations) * len(ablated_words) + 1.2, 5.0)
    )
    grid_shape = (
        (len(models_and_sides) * len(ablated_words), 1)
        if narrow
        else (len(models_and_sides), len(ablated_words))
    )
    figure = new_figure(width, (1.7 if narrow else 1.9) * grid_shape[0] + (1.6 if narrow else 1.1))
    axes = figure.subplots(*grid_shape, squeeze=False, sharey=True).reshape(
        len(models_and_sides), len(ablated_words)
    )
    styles = _series_styles(list(dict.fromkeys(rows["series"])))
    for line_index, (line_axes, (model, side)) in enumerate(
        zip(axes, models_and_sides, strict=True)
    ):
        name = f"{model_name(model)}{'' if side == _ALL else f'{chr(10)}{side} cue'}"
        for ax, word in zip(line_axes, ablated_words, strict=True):
            is_in_panel = (
                (rows["model"] == model) & (rows["side"] == side) & (rows["silenced"] == word)
            )
            _draw_panel(ax, rows[is_in_panel], manipulations, styles)
            panel_title = f"without the {word}" if word != "another word" else f"without {word}"
            if narrow:
                ax.set_title(
                    f"{name.replace(chr(10), ', ')}: {panel_title}",
                    size=LABEL_SIZE,
                    y=1,
                    parse_math=False,
                )
            elif line_index == 0:
                ax.set_title(panel_title, size=TITLE_SIZE, y=1)
        if not narrow:
            line_axes[0].set_ylabel(name, size=LABEL_SIZE, parse_math=False)
    unit = "drop (points)" if rows["unit"].iloc[0] == "points" else "drop (nats)"
    figure.supylabel(unit, size=LABEL_SIZE)
    title = f"{_READINGS[reading]}{_AGGREGATIONS.get(rows['aggregation'].iloc[0], '')}"
    figure.suptitle(
        wrap_text(title, NARROW_WIDTH) if narrow else title,
        size=TITLE_SIZE,
    )
    _add_ablation_legend(figure, styles, rows, columns=2 if narrow else 4)
    return figure


def _add_series(rows: pd.DataFrame, group_columns: list[str]) -> pd.DataFrame:
    """Add a column "series": all clips, and parts by template and number, or by number alone if
    there are too many."""
    is_all_clips = (
        (rows[group_columns] == _ALL).all(axis=1)
        if group_columns
        else pd.Series(True, index=rows.index)
    )
    is_finest_part = (rows[group_columns] != _ALL).all(axis=1) if group_columns else ~is_all_clips
    if len(rows.loc[is_finest_part, group_columns].drop_duplicates()) > _MAX_SERIES:
        is_finest_part = (
            (rows["number"] != _ALL) & (rows["template"] == _ALL)
            if len(group_columns) == 2
            else ~is_all_clips & is_all_clips
        )
        group_columns = ["number"]
    rows = rows[is_all_clips | is_finest_part]
    return rows.assign(
        series=[
            _ALL if set(row) <= {_ALL} else ", ".join(row)
            for row in rows[group_columns].to_numpy(str)
        ]
    )


def _list_manipulations(rows: pd.DataFrame) -> list[tuple[str, str]]:
    """List the manipulations as (condition, fill), in the order of the table."""
    condition_order = {name: index for index, name in enumerate(("sound", "tokens", "both"))}
    manipulations = list(
        rows[["condition", "fill"]].drop_duplicates().itertuples(index=False, name=None)
    )
    return sorted(manipulations, key=lambda manipulation: condition_order[manipulation[0]])


def _series_styles(series: list[str]) -> dict[str, tuple[str, str]]:
    """Return the colour and marker of each series; all clips are black."""
    part_names = [name for name in series if name != _ALL]
    styles = {_ALL: (LINE_COLORS[0], "o")} if _ALL in series else {}
    return styles | {
        name: (
            LINE_COLORS[1 + index % (len(LINE_COLORS) - 1)],
            _MARKERS[1 + index % (len(_MARKERS) - 1)],
        )
        for index, name in enumerate(part_names)
    }


def _draw_panel(
    ax: Axes,
    rows: pd.DataFrame,
    manipulations: list[tuple[str, str]],
    styles: dict[str, tuple[str, str]],
) -> None:
    ax.axhline(0, color="0.6", linewidth=0.8)
    step = 0.8 / len(styles)
    for series_index, (series, (color, marker)) in enumerate(styles.items()):
        for manipulation_index, (condition, fill) in enumerate(manipulations):
            x = manipulation_index + (series_index - (len(styles) - 1) / 2) * step
            point_rows = rows[
                (rows["series"] == series)
                & (rows["condition"] == condition)
                & (rows["fill"] == fill)
            ]
            for row in point_rows.to_dict("records"):
                if row["twin_low"] == row["twin_low"]:
                    height = row["twin_high"] - row["twin_low"]
                    ax.bar(
                        x, height, 0.9 * step, bottom=row["twin_low"], color=_TWIN_COLOR, zorder=0
                    )
                if row["random"] == row["random"]:
                    ax.plot(
                        [x - 0.4 * step, x + 0.4 * step],
                        [row["random"]] * 2,
                        color="0.45",
                        linewidth=1,
                        zorder=1,
                    )
                error_bar = [
                    [row["trained"] - row["trained_low"]],
                    [row["trained_high"] - row["trained"]],
                ]
                has_interval = error_bar[0][0] == error_bar[0][0]
                ax.errorbar(
                    x,
                    row["trained"],
                    yerr=error_bar if has_interval else None,
                    fmt=marker,
                    color=color,
                    markersize=3.5,
                    linewidth=1.1,
                )
    labels = [f"{condition}\n{fill}".replace(" + ", "\n+ ") for condition, fill in manipulations]
    ax.set_xticks(range(len(manipulations)), labels, size=TICK_SIZE, parse_math=False)
    ax.set_xlim(-0.6, len(manipulations) - 0.4)
    ax.tick_params(axis="y", labelsize=TICK_SIZE)
    ax.spines[["top", "right"]].set_visible(False)


def _add_ablation_legend(
    figure: ShownFigure, styles: dict[str, tuple[str, str]], rows: pd.DataFrame, *, columns: int
) -> None:
    handles: list[Artist] = [
        legend_line(
            color=color,
            marker=marker,
            linestyle="-",
            markersize=4,
            label=f"{name} clips" if name == _ALL else name,
        )
        for name, (color, marker) in styles.items()
    ]
    if rows["random"].notna().any():
        handles.append(legend_line(color="0.45", linewidth=1, label="untrained"))
    if rows["twin_low"].notna().any():
        handles.append(Patch(color=_TWIN_COLOR, label="one more untrained model"))
    add_legend(figure, handles, columns=min(len(handles), columns), loc="outside lower center")
