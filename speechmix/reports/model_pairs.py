"""One model against another: the difference of what each gains over its random twins, on the clips that both have scored.

In: contributions of several models. Out: a row for each pair of models, side, stack and measure, with interval and test over
groups of clips and over twins (Welch's).
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pandas as pd

from ..evaluation.statistics import cross_fitted_layer, heard_by_all, over_groups
from ..evaluation.twins import crossed_interval, two_gains
from .study_tables import KEYS

_GAP = "difference low high clips_low clips_high p p_clips p_twins effect groups".split()
PAIRS = (
    "One model against another, stack by stack: (trained - random) of the first less (trained - random) of the second, on "
    "the clips that both have scored, each at its own best layer (cross-fitted). Positive: the first lets in more of the "
    "cue. The test over twins is Welch's, of two models that are each one more draw of an untrained one; the layers were "
    "chosen on the same twins, so its p is a little too small."
)


def model_pairs(table: pd.DataFrame) -> pd.DataFrame:
    """Differences of trained - random between models, at the best layer of each, paired by group over shared clips."""
    best = cross_fitted_layer(table, by=KEYS, group="group")
    seeds = best["seed"].astype("Int64").fillna(-1).astype(int) if "seed" in best else 0
    best = best.assign(seed=seeds)[best.contribution.notna()]
    rows: list[dict[str, Any]] = []
    for key, part in best.groupby(["side", "stack", "measure"], sort=False, observed=True):
        for model, other in itertools.combinations(part.model.unique(), 2):
            shared = set(part[part.model == model]["clip"]) & set(part[part.model == other]["clip"])
            columns = dict(zip(("side", "stack", "measure", "model", "other"), (*key, model, other), strict=True))
            gap = _gap(part[part["clip"].isin(shared)], model, other)
            rows += [{**columns, **gap, "clips": len(shared)}] if gap else []
    return pd.DataFrame(rows)


def _gap(table: pd.DataFrame, model: str, other: str) -> dict[str, float]:
    """Difference of two models' gains over their twins, from the clips of both; nothing where one has no gain."""
    means = (
        table.groupby(["model", "init", "seed", "group"], sort=False, observed=True)
        .contribution.mean()
        .unstack(["model", "init", "seed"])
    )
    gains, twins = [], []
    for name in (model, other):
        if not {"trained", "random"} <= set(table[table.model == name]["init"]):
            return {}
        twins.append(means[name]["random"])
        gains.append(means[name]["trained"].mean(axis="columns") - twins[-1].mean(axis="columns"))
    differences = gains[0] - gains[1]
    numbers = over_groups(differences)
    p_twins, reach = two_gains(numbers["difference"], *(heard_by_all(part).mean() for part in twins))
    low, high = crossed_interval(numbers["difference"], numbers["clips_low"], numbers["clips_high"], reach)
    p = float(np.maximum(numbers["p_clips"], p_twins))
    numbers = {**numbers, "p_twins": p_twins, "p": p, "low": low, "high": high, "groups": differences.notna().sum()}
    return {name: numbers[name] for name in _GAP}
