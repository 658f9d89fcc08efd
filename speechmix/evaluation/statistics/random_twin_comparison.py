"""Compare a trained model with its randomly initialised twins: one interval, and one rule.

In: a long table of values by clip, with the group of each clip. Out: one row for each cell (a layer,
or a whole stack, of one measure), with the interval of the difference *to one more untrained model*
(`intervals.one_more_twin_intervals`).

- Only clips that the trained model and all twins have scored count.
- Clips are averaged within groups first: those of one pair, sentence, word or speaker are not
  independent.
- Primary cells are whole stacks by the leading measure (Value Zeroing). They are fixed before
  anything is scored, and their intervals hold together, over all m of them.
- A claim ("more", "less") is made of a primary cell if and only if its interval excludes zero, there
  are at least `FEWEST_CLAIM_GROUPS` groups and `FEWEST_TWINS` twins, and the block moves the target's
  state by `STRENGTH_FLOOR`.
- All other cells are described, and never claimed: the intervals of the layers of one curve hold
  together (a simultaneous band), and so do those of all whole stacks by one other measure.

A whole stack has the mean over its layers, weighted by mixing strength; idle layers change nothing.

Power of a comparison with untrained twins: which difference a study can find, and how many groups
of clips it needs.

In: the standard deviation over groups of clips and the one of the twins, from a pilot run. Out: a
difference, or a number of groups. The interval of `intervals.one_more_twin_intervals` reaches, without
its correction for skewness,

    reach = sqrt( (t[G - 1] sd)^2 / G + (t[T - 1] s)^2 (1 + 1/T) )

and the estimate has the standard error e = sqrt( sd^2 / G + s^2 / T ). Both standard deviations are
estimates, with df degrees of freedom together (Welch & Satterthwaite). So a true difference d is found
with the probability that Student's noncentral t (df; d / e) exceeds reach / e.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ...mixing.maps.measure_registry import leading_measure
from ...mixing.maps.numerics import STRENGTH_FLOOR
from .claim_rule import DEFAULT_TWINS, FEWEST_CLAIM_GROUPS, FEWEST_TWINS
from .grouped_means import KeyGroups, grouped_means, iterate_matrices, select_cells
from .intervals import LEVEL, one_more_twin_intervals, twin_bands

WHOLE_STACK = -1  # in the column layer
BASELINES = ("share_of_length", "length_matched")
STRENGTH = "mixing_strength"
_TRAINED_DRAW = -1  # number of the trained model among the draws


@dataclass(frozen=True)
class _Cell:
    """One cell: means of the trained model and of its twins, and their difference by group."""

    key: tuple[Hashable, ...]
    trained: float
    twin_means: np.ndarray  # [T]
    differences: np.ndarray  # trained minus the mean of the twins, by group; empty without both
    clip_count: int
    group_count: int


def compare_with_twins(
    table: pd.DataFrame,
    *,
    by: Sequence[str],
    group: str = "clip",
    primary: Mapping[str, object] | None = None,
) -> pd.DataFrame:
    """Compare trained models with their untrained twins, and say what may be claimed.

    The table has the columns init ("trained", "random"), clip, contribution, those of `by`, and
    `group`; seed where there are several twins; mixing_strength, share_of_length, length_matched
    where they are known. `by` names what makes a cell, e.g. ("model", "stack", "measure", "layer");
    `group` is the column of clips that are drawn as one: "clip", "pair", "group". `primary` says
    which cells may be claimed: those with its value in each column. By default these are whole
    stacks (`WHOLE_STACK` in the column layer) of the leading measure, as far as there are such
    columns.

    The result has the columns of `by`; trained, random (mean of the twins); twins (their count),
    twin_sd (standard deviation of their means), twin_low, twin_high (where a further twin is
    expected); difference (paired within groups), group_sd (standard deviation of it over groups),
    low, high (to one more untrained model, 95 % together over the number in `rows`); rows;
    mixing_strength; claim ("more", "less", ""); groups, clips; the means of the baselines. What
    cannot be stated is NaN.
    """
    by = list(by)
    cells = list(_build_cells(table, by, group))
    result = pd.DataFrame(
        [dict(zip(by, cell.key, strict=True)) for cell in cells], columns=[*by, *_COLUMNS]
    )
    is_primary = _select_primary(result, primary)
    families = _number_families(result, by, is_primary)
    for family in np.unique(families):
        indices = np.flatnonzero(families == family)
        rows = _compare_cells([cells[index] for index in indices])
        result.loc[indices, list(rows)] = pd.DataFrame(rows, index=indices)
    result = result.astype(dict.fromkeys(("twins", "rows", "groups", "clips"), int))
    names = [name for name in (STRENGTH, *BASELINES) if name in table]
    for name in names:
        means = _mean_strength(table, by) if name == STRENGTH else grouped_means(table, by, name)
        result = result.drop(columns=name, errors="ignore").merge(
            _decode_categories(means), on=by, how="left"
        )
    return result.assign(claim=_claim(result, is_primary))


_COLUMNS = (
    "trained random twins twin_sd twin_low twin_high difference group_sd low high rows claim groups "
    "clips"
).split()


def _select_primary(cells: pd.DataFrame, primary: Mapping[str, object] | None) -> np.ndarray:
    """Say which cells may be claimed [E]."""
    if primary is None:
        primary = {"layer": WHOLE_STACK}
        if "measure" in cells and len(cells):
            primary |= {"measure": leading_measure(pd.unique(cells["measure"].astype(object)))}
    is_primary = np.ones(len(cells), dtype=bool)
    for name, value in primary.items():
        if name in cells:
            is_primary &= (cells[name] == value).to_numpy()
    return is_primary


def _number_families(cells: pd.DataFrame, by: list[str], is_primary: np.ndarray) -> np.ndarray:
    """Number the cells whose intervals hold together [E]: all primary ones; the layers of a curve; the
    others of a measure."""
    is_layer = (
        (cells["layer"] != WHOLE_STACK).to_numpy()
        if "layer" in cells
        else np.zeros(len(cells), dtype=bool)
    )
    curve = cells.groupby([name for name in by if name != "layer"] or by, sort=False).ngroup()
    measure = cells.groupby("measure").ngroup() if "measure" in cells else 0 * curve
    family = np.where(is_layer, curve + len(cells), measure)
    numbers: np.ndarray = np.where(is_primary, -1, family)
    return numbers


def _compare_cells(cells: Sequence[_Cell]) -> dict[str, np.ndarray]:
    """Compute the columns of cells whose intervals hold together."""
    differences = pad_rows([cell.differences for cell in cells])
    twin_means = pad_rows([cell.twin_means for cell in cells])
    low, high = one_more_twin_intervals(differences, twin_means, rows=len(cells))
    twin_low, twin_high = twin_bands(twin_means, rows=len(cells))

    def row_means(rows: list[np.ndarray]) -> np.ndarray:
        return np.array([row.mean() if len(row) else np.nan for row in rows])

    def row_deviations(rows: list[np.ndarray]) -> np.ndarray:
        return np.array([row.std(ddof=1) if len(row) > 1 else np.nan for row in rows])

    return {
        "trained": np.array([cell.trained for cell in cells]),
        "random": row_means([cell.twin_means for cell in cells]),
        "twins": np.array([len(cell.twin_means) for cell in cells]),
        "twin_sd": row_deviations([cell.twin_means for cell in cells]),
        "twin_low": twin_low,
        "twin_high": twin_high,
        "difference": row_means([cell.differences for cell in cells]),
        "group_sd": row_deviations([cell.differences for cell in cells]),
        "low": low,
        "high": high,
        "rows": np.full(len(cells), len(cells)),
        "groups": np.array([cell.group_count for cell in cells]),
        "clips": np.array([cell.clip_count for cell in cells]),
    }


def pad_rows(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Stack rows of different lengths, filled up with NaN.

    Examples
    --------
    >>> pad_rows([np.array([1.0, 2.0]), np.array([3.0])])
    array([[ 1.,  2.],
           [ 3., nan]])
    """
    longest = max((len(row) for row in rows), default=0)
    stacked = np.full((len(rows), max(longest, 1)), np.nan)
    for index, row in enumerate(rows):
        stacked[index, : len(row)] = row
    return stacked


