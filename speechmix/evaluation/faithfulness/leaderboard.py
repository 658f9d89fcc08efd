"""From one number an item to a leaderboard: means over groups of clips, the baselines, and the
measure that ranks words best.

A row is a way to score words: a measure, in a stack, aggregated over layers. It is *better than the
baselines* if its paired differences to random orders (their mean, over twenty), to the order by
length and to the order by position are all above zero. The differences of all rows to one baseline
are tested together (`sign_flips`), and a row's p is the largest of its three (an intersection-union
test). A row that is no better than some baseline is no better than the best baseline, so this
bounds the probability that any such row is named (simulated in `benchmarks/leaderboard.py`).

A row needs `FEWEST_GROUPS` groups in which it and the baselines have a number. A row with fewer is
shown below the others with the note `TOO_FEW`; it is not tested, not ranked, and changes no other
row. The winner is the best of many rows, so its own number is a little too good; that it beats the
baselines is what was corrected for.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd

from ...errors import InputError
from ..statistics.intervals import FEWEST_GROUPS, mean_intervals
from ..statistics.sign_flips import corrected_p
from .scores import LOWER_IS_BETTER, spearman
from .to_output import same_removal

BASELINES = ("random", "length", "position")
ORACLE = "oracle"
ROW = ["stack", "measure", "aggregation"]
MODEL = ["model", "init", "seed"]
VALUE_COLUMNS = ["item", "group", "words", *ROW, "layer", "judge", "metric", "value", "chance"]
DROP_COLUMNS = ["item", "group", "stack", "judge", "word", "drop"]
TABLE_COLUMNS = ["judge", "metric", *ROW, "value", "low", "high", "chance", "clips", "groups"]
TOO_FEW = "too few groups"
LEVEL = 0.05


def summary(values: pd.DataFrame) -> pd.DataFrame:
    """Return the mean over groups of every row, by judge and metric, with its 95 % interval.

    Returns
    -------
    DataFrame
        Columns `TABLE_COLUMNS`; chance is what an order drawn at random gets, where that is known.
        There is no interval (NaN) of fewer than `FEWEST_GROUPS` groups, and of numbers that are all
        the same.
    """
    tables = []
    for key, part in values.groupby(["judge", "metric"], sort=False):
        judge, metric = map(str, key)
        by_group = group_means(part)
        table = by_group.index.to_frame(index=False)
        table["value"] = _means(by_group.to_numpy())
        table["low"], table["high"] = mean_intervals(by_group.to_numpy())
        counts = part.dropna(subset="value").groupby(ROW, sort=False)
        counted = counts.agg(
            chance=("chance", "mean"), clips=("item", "nunique"), groups=("group", "nunique")
        )
        tables.append(table.merge(counted.reset_index(), on=ROW).assign(judge=judge, metric=metric))
    return (
        pd.concat(tables, ignore_index=True)[TABLE_COLUMNS]
        if tables
        else pd.DataFrame(columns=TABLE_COLUMNS)
    )


def group_means(values: pd.DataFrame, by: Sequence[str] = ROW) -> pd.DataFrame:
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


def judge_agreement(drops: pd.DataFrame) -> pd.DataFrame:
    """Spearman between judges over the words of an item, mean over groups: how well a measure can
    be expected to do.

    Parameters
    ----------
    drops : DataFrame
        Columns `DROP_COLUMNS`.

    Returns
    -------
    DataFrame
        One row for each stack and pair of judges: stack, judge, other, rho, low, high (95 % over
        groups), items.
    """
    rows = []
    for (stack, item, group), part in drops.groupby(["stack", "item", "group"], sort=False):
        by_judge = part.drop_duplicates(["judge", "word"]).pivot(
            index="word", columns="judge", values="drop"
        )
        for judge, other in itertools.combinations(part["judge"].unique(), 2):
            rho = spearman(by_judge[judge].to_numpy(float), by_judge[other].to_numpy(float))
            place = {"stack": stack, "item": item, "group": group}
            rows.append({**place, "judge": judge, "other": other, "rho": rho})
    table = pd.DataFrame(rows, columns=["stack", "item", "group", "judge", "other", "rho"]).dropna(
        subset="rho"
    )
    keys = ["stack", "judge", "other"]
    if table.empty:
        return pd.DataFrame(columns=[*keys, "rho", "low", "high", "items"])
    by_group = table.groupby([*keys, "group"], sort=False)["rho"].mean().unstack("group")
    result = by_group.index.to_frame(index=False).assign(rho=_means(by_group.to_numpy()))
    result["low"], result["high"] = mean_intervals(by_group.to_numpy())
    counts = table.groupby(keys, sort=False)["item"].nunique().rename("items").reset_index()
    return result.merge(counts, on=keys)


def leaderboard(values: pd.DataFrame, *, judge: str, metric: str) -> pd.DataFrame:
    """Return the rows of one judge and metric, best first, each compared with the baselines and
    with the first row.

    Parameters
    ----------
    values : DataFrame
        Columns `VALUE_COLUMNS`, the best layer chosen (`layer_choice.with_best_layer`).
    judge, metric : str

    Returns
    -------
    DataFrame
        Columns of `TABLE_COLUMNS` without judge and metric; note (`TOO_FEW`, or ""); over_random,
        over_length, over_position (paired differences, above zero if the row is better, also where
        a small number is good), p_random, p_length, p_position (corrected for all rows), p (the
        largest of them), better (p < 0.05), and behind, behind_low, behind_high (how far behind the
        first row of a measure, with its interval). Baselines, the oracle, and measures that remove
        words as the judge does have a row without p. Rows with a note come last, unless all
        measures have it.

    Raises
    ------
    InputError
        If this judge gave no such metric.
    """
    part = values[(values["judge"] == judge) & (values["metric"] == metric)]
    if part.empty:
        pairs = sorted(set(zip(values["judge"], values["metric"], strict=True)))
        raise InputError(
            f"nothing by {judge!r} and {metric!r}; there is "
            f"{', '.join(map(str, pairs)) or 'nothing at all'}"
        )
    sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
    table = summary(part).drop(columns=["judge", "metric"])
    by_group = sign * group_means(part).reindex(pd.MultiIndex.from_frame(table[ROW]))
    differences = _over_baselines(table, by_group, judge)  # [rows, baselines, groups]
    compared_groups = np.isfinite(differences).all(axis=1).sum(axis=1)
    is_few = is_measure(table, judge).to_numpy() & (compared_groups < FEWEST_GROUPS)
    table["note"] = np.where(is_few, TOO_FEW, "")
    tested = np.where(is_few[:, None, None], np.nan, differences)
    for index, name in enumerate(BASELINES):
        table[f"over_{name}"] = _means(differences[:, index])
        table[f"p_{name}"] = corrected_p(tested[:, index])
    table["p"] = table[[f"p_{name}" for name in BASELINES]].max(axis=1, skipna=False)
    table["better"] = table["p"] < LEVEL
    is_last = (
        is_few & is_compared(table, judge).any()
    )  # where no row has groups enough, all are in order
    order = (
        table.assign(last=is_last, rank=-sign * table["value"])
        .sort_values(["last", "rank", *ROW])
        .index
    )
    table, by_group = table.loc[order].reset_index(drop=True), by_group.iloc[order]
    compared = by_group[is_compared(table, judge).to_numpy()].to_numpy()
    behind = (compared[:1] if len(compared) else np.nan) - by_group.to_numpy()
    table["behind"] = _means(behind)
    table["behind_low"], table["behind_high"] = mean_intervals(behind)
    return table


def is_compared(table: pd.DataFrame, judge: str) -> pd.Series:
    """Which rows are measures on trial that have groups enough."""
    return is_measure(table, judge) & (table["note"] != TOO_FEW)


def is_measure(table: pd.DataFrame, judge: str) -> pd.Series:
    """Which rows are measures on trial by a judge: no baselines, and none that take words away as
    the judge does."""
    is_own = table["measure"].map(lambda name: same_removal(name, judge)).astype(bool)
    return ~table["measure"].isin([*BASELINES, ORACLE]) & ~is_own


def _over_baselines(table: pd.DataFrame, by_group: pd.DataFrame, judge: str) -> np.ndarray:
    """Paired differences of each row to each baseline of its stack [rows, baselines, groups]; NaN
    for what is not on trial."""
    numbers = dict(zip(by_group.index, by_group.to_numpy(), strict=True))
    missing = np.full(by_group.shape[1], np.nan)
    return np.array(
        [
            [
                numbers[stack, measure, how]
                - (numbers.get((stack, name, ""), missing) if is_tested else missing)
                for name in BASELINES
            ]
            for (stack, measure, how), is_tested in zip(
                numbers, is_measure(table, judge), strict=True
            )
        ]
    )


def _means(values: np.ndarray) -> np.ndarray:
    """Means of rows [R, G] -> [R] over groups that are there; NaN where none is."""
    counts = np.isfinite(values).sum(axis=1)
    return np.where(counts > 0, np.nansum(values, axis=1) / np.maximum(counts, 1), np.nan)
