"""When contribution and need begin to rise in a training, and which is first.

In: values by checkpoint and group (`measure_trajectory`), claims (`trajectory_claims`). Out: the step of
each claimed onset with a bootstrap interval over groups of clips, and the lag between the onsets of
contribution and need, also over several trainings. The true onset lies between the checkpoint that is
named and the one before.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from ...evaluation.statistics.intervals import LEVEL
from ...evaluation.statistics.random_twin_comparison import WHOLE_STACK
from .onsets import draw_onsets, limit_draws, locate_onsets
from .trajectories import CELL, CONTRIBUTION, NEED, reference_differences

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