def _claim(result: pd.DataFrame, is_primary: np.ndarray) -> np.ndarray:
    """Apply the rule: "more", "less" or "" of each cell."""
    may_claim = (
        is_primary
        & (result["groups"] >= FEWEST_CLAIM_GROUPS).to_numpy()
        & (result["twins"] >= FEWEST_TWINS).to_numpy()
    )
    if STRENGTH in result:
        may_claim &= ~(result[STRENGTH] < STRENGTH_FLOOR).to_numpy()
    is_more, is_less = (result["low"] > 0).to_numpy(), (result["high"] < 0).to_numpy()
    claims: np.ndarray = np.select([may_claim & is_more, may_claim & is_less], ["more", "less"], "")
    return claims.astype(object)


def _build_cells(table: pd.DataFrame, by: list[str], group: str) -> list[_Cell]:
    columns = [
        name
        for name in dict.fromkeys([*by, "init", "seed", "clip", group, "contribution"])
        if name in table
    ]
    rows = select_cells(
        table, columns, table["init"].isin(["trained", "random"]) & table["contribution"].notna()
    )
    if "clip" not in rows:
        rows["clip"] = rows[group]
    seed = rows["seed"].astype("Int64").fillna(0).astype(int) if "seed" in rows else 0
    rows["draw"] = np.where(rows["init"] == "trained", _TRAINED_DRAW, seed)
    clip_rows = rows.drop_duplicates("clip")
    group_numbers, _ = pd.factorize(clip_rows[group].astype(object), sort=True)
    group_by_clip = pd.Series(group_numbers, index=clip_rows["clip"].astype(object))
    means = grouped_means(rows, [*by, "draw", "clip"], "contribution")
    return [
        _build_cell(key, matrix, group_by_clip)
        for key, matrix in iterate_matrices(
            means, by, rows="clip", columns="draw", value="contribution"
        )
    ]


