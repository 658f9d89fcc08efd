"""A leaderboard of measures in words."""

from __future__ import annotations

import numpy as np
import pandas as pd

from ...evaluation.statistics.intervals import FEWEST_GROUPS
from .leaderboard import BASELINES, P_LEVEL, TOO_FEW_GROUPS, is_compared_row, is_measure_row
from .output_scores import has_same_removal


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
