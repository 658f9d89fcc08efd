"""Cue alignment: how well a measure's scores single out the cue word.

    dot product[l]        = sum over cue columns c of S[l, target, c],   row of S summing to one
    average precision[l]  = mean over cue columns c of  #{cue columns ranked at or above c} / #{columns ranked at or above c}

Mohebbi et al. 2023 (Quantifying Context Mixing in Transformers, EACL), who publish no code for
either. Chosen here:

- Columns are all that the target's row can see: special tokens ([CLS], [SEP]), punctuation and the
  target itself compete with the cue, unless `drop` leaves a kind out before the row is normalised.
  In a causal stack later columns do not count.
- Ties: columns of one score are ranked together, at the place of the last of them (as scikit-learn
  does). So a constant row has the share of cue columns as its precision, whatever the order of the
  columns.
- Every sub-token of a cue is a cue column. (The published code marks the first one alone:
  `subtokens="first"`.)
- Heads: each head's row is normalised, heads are averaged, then columns are ranked.

Where the rest of the row goes is said beside it: the share of *attractors* (words of the other
number) and of special tokens.

Draw cue alignment as a table: layers downwards, measures to the right, numbers in cells.

In: the means of `speechmix.extensions.agreement.cue_alignment.mean_alignment`. Out: a Figure. Each model has a
panel beside its fine-tuned copy and its twin; below them are both halves of the published table.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure

from ...errors import InputError
from ...evaluation.cue_need import average_precision, chance_level, dot_product
from ...evaluation.statistics.intervals import mean_interval
from ...inputs.words.cue_and_target import cue_words
from ...inputs.words.spans import Span
from ...mixing.maps.measure_registry import measure_label
from ...mixing.maps.mixing_map import MixingMap
from ...reporting.plots import map_cells
from ...reporting.plots.figure_style import (
    LABEL_SIZE,
    LAYER_LABEL,
    TICK_SIZE,
    TITLE_SIZE,
    model_name,
    new_figure,
)

ALIGNMENT_METRICS = ("dot_product", "average_precision")
SHARE_METRICS = ("share_attractor", "share_special")
RANK_CORRELATION = "rank_correlation"  # with another map's row; see `distance_effect`
SUBTOKEN_OPTIONS = ("all", "first")


def cue_alignment(
    mixing_map: MixingMap,
    *,
    cue: int | Sequence[int],
    target: int,
    attractors: Sequence[int] = (),
    drop: Sequence[str] = (),
    subtokens: str = "all",
) -> pd.DataFrame:
    """Compute dot product and average precision of a target's row, layer by layer, and the shares
    of attractors and special tokens.

    The row is the one that holds the target (the mask, in a masked language model). In a decoder it
    is the one that predicts it, one position earlier, and in cross-attention the one labelled with
    it. Over several rows, the mean.

    Parameters
    ----------
    mixing_map : MixingMap
        Raw or normalised.
    cue : int or sequence of int
        Index or indices of the cue's words.
    target : int
        Index of the target word.
    attractors : sequence of int
        Indices of words that could be mistaken for the cue (`BlimpItem.attractors`).
    drop : sequence of str
        Kinds of units left out first, e.g. ("special",).
    subtokens : {"all", "first"}
        Of each cue word, which columns are the cue's.

    Returns
    -------
    DataFrame
        One row per layer: layer, dot_product, average_precision, and what chance gives
        (`chance_level`); share_attractor and share_special of the row, with their shares of the
        columns as chance. NaN where the row sees no such column.

    Raises
    ------
    InputError
        If cue or target has no unit in the map, or the cue comes after a decoder's target.

    Examples
    --------
    >>> units = [Span(0, 1, "[CLS]", "special"), Span(1, 2, "Most", "token", 0), Span(2, 3, "ladies", "token", 1)]
    >>> units = (*units, Span(3, 4, "[MASK]", "token", 2))
    >>> scores = np.tile([1.0, 0.5, 2.0, 0.5], (1, 4, 1))
    >>> one_layer = MixingMap(scores, units, units, "value_zeroing", "encoder", (0,))
    >>> cue_alignment(one_layer, cue=[1], target=2)[["dot_product", "average_precision"]].values.tolist()
    [[0.5, 1.0]]
    """
    if subtokens not in SUBTOKEN_OPTIONS:
        raise InputError(f"subtokens must be one of {SUBTOKEN_OPTIONS}, found {subtokens!r}")
    units_map = mixing_map.without(*drop)
    columns = _mark_cue_columns(units_map, cue_words(cue), subtokens)
    is_attractor = np.array(
        [span.word is not None and span.word in attractors for span in units_map.sources],
        dtype=bool,
    )
    is_special = np.array([span.kind == "special" for span in units_map.sources], dtype=bool)
    row_metrics = []
    for row in _find_target_rows(units_map, target):
        stop = units_map.targets[row].stop
        is_seen = np.array(
            [units_map.stack != "decoder" or span.start < stop for span in units_map.sources]
        )
        is_cue = columns & is_seen
        if not is_cue.any():
            raise InputError(
                f"the cue (words {list(cue_words(cue))}) comes after word {target}: no causal "
                "decoder can use it; leave "
                "such items out"
            )
        scores = units_map.normalized().mean_heads().scores[:, row, is_seen]  # [L, K]
        is_cue = is_cue[is_seen]
        kind_shares = [_column_share(scores, kind[is_seen]) for kind in (is_attractor, is_special)]
        row_metrics.append(
            [
                dot_product(scores, is_cue),
                average_precision(scores, is_cue),
                *chance_level(is_cue).values(),
            ]
            + [share for share, _ in kind_shares]
            + [chance for _, chance in kind_shares]
        )
    names = [
        name
        for metrics in (ALIGNMENT_METRICS, SHARE_METRICS)
        for name in (*metrics, *(f"chance_{metric}" for metric in metrics))
    ]
    means = (np.mean(values, axis=0) for values in zip(*row_metrics, strict=True))
    return pd.DataFrame({"layer": list(units_map.layers), **dict(zip(names, means, strict=True))})


def mean_alignment(
    table: pd.DataFrame, *, by: Sequence[str] = ("model", "init", "stack", "measure", "layer")
) -> pd.DataFrame:
    """Average alignments over items, with 95 % confidence intervals (none below `FEWEST_GROUPS`
    items).

    Parameters
    ----------
    table : DataFrame
        Rows of `cue_alignment` of many items: columns item, dot_product, average_precision and
        those of `by`; others of `SHARE_METRICS` and "rank_correlation" are taken along. Seeds of a random
        twin are averaged for each item first.
    by : sequence of str
        What makes a row of the result; ("paradigm", ...) to split it further.

    Returns
    -------
    DataFrame
        Columns of `by`, metric, mean, low, high, chance, items. A metric that no item has is left
        out.
    """
    missing_columns = [
        name for name in ("item", *ALIGNMENT_METRICS, *by) if name not in table.columns
    ]
    if missing_columns or table.empty:
        raise InputError(
            f"expected a table of items with the columns item, {', '.join((*ALIGNMENT_METRICS, *by))}; found "
            f"{len(table)} rows"
            + (f", and {', '.join(missing_columns)} missing" if missing_columns else "")
        )
    metrics = [
        metric
        for metric in (*ALIGNMENT_METRICS, *SHARE_METRICS, RANK_CORRELATION)
        if metric in table
    ]
    by, values = (
        list(by),
        [name for metric in metrics for name in (metric, f"chance_{metric}") if name in table],
    )
    items = table.groupby([*by, "item"], sort=False)[values].mean().reset_index()
    rows = []
    for key, items_of_key in items.groupby(by, sort=False):
        keys = dict(zip(by, key, strict=True))
        for metric in metrics:
            finite_items = items_of_key[np.isfinite(items_of_key[metric])]
            if finite_items.empty and metric not in ALIGNMENT_METRICS:
                continue
            low, high = mean_interval(finite_items[metric])
            chance = (
                finite_items[f"chance_{metric}"].mean()
                if f"chance_{metric}" in items_of_key
                else np.nan
            )
            rows.append(
                {
                    **keys,
                    "metric": metric,
                    "mean": finite_items[metric].mean(),
                    "low": low,
                    "high": high,
                    "chance": chance,
                    "items": len(finite_items),
                }
            )
    return pd.DataFrame(rows)


def _column_share(shares: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the share [L] of some columns in rows [L, K], and that of an even row; NaN without
    columns."""
    if not columns.any():
        return np.full(len(shares), np.nan), np.full(len(shares), np.nan)
    return shares[:, columns].sum(axis=-1), np.full(len(shares), columns.mean())


