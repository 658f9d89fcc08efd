"""Trained models against their random twins: differences with their uncertainty over clips *and* over twins.

Groups (`groups.py`) are what is drawn and tested as one: the members of a pair, or all recordings of a sentence or a word,
are not independent. Random twins are averaged over seeds for each clip first; as draws they are looked at in `twins.py`.

- A difference has an interval over groups (scipy's percentile bootstrap, 95 %, seeded), and one over groups and twins.
- Its p is the larger one of two: scipy's permutation test over groups (under the null hypothesis trained and random are
  exchangeable within a group, so the sign of each group's difference is as likely + as -; exact where there are few groups),
  and the t test of the trained model as one more draw of an untrained one.
- Over all comparisons that are reported together p is corrected by Benjamini & Hochberg 1995: the *false discovery rate*, q.
- A *claim* is made where q < 0.05 and the interval over groups and twins leaves out zero, and nowhere else.
- The effect size is Cohen's d of paired differences, mean / standard deviation.

The mean over all layers of a stack dilutes what happens in one, and the layer that looks best on the data it is reported on
looks too good. So the best layer is *cross-fitted*: chosen on one half of the groups, read on the other, and the other way
round. Its twins are the same in both halves, so their test is then that of "some layer" (`twins.combined_p`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pandas as pd

from .twins import crossed_interval, new_twin_interval, new_twin_p, new_twin_reach

# One number for each group, a clip or a pair.
Numbers: TypeAlias = "Sequence[float] | np.ndarray | pd.Series"

LEVEL = 0.95
SURE = 0.05  # q below which something is claimed
BASELINES = ("share_of_length", "length_matched")
_COLUMNS = """
    trained random twins twin_low twin_high difference low high clips_low clips_high p p_clips p_twins effect positive
    groups clips
""".split()
_BAND_RESAMPLES, _PERMUTATIONS, _BATCH = 500, 4999, 200


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


def over_groups(differences: pd.Series) -> dict[str, float]:
    """Mean difference with interval and p over groups, effect size, and in what share of the groups it is above zero."""
    finite = differences.dropna()
    low, high = interval_of_mean(finite)
    return {
        "difference": finite.mean(), "clips_low": low, "clips_high": high, "p_clips": permutation_p(finite),
        "effect": effect_size(finite), "positive": (finite > 0).mean() if len(finite) else np.nan,
    }  # fmt: skip


def trained_against_random(table: pd.DataFrame, *, by: Sequence[str], group: str = "clip") -> pd.DataFrame:
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

    Returns
    -------
    DataFrame
        Columns of `by`; trained, random; twins (how many), twin_low, twin_high (where a new one would lie); of the difference,
        paired within groups: difference, low, high (over groups and twins), clips_low, clips_high (over groups alone), p (the
        larger of), p_clips, p_twins, effect, positive; groups, clips (how many); the baselines' means. What a number of
        twins cannot tell is NaN: with one there is no interval of a new one, no p, no low and high.
    """
    means = _group_means(table, [*by, "init", group]).unstack("init")
    by_twin = _means_by_twin(table, list(by), group)
    rows = []
    for key, part in means.groupby(level=list(range(len(by))), sort=False):
        key = key if isinstance(key, tuple) else (key,)
        row = dict(zip(by, key, strict=True))
        for init in ("trained", "random"):
            row[init] = part[init].mean() if init in part else np.nan
        part = part.droplevel(list(range(len(by))))
        row |= _against_twins(part, by_twin.get(key, pd.DataFrame()))
        rows.append({**row, "groups": len(heard_by_all(part))})
    result = pd.DataFrame(rows)
    result = result.merge(_clip_counts(table, list(by)), on=list(by)) if "clip" in table else result
    result = result[[*by, *(name for name in _COLUMNS if name in result)]]
    baseline_names = [name for name in BASELINES if name in table]
    baselines = table.groupby(list(by), sort=False)[baseline_names].mean().reset_index()
    return result.merge(baselines, on=list(by)) if baseline_names else result


