"""Trained models against their random twins: differences with their uncertainty over clips *and* over twins.

Groups (`groups.py`) are what is drawn and tested as one: the members of a pair, or all recordings of a sentence or a word,
are not independent. Random twins are averaged over seeds for each clip first; as draws they are looked at in `twins.py`.

- A difference has an interval over groups (scipy's percentile bootstrap, 95 %, seeded), and one over groups and twins.
- Over more than `resampling.MANY_GROUPS` groups the same draws are made as a matrix for all rows at once (`resampling`).
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
from typing import Any, TypeAlias

import numpy as np
import pandas as pd

from .grouped_means import distinct, grouped_means, matrices, numbered, plain, taken
from .resampling import MANY_GROUPS, bootstrap_limits, sign_flip_p
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
_RESAMPLES, _BAND_RESAMPLES, _PERMUTATIONS, _BATCH = 2000, 500, 4999, 200


def interval_of_mean(values: Numbers, *, seed: int = 0, resamples: int = _RESAMPLES) -> tuple[float, float]:
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
    are_alike = bool((is_finite == is_finite[:1]).all())
    for pattern in is_finite[:1] if are_alike else np.unique(is_finite, axis=0):
        rows = np.flatnonzero((is_finite == pattern).all(axis=1))
        part = values if are_alike and pattern.all() else values[rows][:, pattern]
        if part.shape[1] < 2:
            continue
        constant = np.ptp(part, axis=1) == 0
        low[rows[constant]] = high[rows[constant]] = part[constant, 0]
        if not constant.all() and part.shape[1] > MANY_GROUPS:
            varied = part[~constant] if constant.any() else part
            limits = bootstrap_limits(varied.T, level=LEVEL, resamples=resamples, seed=seed)
            low[rows[~constant]], high[rows[~constant]] = limits
        elif not constant.all():
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
    if len(finite) > MANY_GROUPS:
        return float(sign_flip_p(finite[:, None], permutations=permutations, seed=seed)[0])
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
    return over_groups_together([differences])[0]


def over_groups_together(rows: Sequence[pd.Series]) -> list[dict[str, float]]:
    """`over_groups` of each of several rows; those over as many groups, if these are many, are drawn together."""
    finite = [differences[np.isfinite(differences)] for differences in rows]
    resampled: dict[int, tuple[float, float, float]] = {}  # low, high and p by row
    for count in {len(row) for row in finite if len(row) > MANY_GROUPS}:
        places = [place for place, row in enumerate(finite) if len(row) == count]
        values = np.stack([finite[place].to_numpy(dtype=float) for place in places])
        low, high = intervals_of_means(values, resamples=_RESAMPLES)
        p = sign_flip_p(values.T, permutations=_PERMUTATIONS)
        resampled |= dict(zip(places, zip(low.tolist(), high.tolist(), p.tolist(), strict=True), strict=True))
    numbers = []
    for place, row in enumerate(finite):
        low_end, high_end, p_clips = resampled.get(place) or (*interval_of_mean(row), permutation_p(row))
        numbers.append({
            "difference": row.mean(), "clips_low": low_end, "clips_high": high_end, "p_clips": p_clips,
            "effect": effect_size(row), "positive": (row > 0).mean() if len(row) else np.nan,
        })  # fmt: skip
    return numbers


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
    by, value = list(by), "contribution"
    means = _group_means(table, [*by, "init", group])
    parts = dict(matrices(means, by, rows=group, columns="init", value=value))
    asked = dict.fromkeys([*by, group, value, *(name for name in ("seed", "clip") if name in table)])
    random = taken(table, list(asked), table["init"] == "random")
    random["seed"] = random["seed"].fillna(-1).astype(int) if "seed" in random else -1
    of_twins = _group_means(random, [*by, "seed", group])
    by_twin = dict(matrices(of_twins, by, rows=group, columns="seed", value=value))
    heard = {key: heard_by_all(part) for key, part in parts.items()}
    compared = [key for key, part in heard.items() if {"trained", "random"} <= set(part)]
    differences = over_groups_together([parts[key]["trained"] - parts[key]["random"] for key in compared])
    numbers = dict(zip(compared, differences, strict=True))
    rows = []
    for key, part in parts.items():
        row: dict[str, Any] = dict(zip(by, key, strict=True))
        row |= {init: part[init].mean() if init in part else np.nan for init in ("trained", "random")}
        row |= _against_twins(part, by_twin.get(key, pd.DataFrame()), numbers.get(key))
        rows.append({**row, "groups": len(heard[key])})
    result = pd.DataFrame(rows)
    result = result.merge(_clip_counts(table, by), on=by) if "clip" in table else result
    result = result[[*by, *(name for name in _COLUMNS if name in result)]]
    baseline_names = [name for name in BASELINES if name in table]
    for name in baseline_names:
        result = result.merge(_plain(grouped_means(table, by, name)), on=by)
    return result


def _against_twins(means: pd.DataFrame, twins: pd.DataFrame, numbers: dict[str, float] | None) -> dict[str, float]:
    """The difference against the twins, from means [groups, trained and random] and of twins [groups, seeds], `over_groups`."""
    twins = heard_by_all(twins)
    low, high = new_twin_interval(twins.mean())
    row: dict[str, float] = {"twins": twins.shape[1], "twin_low": low, "twin_high": high}
    if numbers is None:
        return row
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


def _group_means(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Mean of each group: seeds of a clip first, then clips."""
    if "clip" in table and "clip" not in keys:
        table = grouped_means(table, [*keys, "clip"], "contribution")
    return grouped_means(table, keys, "contribution")


