"""Rank correlation (Spearman) of two measures, by layer and of their curves over layers.

In: a table of cue contributions. Heights of measures cannot be compared (`length_baseline.py`); which clips
get more, and which layers, can.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd

from .grouped_means import grouped_means

_MIN_VALUES = 3  # values that a rank correlation needs to say anything

_COLUMNS = ["measure", "other", "rho", "p", "n"]


def measure_agreement(
    table: pd.DataFrame, *, by: Sequence[str] = ("model", "init", "stack")
) -> pd.DataFrame:
    """Rank correlation over clips between measures, in each layer.

    Parameters
    ----------
    table : DataFrame
        Columns of `by`, layer, clip, measure, contribution; other columns (seeds) are averaged
        over.
    by : sequence of str

    Returns
    -------
    DataFrame
        Columns of `by`, layer, measure, other, rho (-1 to 1; NaN where a measure does not vary), p,
        n (clips).

    Examples
    --------
    >>> table = pd.DataFrame({"layer": 0, "clip": list("abcd") * 2, "measure": ["one"] * 4 + ["two"] * 4,
    ...                       "contribution": [1, 2, 3, 4, 10, 30, 20, 40], "model": "m"})
    >>> float(measure_agreement(table, by=["model"]).rho[0].round(6))
    0.8
    """
    return _correlate_measures(table, [*by, "layer"], "clip")


def curve_agreement(
    table: pd.DataFrame, *, by: Sequence[str] = ("model", "init", "stack")
) -> pd.DataFrame:
    """Correlate the ranks of layers in the mean curves of measures: do they peak in the same
    layers?

    The table has the columns of `by`, measure, other, rho, p, n (layers).
    """
    means = grouped_means(table, [*by, "measure", "layer"], "contribution")
    return _correlate_measures(means, list(by), "layer")


def _correlate_measures(table: pd.DataFrame, by: list[str], over: str) -> pd.DataFrame:
    from scipy.stats import spearmanr

    rows = []
    for key, table_part in table.groupby(by, sort=False, observed=True):
        values = table_part.pivot_table(
            index=over,
            columns="measure",
            values="contribution",
            aggfunc="mean",
            sort=False,
            observed=True,
        )
        for measure, other_measure in itertools.combinations(values, 2):
            pair = values[[measure, other_measure]].dropna()
            has_variance = len(pair) >= _MIN_VALUES and all(np.ptp(pair[name]) > 0 for name in pair)
            rho, p = (
                spearmanr(pair[measure], pair[other_measure]) if has_variance else (np.nan, np.nan)
            )
            correlation = dict(
                zip(
                    _COLUMNS, (measure, other_measure, float(rho), float(p), len(pair)), strict=True
                )
            )
            rows.append(
                {
                    **dict(zip(by, key if isinstance(key, tuple) else (key,), strict=True)),
                    **correlation,
                }
            )
    return pd.DataFrame(rows, columns=[*by, *_COLUMNS])
