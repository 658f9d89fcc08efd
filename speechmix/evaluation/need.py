"""Is the cue needed? What spelling loses when its values are silenced in a stack, beside another word's, over groups of clips.

In: the ablation table of a run (`interventions.ablation.ablate_with_control`), of trained models, with the groups that clips
belong to. Out: for each model and stack the share of clips spelled right, intact and without the cue, and what is lost, with
interval, test and claim. Contribution says what a state is made of, need what the decision asks for: neither follows from the
other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..interventions.ablation import CONTROL, CUE
from .statistics import SURE, corrected, interval_of_mean, intervals_of_means, over_groups

CHANCE = 50.0  # % of clips, between two spellings
NOT_NEEDED = 5.0  # points of clips: what is lost is called nothing if its interval ends below


def need_of_cue(table: pd.DataFrame, *, by: Sequence[str], group: str = "group") -> pd.DataFrame:
    """What spelling loses without the cue's values in a stack.

    Parameters
    ----------
    table : DataFrame
        Columns of `by` (with "ablated", the stack, among them), clip, source, layer, margin, right, and `group`; rows of the
        intact model have "none" for ablated.
    by : sequence of str
        E.g. ("side", "model", "ablated").
    group : str
        Column of what is drawn as one.

    Returns
    -------
    DataFrame
        Columns of `by`; right, without_cue, without_other: share of clips spelled right (%), intact, with the cue and with
        another word silenced (missing where there is none); right_low: lower end of right's 95 % interval;
        lost: right - without_cue, in points, with low, high, p over
        groups, and q over all rows; drop, drop_other: of the margin, nats; groups, clips; verdict: "needed", "not needed", "at
        chance" where the intact model spells no better than by guessing, so that it has nothing to lose, or "" where it cannot
        be told.
    """
    whole = table[table["layer"].isna()]
    others = [name for name in by if name != "ablated"]
    intact = whole[whole["ablated"] == "none"].set_index([*others, "clip"])[["margin", "right"]]
    rows = []
    key: Any
    for key, part in whole[whole["source"] == CUE].groupby(list(by), sort=False):
        row = dict(zip(by, key, strict=True))
        silenced = part.join(intact.add_suffix("_intact"), on=[*others, "clip"])
        control = whole[(whole["source"] == CONTROL) & (whole[list(by)] == key).all(axis=1)]
        control = control.join(intact.add_suffix("_intact"), on=[*others, "clip"])
        lost = 100 * (silenced["right_intact"].astype(float) - silenced["right"].astype(float))
        told = over_groups(lost.groupby(silenced[group]).mean())
        row |= {"right": 100 * silenced["right_intact"].mean(), "without_cue": 100 * silenced["right"].mean()}
        row["without_other"] = 100 * control["right"].mean() if len(control) else np.nan
        row |= {"lost": told["difference"], "low": told["clips_low"], "high": told["clips_high"], "p": told["p_clips"]}
        spelled = silenced["right_intact"].astype(float).groupby(silenced[group]).mean()
        row["right_low"] = 100 * interval_of_mean(spelled)[0]
        row["drop"] = (silenced["margin_intact"] - silenced["margin"]).mean()
        row["drop_other"] = (control["margin_intact"] - control["margin"]).mean() if len(control) else np.nan
        rows.append({**row, "groups": silenced[group].nunique(), "clips": len(silenced)})
    result = pd.DataFrame(rows)
    if len(result):
        result["q"] = corrected(result["p"])
        result["verdict"] = [_verdict(row) for row in result.to_dict("records")]
    return result


def _verdict(row: dict) -> str:
    if row["groups"] > 1 and row["right_low"] <= CHANCE:
        return "at chance"
    if row["q"] < SURE and row["low"] > 0:
        return "needed"
    return "not needed" if row["groups"] > 1 and row["high"] <= NOT_NEEDED else ""


def need_by_layer(table: pd.DataFrame, *, by: Sequence[str], group: str = "group") -> pd.DataFrame:
    """Mean drop of the margin (nats) with the cue silenced in one layer, with its 95 % interval over groups.

    Parameters
    ----------
    table, by, group
        As for `need_of_cue`.

    Returns
    -------
    DataFrame
        Columns of `by`, layer, drop, low, high, groups; empty where no layer was silenced by itself.
    """
    others = [name for name in by if name != "ablated"]
    intact = table[table["ablated"] == "none"].set_index([*others, "clip"])["margin"].rename("intact")
    single = table[table["layer"].notna() & (table["source"] == CUE)].join(intact, on=[*others, "clip"])
    if single.empty:
        return pd.DataFrame(columns=[*by, "layer", "drop", "low", "high", "groups"])
    single = single.assign(drop=single["intact"] - single["margin"])
    means = single.groupby([*by, "layer", group], sort=False)["drop"].mean()
    rows = []
    key: Any
    for key, part in means.groupby(level=[*by, "layer"], sort=False):
        low, high = intervals_of_means(part.to_numpy()[None])
        values = {"drop": part.mean(), "low": low[0], "high": high[0], "groups": len(part)}
        rows.append({**dict(zip((*by, "layer"), key, strict=True)), **values})
    return pd.DataFrame(rows).astype({"layer": int})
