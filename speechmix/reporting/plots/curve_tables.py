"""Compute means over groups of clips, and curves over layers with their bands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ...errors import InputError
from ...evaluation.statistics.grouped_means import distinct_keys, grouped_means, iterate_matrices
from ...evaluation.statistics.intervals import LEVEL, mean_intervals, twin_bands
from ...evaluation.statistics.random_twin_comparison import pad_rows

BANDS = ("interval", "clips", "none")
_CURVE_KEYS = ("model", "init", "stack", "measure")


def clip_group_means(
    table: pd.DataFrame,
    *,
    by: Sequence[str] = (),
    value: str = "contribution",
    scale: float = 100.0,
) -> pd.DataFrame:
    """Compute the mean of each unit (group of clips) of a `select_cue_rows` table, times
    `scale`."""
    keys = [*by, *_CURVE_KEYS, "layer", "depth", "unit"]
    if "clip" in table:
        table = grouped_means(table, [*keys, "clip"], value)
    means = grouped_means(table, keys, value)
    means[value] *= scale
    return means


def curve_table(
    table: pd.DataFrame,
    *,
    by: Sequence[str] = (),
    band: str = "interval",
    value: str = "contribution",
    scale: float = 100.0,
    means: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Compute the points of curves: mean over units, band, and number of units.

    The table comes from `select_cue_rows`; `means` are its `clip_group_means`, if they are at hand.
    `by` names further columns that tell curves apart, e.g. ("template",). With the band "interval",
    a trained model has the interval of its mean over units (`statistics.intervals`), and untrained
    twins that of one more untrained model (`twin_bands`; a single twin has no band). Each holds for
    all layers of its curve together, at 95 %. The band "clips" is the middle half of the units;
    "none" is none.

    The result has the columns of `by`, model, init, stack, measure, layer, depth, mean, low, high,
    units, seeds.
    """
    if band not in BANDS:
        raise InputError(f"band should be one of {BANDS}, found {band!r}")
    keys, curves = [*by, *_CURVE_KEYS], []
    means = clip_group_means(table, by=by, value=value, scale=scale) if means is None else means
    depths = distinct_keys(means, [*keys, "layer", "depth"]).set_index([*keys, "layer"])["depth"]
    for key, matrix in iterate_matrices(means, keys, rows="layer", columns="unit", value=value):
        curve_keys: dict[str, Any] = dict(zip(keys, key, strict=True))
        values = matrix.loc[:, matrix.notna().any().to_numpy()].sort_index().sort_index(axis=1)
        layer_columns = {
            "layer": values.index,
            "depth": [depths[(*key, layer)] for layer in values.index],
        }
        curve = pd.DataFrame(
            {**layer_columns, "mean": values.mean(axis=1).to_numpy(), "units": values.shape[1]}
        )
        low = high = np.full(len(curve), np.nan)
        if band == "clips":
            low, high = (values.quantile(share, axis=1).to_numpy() for share in (0.25, 0.75))
        elif band == "interval" and curve_keys["init"] != "random":  # of random twins see below
            level = 1 - (1 - LEVEL) / len(curve)
            low, high = mean_intervals(values.to_numpy(), level=level)
        curves.append(curve.assign(low=low, high=high, seeds=1, **curve_keys))
    result = pd.concat(curves, ignore_index=True)
    return (
        _set_twin_bands(result, table, [*by, *_CURVE_KEYS, "layer"], value, scale)
        if band == "interval"
        else result
    )


def _set_twin_bands(
    curves: pd.DataFrame, table: pd.DataFrame, keys: list[str], value: str, scale: float
) -> pd.DataFrame:
    """Replace the band of untrained twins by that of one more untrained model."""
    is_random = table["init"].eq("random").to_numpy()
    if not is_random.any():
        return curves
    seeds = (
        table["seed"][is_random].fillna(-1)
        if "seed" in table
        else pd.Series(-1, index=table.index[is_random])
    )
    if seeds.nunique() == 1:  # of one twin it is not known
        return curves
    twin_rows = table.loc[is_random, [*keys, "unit", value]].assign(seed=seeds.astype(int))
    means = grouped_means(twin_rows, [*keys, "seed", "unit"], value)
    means[value] *= scale
    rows = []
    for key, unit_values in iterate_matrices(means, keys, rows="unit", columns="seed", value=value):
        scored_values = unit_values.dropna(axis="columns", how="all")
        complete_twins = scored_values[scored_values.notna().all(axis="columns")]
        twin_means = complete_twins.mean().to_numpy()
        rows.append({**dict(zip(keys, key, strict=True)), "twin_means": twin_means})
    bands = pd.DataFrame(rows)
    for _, layers in bands.groupby([name for name in keys if name != "layer"], observed=True):
        twin_means = pad_rows(list(layers["twin_means"]))
        low, high = twin_bands(twin_means, rows=len(layers))
        is_share = np.nanmin(twin_means, axis=1) >= 0
        bands.loc[layers.index, "twin_low"] = np.where(is_share, np.maximum(low, 0), low)
        bands.loc[layers.index, "twin_high"] = high
        bands.loc[layers.index, "twins"] = np.isfinite(twin_means).sum(axis=1)
    bands = bands.drop(columns="twin_means")
    curves = curves.merge(bands, on=keys, how="left")
    is_untrained = curves["init"] == "random"
    curves.loc[is_untrained, ["low", "high", "seeds"]] = curves.loc[
        is_untrained, ["twin_low", "twin_high", "twins"]
    ].to_numpy()
    return curves.drop(columns=["twin_low", "twin_high", "twins"])
