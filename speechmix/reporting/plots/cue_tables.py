"""Prepare a tidy table of contributions for figures.

In: a pandas table, one row per model, init ("trained" or "random"), seed, clip, stack, layer and
measure, with the cue's contribution between 0 and 1; a column `group` says which clips are drawn as
one. Out: tables in percent. Seeds of a random twin are averaged for each clip first, then clips of
a group, then groups.

The published figures of the speech paper are such tables, too: data files (`published/*.json`) with their
source and how surely they are known. They were *read off* figures and not recomputed.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from ...errors import InputError
from ...evaluation.cue_contribution import ROW_NAMES
from ...evaluation.statistics.grouped_means import (
    distinct_keys,
    grouped_means,
    iterate_matrices,
    label_indices,
)
from ...evaluation.statistics.intervals import LEVEL, mean_intervals, twin_bands
from ...evaluation.statistics.random_twin_comparison import pad_rows

# The clip, and the end of a model's name.
PUBLISHED_CLIP, PUBLISHED_SUFFIX = "published mean", ", published"
AS_PUBLISHED_ROWS = "target"  # of a map: what the published figures are means over
PublishedData: TypeAlias = "dict[str, Any]"  # each figure has its own form
_DATA_DIR = Path(__file__).parent / "published"
_FIGURE_FILES = ("speech_figure_1", "speech_figure_2", "speech_figure_4")


@cache
def read_published_data(name: str) -> PublishedData:
    """Read a data file: "speech_figure_1", "speech_figure_2" (cue contribution), "speech_figure_4"
    (probing), ..."""
    data: PublishedData = json.loads((_DATA_DIR / f"{name}.json").read_text(encoding="utf-8"))
    return data


def published_contributions() -> pd.DataFrame:
    """Return Figures 1 and 2: mean cue contribution (0 to 1) of XLSR-53 and Whisper-medium, trained
    and random.

    Returns
    -------
    DataFrame
        Columns model, init, clip, stack, layer, depth, measure, contribution; rows ("target": all
        of the target's).

    Examples
    --------
    >>> table = published_contributions()
    >>> peak = table[(table.model == "XLSR-53, published") & (table.measure == "value_zeroing")]
    >>> int(peak.loc[peak.contribution.idxmax()].layer), round(float(peak.contribution.max()), 2)
    (9, 0.24)
    """
    rows = []
    for name in _FIGURE_FILES[:2]:
        content = read_published_data(name)
        for init in ("trained", "random"):
            for stack, measures in content[init].items():
                for measure, values in measures.items():
                    layer_count = len(content["trained"][stack][measure])
                    values = values if isinstance(values, list) else [values] * layer_count
                    rows += [
                        (
                            _published_model_name(content["model"]),
                            init,
                            stack,
                            layer,
                            layer / (layer_count - 1),
                            measure,
                            value / 100,
                        )
                        for layer, value in enumerate(values)
                    ]
    columns = ["model", "init", "stack", "layer", "depth", "measure", "contribution"]
    return pd.DataFrame(rows, columns=columns).assign(clip=PUBLISHED_CLIP, rows=AS_PUBLISHED_ROWS)


def matching_published_contributions(table: pd.DataFrame) -> pd.DataFrame:
    """Return the published contributions of the stacks and measures that a table has."""
    curves = published_contributions()
    return curves[
        curves["stack"].isin(table["stack"].unique())
        & curves["measure"].isin(table["measure"].unique())
    ]


def published_probing() -> pd.DataFrame:
    """Return Figure 4: accuracy (0 to 1) of a probe for grammatical number, by layer.

    Returns
    -------
    DataFrame
        Columns model, init, clip, stack, layer, depth, measure ("probing"), accuracy, low, high
        (where only a range could be read; accuracy is then its middle).
    """
    rows = []
    for init in ("trained", "random"):
        for stack, models in read_published_data("speech_figure_4")[init].items():
            for model, values in models.items():
                if isinstance(values, dict):
                    low, high = values["from"], values["to"]
                    points = [((low + high) / 2, low, high)] * values["layers"]
                else:
                    points = [
                        (np.nan if value is None else value, np.nan, np.nan) for value in values
                    ]
                rows += [
                    (
                        _published_model_name(model),
                        init,
                        stack,
                        layer,
                        layer / (len(points) - 1),
                        *point,
                    )
                    for layer, point in enumerate(points)
                ]
    columns = ["model", "init", "stack", "layer", "depth", "accuracy", "low", "high"]
    return (
        pd.DataFrame(rows, columns=columns)
        .assign(clip=PUBLISHED_CLIP, measure="probing")
        .dropna(subset="accuracy")
    )


def published_evidence(table: pd.DataFrame) -> str:
    """Say in a line how exactly the published numbers of a table are known.

    Examples
    --------
    >>> published_evidence(published_contributions().query("stack == 'cross'"))
    'Whisper-medium: whole % read off a picture, ±1'
    """
    models = set(table["model"].unique())
    reading_by_model = {
        _published_model_name(read_published_data(name)["model"]): read_published_data(name)[
            "reading"
        ]
        for name in _FIGURE_FILES[:2]
    }
    return "; ".join(
        f"{model.removesuffix(PUBLISHED_SUFFIX)}: {reading}"
        for model, reading in reading_by_model.items()
        if model in models
    )


def published_sources() -> list[str]:
    """List the source of each published figure, and how exactly it is known."""
    contents = (read_published_data(name) for name in _FIGURE_FILES)
    return [
        f"{content['title']}: {content['source']}. {content['evidence'].capitalize()}. "
        + (f"{content['rows'].capitalize()}. " if "rows" in content else "")
        + f"{content['remarks'][0].upper()}{content['remarks'][1:].rstrip('.')}."
        for content in contents
    ]


def _published_model_name(model: str) -> str:
    return model + PUBLISHED_SUFFIX


COLUMNS = ("model", "init", "clip", "stack", "layer", "measure")
DECIDING = "deciding"  # of a map: the row of the token that tells the target from its foil


def select_target_rows(table: pd.DataFrame, target_rows: str) -> pd.DataFrame:
    """Select the contributions to all rows of the target ("target"), or to the deciding row
    ("deciding").

    Where a clip and stack lacks these rows, it keeps what it has; a table without a column rows
    stays as it is. InputError if `target_rows` is neither.

    Examples
    --------
    >>> table = pd.DataFrame({"clip": ["a", "a"], "stack": ["decoder"] * 2, "rows": ["target", "deciding"]})
    >>> select_target_rows(table, "deciding")["rows"].tolist()
    ['deciding']
    """
    if target_rows not in ROW_NAMES:
        raise InputError(f"target_rows should be one of {tuple(ROW_NAMES)}, found {target_rows!r}")
    if "rows" not in table or table.empty:
        return table
    is_selected = table["rows"].eq(target_rows).to_numpy()
    if is_selected.all() or not is_selected.any():
        return table
    (_, clip), (stacks, stack) = label_indices(table["clip"]), label_indices(table["stack"])
    clip_and_stack = clip * len(stacks) + stack
    has_selected = np.zeros(clip_and_stack.max() + 1, dtype=bool)
    has_selected[clip_and_stack[is_selected]] = True
    selected: pd.DataFrame = table[is_selected | ~has_selected[clip_and_stack]]
    return selected


def describe_target_rows(table: pd.DataFrame) -> str:
    """Name the rows of decoder and cross maps that contributions are of; "" if a table does not
    say.

    Examples
    --------
    >>> describe_target_rows(pd.DataFrame({"clip": ["a"], "stack": ["cross"], "rows": ["deciding"]}))
    'deciding row'
    """
    if "rows" not in table:
        return ""
    row_kinds = set(
        table.loc[table["stack"].ne("encoder") & table["clip"].ne(PUBLISHED_CLIP), "rows"].unique()
    )
    return " or ".join(words for kind, words in ROW_NAMES.items() if kind in row_kinds)


def target_rows_title(table: pd.DataFrame) -> str:
    """Say for a title which target rows are drawn, and whether the published numbers are of the
    same.

    Examples
    --------
    >>> own_rows = pd.DataFrame({"clip": ["a"], "model": ["m"], "stack": ["cross"], "rows": ["target"]})
    >>> target_rows_title(own_rows)
    'decoder, cross-attention: target rows'
    >>> from speechmix.reporting.plots.cue_tables import matching_published_contributions
    >>> target_rows_title(pd.concat([own_rows, matching_published_contributions(own_rows.assign(measure="attention"))]))
    'decoder, cross-attention: target rows, as published (Whisper-medium: whole % read off a
    picture, ±1)'
    """
    own_rows, published = describe_target_rows(table), published_evidence(table)
    if not own_rows:
        return f"published: {published}" if published else ""
    row_names = f"decoder, cross-attention: {own_rows}"
    if not published:
        return row_names
    comparison = (
        "as published"
        if own_rows == ROW_NAMES[AS_PUBLISHED_ROWS]
        else f"but published for {ROW_NAMES[AS_PUBLISHED_ROWS]}"
    )
    return f"{row_names}, {comparison} ({published})"


def select_cue_rows(
    table: pd.DataFrame,
    *,
    stacks: Sequence[str] | None = None,
    measures: Sequence[str] | None = None,
    value: str = "contribution",
    target_rows: str = DECIDING,
) -> pd.DataFrame:
    """Select the rows of these stacks and measures that hold a number; add depth and unit.

    Where a clip has contributions to all rows of the target and to the deciding one, those of
    `target_rows` are kept: they are never averaged. `unit` is the group, or the clip where there
    are no groups; `depth` is 0 in the first layer of a stack, 1 in the last. InputError if a column
    is missing or no row is left.
    """
    needed_columns = (*COLUMNS, value)
    missing_columns = [column for column in needed_columns if column not in table.columns]
    if missing_columns:
        raise InputError(
            f"expected a table with the columns {', '.join(needed_columns)}; {', '.join(missing_columns)} not "
            "found"
        )
    table = select_target_rows(table, target_rows)
    is_drawn = np.isfinite(table[value].to_numpy(dtype=float, na_value=np.nan))
    for column, requested in (("stack", stacks), ("measure", measures)):
        if requested is not None:
            is_drawn &= table[column].isin(list(requested)).to_numpy()
    rows = table if is_drawn.all() else table[is_drawn]
    if rows.empty:
        raise InputError(
            f"no {value} left to draw: {len(table)} rows, of which none has these stacks and "
            "measures and is finite"
        )
    columns = {name: rows[name] for name in rows}
    if "depth" not in rows:
        columns["depth"] = relative_depth(rows)
    lacks_group = "group" not in rows or rows["group"].isna().any()
    columns["unit"] = rows["clip"] if lacks_group else rows["group"]
    if lacks_group and "group" in rows:
        columns["unit"] = rows["group"].astype(object).fillna(rows["clip"].astype(object))
    _, model = label_indices(rows["model"])
    row_order = _sort_order(
        rows["init"].ne("trained").to_numpy() + 2 * model, rows["layer"].to_numpy()
    )
    if row_order is None:
        return pd.DataFrame(
            {name: column.array for name, column in columns.items()}, index=rows.index, copy=False
        )
    sorted_columns = {name: column.array.take(row_order) for name, column in columns.items()}
    return pd.DataFrame(sorted_columns, index=rows.index.take(row_order), copy=False)


def relative_depth(table: pd.DataFrame) -> pd.Series:
    """Compute the relative depth of each row's layer: 0 in the first layer, 1 in the last.

    Examples
    --------
    >>> relative_depth(pd.DataFrame({"model": "m", "stack": "encoder", "layer": [0, 1, 4]})).tolist()
    [0.0, 0.25, 1.0]
    """
    last_layer = (
        table.groupby(["model", "stack"], observed=True)["layer"].transform("max").clip(lower=1)
    )
    return table["layer"] / last_layer


def ordered_values(
    table: pd.DataFrame, column: str, requested: Sequence[str] | None = None
) -> list[str]:
    """Return the values of a column in the requested order, or in that of the table."""
    present_values = list(table[column].unique())
    return (
        present_values
        if requested is None
        else [name for name in requested if name in present_values]
    )


def clip_count_text(table: pd.DataFrame) -> str:
    """Say how many clips a panel shows; published means are no clips."""
    is_own = table["clip"].ne(PUBLISHED_CLIP).to_numpy()
    clips = distinct_keys(table if is_own.all() else table[is_own], ["model", "init", "clip"])
    counts = clips.groupby(["model", "init"], observed=True).size()
    if counts.empty:
        return "published" if len(table) else "no clips"
    min_count, max_count = counts.min(), counts.max()
    return (
        f"{max_count} clip{'s' if max_count > 1 else ''}"
        if min_count == max_count
        else f"{min_count} to {max_count} clips"
    )


def _sort_order(major_keys: np.ndarray, minor_keys: np.ndarray) -> np.ndarray | None:
    """Return the stable order of rows by two keys; None if they are in order."""
    major_steps, minor_is_ascending = (
        major_keys[1:] - major_keys[:-1],
        minor_keys[1:] >= minor_keys[:-1],
    )
    if ((major_steps > 0) | ((major_steps == 0) & minor_is_ascending)).all():
        return None
    if minor_keys.dtype.kind in "iu" and minor_keys.min() >= 0:
        minor_count = int(minor_keys.max()) + 1
        if (int(major_keys.max()) + 1) * minor_count <= 2**16:
            return np.argsort(
                (major_keys * minor_count + minor_keys).astype(np.uint16), kind="stable"
            )  # of so few by counting
    return np.lexsort([minor_keys, major_keys])


BANDS = ("interval", "clips", "none")
_CURVE_KEYS = ("model", "init", "stack", "measure")


def clip_group_means(
    table: pd.DataFrame,
    *,
    by: Sequence[str] = (),
    value: str = "contribution",
    scale: float = 100.0,
) -> pd.DataFrame:
    """Compute the mean of each unit (group of clips) of a `select_cue_rows` table, times
    `scale`."""
    keys = [*by, *_CURVE_KEYS, "layer", "depth", "unit"]
    if "clip" in table:
        table = grouped_means(table, [*keys, "clip"], value)
    means = grouped_means(table, keys, value)
    means[value] *= scale
    return means


def curve_table(
    table: pd.DataFrame,
    *,
    by: Sequence[str] = (),
    band: str = "interval",
    value: str = "contribution",
    scale: float = 100.0,
    means: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Compute the points of curves: mean over units, band, and number of units.

    The table comes from `select_cue_rows`; `means` are its `clip_group_means`, if they are at hand.
    `by` names further columns that tell curves apart, e.g. ("template",). With the band "interval",
    a trained model has the interval of its mean over units (`statistics.intervals`), and untrained
    twins that of one more untrained model (`twin_bands`; a single twin has no band). Each holds for
    all layers of its curve together, at 95 %. The band "clips" is the middle half of the units;
    "none" is none.

    The result has the columns of `by`, model, init, stack, measure, layer, depth, mean, low, high,
    units, seeds.
    """
    if band not in BANDS:
        raise InputError(f"band should be one of {BANDS}, found {band!r}")
    keys, curves = [*by, *_CURVE_KEYS], []
    means = clip_group_means(table, by=by, value=value, scale=scale) if means is None else means
    depths = distinct_keys(means, [*keys, "layer", "depth"]).set_index([*keys, "layer"])["depth"]
    for key, matrix in iterate_matrices(means, keys, rows="layer", columns="unit", value=value):
        curve_keys: dict[str, Any] = dict(zip(keys, key, strict=True))
        values = matrix.loc[:, matrix.notna().any().to_numpy()].sort_index().sort_index(axis=1)
        layer_columns = {
            "layer": values.index,
            "depth": [depths[(*key, layer)] for layer in values.index],
        }
        curve = pd.DataFrame(
            {**layer_columns, "mean": values.mean(axis=1).to_numpy(), "units": values.shape[1]}
        )
        low = high = np.full(len(curve), np.nan)
        if band == "clips":
            low, high = (values.quantile(share, axis=1).to_numpy() for share in (0.25, 0.75))
        elif band == "interval" and curve_keys["init"] != "random":  # of random twins see below
            level = 1 - (1 - LEVEL) / len(curve)
            low, high = mean_intervals(values.to_numpy(), level=level)
        curves.append(curve.assign(low=low, high=high, seeds=1, **curve_keys))
    result = pd.concat(curves, ignore_index=True)
    return (
        _set_twin_bands(result, table, [*by, *_CURVE_KEYS, "layer"], value, scale)
        if band == "interval"
        else result
    )


