"""Prepare a tidy table of contributions for figures.

In: a pandas table, one row per model, init ("trained" or "random"), seed, clip, stack, layer and
measure, with the cue's contribution between 0 and 1; a column `group` says which clips are drawn as
one. Out: tables in percent. Seeds of a random twin are averaged for each clip first, then clips of
a group, then groups.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ...errors import InputError
from ...evaluation.cue_contribution import ROW_NAMES
from ...evaluation.statistics.grouped_means import distinct_keys, label_indices
from .paper_figure_data import AS_PUBLISHED_ROWS, PUBLISHED_CLIP, published_evidence

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
    >>> from speechmix.reporting.plots.paper_figure_data import matching_published_contributions
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