def _against_twins(means: pd.DataFrame, twins: pd.DataFrame) -> dict[str, float]:
    """Numbers of the difference from means [groups, trained and random] and of the twins [groups, seeds]."""
    twins = heard_by_all(twins)
    low, high = new_twin_interval(twins.mean())
    row: dict[str, float] = {"twins": twins.shape[1], "twin_low": low, "twin_high": high}
    if not {"trained", "random"} <= set(heard_by_all(means)):
        return row
    numbers = over_groups(means["trained"] - means["random"])
    shared = twins.index.intersection(means["trained"].dropna().index)
    of_twins = twins.loc[shared].mean()
    p_twins = new_twin_p(means["trained"].loc[shared].mean(), of_twins)
    low, high = crossed_interval(
        numbers["difference"], numbers["clips_low"], numbers["clips_high"], new_twin_reach(of_twins)
    )
    p = float(np.maximum(numbers["p_clips"], p_twins))  # NaN if one of them is
    return {**row, **numbers, "p_twins": p_twins, "p": p, "low": low, "high": high}


def heard_by_all(means: pd.DataFrame) -> pd.DataFrame:
    """Rows (groups of clips) that each model (column) has a number for: only their means can be compared."""
    heard = means.dropna(axis="columns", how="all")
    return heard[heard.notna().all(axis="columns")]


def by_layer(table: pd.DataFrame, *, by: Sequence[str], group: str = "clip") -> pd.DataFrame:
    """`trained_against_random` in every layer, with q and claim: corrected over all layers of all rows of `by`."""
    return with_claims(trained_against_random(table, by=[*by, "layer"], group=group))[0]


def with_claims(*tables: pd.DataFrame) -> list[pd.DataFrame]:
    """Add q, p corrected over the rows of all these tables, and claim: "more", "less", or "" where nothing is claimed.

    A table without p (no trained model, or no twin) stays as it is.

    Examples
    --------
    >>> table = pd.DataFrame({"p": [0.001, 0.03, 0.2], "low": [2.0, -8.0, -1.0], "high": [9.0, -1.0, 4.0]})
    >>> (table,) = with_claims(table)
    >>> table.q.round(3).tolist(), table.claim.tolist()
    ([0.003, 0.045, 0.2], ['more', 'less', ''])
    """
    tested = [table for table in tables if "p" in table]
    q = corrected(np.concatenate([table.p for table in tested])) if tested else np.array([])
    ends = np.cumsum([len(table) for table in tested])
    parts = iter(np.split(q, ends[:-1])) if tested else iter(())
    return [_claimed(table, next(parts)) if "p" in table else table for table in tables]


def _claimed(table: pd.DataFrame, q: np.ndarray) -> pd.DataFrame:
    sides = [(q < SURE) & (table.low > 0), (q < SURE) & (table.high < 0)]
    return table.assign(q=q, claim=np.select(sides, ["more", "less"], default=""))


def _group_means(table: pd.DataFrame, keys: list[str]) -> pd.Series:
    """Mean of each group: seeds of a clip first, then clips."""
    if "clip" in table and "clip" not in keys:
        table = table.groupby([*keys, "clip"], sort=False).contribution.mean().reset_index()
    return table.groupby(keys, sort=False).contribution.mean()


def _means_by_twin(table: pd.DataFrame, by: list[str], group: str) -> dict[tuple, pd.DataFrame]:
    """Means of each random twin, [groups, seeds], by key; twins without a seed are one."""
    random = table[table["init"] == "random"]
    random = random.assign(seed=random["seed"].fillna(-1).astype(int) if "seed" in random else -1)
    means = _group_means(random, [*by, "seed", group]).unstack("seed")
    parts = means.groupby(level=list(range(len(by))), sort=False)
    return {key if isinstance(key, tuple) else (key,): part.droplevel(list(range(len(by)))) for key, part in parts}


def _clip_counts(table: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """How many clips have a number, by key."""
    names = table["clip"].where(table.contribution.notna())
    return names.groupby([table[name] for name in by], sort=False).nunique().rename("clips").reset_index()


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
    # By clip first: twins may have heard other numbers of clips.
    keys = ["layer", "init", *({"clip"} & set(table))]
    means = table.groupby(keys).contribution.mean().groupby(level=["layer", "init"]).mean().unstack("init")
    return means["trained"] - means["random"] if len(means.columns) == 2 else means.iloc[:, 0]
