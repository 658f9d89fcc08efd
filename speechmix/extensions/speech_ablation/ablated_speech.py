"""Draw what the target loses without a word: points with intervals, by template and number, over
untrained models.

In: means of an ablation of speech (`extensions.speech_ablation.speech_ablation`). Out: a Figure. A line of panels
for each model (and side of the cue), a panel each for cue, another word and target; from left to
right what was done.

The published ablation of speech over clips and models, kept clip by clip, resumable; trained
models and random twins.

In: models (or functions that load them), clips, a folder. Out: a `SpeechAblation`, and in the
folder (it may be that of a run)

    results/<model>/                          what was computed of each clip (kinds/speech_ablation.py)
    speech_ablation.parquet, .csv             one row per clip, model, way to take a word away, reading and aggregation
    speech_ablation_means.csv                 over clips, by template and number, beside untrained models
    speech_ablation.png, .pdf                 the same drawn
    speech_ablation_skipped.csv               what was left out and why
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from ...adapters.model import Model
from ...errors import InputError
from ...files.json_files import JsonObject
from ...files.parquet_files import read_parquet
from ...files.shard_assignment import Shard
from ...inputs.clips.clip import Clip
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
from ...runs.executors.executor import Executor
from ...runs.results.run_folder import SPEECH_ABLATION, RunFolder, RunState
from ...runs.score_clips import Loads, compute_kinds
from ...runs.shard_merge import read_job_clips
from .kind import MEANS, clip_groups
from .speech_ablation import summarize_speech_ablation

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
                    parse_math=False,
                )
            elif line_index == 0:
                ax.set_title(panel_title, size=TITLE_SIZE)
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


__all__ = ["MEANS", "SpeechAblation", "speech_ablation"]


@dataclass(frozen=True, eq=False)
class SpeechAblation:
    """What clips lose without the cue, another word, or the target.

    Parameters
    ----------
    table : DataFrame
        A row for each clip, model, way to take a word away, reading and aggregation: clip,
        fingerprint, model, init, seed, side, template, number, control, group, and the columns of
        `ablate_speech`.
    skipped : list of dict
        clip, model, reason.
    grouping : str
        How many groups and speakers there are, in a sentence.
    out : Path, optional
        The folder with the tables and the figure.
    """

    table: pd.DataFrame
    skipped: list[dict[str, str]] = field(default_factory=list)
    grouping: str = ""
    out: Path | None = None

    @cached_property
    def means(self) -> pd.DataFrame:
        """Mean drops by template and number, with intervals, twins and tests; see
        `extensions.speech_ablation.speech_ablation`."""
        return summarize_speech_ablation(self.table)

    def to_dataframe(self) -> pd.DataFrame:
        """Return a copy of the table."""
        return self.table.copy()

    def show(self, **options: Any) -> Figure:
        """Drops by template and number as points with intervals; options of
        `speech_ablation_figure`."""

        return speech_ablation_figure(self.means, **options)


def speech_ablation(
    models: Model | Loads,
    clips: Sequence[Clip],
    out: str | Path | None = None,
    *,
    sound_fills: Sequence[str] = ("zeros",),
    fills_of_tokens: Sequence[str | int] | None = None,
    aligner: Model | Callable[[], Model] | None = None,
    align_method: str = "auto",
    twin_clips: int | None = None,
    group: str | None = None,
    report: Callable[[str], None] = lambda line: None,
    skipped: Sequence[tuple[str, str]] = (),
    shard: Shard | str | None = None,
    executor: Executor | None = None,
) -> SpeechAblation | None:
    """Take the cue out of the sound, the decoder's tokens, and both, in every clip, and say what
    the target loses.

    The experiment of Mohebbi et al. 2023 (EMNLP) on cue words, with its control (the target),
    another word beside it, and random twins. What each number is:
    `speechmix.extensions.speech_ablation.speech_ablation.ablate_speech`.

    Parameters
    ----------
    models : Model, or iterable of Model or of functions that load one
        Whisper or CTC, with heads. Taken one after the other. Random twins (``load(...,
        init="random")``) are compared with the trained model of their name.
    clips : sequence of Clip
        With text, cue and target; those without words are aligned first. ``clip.meta`` may say
        template, number, side, pair, lemma and control.
    out : path, optional
        A folder of its own or that of a run, whose page then shows the result. A call that was
        stopped goes on there. By default nothing is written.
    sound_fills, fills_of_tokens
        As in `ablate_speech`.
    aligner, align_method
        Of `speechmix.align`.
    twin_clips : int, optional
        How many clips random twins after the first hear; all by default.
    group : str, optional
        A column of the clips' `meta` that says which belong together; by default speakers, or pair,
        sentence and target word.
    report : callable
        Gets a line for each clip that is left out.
    skipped : sequence of (clip, reason)
        What was already left out.
    shard, executor
        Of `score_clips`; they need a folder that stays.

    Returns
    -------
    SpeechAblation or None
        None while other shards are not done.

    Raises
    ------
    InputError
        If two clips or models share a name, or no clip could be used.
    StorageError
        If `out` cannot be written to. What was finished is kept.

    Examples
    --------
    >>> result = speechmix.speech_ablation([model, twin], clips, "runs/small")            # doctest: +SKIP
    >>> result.means[["template", "number", "condition", "trained", "random", "claim"]]   # doctest: +SKIP
    """
    fills = None if fills_of_tokens is None else tuple(fills_of_tokens)
    options = {"sound_fills": tuple(sound_fills), "fills_of_tokens": fills}
    common_options: JsonObject = {
        "aligner": aligner,
        "align_method": align_method,
        "report": report,
    }
    common_options |= {"twin_clips": twin_clips, "skipped": skipped, "group": group}
    if out is None:
        if shard is not None or executor is not None:
            raise InputError("a shard, or workers, need a folder: say which with out=")
        with TemporaryDirectory() as scratch:
            ablated = speech_ablation(
                models,
                clips,
                scratch,
                sound_fills=sound_fills,
                fills_of_tokens=fills,
                **common_options,
            )
            return ablated and replace(ablated, out=None)
    folder = RunFolder(Path(out))
    run = compute_kinds(
        models,
        clips,
        out,
        {SPEECH_ABLATION: options},
        progress=False,
        shard=shard,
        executor=executor,
        **common_options,
    )
    if not run.is_complete:
        return None
    is_whole = shard is None and executor is None
    if not run.done and (is_whole or not folder.table_path(SPEECH_ABLATION).is_file()):
        reasons = "; ".join(dict.fromkeys(row["reason"] for row in run.skipped[:3]))
        raise InputError(f"no clip could be used: {reasons or 'there are no clips'}")
    job_clips = read_job_clips(folder, clips, SPEECH_ABLATION)
    _, grouping = clip_groups(job_clips, group or RunState(folder).group)
    table = read_parquet(folder.table_path(SPEECH_ABLATION))
    return SpeechAblation(table, run.skipped, grouping, folder.path)
