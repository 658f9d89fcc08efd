"""From one number an item to a leaderboard: means over groups of clips, what the baselines get, and who wins.

A row is a way to score words: a measure, in a stack, aggregated over layers. It is *better than the baselines* if its paired
differences to random orders (their mean, over twenty), to the order by length and to the order by position are all above zero.
All rows are tested at once: under the null hypothesis the sign of a group's differences is as likely + as -, signs are flipped
for all rows together, and each row's t is held against the largest t of any row (Westfall & Young 1993; exact up to twelve
groups). A row's p is the largest of its three (an intersection-union test). Chosen as the best of many, the winner's own number
is a little too good; that it beats the baselines is what was corrected for.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd

from ...errors import InputError
from ..statistics import cross_fitted_layer, intervals_of_means
from .scores import LOWER_IS_BETTER, spearman
from .to_output import same_removal
from .words import LAYER

BASELINES = ("random", "length", "position")
ORACLE = "oracle"
ROW = ["stack", "measure", "aggregation"]
VALUE_COLUMNS = ["item", "group", "words", *ROW, "layer", "judge", "metric", "value", "chance"]
DROP_COLUMNS = ["item", "group", "stack", "judge", "word", "drop"]
TABLE_COLUMNS = ["judge", "metric", *ROW, "value", "low", "high", "chance", "clips", "groups"]
_LEVEL, _FEWEST_GROUPS = 0.05, 6
_FEW = " With fewer than six groups no test can tell."
_MOST_EXACT, _FLIPS = 12, 4999  # groups whose signs are flipped in all ways; ways to flip those of more groups


def with_best_layer(values: pd.DataFrame) -> pd.DataFrame:
    """Put the best layer in the place of all layers: chosen on one half of the groups, read on the other.

    Parameters
    ----------
    values : DataFrame
        Columns `VALUE_COLUMNS`.

    Returns
    -------
    DataFrame
        Without rows of aggregation "layer", with rows of "best layer" that keep which layer it was.
    """
    is_layer = values["aggregation"] == LAYER
    layers, others = values[is_layer], values[~is_layer]
    if layers.empty:
        return others
    sign = layers["metric"].isin(LOWER_IS_BETTER).map({True: -1.0, False: 1.0})
    oriented = layers.assign(contribution=layers["value"] * sign, init="trained")
    best = cross_fitted_layer(oriented, by=["stack", "measure", "judge", "metric"], group="group")
    best = best.drop(columns=["contribution", "init"]).assign(aggregation="best layer")
    return pd.concat([others, best], ignore_index=True)


def summary(values: pd.DataFrame) -> pd.DataFrame:
    """Mean over groups of every row, by judge and metric, with its 95 % interval.

    Returns
    -------
    DataFrame
        Columns `TABLE_COLUMNS`; chance is what an order drawn at random gets, where that is known.
    """
    tables = []
    for key, part in values.groupby(["judge", "metric"], sort=False):
        judge, metric = map(str, key)
        by_group = group_means(part)
        table = by_group.index.to_frame(index=False)
        table["value"] = _means(by_group.to_numpy())
        table["low"], table["high"] = intervals_of_means(by_group.to_numpy(), resamples=2000)
        counts = part.dropna(subset="value").groupby(ROW, sort=False)
        counted = counts.agg(chance=("chance", "mean"), clips=("item", "nunique"), groups=("group", "nunique"))
        tables.append(table.merge(counted.reset_index(), on=ROW).assign(judge=judge, metric=metric))
    return pd.concat(tables, ignore_index=True)[TABLE_COLUMNS] if tables else pd.DataFrame(columns=TABLE_COLUMNS)


def group_means(values: pd.DataFrame) -> pd.DataFrame:
    """Mean of each group in one judge's metric: index stack, measure, aggregation; a column for each group."""
    return values.groupby([*ROW, "group"], sort=False)["value"].mean().unstack("group")