def _mark_cue_columns(mixing_map: MixingMap, cue: Sequence[int], subtokens: str) -> np.ndarray:
    """Return which sources are the cue, Booleans [K]."""
    words = [span.word for span in mixing_map.sources]
    is_cue = np.zeros(len(words), dtype=bool)
    for word in cue:
        columns = [column for column, source_word in enumerate(words) if source_word == word]
        if not columns:
            raise InputError(
                f"cue word {word} is not among the sources of {mixing_map!r}: "
                f"{_list_words(mixing_map.sources)}"
            )
        is_cue[columns if subtokens == "all" else columns[:1]] = True
    if not is_cue.any():
        raise InputError("no cue is given: say which words it is, as indices")
    return is_cue


def _find_target_rows(mixing_map: MixingMap, target: int) -> list[int]:
    """List the rows that hold the target; in a decoder those that predict its tokens."""
    if mixing_map.stack != "decoder":
        rows = [row for row, span in enumerate(mixing_map.targets) if span.word == target]
    else:
        preceding_positions = {
            start - 1
            for span in mixing_map.sources
            if span.word == target
            for start, _ in span.ranges
        }
        rows = [
            row
            for row, span in enumerate(mixing_map.targets)
            if preceding_positions & set(span.positions)
        ]
    if not rows:
        raise InputError(
            f"target word {target} has no row in {mixing_map!r}: {_list_words(mixing_map.targets)}. A "
            "decoder predicts no word "
            "that nothing comes before"
        )
    return rows