def _clip_counts(table: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """How many clips have a number, by key."""
    clips = distinct(taken(table, [*by, "clip"], table["contribution"].notna()), [*by, "clip"])
    counts = _plain(clips.groupby(by, sort=False, observed=True)["clip"].size().rename("clips").reset_index())
    keys = _plain(distinct(table, by))
    return keys.merge(counts, on=by, how="left").fillna({"clips": 0}).astype({"clips": int})


def _plain(table: pd.DataFrame) -> pd.DataFrame:
    """The table with texts where it has categories."""
    return table.astype({name: object for name in table if isinstance(table[name].dtype, pd.CategoricalDtype)})


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
    names, place = numbered(table[group])
    turn = np.argsort(np.argsort(plain(names)))[place] % 2 if len(names) else place
    half = np.where(place < 0, -1, turn).astype(np.int8)
    is_kept, layer = np.zeros(len(table), dtype=bool), table["layer"].to_numpy()
    asked = [name for name in ("layer", "init", "clip", "contribution") if name in table]
    for key in distinct(table, by).itertuples(index=False, name=None):
        is_here = np.logical_and.reduce([table[name].eq(cell) for name, cell in zip(by, key, strict=True)])
        for fold in (0, 1):
            here, there = is_here & (half == fold), is_here & (half != fold)
            # A single group has no other half.
            has_number = table["contribution"][there].notna().any()
            gains = _gain_by_layer(taken(table, asked, there if has_number else here))
            if here.any() and gains.notna().any():
                is_kept |= here & (layer == gains.idxmax())
    return taken(table, list(table), is_kept).sort_index()


def _gain_by_layer(table: pd.DataFrame) -> pd.Series:
    # By clip first: twins may have heard other numbers of clips.
    keys = ["layer", "init", *({"clip"} & set(table))]
    by_clip = grouped_means(table, keys, "contribution", sort=True)
    means = _plain(grouped_means(by_clip, ["layer", "init"], "contribution", sort=True))
    means = means.pivot(index="layer", columns="init", values="contribution")
    return means["trained"] - means["random"] if len(means.columns) == 2 else means.iloc[:, 0]