def judge_agreement(drops: pd.DataFrame) -> pd.DataFrame:
    """Spearman between judges over the words of an item, mean over groups: how well a measure can be expected to do.

    Parameters
    ----------
    drops : DataFrame
        Columns `DROP_COLUMNS`.

    Returns
    -------
    DataFrame
        One row for each stack and pair of judges: stack, judge, other, rho, low, high (95 % over groups), items.
    """
    rows = []
    for (stack, item, group), part in drops.groupby(["stack", "item", "group"], sort=False):
        by_judge = part.drop_duplicates(["judge", "word"]).pivot(index="word", columns="judge", values="drop")
        for judge, other in itertools.combinations(part["judge"].unique(), 2):
            rho = spearman(by_judge[judge].to_numpy(float), by_judge[other].to_numpy(float))
            place = {"stack": stack, "item": item, "group": group}
            rows.append({**place, "judge": judge, "other": other, "rho": rho})
    table = pd.DataFrame(rows, columns=["stack", "item", "group", "judge", "other", "rho"]).dropna(subset="rho")
    keys = ["stack", "judge", "other"]
    if table.empty:
        return pd.DataFrame(columns=[*keys, "rho", "low", "high", "items"])
    by_group = table.groupby([*keys, "group"], sort=False)["rho"].mean().unstack("group")
    result = by_group.index.to_frame(index=False).assign(rho=_means(by_group.to_numpy()))
    result["low"], result["high"] = intervals_of_means(by_group.to_numpy(), resamples=2000)
    counts = table.groupby(keys, sort=False)["item"].nunique().rename("items").reset_index()
    return result.merge(counts, on=keys)


def leaderboard(values: pd.DataFrame, *, judge: str, metric: str) -> pd.DataFrame:
    """Rows by one judge and metric, best first, each against the baselines and against the first.

    Parameters
    ----------
    values : DataFrame
        Columns `VALUE_COLUMNS`, the best layer chosen (`with_best_layer`).
    judge, metric : str

    Returns
    -------
    DataFrame
        Columns of `TABLE_COLUMNS` without judge and metric; over_random, over_length, over_position (paired differences, above
        zero if the row is better, also where a small number is good), p_random, p_length, p_position (corrected for all rows),
        p (the largest of them), better (p < 0.05), and
        behind, behind_low, behind_high (how far behind the first row of a measure, with its interval). Baselines, the
        oracle, and measures that take words away as the judge does, are rows, too, without p.

    Raises
    ------
    InputError
        If this judge gave no such metric.
    """
    part = values[(values["judge"] == judge) & (values["metric"] == metric)]
    if part.empty:
        pairs = sorted(set(zip(values["judge"], values["metric"], strict=True)))
        raise InputError(
            f"nothing by {judge!r} and {metric!r}; there is {', '.join(map(str, pairs)) or 'nothing at all'}"
        )
    sign = -1.0 if metric in LOWER_IS_BETTER else 1.0
    table = summary(part).drop(columns=["judge", "metric"])
    table = table.assign(rank=-sign * table["value"]).sort_values("rank", kind="stable", ignore_index=True)
    by_group = group_means(part)
    numbers = dict(zip(by_group.index, sign * by_group.to_numpy(), strict=True))
    keys = list(table[ROW].itertuples(index=False, name=None))
    differences = np.array([_over_baselines(numbers, key, judge) for key in keys])  # [rows, baselines, groups]
    for place, name in enumerate(BASELINES):
        table[f"over_{name}"] = _means(differences[:, place])
        table[f"p_{name}"] = surely_above(differences[:, place])
    table["p"] = table[[f"p_{name}" for name in BASELINES]].max(axis=1)
    table["better"] = table["p"] < _LEVEL
    on_trial = is_measure(table, judge)
    first = next((numbers[key] for key, measure in zip(keys, on_trial, strict=True) if measure), None)
    behind = np.array([np.nan * numbers[key] if first is None else first - numbers[key] for key in keys])
    table["behind"] = _means(behind)
    table["behind_low"], table["behind_high"] = intervals_of_means(behind, resamples=2000)
    return table.drop(columns="rank")


def is_measure(table: pd.DataFrame, judge: str) -> pd.Series:
    """Which rows are measures on trial by a judge: no baselines, and none that take words away as the judge does."""
    is_own = table["measure"].map(lambda name: same_removal(name, judge)).astype(bool)
    return ~table["measure"].isin([*BASELINES, ORACLE]) & ~is_own


def surely_above(differences: np.ndarray) -> np.ndarray:
    """One-sided p that each row's mean is above zero, corrected for all rows at once (Westfall & Young's largest t).

    Parameters
    ----------
    differences : ndarray [R, G]
        Of groups; NaN where a row has none.

    Returns
    -------
    ndarray [R]
        NaN for rows without two groups.

    Examples
    --------
    >>> surely_above(np.array([[1.0, 2.0, 3.0, 4.0, 5.0], [1.0, -2.0, 3.0, -4.0, 0.0]])).round(3)
    array([0.031, 0.906])
    """
    rows = np.isfinite(differences).sum(axis=1) > 1
    result = np.full(len(differences), np.nan)
    if not rows.any():
        return result
    filled = np.nan_to_num(differences[rows])  # a missing group adds nothing to a sum
    counts = np.isfinite(differences[rows]).sum(axis=1)
    signs = _signs(differences.shape[1])
    means = signs @ filled.T / counts  # [flips, R]
    variances = ((filled**2).sum(axis=1) / counts - means**2).clip(1e-12)
    t = means * np.sqrt((counts - 1) / variances)
    largest = t.max(axis=1)
    result[rows] = (largest[:, None] >= t[0] - 1e-9).mean(axis=0)
    return result