def _list_words(spans: Sequence[Span]) -> str:
    return (
        " ".join(f"{span.label}[{span.word}]" for span in spans if span.word is not None)
        or "no words"
    )


COLUMNS = ("model", "init", "measure", "layer", "metric", "mean", "items")

_PUBLISHED_TABLES = ("blimp_bert",)
_INITS = ("pre-trained", "fine-tuned")
_CELL_WIDTH, _CELL_HEIGHT = 0.31, 0.19  # inches
_MIN_ROWS = 7  # room for the axis label of a model of few layers
_COLUMN_NAMES = {
    "attention_norm_residual": "attention norm\n+ residual",
    "attention_norm_residual_layernorm": "attention norm +\nresidual + layer norm",
}


def published_alignment(name: str = "blimp_bert") -> pd.DataFrame:
    """Read a published table that comes with the package.

    Returns
    -------
    DataFrame
        Columns of `COLUMNS`, accuracy (of the task) and reference = True; layers counted from 0;
        items is 0, because it is not known exactly.
        ``.attrs`` has what the file says of its source, evidence, model, paradigms, ...

    Examples
    --------
    >>> table = published_alignment()
    >>> float(table[(table.measure == "value_zeroing") & (table.init == "pre-trained")]["mean"].max())
    0.28
    >>> table.attrs["evidence"]
    'printed numbers, two decimals, read from the slide; not recomputed'
    """
    if name not in _PUBLISHED_TABLES:
        raise InputError(f"no published table {name!r}; there are {', '.join(_PUBLISHED_TABLES)}")
    path = files("speechmix.reporting.plots") / "published" / f"{name}.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    rows = [
        (
            content["model"],
            init,
            measure,
            layer,
            content["metric"],
            value,
            0,
            content["accuracy"][init],
        )
        for init in _INITS
        for measure, values in content[init].items()
        for layer, value in enumerate(values)
    ]
    table = pd.DataFrame(rows, columns=[*COLUMNS, "accuracy"]).assign(reference=True)
    table.attrs = {key: value for key, value in content.items() if key not in _INITS}
    return table


