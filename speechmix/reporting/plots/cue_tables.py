"""From a tidy table of contributions to what figures show: means over clips with their bands, and
differences.

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
from .published_figures import ALL_ROWS, PUBLISHED_CLIP, published_evidence

COLUMNS = ("model", "init", "clip", "stack", "layer", "measure")
DECIDING = "deciding"  # of a map: the row of the token that tells the target from its foil


def select_target_rows(table: pd.DataFrame, which: str) -> pd.DataFrame:
    """Contributions to all rows of the target, or to the deciding one; of a clip and stack without
    such, what there is.

    Parameters
    ----------
    table : DataFrame
        With a column rows ("target", "deciding"), as a run's table of contributions; without one it
        stays as it is.
    which : {"target", "deciding"}

    Raises
    ------
    InputError
        If `which` is neither.

    Examples
    --------
    >>> table = pd.DataFrame({"clip": ["a", "a"], "stack": ["decoder"] * 2, "rows": ["target", "deciding"]})
    >>> select_target_rows(table, "deciding")["rows"].tolist()
    ['deciding']
    """
    if which not in ROW_NAMES:
        raise InputError(f"target_rows should be one of {tuple(ROW_NAMES)}, found {which!r}")
    if "rows" not in table or table.empty:
        return table
    of_which = table["rows"].eq(which).to_numpy()
    if of_which.all() or not of_which.any():
        return table
    (_, clip), (stacks, stack) = label_indices(table["clip"]), label_indices(table["stack"])
    place = clip * len(stacks) + stack
    has_such = np.zeros(place.max() + 1, dtype=bool)
    has_such[place[of_which]] = True
    selected: pd.DataFrame = table[of_which | ~has_such[place]]
    return selected


def describe_target_rows(table: pd.DataFrame) -> str:
    """In words, which rows of decoder and cross maps contributions are of; "" where a table does
    not say, or has none.

    Examples
    --------
    >>> describe_target_rows(pd.DataFrame({"clip": ["a"], "stack": ["cross"], "rows": ["deciding"]}))
    'deciding row'
    """
    if "rows" not in table:
        return ""
    kinds = set(
        table.loc[table["stack"].ne("encoder") & table["clip"].ne(PUBLISHED_CLIP), "rows"].unique()
    )
    return " or ".join(words for kind, words in ROW_NAMES.items() if kind in kinds)


def target_rows_title(table: pd.DataFrame) -> str:
    """For a title: which rows one's own contributions are of, whether the published are of the
    same, and how those are known.

    Examples
    --------
    >>> own = pd.DataFrame({"clip": ["a"], "model": ["m"], "stack": ["cross"], "rows": ["target"]})
    >>> target_rows_title(own)
    'decoder, cross-attention: target rows'
    >>> from speechmix.reporting.plots.published_figures import published_beside
    >>> target_rows_title(pd.concat([own, published_beside(own.assign(measure="attention"))]))
    'decoder, cross-attention: target rows, as published (Whisper-medium: whole % read off a
    picture, ±1)'
    """
    own, published = describe_target_rows(table), published_evidence(table)
    if not own:
        return f"published: {published}" if published else ""
    row_names = f"decoder, cross-attention: {own}"
    if not published:
        return row_names
    like = (
        "as published"
        if own == ROW_NAMES[ALL_ROWS]
        else f"NOT as published, which is of {ROW_NAMES[ALL_ROWS]}"
    )
    return f"{row_names}, {like} ({published})"


def select_cue_rows(
    table: pd.DataFrame,
    *,
    stacks: Sequence[str] | None = None,
    measures: Sequence[str] | None = None,
    value: str = "contribution",
    target_rows: str = DECIDING,
) -> pd.DataFrame:
    """Rows of these stacks and measures that hold a number, trained before random, with depth and
    unit.

    Where a clip has contributions to all rows of the target and to the deciding one, those of
    `target_rows` are kept: they are never averaged. `unit` is the group, or the clip where there
    are no groups; `depth` is 0 in the first layer of a stack, 1 in the last.

    Raises
    ------
    InputError
        If a column is missing or no row is left.
    """
    expected = (*COLUMNS, value)
    missing = [column for column in expected if column not in table.columns]
    if missing:
        raise InputError(
            f"expected a table with the columns {', '.join(expected)}; {', '.join(missing)} not "
            "found"
        )
    table = select_target_rows(table, target_rows)
    is_drawn = np.isfinite(table[value].to_numpy(dtype=float, na_value=np.nan))
    for column, asked in (("stack", stacks), ("measure", measures)):
        if asked is not None:
            is_drawn &= table[column].isin(list(asked)).to_numpy()
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
    order = _order_by(rows["init"].ne("trained").to_numpy() + 2 * model, rows["layer"].to_numpy())
    if order is None:
        return pd.DataFrame(
            {name: column.array for name, column in columns.items()}, index=rows.index, copy=False
        )
    ordered = {name: column.array.take(order) for name, column in columns.items()}
    return pd.DataFrame(ordered, index=rows.index.take(order), copy=False)


def relative_depth(table: pd.DataFrame) -> pd.Series:
    """Depth of each row's layer in its stack: 0 in the first, 1 in the last that the table has of
    its model.

    Examples
    --------
    >>> relative_depth(pd.DataFrame({"model": "m", "stack": "encoder", "layer": [0, 1, 4]})).tolist()
    [0.0, 0.25, 1.0]
    """
    last = table.groupby(["model", "stack"], observed=True)["layer"].transform("max").clip(lower=1)
    return table["layer"] / last


def ordered_values(
    table: pd.DataFrame, column: str, asked: Sequence[str] | None = None
) -> list[str]:
    """Values of a column in the order asked for, or in that of the table."""
    present = list(table[column].unique())
    return present if asked is None else [name for name in asked if name in present]


def clip_count_text(panel: pd.DataFrame) -> str:
    """In words, how many clips a panel shows; published means are no clips."""
    own = panel["clip"].ne(PUBLISHED_CLIP).to_numpy()
    clips = distinct_keys(panel if own.all() else panel[own], ["model", "init", "clip"])
    counts = clips.groupby(["model", "init"], observed=True).size()
    if counts.empty:
        return "published" if len(panel) else "no clips"
    low, high = counts.min(), counts.max()
    return f"{high} clip{'s' if high > 1 else ''}" if low == high else f"{low} to {high} clips"


def _order_by(first: np.ndarray, second: np.ndarray) -> np.ndarray | None:
    """Places of the rows by two keys, those of equal ones as they come; None if they are in
    order."""
    step, next_step = first[1:] - first[:-1], second[1:] >= second[:-1]
    if ((step > 0) | ((step == 0) & next_step)).all():
        return None
    if second.dtype.kind in "iu" and second.min() >= 0:
        span = int(second.max()) + 1
        if (int(first.max()) + 1) * span <= 2**16:
            return np.argsort(
                (first * span + second).astype(np.uint16), kind="stable"
            )  # of so few by counting
    return np.lexsort([second, first])