def _signs(count: int) -> np.ndarray:
    """Ways to flip the signs of groups [flips, G], the first as they are: all, or some drawn."""
    if count <= _MOST_EXACT:
        return np.array(list(itertools.product((1.0, -1.0), repeat=count)))
    drawn = np.random.default_rng(0).choice([1.0, -1.0], size=(_FLIPS, count))
    return np.concatenate([np.ones((1, count)), drawn])


def _over_baselines(numbers: dict[Any, np.ndarray], key: tuple[str, str, str], judge: str) -> np.ndarray:
    """Paired differences of a row to each baseline [baselines, groups]; NaN for what is not on trial, or is missing."""
    stack, measure, _ = key
    if measure in (*BASELINES, ORACLE) or same_removal(measure, judge):
        return np.full((len(BASELINES), len(numbers[key])), np.nan)
    missing = np.full(len(numbers[key]), np.nan)
    return np.stack([numbers[key] - numbers.get((stack, name, ""), missing) for name in BASELINES])


def _means(values: np.ndarray) -> np.ndarray:
    """Means of rows [R, G] -> [R] over groups that are there; NaN where none is."""
    counts = np.isfinite(values).sum(axis=1)
    return np.where(counts > 0, np.nansum(values, axis=1) / np.maximum(counts, 1), np.nan)


def sentence(board: pd.DataFrame, *, judge: str, metric: str) -> str:
    """The leaderboard in words: who wins and how surely, or that no measure is better than the baselines."""
    measures, by = board[is_measure(board, judge)], f"By {judge} ({metric.replace('_', ' ')}, {_counts(board)})"
    if measures.empty or not np.isfinite(measures["value"]).any():
        return f"{by} no measure could be judged.{_aside(board, judge)}"
    first, winners = measures.iloc[0], measures[measures["better"]]
    if winners.empty:
        return (
            f"{by} none of {len(measures)} ways to rank words is surely better than {_unbeaten(measures)}. The first is "
            f"{_row(first)}; {_baselines(board, first)}.{_FEW if int(board['groups'].max()) < _FEWEST_GROUPS else ''}"
            f"{_aside(board, judge)}"
        )
    winner = winners.iloc[0]
    above = (
        "" if winners.index[0] == measures.index[0] else f" Above it, but not surely better than they: {_row(first)}."
    )
    close = int((measures["behind_low"] <= 0).sum()) - 1
    also = f" {close} of the other {len(measures) - 1} ways cannot be told from the first." if close else ""
    return (
        f"{by} {_row(winner)} ranks words best; {_baselines(board, winner)}. It is better than each of these "
        f"(p = {winner['p']:.3f}, corrected for all {len(measures)} ways).{above}{also}{_aside(board, judge)}"
    )


def _aside(board: pd.DataFrame, judge: str) -> str:
    """The measures that take words away as the judge does."""
    names = list(dict.fromkeys(name for name in board["measure"] if same_removal(name, judge)))
    return f" Not on trial, for this judge takes words away as they do: {', '.join(names)}." if names else ""


def _unbeaten(measures: pd.DataFrame) -> str:
    """The baselines that no row is surely better than; all of them where each is beaten by another row."""
    names = {"random": "random scores", "length": "the order by length", "position": "the order by position"}
    unbeaten = [told for name, told in names.items() if not (measures[f"p_{name}"] < _LEVEL).any()]
    return " and ".join(part for part in (", ".join(unbeaten[:-1]), *unbeaten[-1:]) if part) or "all three baselines"


def _counts(board: pd.DataFrame) -> str:
    clips, groups = int(board["clips"].max()), int(board["groups"].max())
    return f"{clips} clips in {groups} group{'' if groups == 1 else 's'}"


def _row(row: pd.Series) -> str:
    return (
        f"{row['measure'].replace('_', ' ')} ({row['stack']}, {row['aggregation']}) with {row['value']:.2f} "
        f"[{row['low']:.2f}, {row['high']:.2f}]"
    )


def _baselines(board: pd.DataFrame, row: pd.Series) -> str:
    """What the baselines get in the stack of a row."""
    here = board[board["stack"] == row["stack"]].set_index("measure")["value"]
    return ", ".join(f"{name} {here[name]:.2f}" for name in BASELINES if name in here)