def _build_cell(
    key: tuple[Hashable, ...], by_clip: pd.DataFrame, group_by_clip: pd.Series
) -> _Cell:
    """Build a cell from values [clips, draws], NaN if a model has not scored a clip."""
    values = by_clip.to_numpy()
    is_scored = ~np.isnan(values)
    has_scores = is_scored.any(axis=0)
    is_shared = is_scored[:, has_scores].all(axis=1)
    group_numbers = group_by_clip.reindex(by_clip.index).to_numpy()
    clip_count = int(is_shared.sum())
    is_shared &= group_numbers >= 0
    order = np.flatnonzero(is_shared)[np.argsort(group_numbers[is_shared], kind="stable")]
    starts = np.flatnonzero(np.diff(group_numbers[order], prepend=-1))
    sizes = np.diff(starts, append=len(order))
    sums = (
        np.add.reduceat(values[order][:, has_scores], starts)
        if len(order)
        else values[:0, has_scores]
    )
    by_group = sums / sizes[:, None]  # [groups, draws]
    means = by_group.mean(axis=0) if len(by_group) else np.full(by_group.shape[1], np.nan)
    is_trained = by_clip.columns[has_scores] == _TRAINED_DRAW
    trained, twins = by_group[:, is_trained], by_group[:, ~is_trained]
    has_both = trained.size and twins.size
    return _Cell(
        key,
        float(means[is_trained][0]) if is_trained.any() else np.nan,
        means[~is_trained],
        trained[:, 0] - twins.mean(axis=1) if has_both else np.array([]),
        clip_count,
        len(by_group),
    )


