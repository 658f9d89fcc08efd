"""Choose a measure's best layer on half of the groups and score it on the other half.

In: numbers of every layer, by item. Out: the numbers of one layer for each half.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from .leaderboard import group_means
from .scores import LOWER_IS_BETTER
from .word_scores import LAYER_ROW

_EVALUATION_KEYS = ["stack", "measure", "perturbation", "metric"]


def choose_best_layer(values: pd.DataFrame) -> pd.DataFrame:
    """Replace the rows of all layers by those of the best layer, cross-fitted over two halves of
    the groups.

    A layer's mean is over groups, so a group with many clips counts once. Groups are split by turns
    in the order of their first clip's name. Of equal layers the lowest is chosen.

    Parameters
    ----------
    values : DataFrame
        Columns `leaderboard.VALUE_COLUMNS`.

    Returns
    -------
    DataFrame
        Without rows of aggregation "layer", with rows of "best layer", whose column layer says
        which it was. One group has no other half, so it has no best layer.
    """
    is_layer = values["aggregation"] == LAYER_ROW
    layers, other_rows = values[is_layer], values[~is_layer]
    best_layer_rows = [
        _cross_fit_layer(rows) for _, rows in layers.groupby(_EVALUATION_KEYS, sort=False)
    ]
    return (
        pd.concat([other_rows, *best_layer_rows], ignore_index=True)
        if best_layer_rows
        else other_rows
    )


def _cross_fit_layer(rows: pd.DataFrame) -> pd.DataFrame:
    """Select for each half of the groups the layer that is best in the other half."""
    metric = rows["metric"].iloc[0]
    means = group_means(rows, by=["layer"]).sort_index()  # [layers, groups], groups in order
    if metric in LOWER_IS_BETTER:
        means = -means
    half = pd.Series(np.arange(means.shape[1]) % 2, index=means.columns)
    half_tables = []
    for half_index in (0, 1):
        other_half_means = means.loc[:, half != half_index].mean(axis=1)
        if other_half_means.notna().any():
            is_chosen = rows["group"].map(half).eq(half_index) & rows["layer"].eq(
                other_half_means.index[int(other_half_means.argmax())]
            )
            half_tables.append(rows[is_chosen].assign(aggregation="best layer"))
    return pd.concat(half_tables) if half_tables else rows.head(0)