def _set_twin_bands(
    curves: pd.DataFrame, table: pd.DataFrame, keys: list[str], value: str, scale: float
) -> pd.DataFrame:
    """Replace the band of untrained twins by that of one more untrained model."""
    is_random = table["init"].eq("random").to_numpy()
    if not is_random.any():
        return curves
    seeds = (
        table["seed"][is_random].fillna(-1)
        if "seed" in table
        else pd.Series(-1, index=table.index[is_random])
    )
    if seeds.nunique() == 1:  # of one twin it is not known
        return curves
    twin_rows = table.loc[is_random, [*keys, "unit", value]].assign(seed=seeds.astype(int))
    means = grouped_means(twin_rows, [*keys, "seed", "unit"], value)
    means[value] *= scale
    rows = []
    for key, unit_values in iterate_matrices(means, keys, rows="unit", columns="seed", value=value):
        scored_values = unit_values.dropna(axis="columns", how="all")
        complete_twins = scored_values[scored_values.notna().all(axis="columns")]
        twin_means = complete_twins.mean().to_numpy()
        rows.append({**dict(zip(keys, key, strict=True)), "twin_means": twin_means})
    bands = pd.DataFrame(rows)
    for _, layers in bands.groupby([name for name in keys if name != "layer"], observed=True):
        twin_means = pad_rows(list(layers["twin_means"]))
        low, high = twin_bands(twin_means, rows=len(layers))
        is_share = np.nanmin(twin_means, axis=1) >= 0
        bands.loc[layers.index, "twin_low"] = np.where(is_share, np.maximum(low, 0), low)
        bands.loc[layers.index, "twin_high"] = high
        bands.loc[layers.index, "twins"] = np.isfinite(twin_means).sum(axis=1)
    bands = bands.drop(columns="twin_means")
    curves = curves.merge(bands, on=keys, how="left")
    is_untrained = curves["init"] == "random"
    curves.loc[is_untrained, ["low", "high", "seeds"]] = curves.loc[
        is_untrained, ["twin_low", "twin_high", "twins"]
    ].to_numpy()
    return curves.drop(columns=["twin_low", "twin_high", "twins"])