def alignment_figure(
    means: pd.DataFrame,
    *,
    metric: str = "dot_product",
    published: pd.DataFrame | None = None,
    note: str = "",
) -> Figure:
    """Draw the table of each model and init in one line, published ones in a line below.

    Parameters
    ----------
    means : DataFrame
        Columns of `COLUMNS`, of one stack; with a column accuracy (of the task, 0 to 1), titles say
        it.
    metric : str
        "dot_product", "average_precision", or another that the means have.
    published : DataFrame, optional
        From `published_alignment`; both its halves are drawn, if they are of this metric.
    note : str
        A line below the figure, e.g. where the sentences come from.

    Returns
    -------
    Figure

    Raises
    ------
    InputError
        If a column or the metric is missing, or there is more than one stack.
    """
    missing = [column for column in COLUMNS if column not in means.columns]
    if missing or not (means["metric"] == metric).any():
        raise InputError(
            f"expected means with the columns {', '.join(COLUMNS)} and the metric {metric!r}; "
            f"missing: {', '.join(missing) or f'that metric among {sorted(means.metric.unique())}'}"
        )
    if "stack" in means and means["stack"].nunique() > 1:
        raise InputError(
            f"expected means of one stack, found {sorted(means['stack'].unique())}: draw one after "
            "the other"
        )
    metric_means = means[(means["metric"] == metric) & (means["measure"].notna())].assign(
        reference=False
    )
    tables = [metric_means]
    if published is not None and (published["metric"] == metric).any():
        tables.append(published[published["metric"] == metric])
    order = _measure_order(metric_means)
    tables_by_line = [
        [
            _make_table(model_rows, order)
            for _, model_rows in table.groupby(["model", "init"], sort=False)
        ]
        for table in tables
    ]
    lines = [
        note,
        _widest_interval_text(metric_means),
        _source_text(tables[1]) if len(tables) > 1 else "",
    ]
    return _draw_tables(tables_by_line, measure_label(metric), [line for line in lines if line])


def alignment_text(means: pd.DataFrame, *, metric: str = "dot_product") -> str:
    """Return the table as text: one row per layer, one column per measure, the mean over layers
    below.

    Examples
    --------
    >>> means = pd.DataFrame({"measure": ["attention", "value_zeroing"], "layer": 0, "metric": "dot_product",
    ...     "mean": [0.1, 0.25]})
    >>> print(alignment_text(means))
    layer  attention  value_zeroing
        0       .100           .250
     mean       .100           .250
    """
    metric_rows = means[means["metric"] == metric]
    table = metric_rows.pivot_table(index="layer", columns="measure", values="mean", aggfunc="mean")
    table = table[_measure_order(metric_rows)].rename(index=str)
    table.loc["mean"] = table.mean()
    table.columns.name, table.index.name = None, "layer"
    return table.reset_index().to_string(
        index=False, float_format=lambda value: _format_number(value, 3)
    )


def _measure_order(table: pd.DataFrame) -> list[str]:
    """Order measures as in the published table, then any others as they come."""
    present = list(dict.fromkeys(table["measure"]))
    published = list(dict.fromkeys(published_alignment()["measure"]))
    return [name for name in published if name in present] + [
        name for name in present if name not in published
    ]


@dataclass(frozen=True)
class _AlignmentTable:
    """One table of the figure."""

    title: str
    layers: list[int]
    measures: list[str]
    values: np.ma.MaskedArray  # [layers, measures]


def _make_table(model_rows: pd.DataFrame, measure_order: Sequence[str]) -> _AlignmentTable:
    model, init, published = (
        model_rows["model"].iloc[0],
        model_rows["init"].iloc[0],
        bool(model_rows["reference"].iloc[0]),
    )
    measures = (
        _measure_order(model_rows)
        if published
        else [name for name in measure_order if name in set(model_rows["measure"])]
    )
    pivot = model_rows.pivot_table(
        index="layer", columns="measure", values="mean", aggfunc="mean"
    ).sort_index()
    values = np.ma.masked_invalid(pivot.reindex(columns=measures).to_numpy(dtype=float))
    count_text = "published" if published else f"{int(model_rows['items'].max()):,} sentences"
    if not published and "chance" in model_rows and model_rows["chance"].notna().any():
        count_text += f", chance {_format_number(model_rows['chance'].mean())}"
    if "accuracy" in model_rows and model_rows["accuracy"].notna().any():
        count_text += f"\ndoes the task in {100 * model_rows['accuracy'].iloc[0]:.0f} %"
    return _AlignmentTable(
        f"{model_name(model)}, {init}\n{count_text}",
        [int(n) for n in pivot.index],
        measures,
        values,
    )