def _mean_strength(table: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Average the mixing strength of the trained model in each cell; without one, of the twins."""
    strengths = grouped_means(table, [*by, "init"], STRENGTH)
    is_trained = strengths["init"] == "trained"
    return (
        strengths.sort_values("init", key=lambda init: init != "trained", kind="stable")
        .drop_duplicates(by)
        .drop(columns="init")
        if is_trained.any()
        else strengths.drop(columns="init")
    )


def whole_stack(table: pd.DataFrame) -> pd.DataFrame:
    """Average each clip's values over the layers of a stack, weighted by mixing strength.

    The table has the columns layer and contribution, and mixing_strength where it is known; every
    other column but depth tells rows apart. The result has the same columns, with `WHOLE_STACK` for
    layer; mixing strengths are weighted means, too. Layers below the floor, and layers without a
    value (NaN), do not count. Without strengths, and for a clip whose layers all lie below the
    floor, layers count alike.
    """
    values = [name for name in ("contribution", STRENGTH, *BASELINES) if name in table]
    keys = [str(name) for name in table if name not in (*values, "layer", "depth")]
    columns: dict[str, object] = {name: table[name].array for name in keys}
    if "seed" in columns:
        columns["seed"] = table["seed"].astype("Int64").fillna(_TRAINED_DRAW).array
    rows = pd.DataFrame(columns, index=table.index, copy=False)
    groups = KeyGroups.by_keys(rows, keys)
    strengths = table[STRENGTH] if STRENGTH in table else pd.Series(1.0, index=table.index)
    strength = strengths.to_numpy(dtype=float, na_value=np.nan)
    strength = np.where(strength >= STRENGTH_FLOOR, strength, 0.0)
    mean_strength = groups.average(strength)
    result = pd.DataFrame(groups.first_values(rows, keys), copy=False)
    for name in values:
        column = table[name].to_numpy(dtype=float, na_value=np.nan)
        is_known = np.isfinite(column)
        weights = strength if is_known.all() else np.where(is_known, strength, np.nan)
        mean_weight = mean_strength if weights is strength else groups.average(weights)
        weighted, unweighted = groups.average(weights * column), groups.average(column)
        result[name] = np.divide(weighted, mean_weight, out=unweighted, where=mean_weight > 0)
    if "seed" in result:
        result["seed"] = result["seed"].mask(result["seed"] == _TRAINED_DRAW)
    return result.assign(layer=WHOLE_STACK)


def _decode_categories(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with texts in place of categories."""
    return table.astype(
        {name: object for name in table if isinstance(table[name].dtype, pd.CategoricalDtype)}
    )


POWER = 0.8
_MOST_GROUPS = 100_000


def detectable_difference(
    group_sd: float,
    twin_sd: float,
    *,
    groups: int,
    twins: int = DEFAULT_TWINS,
    rows: int = 1,
    power: float = POWER,
) -> float:
    """Return the true difference that a study finds with probability `power`.

    It is in the unit of `group_sd` (standard deviation of the difference over groups of clips) and
    `twin_sd` (that of the means of the twins); NaN with fewer than two groups or twins. `rows`
    counts intervals that hold together.
    """
    from scipy.optimize import brentq
    from scipy.special import stdtrit
    from scipy.stats import nct

    if groups < 2 or twins < 2:
        return math.nan
    tail = 1 - (1 - LEVEL) / rows / 2
    clips, twin_error = group_sd / math.sqrt(groups), twin_sd / math.sqrt(twins)
    error = math.hypot(clips, twin_error)
    if not error > 0:
        return math.nan
    reach = math.hypot(
        stdtrit(groups - 1, tail) * clips,
        stdtrit(twins - 1, tail) * twin_sd * math.sqrt(1 + 1 / twins),
    )
    freedom = error**4 / (clips**4 / (groups - 1) + twin_error**4 / (twins - 1))
    size = brentq(
        lambda size: nct.sf(reach / error, freedom, size) - power, 0, 3 * reach / error + 20
    )
    return float(size * error)


def groups_for_difference(
    difference: float,
    group_sd: float,
    twin_sd: float,
    *,
    twins: int = DEFAULT_TWINS,
    rows: int = 1,
    power: float = POWER,
) -> int | None:
    """Return how many groups of clips find a difference, at least those that any conclusion needs.

    The parameters are those of `detectable_difference`. None if no number of groups is enough:
    untrained models differ too much, or there are too few.
    """

    def is_enough(groups: int) -> bool:
        smallest_difference = detectable_difference(
            group_sd, twin_sd, groups=groups, twins=twins, rows=rows, power=power
        )
        return smallest_difference <= abs(difference)

    if twins < FEWEST_TWINS or not is_enough(_MOST_GROUPS):
        return None
    low, high = FEWEST_CLAIM_GROUPS - 1, FEWEST_CLAIM_GROUPS
    while not is_enough(high):
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high
