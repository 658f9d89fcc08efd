"""How far a word uses the future: mean losses over clips, with intervals, and two limits of each curve.

In: losses by clip, word and delay (`LookAhead.table`). Out: `LookAhead.curves` and `LookAhead.limits`:

    used_ms     the largest delay with an effect: the interval excludes zero
    enough_ms   the smallest delay from which on every effect is negligible: in size below a share of
                what the same clips lose at the smallest delay

A clip counts at a delay only if something is removed: a clip that has ended shows nothing. Intervals
hold together, at 95 %: those of all curves in which all layers change; those of all curves of single
layers, or windows of layers; those of chunks.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from ...evaluation.statistics.intervals import FEWEST_GROUPS, LEVEL, mean_intervals
from ...interventions.value_knock_out import ALL_LAYERS
from .look_ahead import CHUNK, ERRORS

CURVE_KEYS = ["removal", "stack", "window", "layer"]


def average_curves(table: pd.DataFrame, share: float) -> pd.DataFrame:
    """Average effects over the clips of a group, then over groups: `LookAhead.curves`.

    Parameters
    ----------
    table : DataFrame
        `LookAhead.table`.
    share : float
        Of the loss at the smallest delay, below which an effect is negligible.
    """
    finite = table[np.isfinite(table["effect"])].reset_index(drop=True)
    curve = finite.groupby(CURVE_KEYS, sort=False, dropna=False).ngroup()
    delay = finite["ms"].rank(method="dense").astype(int)
    finite["row"] = curve * (delay.max() + 1) + delay
    by_clip = finite.sort_values("ms", kind="stable").groupby([curve, "clip", "word"])
    finite["tolerance"] = share * by_clip["effect"].transform("first")
    has_removal = finite["has_later"].astype(bool) & ~finite["frames"].eq(0).fillna(False)
    counted = finite[has_removal]
    by_row = finite.groupby("row")
    curves: pd.DataFrame = by_row[[*CURVE_KEYS, "ms"]].agg(lambda values: values.iloc[0])
    effects, tolerances = (
        counted.pivot_table(name, "row", "group").reindex(curves.index).to_numpy(float)
        for name in ("effect", "tolerance")
    )  # [R, G]
    curves["effect"] = counted.groupby(["row", "group"])["effect"].mean().groupby("row").mean()
    curves["groups"] = np.isfinite(effects).sum(axis=1)
    level = 1 - (1 - LEVEL) / _count_together(curves)
    find_intervals = partial(mean_intervals, level=level)
    curves["low"], curves["high"] = find_intervals(effects)
    no_effect = (curves["groups"] >= FEWEST_GROUPS) & ~np.nan_to_num(effects).any(axis=1)
    curves.loc[no_effect, ["low", "high"]] = 0.0
    sign = np.where(np.nansum(tolerances, axis=1) < 0, -1, 1)[:, None]
    below, above = sign * (effects - tolerances), sign * (effects + tolerances)
    curves["negligible"] = (find_intervals(below)[1] < 0) & (find_intervals(above)[0] > 0)
    curves["clips"] = counted.groupby("row")["clip"].nunique().reindex(curves.index, fill_value=0)
    for name in ("frames", "has_later", *(name for name in ERRORS if name in finite)):
        curves[name] = finite[name].astype(float).groupby(finite["row"]).mean()
    curves["layer"] = curves["layer"].astype("Int64")
    return curves.reset_index(drop=True)


def _count_together(curves: pd.DataFrame) -> np.ndarray:
    """Return with how many others each row's interval holds [R]: of all layers, of some, of chunks."""
    family = curves["window"].eq(ALL_LAYERS) + 2 * curves["removal"].eq(CHUNK)
    has_interval = curves["groups"] >= FEWEST_GROUPS
    counts: np.ndarray = has_interval.groupby(family).transform("sum").clip(lower=1).to_numpy()
    return counts


def find_limits(curves: pd.DataFrame) -> pd.DataFrame:
    """Find the delays at which each curve ends: `LookAhead.limits`.

    Of single layers only where all layers of the stack together have an effect (hierarchical testing).
    """
    rows = []
    delay_curves = curves[curves["removal"] != CHUNK]
    for key, curve in delay_curves.groupby(CURVE_KEYS, sort=False, dropna=False):
        first, tested = curve.iloc[0], curve[curve["low"].notna()]
        delays = tested["ms"].to_numpy()
        is_shown = ((tested["low"] > 0) | (tested["high"] < 0)).to_numpy()
        is_enough = np.logical_and.accumulate(tested["negligible"].to_numpy()[::-1])[::-1]
        is_enough &= first["low"] > 0 or first["high"] < 0
        values = {
            "used_ms": delays[is_shown].max() if is_shown.any() else np.nan,
            "enough_ms": delays[is_enough].min() if is_enough.any() else np.nan,
            "last_ms": delays.max() if len(delays) else np.nan,
            **first[["effect", "low", "high"]],
        }
        rows.append({**dict(zip(CURVE_KEYS, key, strict=True)), **values})
    limits = pd.DataFrame(rows).astype({"layer": "Int64"})
    is_whole = limits["window"] == ALL_LAYERS
    has_no_effect = limits.loc[is_whole & limits["used_ms"].isna(), ["removal", "stack"]]
    is_part = pd.MultiIndex.from_frame(limits[["removal", "stack"]]).isin(
        pd.MultiIndex.from_frame(has_no_effect)
    )
    limits.loc[is_part, ["used_ms", "enough_ms"]] = np.nan
    return limits