def _widest_interval_text(means: pd.DataFrame) -> str:
    if not {"low", "high"} <= set(means.columns) or means["low"].isna().all():
        return ""
    widest_half = float(((means["high"] - means["low"]) / 2).max())
    return f"95 % intervals of the means are at most ±{_format_number(widest_half)}."


def _source_text(published: pd.DataFrame) -> str:
    metadata = published.attrs
    return (
        f"Published: {metadata['source']} ({metadata['evidence']}); {metadata['maps']}."
        if metadata
        else ""
    )


def _draw_tables(lines: list[list[_AlignmentTable]], label: str, notes: list[str]) -> Figure:
    """Draw lines of tables with cells of one size."""
    row_counts = [max(_MIN_ROWS, *(len(table.layers) for table in line)) for line in lines]
    columns = [[line[i] for line in lines if i < len(line)] for i in range(max(map(len, lines)))]
    # A title may be wider than a table of few measures.
    widths = [
        max(
            max(_CELL_WIDTH * len(t.measures), 0.068 * max(map(len, t.title.split("\n"))))
            for t in column
        )
        for column in columns
    ]
    figure_width = sum(widths) + 0.35 * len(columns) + 1.1
    note_lines = [text for note in notes for text in textwrap.wrap(note, int(figure_width / 0.056))]
    tables = [table for line in lines for table in line]
    header_height = 0.06 * max(
        len(text) for t in tables for name in t.measures for text in _column_label(name).split("\n")
    )
    header_height += 0.14 * max(t.title.count("\n") for t in tables)
    cells_height = _CELL_HEIGHT * sum(row_counts)
    figure = new_figure(
        figure_width, cells_height + (header_height + 0.5) * len(lines) + 0.14 * len(note_lines)
    )
    grid = figure.subplots(
        len(lines), len(columns), squeeze=False, width_ratios=widths, height_ratios=row_counts
    )
    values = [table.values for table in tables]
    largest = max((float(array.max()) for array in values if array.count()), default=0.0) or 1.0
    for axes, line, row_count in zip(grid, lines, row_counts, strict=True):
        for ax, table, width in zip(axes, line, widths, strict=False):
            cells = _draw_table(ax, table, (row_count, width / _CELL_WIDTH), (0.0, largest))
        for ax in axes[len(line) :]:
            ax.remove()
        axes[0].set_ylabel(LAYER_LABEL, size=LABEL_SIZE)
    drawn_axes = [ax for axes, line in zip(grid, lines, strict=True) for ax in axes[: len(line)]]
    map_cells.add_color_bar(
        figure, cells, drawn_axes, values=values, label=label, inches=cells_height
    )
    if note_lines:
        figure.supxlabel("\n".join(note_lines), size=TICK_SIZE, x=0.01, ha="left", parse_math=False)
    return figure


def _draw_table(
    ax: Axes, table: _AlignmentTable, room: tuple[float, float], limits: tuple[float, float]
) -> ScalarMappable:
    """Draw cells with their numbers; `room` is the rows and columns that all tables have."""
    cells = map_cells.draw_cells(ax, table.values, limits=limits)
    ax.set(aspect="auto", ylim=(room[0], 0), xlim=(0, room[1]))
    map_cells.write_numbers(ax, cells, table.values, number_format=_format_number)
    ax.set_title(table.title, size=TITLE_SIZE, loc="left", parse_math=False)
    ax.xaxis.tick_top()
    ax.set_xticks(
        np.arange(len(table.measures)) + 0.5,
        [_column_label(name) for name in table.measures],
        size=TICK_SIZE,
        rotation=90,
        parse_math=False,
    )
    ax.set_yticks(np.arange(len(table.layers)) + 0.5, list(map(str, table.layers)), size=TICK_SIZE)
    ax.spines[:].set_visible(False)
    return cells


def _column_label(measure: str) -> str:
    return _COLUMN_NAMES.get(measure, measure_label(measure))


def _format_number(value: float, digits: int = 2) -> str:
    """Format a number as the published table does, without the zero before the point."""
    return f"{value:.{digits}f}".removeprefix("0") if value >= 0 else f"{value:.{digits}f}"
