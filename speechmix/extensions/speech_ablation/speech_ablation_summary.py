"""Summarize the ablation of speech over clips, against untrained models and controls.

In: the table of an ablation (`extensions.speech_ablation.speech_ablation`) of trained models and of their random
twins, with the groups that clips belong to. Out: for each model, template, number, and way to take
a word away the mean drop with its interval over groups, the range of its untrained twins, and the
test of the difference.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd

from ...evaluation.statistics.intervals import mean_intervals
from ...evaluation.statistics.random_twin_comparison import compare_with_twins
from ...interventions.decision import ARG_MAX, TRANSCRIPT
from ...interventions.value_knock_out import CONTROL, CUE
from .speech_ablation import LARGEST, MEAN

REMOVAL_KEYS = ("silenced", "condition", "fill", "reading", "aggregation")
PART_COLUMNS = ("template", "number")
ALL_PARTS = "all"
_RESULT_COLUMNS = (
    "trained trained_low trained_high random twins twin_low twin_high difference low high claim"
).split()
_CONTROL_COLUMNS = "other over_other over_other_low over_other_high".split()


def summarize_speech_ablation(
    table: pd.DataFrame,
    *,
    parts: Sequence[str] = PART_COLUMNS,
    aggregations: Sequence[str] = (MEAN, LARGEST, ""),
) -> pd.DataFrame:
    """Average drops over clips, for all of them and for each template and number.

    Parameters
    ----------
    table : DataFrame
        Columns of `ablate_speech`, and model, init, seed, clip, group, and those of `parts` that
        the clips have; side, of the target that the cue is on. Rows with "yes" in a column control
        are left out: there the cue decides nothing.
    parts : sequence of str
        What parts the clips; a column that has one value parts nothing.
    aggregations : sequence of str
        Of the table; "" are readings without sub-tokens.

    Returns
    -------
    DataFrame
        Columns side, model, those of `parts` ("all": of all clips), `REMOVAL_KEYS`, unit ("points" of
        probability, or "nats"); trained, with its 95 % interval over groups (trained_low,
        trained_high); random, twins, twin_low, twin_high: mean, number, and band of the untrained twins;
        difference, low, high, claim: trained - random, as in
        `random_twin_comparison.compare_with_twins`; the rows of the cue over all parts are primary;
        other: the trained
        model's mean drop without another word, and over_other, what is lost without the cue beyond
        that, within clips, with its interval over groups (rows of the cue alone); groups, clips.

    Examples
    --------
    >>> import itertools
    >>> way = {"silenced": "cue", "condition": "sound", "fill": "zeros", "reading": "arg-max", "aggregation": "mean"}
    >>> row = lambda clip, init: {"model": "m", "init": init, "clip": clip, "group": clip, "drop": 0.5, **way}
    >>> table = pd.DataFrame([row(*pair) for pair in itertools.product("abc", ("trained", "random"))])
    >>> summarize_speech_ablation(table)[["silenced", "unit", "trained", "random", "difference", "clips"]].values.tolist()
    [['cue', 'points', 50.0, 50.0, 0.0, 3]]
    """
    rows = table[table["control"] != "yes"] if "control" in table else table
    rows = rows[rows["aggregation"].isin(list(aggregations))]
    if rows.empty:
        return pd.DataFrame()
    is_probability = rows["reading"].isin([ARG_MAX, TRANSCRIPT])
    rows = rows.assign(
        unit=np.where(is_probability, "points", "nats"),
        contribution=rows["drop"].astype(float) * np.where(is_probability, 100, 1),
    )
    parts = [name for name in parts if name in rows and rows[name].nunique() > 1]
    merged_columns = [
        names
        for count in range(len(parts), -1, -1)
        for names in itertools.combinations(parts, count)
    ]
    all_rows = pd.concat(
        [rows.assign(**dict.fromkeys(names, ALL_PARTS)) for names in merged_columns],
        ignore_index=True,
    )
    all_rows = all_rows.assign(side=all_rows.get("side", ALL_PARTS))
    return _mean_drops(all_rows, ["side", "model", *parts, *REMOVAL_KEYS, "unit"])


def _mean_drops(rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    primary = {"silenced": CUE, **{name: ALL_PARTS for name in PART_COLUMNS if name in by}}
    result = compare_with_twins(rows, by=by, group="group", primary=primary)
    trained_rows = rows[rows["init"] == "trained"]
    intervals = _group_intervals(trained_rows, by, "trained").join(
        _drops_beyond_control(trained_rows, by)
    )
    result = result.merge(intervals.reset_index(), on=by, how="left")
    for name in (*_RESULT_COLUMNS, *_CONTROL_COLUMNS):
        if name not in result and name != "claim":
            result[name] = np.nan
    order = [
        name
        for name in (*by, *_RESULT_COLUMNS, *_CONTROL_COLUMNS, "groups", "clips")
        if name in result
    ]
    return result[order]


def _group_intervals(rows: pd.DataFrame, by: list[str], name: str) -> pd.DataFrame:
    """Compute 95 % intervals over groups of the mean, by key: columns name_low, name_high."""
    means = rows.groupby([*by, "group"], sort=False)["contribution"].mean().unstack("group")
    low, high = mean_intervals(means.to_numpy(float))
    return pd.DataFrame({f"{name}_low": low, f"{name}_high": high}, index=means.index)


def _drops_beyond_control(trained_rows: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Compute the drop without the control word, and the cue's drop beyond it within clips."""
    keys = [name for name in by if name != "silenced"]
    cue, control = (trained_rows[trained_rows["silenced"] == word] for word in (CUE, CONTROL))
    paired = cue.merge(
        control[[*keys, "clip", "contribution"]],
        on=[*keys, "clip"],
        suffixes=("_of_cue", "_of_other"),
    )
    paired = paired.assign(
        contribution=paired["contribution_of_cue"] - paired["contribution_of_other"]
    )
    groups = paired.groupby(by, sort=False)
    means = pd.DataFrame(
        {
            "other": groups["contribution_of_other"].mean(),
            "over_other": groups["contribution"].mean(),
        }
    )
    return means.join(_group_intervals(paired, by, "over_other"))
