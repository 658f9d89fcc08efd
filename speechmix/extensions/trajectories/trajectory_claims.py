"""Which contributions and needs rise for good in a training.

In: values by checkpoint and group (`measure_trajectory`). Out: a claim for each cell, or the reason why
there is none. A claim is one of `statistics.onsets`, of the difference from the training's own step 0;
without step 0, of the difference to one more untrained model (as in `random_twin_comparison`).

- Needs, and contributions by the leading measure, may be claimed; other measures are described.
- Claims are corrected for all whole stacks of all trainings. Layers are tested only in a stack that
  rises, and corrected for all layers (hierarchical testing; Meinshausen 2008, Biometrika 95).
- The value must also be above every twin, a need above that of the other word, and the layer of a
  contribution must move the target's state.
- A contribution is claimed only if some need is: else it changes for another reason.

Onset of a rise over training: whether a value rises for good, and at which checkpoint.

In: one number for each cell (a layer, or a whole stack), checkpoint and group of clips, minus that of
an untrained model. Out: the onset of each cell, and whether it may be claimed.

- *Where.* The onset is the first checkpoint from which on the mean stays above `ONSET_SHARE` of its
  final level, the mean of the last `LASTING` checkpoints: a relative criterion, as for onset latencies
  (Kiesel, Miller, Jolicoeur & Brisson 2008, Psychophysiology 45). It does not depend on the unit, so
  onsets of different quantities can be compared.
- *Whether.* Two things could pass for a rise, and a claim excludes both, at the level .05 / number of
  cells (Bonferroni):

  1. The clips. At the onset and all later checkpoints, `LASTING` at least, the interval of the mean
     over groups lies above zero: that of `mean_intervals`, or without a checkpoint of step 0 that to
     one more untrained model.
  2. The training. Weights wander, and all clips with them. The lowest value from the onset on is
     divided by the largest fall from any checkpoint to a later one. p is the share of random walks
     with as large a ratio (Monte Carlo test; Dwass 1957): their increments have Student's t
     distribution with 3 degrees of freedom, for single large steps, times the root of the training
     steps between two checkpoints.

A walk of T checkpoints never falls with a probability of 2^-(T - 1). So of few checkpoints nothing can
be claimed (`fewest_checkpoints`).

When contribution and need begin to rise in a training, and which is first.

In: values by checkpoint and group (`measure_trajectory`), claims (`trajectory_claims`). Out: the step of
each claimed onset with a bootstrap interval over groups of clips, and the lag between the onsets of
contribution and need, also over several trainings. The true onset lies between the checkpoint that is
named and the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import pandas as pd

from ...evaluation.statistics.claim_rule import FEWEST_CLAIM_GROUPS, FEWEST_TWINS
from ...evaluation.statistics.intervals import (
    LEVEL,
    mean_intervals,
    one_more_twin_intervals,
    percentile_levels,
    resample_groups,
)
from ...evaluation.statistics.random_twin_comparison import WHOLE_STACK
from ...mixing.maps.measure_registry import leading_measure
from ...mixing.maps.numerics import STRENGTH_FLOOR
from .trajectories import (
    CELL,
    CONTRIBUTION,
    NEED,
    OTHER,
    Cell,
    average_groups,
    reference_differences,
    step_values,
    twin_values,
)

ONSET_SHARE = 0.25  # of the final level
LASTING = 3  # checkpoints that a rise must last
_WALKS, _WALK_BATCH = 100_000, 10_000
_WALK_DF = 3  # degrees of freedom of a walk's increments


def fewest_checkpoints(cells: int) -> int:
    """Return the number of checkpoints, step 0 included, below which no rise can be claimed.

    Examples
    --------
    >>> [fewest_checkpoints(cells) for cells in (1, 9, 54)]
    [6, 9, 12]
    """
    return int(np.ceil(np.log2(cells / (1 - LEVEL)))) + 1


def locate_onsets(curves: np.ndarray) -> np.ndarray:
    """Return the checkpoint from which on each curve stays above a share of its final level.

    Parameters
    ----------
    curves : ndarray [..., T]
        Differences from an untrained model, in the order of the steps.

    Returns
    -------
    ndarray [...]
        Index from 0; T where the curve ends below that share, or its final level is not above zero.

    Examples
    --------
    >>> locate_onsets(np.array([[0, 3, 0, 4, 8, 10, 10.0], [0, 0, 0, 0, 0, -1, 0]]))
    array([3, 7])
    """
    count = curves.shape[-1]
    final = curves[..., -LASTING:].mean(axis=-1, keepdims=True)
    is_below = (curves <= ONSET_SHARE * final) | (final <= 0)
    onsets: np.ndarray = (is_below * np.arange(1, count + 1)).max(axis=-1)
    return onsets


def claim_onsets(
    differences: np.ndarray,
    is_possible: np.ndarray | None = None,
    *,
    steps: Sequence[float] | None = None,
    twin_means: np.ndarray | None = None,
    cells: int | np.ndarray | None = None,
) -> np.ndarray:
    """Decide for which cells an onset may be claimed.

    Parameters
    ----------
    differences : ndarray [C, T, G]
        Cells, checkpoints, groups of clips; a group with a NaN is left out of the cell. Minus the
        first checkpoint, which is untrained; or with `twin_means` minus the mean of the twins.
    is_possible : ndarray [C, T], optional
        Where a value may count as a rise at all, as above every untrained twin.
    steps : sequence of float [T], optional
        Of the training; by default checkpoints are at equal distances.
    twin_means : ndarray [C, twins], optional
        The mean of each twin, where no checkpoint is untrained.
    cells : int or ndarray [C], optional
        With how many cells each is corrected; by default C.

    Returns
    -------
    ndarray [C] of bool
        Where no cell rises, any is True with a probability of at most about .05.

    Examples
    --------
    >>> noise = np.random.default_rng(0).normal(0, 1, (1, 12, 15))
    >>> rise = np.where(np.arange(12) < 4, 0.0, 5.0)[:, None]
    >>> claim_onsets(noise), claim_onsets(noise + rise)
    (array([False]), array([ True]))
    """
    count, checkpoints, groups = differences.shape
    cells = np.broadcast_to(count if cells is None else cells, count)
    rows = np.repeat(cells, checkpoints)
    steps = range(1, checkpoints + 1) if steps is None else steps
    # The same groups at all checkpoints.
    is_whole = np.isfinite(differences).all(axis=1, keepdims=True)
    group_count = is_whole.sum(axis=-1)
    curves = np.where(is_whole, differences, 0).sum(axis=-1) / group_count.clip(1)
    values = np.where(is_whole, differences, np.nan).reshape(-1, groups)
    if twin_means is None:
        low = mean_intervals(values, level=1 - (1 - LEVEL) / rows)[0]
        p = _walk_p(curves, steps)
    else:
        means_of_rows = np.repeat(twin_means, checkpoints, axis=0)
        low = one_more_twin_intervals(values, means_of_rows, rows=rows)[0]
        p = _walk_p(np.pad(curves, ((0, 0), (1, 0))), [0, *steps])  # from the untrained model on
    is_above = low.reshape(count, checkpoints) > 0
    if is_possible is not None:
        is_above &= is_possible
    is_before = np.arange(checkpoints) < locate_onsets(curves)[:, None]
    claim = (is_above | is_before).all(axis=1) & (p <= (1 - LEVEL) / cells)
    claim &= group_count[:, 0] >= FEWEST_CLAIM_GROUPS
    return claim


def _walk_p(curves: np.ndarray, steps: Sequence[float]) -> np.ndarray:
    """Return how probable a rise like that of each curve [C, T] is in a random walk [C]."""
    walks = _walk_ratios(tuple(map(float, np.diff(steps))))
    reached = len(walks) - np.searchsorted(walks, _rise_ratios(curves))
    p: np.ndarray = (1 + reached) / (len(walks) + 1)
    return p


@lru_cache(maxsize=8)
def _walk_ratios(distances: tuple[float, ...]) -> np.ndarray:
    """Return the sorted ratios of random walks over checkpoints at such distances."""
    random = np.random.default_rng(0)
    ratios = []
    for _ in range(_WALKS // _WALK_BATCH):
        increments = random.standard_t(_WALK_DF, (_WALK_BATCH, len(distances)))
        walks = (increments * np.sqrt(distances)).cumsum(axis=1)
        ratios.append(_rise_ratios(np.pad(walks, ((0, 0), (1, 0)))))
    return np.sort(np.concatenate(ratios))


def _rise_ratios(curves: np.ndarray) -> np.ndarray:
    """Return the lowest value from the onset on, divided by the largest fall [..., T] -> [...].

    0 of a rise that is shorter than `LASTING`, or reached in size by a value before the onset.
    """
    checkpoints = curves.shape[-1]
    onsets = locate_onsets(curves)
    is_after = np.arange(checkpoints) >= onsets[..., None]
    lowest = np.where(is_after, curves, np.inf).min(axis=-1)
    before = np.where(is_after, 0, np.abs(curves)).max(axis=-1)
    falls = (np.maximum.accumulate(curves, axis=-1) - curves).max(axis=-1)
    is_rise = (checkpoints - onsets >= LASTING) & (lowest > before)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios: np.ndarray = np.where(is_rise, lowest / falls, 0.0)
    return ratios


def draw_onsets(differences: np.ndarray, *, seed: int = 0) -> np.ndarray:
    """Locate onsets in bootstrap samples of the groups.

    Parameters
    ----------
    differences : ndarray [C, T, G]
        Without NaN; the same groups are drawn for all cells.
    seed : int

    Returns
    -------
    ndarray [C, resamples]
        As of `locate_onsets`.
    """
    draws = resample_groups(differences.shape[-1], seed=seed)  # [resamples, G]
    means = differences @ draws.T / differences.shape[-1]  # [C, T, resamples]
    return locate_onsets(np.moveaxis(means, -1, 1))


def limit_draws(draws: np.ndarray, groups: int, *, level: float = LEVEL) -> tuple[float, float]:
    """Return the two percentiles that limit the interval of draws, widened for few groups.

    Examples
    --------
    >>> limit_draws(np.arange(101.0), 10)
    (1.0, 99.0)
    """
    low, high = np.quantile(draws, percentile_levels(groups, level), method="nearest")
    return float(low), float(high)


_NO_RISE = "no rise that holds from its onset to the last checkpoint"


def trajectory_claims(cells: pd.DataFrame) -> pd.DataFrame:
    """Say in which cells a contribution or a need rises for good.

    Parameters
    ----------
    cells : DataFrame
        Of `measure_trajectory`.

    Returns
    -------
    DataFrame
        A row for each training and cell: training, quantity, measure, stack, layer, claim, groups,
        reason (why nothing is claimed).
    """
    twins = cells[cells["step"].isna()]
    trainings = dict(list(cells[cells["step"].notna()].groupby("training", sort=False)))
    lead = leading_measure(cells.loc[cells["quantity"] == CONTRIBUTION, "measure"].unique())
    tables = [_list_cells(rows, lead) for rows in trainings.values()]
    if not tables:
        return pd.DataFrame(columns=["training", *CELL, "claim", "groups", "reason"])
    table = pd.concat(tables, ignore_index=True)
    tested = table.loc[table["is_tested"], "is_stack"]
    table["curves"] = np.where(table["is_stack"], tested.sum(), (~tested).sum())
    parts = [
        _claim_training(part, trainings[name], twins)
        for name, part in table.groupby("training", sort=False)
    ]
    return pd.concat(parts, ignore_index=True)


def _list_cells(rows: pd.DataFrame, lead: str) -> pd.DataFrame:
    """Return a row for each need and contribution of a training."""
    is_listed = rows["quantity"].isin([NEED, CONTRIBUTION])
    table = rows.loc[is_listed, ["training", *CELL]].drop_duplicates()
    is_need = table["quantity"] == NEED
    return table.assign(
        is_stack=table["layer"] == WHOLE_STACK,
        is_need=is_need,
        is_tested=is_need | (table["measure"] == lead),
    )


def _claim_training(table: pd.DataFrame, rows: pd.DataFrame, twins: pd.DataFrame) -> pd.DataFrame:
    """Decide the claims of one training; `table` has its cells, and how many `curves` are corrected
    together."""
    cells: list[Cell] = list(table[CELL].itertuples(index=False, name=None))
    steps, differences = reference_differences(rows, twins, cells)
    by_twin = twin_values(twins, cells, rows)  # [twins, C, G]
    twin_means = None if steps[0] == 0 else average_groups(by_twin).T  # [C, twins]
    groups = np.isfinite(differences).all(axis=1).sum(axis=-1)
    unmet = _list_unmet(table, rows, groups, twin_means)
    is_ready = ~np.any(list(unmet.values()), axis=0)
    rises = claim_onsets(
        differences,
        _is_possible(rows, cells, steps, by_twin) & is_ready[:, None],
        steps=steps,
        twin_means=twin_means,
        cells=table["curves"].to_numpy(),
    )
    is_need, is_stack = table["is_need"].to_numpy(), table["is_stack"].to_numpy()
    stacks = {cell[:-1] for cell, is_risen in zip(cells, rises & is_stack, strict=True) if is_risen}
    is_below = np.array([cell[:-1] not in stacks for cell in cells])
    unmet["it rises, and its whole stack does not"] = rises & is_below
    is_needed = (rises & is_need).any() or not is_need.any()
    unmet["it rises, and the spelling does not come to need the cue"] = (
        rises & ~is_below & ~is_need & (not is_needed)
    )
    claim = rises & ~np.any(list(unmet.values()), axis=0)
    reasons = [
        "" if claim[index] else "; ".join(text for text in unmet if unmet[text][index]) or _NO_RISE
        for index in range(len(cells))
    ]
    names = table[["training", *CELL]]
    return names.assign(claim=claim, groups=groups, reason=reasons)


def _list_unmet(
    table: pd.DataFrame, rows: pd.DataFrame, groups: np.ndarray, twin_means: np.ndarray | None
) -> dict[str, np.ndarray]:
    """Say which conditions of a claim are not met, and by which cells [C]."""
    curves = table["curves"].to_numpy()
    has_start, checkpoints = twin_means is None, rows["step"].nunique()
    is_bare = np.zeros(len(table), dtype=bool)
    if twin_means is not None:
        is_bare = np.isfinite(twin_means).sum(axis=1) < FEWEST_TWINS
    unmet = {
        "claims are made of the leading measure alone": ~table["is_tested"].to_numpy(),
        f"it needs a checkpoint of step 0 or {FEWEST_TWINS} untrained twins": is_bare,
    }
    for count in np.unique(groups[groups < FEWEST_CLAIM_GROUPS]):
        text = f"it needs {FEWEST_CLAIM_GROUPS} groups of clips, found {count}"
        unmet[text] = (groups == count) & ~is_bare
    for count in np.unique(curves):
        fewest = fewest_checkpoints(count) - (not has_start)  # twins are one checkpoint more
        text = f"of {count} curves it takes {fewest} checkpoints, found {checkpoints}"
        unmet[text] = (curves == count) & (checkpoints < fewest)
    strengths = _last_strengths(rows, table)
    unmet[f"the block moves the target's state by less than {STRENGTH_FLOOR:.0%}"] = (
        strengths < STRENGTH_FLOOR
    )
    return unmet


def _last_strengths(rows: pd.DataFrame, table: pd.DataFrame) -> np.ndarray:
    """Return the mixing strength of each cell at the last checkpoint [C]; NaN where there is none."""
    last = rows[rows["step"] == rows["step"].max()]
    means = last.groupby(CELL)["strength"].mean()
    strengths: np.ndarray = means.reindex(pd.MultiIndex.from_frame(table[CELL])).to_numpy(float)
    return strengths


def _is_possible(
    rows: pd.DataFrame, cells: Sequence[Cell], steps: Sequence[int], by_twin: np.ndarray
) -> np.ndarray:
    """Say where the mean is above every twin, and a need above that of another word [C, T].

    What was not measured (NaN) excludes nothing: twins have needs of whole stacks alone.
    """
    means = average_groups(step_values(rows, cells, steps))
    highest = average_groups(by_twin).max(axis=0, initial=-np.inf)
    others = [(OTHER, *cell[1:-1], WHOLE_STACK) if cell[0] == NEED else cell for cell in cells]
    other = average_groups(step_values(rows, others, steps))
    is_need = np.array([cell[0] == NEED for cell in cells])[:, None]
    possible: np.ndarray = ~(means <= highest[:, None]) & ~(is_need & (means <= other))
    return possible


ALL_TRAININGS = "all trainings"
FEWEST_TRAININGS = 3  # for an interval over trainings


def date_onsets(cells: pd.DataFrame, claims: pd.DataFrame) -> pd.DataFrame:
    """Add to each claimed onset its step, with an interval.

    Parameters
    ----------
    cells, claims : DataFrame
        Of `measure_trajectory` and `trajectory_claims`.

    Returns
    -------
    DataFrame
        The claims with onset and previous (steps of the checkpoint from which on the value is risen,
        and of the one before), low and high (95 % of the onset over groups of clips; infinite where
        it may be after the last checkpoint).
    """
    dated = claims.assign(previous=np.nan, onset=np.nan, low=np.nan, high=np.nan)
    for place in claims.index[claims["claim"].astype(bool)]:
        times, [onset], [draws], groups = _draw_times(cells, claims.loc[[place]])
        previous = times[max(np.searchsorted(times, onset) - 1, 0)]
        row = [previous, onset, *limit_draws(draws, groups)]
        dated.loc[place, ["previous", "onset", "low", "high"]] = row
    return dated


def trajectory_leads(cells: pd.DataFrame, onsets: pd.DataFrame) -> pd.DataFrame:
    """Compare the onsets of contribution and need in the stack that the spelling needs most.

    Parameters
    ----------
    cells, onsets : DataFrame
        Of `measure_trajectory`, and `trajectory_claims` or `date_onsets`.

    Returns
    -------
    DataFrame
        training, measure, stack, lag (steps from the onset of the contribution to that of the need)
        with low, high (95 %, over groups of clips), first ("contribution", "need", or "" where the
        interval contains zero). Of three trainings or more a further row, ``all trainings``, has
        Student's interval over them.
    """
    trained = cells[cells["step"].notna()]
    last = trained[trained["step"] == trained.groupby("training")["step"].transform("max")]
    final = last.groupby(["training", *CELL])["value"].mean().rename("final")
    claimed = onsets[onsets["claim"] & (onsets["layer"] == WHOLE_STACK)].join(
        final, on=["training", *CELL]
    )
    rows = []
    for _, training_cells in claimed.groupby("training", sort=False):
        need = training_cells[training_cells["quantity"] == NEED].nlargest(1, "final")
        shares = training_cells[
            (training_cells["quantity"] == CONTRIBUTION)
            & training_cells["stack"].isin(need["stack"])
        ]
        for share in shares.index:
            pair = pd.concat([shares.loc[[share]], need])
            _, (early, late), draws, groups = _draw_times(cells, pair)
            with np.errstate(invalid="ignore"):  # neither rises in the sample: no lag
                limits = limit_draws(np.nan_to_num(draws[1] - draws[0], nan=0.0), groups)
            names = shares.loc[share, ["training", "measure", "stack"]].to_dict()
            rows.append({**names, "lag": late - early, "low": limits[0], "high": limits[1]})
    leads = pd.DataFrame(rows, columns=["training", "measure", "stack", "lag", "low", "high"])
    leads = pd.concat([leads, *_join_trainings(leads)], ignore_index=True)
    is_first = [leads["low"] > 0, leads["high"] < 0]
    return leads.assign(first=np.select(is_first, [CONTRIBUTION, NEED], default=""))


def _draw_times(
    cells: pd.DataFrame, rows: pd.DataFrame
) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    """Return the steps of a training, the onset of some of its cells [C], that of bootstrap samples [C, B]
    (infinite where the value does not rise), and the number of groups, which lack no value."""
    training_cells = cells[(cells["training"] == rows["training"].iloc[0]) & cells["step"].notna()]
    named = [tuple(row) for row in rows[CELL].to_numpy()]
    steps, values = reference_differences(training_cells, cells[cells["step"].isna()], named)
    values = values[..., np.isfinite(values).all(axis=(0, 1))]
    times = np.array([*steps, np.inf], dtype=float)
    onsets, draws = times[locate_onsets(values.mean(axis=-1))], times[draw_onsets(values)]
    return times, onsets, draws, values.shape[-1]


def _join_trainings(leads: pd.DataFrame) -> list[pd.DataFrame]:
    """Return a row for each measure and stack with the interval over trainings."""
    from scipy.stats import t as student

    joined = []
    for key, rows in leads.groupby(["measure", "stack"], sort=False):
        count = len(rows)
        if count < FEWEST_TRAININGS:
            continue
        mean, error = rows["lag"].mean(), rows["lag"].std(ddof=1) / np.sqrt(count)
        reach = student.ppf((1 + LEVEL) / 2, count - 1) * error
        names = dict(zip(("measure", "stack"), key, strict=True))
        cells = {"lag": mean, "low": mean - reach, "high": mean + reach}
        joined.append(pd.DataFrame([{"training": ALL_TRAININGS, **names, **cells}]))
    return joined
