"""What the target loses without a word, drawn: points with intervals, by template and number, over
untrained models.

In: means of an ablation of speech (`evaluation.speech_ablation_summary`). Out: a Figure. A line of panels
for each model (and side of the cue), a panel each for cue, another word and target; from left to
right what was done.
"""

from __future__ import annotations

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ...errors import InputError
from . import panels
from .panels import LABEL_SIZE, LINE_COLORS, TICK_SIZE, TITLE_SIZE, ShownFigure

_ALL, _MOST_SERIES, _TWINS = "all", 8, "0.82"
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
    of_reading = means[means["reading"] == reading] if len(means) else means
    rows = (
        of_reading[of_reading["aggregation"].isin([aggregation, ""])]
        if len(of_reading)
        else of_reading
    )
    if rows.empty:
        raise InputError(
            f"no mean of the reading {reading!r}, aggregation {aggregation!r}, to draw"
        )
    parts = [name for name in ("template", "number") if name in rows]
    rows = _with_series(rows, parts)
    lines = list(rows[["model", "side"]].drop_duplicates().itertuples(index=False, name=None))
    silenced = [word for word in ("cue", "another word", "target") if word in set(rows["silenced"])]
    ways = _ways(rows)
    width = panels.NARROW if narrow else max(0.5 * len(ways) * len(silenced) + 1.2, 5.0)
    shape = (len(lines) * len(silenced), 1) if narrow else (len(lines), len(silenced))
    figure = panels.new_figure(
        width, (1.7 if narrow else 1.9) * shape[0] + (1.6 if narrow else 1.1)
    )
    axes = figure.subplots(*shape, squeeze=False, sharey=True).reshape(len(lines), len(silenced))
    styles = _styles(list(dict.fromkeys(rows["series"])))
    for number, (line, (model, side)) in enumerate(zip(axes, lines, strict=True)):
        name = f"{panels.model_name(model)}{'' if side == _ALL else f'{chr(10)}{side} cue'}"
        for ax, word in zip(line, silenced, strict=True):
            here = (rows["model"] == model) & (rows["side"] == side) & (rows["silenced"] == word)
            _draw(ax, rows[here], ways, styles)
            without = f"without the {word}" if word != "another word" else f"without {word}"
            if narrow:
                ax.set_title(
                    f"{name.replace(chr(10), ', ')}: {without}", size=LABEL_SIZE, parse_math=False
                )
            elif number == 0:
                ax.set_title(without, size=TITLE_SIZE)
        if not narrow:
            line[0].set_ylabel(name, size=LABEL_SIZE, parse_math=False)
    unit = "drop (points)" if rows["unit"].iloc[0] == "points" else "drop (nats)"
    figure.supylabel(unit, size=LABEL_SIZE)
    title = f"{_READINGS[reading]}{_AGGREGATIONS.get(rows['aggregation'].iloc[0], '')}"
    figure.suptitle(panels.wrap_text(title, panels.NARROW) if narrow else title, size=TITLE_SIZE)
    _add_legend(figure, styles, rows, columns=2 if narrow else 4)
    return figure


def _with_series(rows: pd.DataFrame, parts: list[str]) -> pd.DataFrame:
    """All clips, and parts of them: by template and number together; by number alone if those are
    too many to draw."""
    whole = (rows[parts] == _ALL).all(axis=1) if parts else pd.Series(True, index=rows.index)
    finest = (rows[parts] != _ALL).all(axis=1) if parts else ~whole
    if len(rows.loc[finest, parts].drop_duplicates()) > _MOST_SERIES:
        finest = (
            (rows["number"] != _ALL) & (rows["template"] == _ALL)
            if len(parts) == 2
            else ~whole & whole
        )
        parts = ["number"]
    rows = rows[whole | finest]
    return rows.assign(
        series=[_ALL if set(row) <= {_ALL} else ", ".join(row) for row in rows[parts].to_numpy(str)]
    )


def _ways(rows: pd.DataFrame) -> list[tuple[str, str]]:
    """What was done, as (condition, fill), in the order of the table."""
    order = {name: place for place, name in enumerate(("sound", "tokens", "both"))}
    ways = list(rows[["condition", "fill"]].drop_duplicates().itertuples(index=False, name=None))
    return sorted(ways, key=lambda way: order[way[0]])


def _styles(series: list[str]) -> dict[str, tuple[str, str]]:
    """Colour and marker of each series; all clips are black."""
    others = [name for name in series if name != _ALL]
    styles = {_ALL: (LINE_COLORS[0], "o")} if _ALL in series else {}
    return styles | {
        name: (
            LINE_COLORS[1 + place % (len(LINE_COLORS) - 1)],
            _MARKERS[1 + place % (len(_MARKERS) - 1)],
        )
        for place, name in enumerate(others)
    }


def _draw(
    ax: Axes, rows: pd.DataFrame, ways: list[tuple[str, str]], styles: dict[str, tuple[str, str]]
) -> None:
    ax.axhline(0, color="0.6", linewidth=0.8)
    step = 0.8 / len(styles)
    for place, (series, (color, marker)) in enumerate(styles.items()):
        for way, (condition, fill) in enumerate(ways):
            x = way + (place - (len(styles) - 1) / 2) * step
            drawn = rows[
                (rows["series"] == series)
                & (rows["condition"] == condition)
                & (rows["fill"] == fill)
            ]
            for row in drawn.to_dict("records"):
                if row["twin_low"] == row["twin_low"]:
                    height = row["twin_high"] - row["twin_low"]
                    ax.bar(x, height, 0.9 * step, bottom=row["twin_low"], color=_TWINS, zorder=0)
                if row["random"] == row["random"]:
                    ax.plot(
                        [x - 0.4 * step, x + 0.4 * step],
                        [row["random"]] * 2,
                        color="0.45",
                        linewidth=1,
                        zorder=1,
                    )
                error = [
                    [row["trained"] - row["trained_low"]],
                    [row["trained_high"] - row["trained"]],
                ]
                sure = error[0][0] == error[0][0]
                ax.errorbar(
                    x,
                    row["trained"],
                    yerr=error if sure else None,
                    fmt=marker,
                    color=color,
                    markersize=3.5,
                    linewidth=1.1,
                )
    labels = [f"{condition}\n{fill}".replace(" + ", "\n+ ") for condition, fill in ways]
    ax.set_xticks(range(len(ways)), labels, size=TICK_SIZE, parse_math=False)
    ax.set_xlim(-0.6, len(ways) - 0.4)
    ax.tick_params(axis="y", labelsize=TICK_SIZE)
    ax.spines[["top", "right"]].set_visible(False)


def _add_legend(
    figure: ShownFigure, styles: dict[str, tuple[str, str]], rows: pd.DataFrame, *, columns: int
) -> None:
    handles: list[Artist] = [
        Line2D(
            [],
            [],
            color=color,
            marker=marker,
            linestyle="-",
            markersize=4,
            label=f"{name} clips" if name == _ALL else name,
        )
        for name, (color, marker) in styles.items()
    ]
    if rows["random"].notna().any():
        handles.append(Line2D([], [], color="0.45", linewidth=1, label="untrained"))
    if rows["twin_low"].notna().any():
        handles.append(Patch(color=_TWINS, label="from the lowest to the highest untrained twin"))
    panels.add_legend(
        figure, handles, columns=min(len(handles), columns), loc="outside lower center"
    )
