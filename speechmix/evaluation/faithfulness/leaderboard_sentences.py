"""A leaderboard of measures in words."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ..statistics.intervals import FEWEST_GROUPS
from .leaderboard import BASELINES, LEVEL, TOO_FEW, is_compared, is_measure
from .to_output import same_removal


def sentence(board: pd.DataFrame, *, judge: str, metric: str, noun: str = "clips") -> str:
    """Return the leaderboard in words: which measure is best and how sure that is, or that none
    beats the baselines."""
    by = f"By {judge} ({metric.replace('_', ' ')}, {_counts(board, noun)})"
    end = f"{_too_few(board, judge)}{_excluded_measures(board, judge)}"
    measures = board[is_measure(board, judge)]
    if measures.empty or not np.isfinite(measures["value"]).any():
        return f"{by} no measure could be judged.{end}"
    compared = board[is_compared(board, judge)]
    if compared.empty:
        first = measures.iloc[0]
        return (
            f"{by} no measure can be compared: that needs {FEWEST_GROUPS} groups (all items that "
            "share a pair, sentence or "
            f"word are one group). The first is {_row(first)}; "
            f"{_baselines(board, first)}.{_excluded_measures(board, judge)}"
        )
    first, winners = compared.iloc[0], compared[compared["better"]]
    if winners.empty:
        return (
            f"{by} none of {len(compared)} ways to rank words is surely better than "
            f"{_unbeaten(compared)}. The first is "
            f"{_row(first)}; {_baselines(board, first)}.{end}"
        )
    winner = winners.iloc[0]
    above = (
        ""
        if winners.index[0] == compared.index[0]
        else f" Above it, but not surely better than they: {_row(first)}."
    )
    close = int((~(compared["behind_low"] > 0)).sum()) - 1
    also = (
        f" {close} of the other {len(compared) - 1} ways cannot be told from the first."
        if close
        else ""
    )
    return (
        f"{by} {_row(winner)} ranks words best; {_baselines(board, winner)}. It is better than "
        "each of these "
        f"(p = {winner['p']:.3f}, corrected for all {len(compared)} ways).{above}{also}{end}"
    )


def _too_few(board: pd.DataFrame, judge: str) -> str:
    """The measures that are not compared."""
    few = board[is_measure(board, judge) & (board["note"] == TOO_FEW)]
    names = ", ".join(f"{row.measure} ({row.stack}, {row.aggregation})" for row in few.itertuples())
    return (
        f" Not compared, because fewer than {FEWEST_GROUPS} groups have a number: {names}."
        if names
        else ""
    )


def _excluded_measures(board: pd.DataFrame, judge: str) -> str:
    """The measures that take words away as the judge does."""
    names = list(dict.fromkeys(name for name in board["measure"] if same_removal(name, judge)))
    return (
        f" Excluded, because the reference perturbation removes words as they do: {', '.join(names)}."
        if names
        else ""
    )


def _unbeaten(measures: pd.DataFrame) -> str:
    """The baselines that no row is surely better than; all of them where each is beaten by another
    row."""
    names = {
        "random": "random scores",
        "length": "the order by length",
        "position": "the order by position",
    }
    unbeaten = [told for name, told in names.items() if not (measures[f"p_{name}"] < LEVEL).any()]
    return (
        " and ".join(part for part in (", ".join(unbeaten[:-1]), *unbeaten[-1:]) if part)
        or "all three baselines"
    )


def _counts(board: pd.DataFrame, noun: str) -> str:
    clips, groups = int(board["clips"].max()), int(board["groups"].max())
    return f"{clips} {noun} in {groups} group{'' if groups == 1 else 's'}"


def _row(row: pd.Series) -> str:
    interval = (
        f" [{row['low']:.2f}, {row['high']:.2f}]"
        if np.isfinite([row["low"], row["high"]]).all()
        else ""
    )
    return (
        f"{row['measure'].replace('_', ' ')} ({row['stack']}, {row['aggregation']}) with "
        f"{row['value']:.2f}{interval}"
    )


def _baselines(board: pd.DataFrame, row: pd.Series) -> str:
    """What the baselines get in the stack of a row."""
    here = board[board["stack"] == row["stack"]].set_index("measure")["value"]
    return ", ".join(f"{name} {here[name]:.2f}" for name in BASELINES if name in here)
