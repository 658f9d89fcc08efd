"""Rank measures by mean faithfulness over groups of clips, with baselines.

A row is a way to score words: a measure, in a stack, aggregated over layers. It is *better than the
baselines* if its paired differences to random orders (their mean, over twenty), to the order by
length and to the order by position are all above zero. The differences of all rows to one baseline
are tested together (`corrected_p`), and a row's p is the largest of its three (an intersection-union
test). A row that is no better than some baseline is no better than the best baseline, so this
bounds the probability that any such row is named (simulated in `benchmarks/leaderboard.py`).

A row needs `FEWEST_GROUPS` groups in which it and the baselines have a number. A row with fewer is
shown below the others with the note `TOO_FEW_GROUPS`; it is not tested, not ranked, and changes no other
row. The winner is the best of many rows, so its own number is a little too good; that it beats the
baselines is what was corrected for.

A leaderboard of measures in words.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd

from ...errors import InputError
from ...evaluation.statistics.intervals import (
    CORRELATION_BOUNDS,
    FEWEST_GROUPS,
    UNBOUNDED,
    corrected_p,
    mean_intervals,
)
from .word_scores import LOWER_IS_BETTER, METRIC_BOUNDS, spearman

FILE, VALUES_FILE = "faithfulness.csv", "faithfulness_values.csv"
BASELINES = ("random", "length", "position")
ORACLE = "oracle"
ROW_KEYS = ["stack", "measure", "aggregation"]
MODEL_KEYS = ["model", "init", "seed"]
VALUE_COLUMNS = [
    "item",
    "group",
    "words",
    *ROW_KEYS,
    "layer",
    "perturbation",
    "metric",
    "value",
    "chance",
]
DROP_COLUMNS = ["item", "group", "stack", "perturbation", "word", "drop"]
TABLE_COLUMNS = [
    "perturbation",
    "metric",
    *ROW_KEYS,
    "value",
    "low",
    "high",
    "chance",
    "clips",
    "groups",
]
TOO_FEW_GROUPS = "too few groups"
P_LEVEL = 0.05


def summarize_values(values: pd.DataFrame) -> pd.DataFrame:
    """Return the mean over groups of every row, by perturbation and metric, with its 95 % interval.

    Returns
    -------
    DataFrame
        Columns `TABLE_COLUMNS`; chance is what an order drawn at random gets, where that is known.
        There is no interval (NaN) of fewer than `FEWEST_GROUPS` groups, and of numbers that are all
        the same.
    """
    tables = []
    for key, values_of_metric in values.groupby(["perturbation", "metric"], sort=False):
        perturbation, metric = map(str, key)
        by_group = group_means(values_of_metric)
        table = by_group.index.to_frame(index=False)
        table["value"] = _row_means(by_group.to_numpy())
        table["low"], table["high"] = mean_intervals(
            by_group.to_numpy(), bounds=METRIC_BOUNDS.get(metric, UNBOUNDED)
        )
        counts = values_of_metric.dropna(subset="value").groupby(ROW_KEYS, sort=False)
        count_table = counts.agg(
            chance=("chance", "mean"), clips=("item", "nunique"), groups=("group", "nunique")
        )
        tables.append(
            table.merge(count_table.reset_index(), on=ROW_KEYS).assign(
                perturbation=perturbation, metric=metric
            )
        )
    return (
        pd.concat(tables, ignore_index=True)[TABLE_COLUMNS]
        if tables
        else pd.DataFrame(columns=TABLE_COLUMNS)
    )


def group_means(values: pd.DataFrame, by: Sequence[str] = ROW_KEYS) -> pd.DataFrame:
    """Return the mean of each group: index as `by`, a column for each group, in the order of the
    groups' first clips.

    Numbers of one item are averaged first, so an item that is there twice counts once.
    """
    by_item = values.groupby([*by, "group", "item"], sort=False)["value"].mean()
    order = (
        values.astype({"item": str}).groupby("group")["item"].min().sort_values(kind="stable").index
    )
    return (
        by_item.groupby([*by, "group"], sort=False).mean().unstack("group").reindex(columns=order)
    )


def perturbation_agreement(drops: pd.DataFrame) -> pd.DataFrame:
    """Correlate the effects of two perturbations over the words of an item, mean over groups.

    No measure can agree better with both than they agree with each other.

    Parameters
    ----------
    drops : DataFrame
        Columns `DROP_COLUMNS`.

    Returns
    -------
    DataFrame
        One row for each stack and pair of perturbations: stack, perturbation, other, rho, low, high (95 % over
        groups), items.
    """
    rows = []
    for (stack, item, group), item_drops in drops.groupby(["stack", "item", "group"], sort=False):
        drops_by_perturbation = item_drops.drop_duplicates(["perturbation", "word"]).pivot(
            index="word", columns="perturbation", values="drop"
        )
        for perturbation, other_perturbation in itertools.combinations(
            item_drops["perturbation"].unique(), 2
        ):
            rho = spearman(
                drops_by_perturbation[perturbation].to_numpy(float),
                drops_by_perturbation[other_perturbation].to_numpy(float),
            )
            keys_of_item = {"stack": stack, "item": item, "group": group}
            rows.append(
                {
                    **keys_of_item,
                    "perturbation": perturbation,
                    "other": other_perturbation,
                    "rho": rho,
                }
            )
    table = pd.DataFrame(
        rows, columns=["stack", "item", "group", "perturbation", "other", "rho"]
    ).dropna(subset="rho")
    keys = ["stack", "perturbation", "other"]
    if table.empty:
        return pd.DataFrame(columns=[*keys, "rho", "low", "high", "items"])
    by_group = table.groupby([*keys, "group"], sort=False)["rho"].mean().unstack("group")
    result = by_group.index.to_frame(index=False).assign(rho=_row_means(by_group.to_numpy()))
    result["low"], result["high"] = mean_intervals(by_group.to_numpy(), bounds=CORRELATION_BOUNDS)
    counts = table.groupby(keys, sort=False)["item"].nunique().rename("items").reset_index()
    return result.merge(counts, on=keys)


def leaderboard(values: pd.DataFrame, *, perturbation: str, metric: str) -> pd.DataFrame:
    """Rank the rows of one perturbation and metric, each compared with the baselines and the first row.

    Parameters
    ----------
    values : DataFrame
        Columns `VALUE_COLUMNS`, the best layer chosen (`evaluate.choose_best_layer`).
    perturbation, metric : str

    Returns
    -------
    DataFrame
        Columns of `TABLE_COLUMNS` without perturbation and metric; note (`TOO_FEW_GROUPS`, or ""); over_random,
        over_length, over_position (paired differences, above zero if the row is better, also where
        a small number is good), p_random, p_length, p_position (corrected for all rows), p (the
        largest of them), better (p < 0.05), and behind, behind_low, behind_high (how far behind the
        first row of a measure, with its interval). Baselines, the oracle, and measures that remove
        words as the perturbation does have a row without p. Rows with a note come last, unless all
        measures have it.

    Raises
    ------
    InputError
        If there is no such metric of this perturbation.
    """
    metric_values = values[(values["perturbation"] == perturbation) & (values["metric"] == metric)]
    if metric_values.empty:
        pairs = sorted(set(zip(values["perturbation"], values["metric"], strict=True)))
        raise InputError(
            f"nothing by {perturbation!r} and {metric!r}; there is "
            f"{', '.join(map(str, pairs)) or 'nothing at all'}"
        )
    sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
    table = summarize_values(metric_values).drop(columns=["perturbation", "metric"])
    by_group = sign * group_means(metric_values).reindex(pd.MultiIndex.from_frame(table[ROW_KEYS]))
    differences = _baseline_differences(table, by_group, perturbation)  # [rows, baselines, groups]
    compared_groups = np.isfinite(differences).all(axis=1).sum(axis=1)
    is_few = is_measure_row(table, perturbation).to_numpy() & (compared_groups < FEWEST_GROUPS)
    table["note"] = np.where(is_few, TOO_FEW_GROUPS, "")
    tested_differences = np.where(is_few[:, None, None], np.nan, differences)
    for index, name in enumerate(BASELINES):
        table[f"over_{name}"] = _row_means(differences[:, index])
        table[f"p_{name}"] = corrected_p(tested_differences[:, index])
    table["p"] = table[[f"p_{name}" for name in BASELINES]].max(axis=1, skipna=False)
    table["better"] = table["p"] < P_LEVEL
    is_last = (
        is_few & is_compared_row(table, perturbation).any()
    )  # where no row has groups enough, all are in order
    order = (
        table.assign(last=is_last, rank=-sign * table["value"])
        .sort_values(["last", "rank", *ROW_KEYS])
        .index
    )
    table, by_group = table.loc[order].reset_index(drop=True), by_group.iloc[order]
    compared_values = by_group[is_compared_row(table, perturbation).to_numpy()].to_numpy()
    gaps_to_first = (compared_values[:1] if len(compared_values) else np.nan) - by_group.to_numpy()
    table["behind"] = _row_means(gaps_to_first)
    table["behind_low"], table["behind_high"] = mean_intervals(gaps_to_first)
    return table


def is_compared_row(table: pd.DataFrame, perturbation: str) -> pd.Series:
    """Return which rows are measures with enough groups to be compared."""
    return is_measure_row(table, perturbation) & (table["note"] != TOO_FEW_GROUPS)


def is_measure_row(table: pd.DataFrame, perturbation: str) -> pd.Series:
    """Return which rows are measures: no baselines, and none that take words away as
    the judge does."""
    from .output_scores import has_same_removal  # loads PyTorch

    removes_likewise = (
        table["measure"].map(lambda name: has_same_removal(name, perturbation)).astype(bool)
    )
    return ~table["measure"].isin([*BASELINES, ORACLE]) & ~removes_likewise


def _baseline_differences(
    table: pd.DataFrame, by_group: pd.DataFrame, perturbation: str
) -> np.ndarray:
    """Compute paired differences of rows to the baselines of their stack [rows, baselines, groups];
    NaN for rows that are not compared."""
    values_by_row = dict(zip(by_group.index, by_group.to_numpy(), strict=True))
    missing_values = np.full(by_group.shape[1], np.nan)
    return np.array(
        [
            [
                values_by_row[stack, measure, aggregation]
                - (
                    values_by_row.get((stack, name, ""), missing_values)
                    if is_tested
                    else missing_values
                )
                for name in BASELINES
            ]
            for (stack, measure, aggregation), is_tested in zip(
                values_by_row, is_measure_row(table, perturbation), strict=True
            )
        ]
    )


def _row_means(values: np.ndarray) -> np.ndarray:
    """Average rows [R, G] -> [R] over finite groups; NaN without any."""
    counts = np.isfinite(values).sum(axis=1)
    return np.where(counts > 0, np.nansum(values, axis=1) / np.maximum(counts, 1), np.nan)


def describe_leaderboard(
    board: pd.DataFrame, *, perturbation: str, metric: str, noun: str = "clips"
) -> str:
    """Say which measure is best and how sure that is, or that none beats the baselines."""
    opening = f"With {perturbation} as reference ({metric.replace('_', ' ')}, {_count_items(board, noun)}),"
    excluded = _list_excluded(board, perturbation)
    ending = f"{_list_uncompared(board, perturbation)}{excluded}"
    measures = board[is_measure_row(board, perturbation)]
    if measures.empty or not np.isfinite(measures["value"]).any():
        return f"{opening} no measure could be evaluated.{ending}"
    compared_rows = board[is_compared_row(board, perturbation)]
    if compared_rows.empty:
        return (
            f"{opening} no measure can be compared: that needs {FEWEST_GROUPS} groups. The first row "
            f"is {_describe_row(board, measures.iloc[0])}{excluded}"
        )
    first_row, winners = compared_rows.iloc[0], compared_rows[compared_rows["better"]]
    if winners.empty:
        return (
            f"{opening} none of {len(compared_rows)} rows is significantly better than "
            f"{_list_unbeaten(compared_rows)}. The first row is {_describe_row(board, first_row)}{ending}"
        )
    winner = winners.iloc[0]
    leader_text = (
        ""
        if winners.index[0] == compared_rows.index[0]
        else " A row above it is not significantly better than the baselines: "
        f"{_describe_row(board, first_row)}"
    )
    tied_count = int((~(compared_rows["behind_low"] > 0)).sum()) - 1
    tied_text = (
        f" {tied_count} of the other {len(compared_rows) - 1} rows do not differ significantly from "
        "the first row."
        if tied_count
        else ""
    )
    return (
        f"{opening} the best row is {_describe_row(board, winner)} It is significantly better than "
        f"each baseline (p = {winner['p']:.3f}, corrected for all {len(compared_rows)} rows)."
        f"{leader_text}{tied_text}{ending}"
    )


def _list_uncompared(board: pd.DataFrame, perturbation: str) -> str:
    """List the measures that are not compared."""
    uncompared_rows = board[is_measure_row(board, perturbation) & (board["note"] == TOO_FEW_GROUPS)]
    names = ", ".join(
        f"{row.measure} ({row.stack}, {row.aggregation})" for row in uncompared_rows.itertuples()
    )
    return (
        f" Not compared, because fewer than {FEWEST_GROUPS} groups have a number: {names}."
        if names
        else ""
    )


def _list_excluded(board: pd.DataFrame, perturbation: str) -> str:
    """Name the measures that remove words as the perturbation does."""
    from .output_scores import has_same_removal  # loads PyTorch

    names = list(
        dict.fromkeys(name for name in board["measure"] if has_same_removal(name, perturbation))
    )
    return (
        f" Excluded, because the reference perturbation removes words as they do: {', '.join(names)}."
        if names
        else ""
    )


def _list_unbeaten(measures: pd.DataFrame) -> str:
    """List the baselines that no row beats; all of them where each is beaten by another row."""
    names = {
        "random": "random scores",
        "length": "the order by length",
        "position": "the order by position",
    }
    unbeaten = [text for name, text in names.items() if not (measures[f"p_{name}"] < P_LEVEL).any()]
    return (
        " and ".join(part for part in (", ".join(unbeaten[:-1]), *unbeaten[-1:]) if part)
        or "all three baselines"
    )


def _count_items(board: pd.DataFrame, noun: str) -> str:
    clips, groups = int(board["clips"].max()), int(board["groups"].max())
    return f"{clips} {noun} in {groups} group{'' if groups == 1 else 's'}"


def _describe_row(board: pd.DataFrame, row: pd.Series) -> str:
    """Render a row with its interval, and the baselines of its stack."""
    interval = (
        f" [{row['low']:.2f}, {row['high']:.2f}]"
        if np.isfinite([row["low"], row["high"]]).all()
        else ""
    )
    stack_values = board[board["stack"] == row["stack"]].set_index("measure")["value"]
    baselines = [f"{name} {stack_values[name]:.2f}" for name in BASELINES if name in stack_values]
    return (
        f"{row['measure'].replace('_', ' ')} ({row['stack']}, {row['aggregation']}) with "
        f"{row['value']:.2f}{interval} (baselines: {', '.join(baselines) or 'none'})."
    )
