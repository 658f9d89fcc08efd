"""Means over clips with their uncertainty: bootstrap intervals over groups of clips that belong together.

Layers: the mean over all layers of a stack dilutes what happens in one, and the layer that looks best on the data it is
reported on looks too good. So the best layer is *cross-fitted*: chosen on one half of the groups, read on the other, and
the other way round.

The two members of a pair, or several recordings of a sentence, are not independent: they are drawn as one. Random twins
are averaged over seeds for each clip first. Intervals are scipy's percentile bootstrap (seeded).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

LEVEL = 0.95


def interval_of_mean(values: Sequence[float], *, seed: int = 0, resamples: int = 2000) -> tuple[float, float]:
    """95 % bootstrap interval of a mean; (nan, nan) for fewer than two values.

    Examples
    --------
    >>> low, high = interval_of_mean([0.1, 0.2, 0.3, 0.2])
    >>> 0.1 <= low <= 0.2 <= high <= 0.3
    True
    """
    from scipy.stats import bootstrap

    values = np.asarray(values, dtype=float)
    if len(values) < 2:
        return np.nan, np.nan
    if np.ptp(values) == 0:
        return float(values[0]), float(values[0])
    found = bootstrap((values,), np.mean, confidence_level=LEVEL, n_resamples=resamples, method="percentile", rng=seed)
    return float(found.confidence_interval.low), float(found.confidence_interval.high)


def trained_against_random(table: pd.DataFrame, *, by: Sequence[str], group: str = "clip") -> pd.DataFrame:
    """Mean contribution of trained models and of their random twins, and the difference with its interval.

    Parameters
    ----------
    table : DataFrame
        Cue contributions: columns init, contribution, those of `by`, and `group`.
    by : sequence of str
        What makes a row of the result, e.g. ("model", "stack", "measure", "layer").
    group : str
        Column of what is drawn as one: "clip", or "pair".

    Returns
    -------
    DataFrame
        Columns of `by`, trained, random, difference, low, high (of the difference, paired within groups), groups.
    """
    means = table.groupby([*by, "init", group], sort=False).contribution.mean().unstack("init")
    rows = []
    for key, part in means.groupby(level=list(range(len(by))), sort=False):
        row = dict(zip(by, key if isinstance(key, tuple) else (key,), strict=True))
        for init in ("trained", "random"):
            row[init] = part[init].mean() if init in part else np.nan
        if {"trained", "random"} <= set(part):
            difference = (part["trained"] - part["random"]).dropna()
            row["difference"] = difference.mean()
            row["low"], row["high"] = interval_of_mean(difference)
        rows.append({**row, "groups": len(part)})
    return pd.DataFrame(rows)


def cross_fitted_layer(table: pd.DataFrame, *, by: Sequence[str], group: str = "clip") -> pd.DataFrame:
    """Keep, of each group, only the layer that is best in the other half of the groups.

    Best is where the mean of trained - random (of what there is, if one is missing) is largest. Groups are split by
    turns in the order of their names.

    Parameters
    ----------
    table : DataFrame
        Cue contributions with a column layer; see `trained_against_random`.
    by : sequence of str
        Within what to choose, e.g. ("model", "stack", "measure").
    group : str

    Returns
    -------
    DataFrame
        Those rows of `table`.
    """
    order = {name: place for place, name in enumerate(sorted(table[group].unique()))}
    half = table[group].map(order) % 2
    kept = []
    for _, part in table.groupby(list(by), sort=False):
        for fold in (0, 1):
            here, there = part[half[part.index] == fold], part[half[part.index] != fold]
            if len(here):
                best = _gain_by_layer(there if len(there) else here).idxmax()  # a single group has no other half
                kept.append(here[here.layer == best])
    return pd.concat(kept).sort_index()


def _gain_by_layer(table: pd.DataFrame) -> pd.Series:
    means = table.groupby(["layer", "init"]).contribution.mean().unstack("init")
    return means["trained"] - means["random"] if len(means.columns) == 2 else means.iloc[:, 0]
