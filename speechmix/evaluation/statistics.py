"""Means over clips with their uncertainty: intervals, tests and effect sizes over groups of clips that belong together.

Groups (`groups.py`) are what is drawn and tested as one: the members of a pair, or all recordings of a sentence or a word,
are not independent. Random twins are averaged over seeds for each clip first; the seeds' own means make a band.

- Intervals are scipy's percentile bootstrap over groups (95 %, seeded).
- Tests are scipy's permutation test of paired differences: under the null hypothesis trained and random are exchangeable
  within a group, so the sign of each group's difference is as likely + as -; exact where there are few groups.
- Over the layers of a stack, p is corrected by Benjamini & Hochberg 1995: the *false discovery rate*, q.
- The effect size is Cohen's d of paired differences, mean / standard deviation.

The mean over all layers of a stack dilutes what happens in one, and the layer that looks best on the data it is reported on
looks too good. So the best layer is *cross-fitted*: chosen on one half of the groups, read on the other, and the other way
round; no correction over layers is then due.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd

# One number for each group, a clip or a pair.
Numbers: TypeAlias = "Sequence[float] | np.ndarray | pd.Series"

LEVEL = 0.95
BASELINES = ("share_of_length", "length_matched")
_BAND_RESAMPLES, _PERMUTATIONS, _PERMUTATIONS_BY_LAYER, _BATCH = 500, 4999, 1999, 200


def interval_of_mean(values: Numbers, *, seed: int = 0, resamples: int = 2000) -> tuple[float, float]:
    """95 % bootstrap interval of a mean; (nan, nan) for fewer than two values.

    Examples
    --------
    >>> low, high = interval_of_mean([0.1, 0.2, 0.3, 0.2])
    >>> 0.1 <= low <= 0.2 <= high <= 0.3
    True
    """
    low, high = intervals_of_means(np.asarray(values, dtype=float)[None], seed=seed, resamples=resamples)
    return float(low[0]), float(high[0])


def intervals_of_means(
    values: np.ndarray, *, seed: int = 0, resamples: int = _BAND_RESAMPLES
) -> tuple[np.ndarray, np.ndarray]:
    """95 % bootstrap intervals of the means of rows, [L, groups] -> low [L], high [L]; NaN are left out row by row."""
    from scipy.stats import bootstrap

    values = np.atleast_2d(np.asarray(values, dtype=float))
    low, high = np.full(len(values), np.nan), np.full(len(values), np.nan)
    is_finite = np.isfinite(values)
    # Rows with the same known groups are drawn together.
    for pattern in np.unique(is_finite, axis=0) if len(values) else ():
        rows = np.flatnonzero((is_finite == pattern).all(axis=1))
        part = values[rows][:, pattern]
        if part.shape[1] < 2:
            continue
        constant = np.ptp(part, axis=1) == 0
        low[rows[constant]] = high[rows[constant]] = part[constant, 0]
        if not constant.all():
            interval = bootstrap(
                (part[~constant],), np.mean, axis=-1, confidence_level=LEVEL, n_resamples=resamples, batch=_BATCH,
                method="percentile", rng=seed,
            ).confidence_interval  # fmt: skip
            low[rows[~constant]], high[rows[~constant]] = interval.low, interval.high
    return low, high


def permutation_p(differences: Numbers, *, seed: int = 0, permutations: int = _PERMUTATIONS) -> float:
    """Two-sided p of a mean difference, by scipy's permutation test that flips signs; NaN for fewer than two values.

    Examples
    --------
    >>> permutation_p([1, 2, 3, 4, 5])  # 2 of the 32 ways to set the signs are as far from zero
    0.0625
    """
    from scipy.stats import permutation_test

    finite = _finite(differences)
    if len(finite) < 2:
        return np.nan
    test = permutation_test(
        (finite,), lambda values, axis: values.mean(axis=axis), permutation_type="samples", vectorized=True,
        n_resamples=permutations, batch=_BATCH, rng=seed,
    )  # fmt: skip
    return float(test.pvalue)


def corrected(p: Numbers) -> np.ndarray:
    """False discovery rate q of each p (Benjamini & Hochberg, scipy's); NaN stay NaN and do not count."""
    from scipy.stats import false_discovery_control

    uncorrected = np.asarray(p, dtype=float)
    q, is_finite = np.full_like(uncorrected, np.nan), np.isfinite(uncorrected)
    if is_finite.any():
        q[is_finite] = false_discovery_control(uncorrected[is_finite], method="bh")
    return q


def effect_size(differences: Numbers) -> float:
    """Cohen's d of paired differences: mean / standard deviation; NaN where that is not defined."""
    finite = _finite(differences)
    spread = np.std(finite, ddof=1) if len(finite) > 1 else 0.0
    return float(finite.mean() / spread) if spread > 0 else np.nan


def _finite(values: Numbers) -> np.ndarray:
    numbers = np.asarray(values, dtype=float)
    return numbers[np.isfinite(numbers)]


def described(differences: pd.Series, *, permutations: int = _PERMUTATIONS) -> dict[str, float]:
    """Mean difference with interval, p, effect size, and in what share of the groups it is above zero."""
    finite = differences.dropna()
    low, high = interval_of_mean(finite)
    return {
        "difference": finite.mean(), "low": low, "high": high, "p": permutation_p(finite, permutations=permutations),
        "effect": effect_size(finite), "positive": (finite > 0).mean() if len(finite) else np.nan,
    }  # fmt: skip


def trained_against_random(
    table: pd.DataFrame, *, by: Sequence[str], group: str = "clip", permutations: int = _PERMUTATIONS
) -> pd.DataFrame:
    """Mean contribution of trained models and of their random twins, and the difference with its interval and test.

    Parameters
    ----------
    table : DataFrame
        Cue contributions: columns init, contribution, those of `by`, and `group`; seed where there are several twins,
        and baselines (share_of_length, length_matched) where they are known.
    by : sequence of str
        What makes a row of the result, e.g. ("model", "stack", "measure", "layer").
    group : str
        Column of what is drawn as one: "clip", "pair", "group".
    permutations : int
        Of the test, where there are too many groups for an exact one.

    Returns
    -------
    DataFrame
        Columns of `by`, trained, random, seed_low, seed_high (lowest and highest mean of a random twin), difference, low,
        high, p, effect, positive (of the difference, paired within groups), the baselines' means, groups.
    """
    means = _group_means(table, [*by, "init", group]).unstack("init")
    by_seed = _seed_means(table, list(by), group)
    rows = []
    for key, part in means.groupby(level=list(range(len(by))), sort=False):
        key = key if isinstance(key, tuple) else (key,)
        row = dict(zip(by, key, strict=True))
        for init in ("trained", "random"):
            row[init] = part[init].mean() if init in part else np.nan
        row["seed_low"], row["seed_high"] = by_seed.get(key, (np.nan, np.nan))
        if {"trained", "random"} <= set(part):
            row |= described(part["trained"] - part["random"], permutations=permutations)
        rows.append({**row, "groups": len(part)})
    baseline_names = [name for name in BASELINES if name in table]
    baselines = table.groupby(list(by), sort=False)[baseline_names].mean().reset_index()
    return pd.DataFrame(rows).merge(baselines, on=list(by)) if baseline_names else pd.DataFrame(rows)


def by_layer(table: pd.DataFrame, *, by: Sequence[str], group: str = "clip") -> pd.DataFrame:
    """`trained_against_random` in every layer, with q: p corrected over the layers of each row of `by`."""
    result = trained_against_random(table, by=[*by, "layer"], group=group, permutations=_PERMUTATIONS_BY_LAYER)
    if "p" in result:
        result["q"] = result.groupby(list(by), sort=False).p.transform(lambda p: pd.Series(corrected(p), index=p.index))
    return result


def _group_means(table: pd.DataFrame, keys: list[str]) -> pd.Series:
    """Mean of each group: seeds of a clip first, then clips."""
    if "clip" in table and "clip" not in keys:
        table = table.groupby([*keys, "clip"], sort=False).contribution.mean().reset_index()
    return table.groupby(keys, sort=False).contribution.mean()


def _seed_means(table: pd.DataFrame, by: list[str], group: str) -> dict[tuple, tuple[float, float]]:
    """Lowest and highest mean of a random twin, by key; nothing for a single twin."""
    random = table[table["init"] == "random"]
    if "seed" not in table or random.seed.nunique() < 2:
        return {}
    means = _group_means(random, [*by, "seed", group]).groupby(level=[*by, "seed"], sort=False).mean()
    limits = means.groupby(level=by, sort=False).agg(["min", "max"])
    keys = [key if isinstance(key, tuple) else (key,) for key in limits.index]
    return dict(zip(keys, limits.itertuples(index=False, name=None), strict=True))


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
    parts = []
    for _, part in table.groupby(list(by), sort=False):
        for fold in (0, 1):
            here, there = part[half[part.index] == fold], part[half[part.index] != fold]
            # A single group has no other half.
            gains = _gain_by_layer(there if there.contribution.notna().any() else here)
            if len(here) and gains.notna().any():
                parts.append(here[here.layer == gains.idxmax()])
    return pd.concat(parts).sort_index() if parts else table.iloc[:0]


def _gain_by_layer(table: pd.DataFrame) -> pd.Series:
    means = table.groupby(["layer", "init"]).contribution.mean().unstack("init")
    return means["trained"] - means["random"] if len(means.columns) == 2 else means.iloc[:, 0]
