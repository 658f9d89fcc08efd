"""Compare two models: what each gains over its own untrained twins, on the clips that both have
scored.

In: contributions of several models, in percent, over whole stacks. Out: a row for each pair of
models, side, stack and measure. The k-th twin of one model is paired with the k-th of the other, so
the gap of the trained models has an interval to the gap of one more pair of untrained ones, as a
single model has to one more twin (`evaluation.statistics.random_twin_comparison`). A whole stack
weights each layer by its mixing strength, so neither depth nor idle layers make a gap.
"""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd

from ...adapters.families.capabilities import stack_phrase
from ...evaluation.statistics.random_twin_comparison import STRENGTH, compare_with_twins
from ..plots.figure_style import model_name
from .result_sentences import join_names, unclaimed_reason

PAIRS_NOTE = (
    "The effect of training in one model against another, over whole stacks: (trained − untrained) "
    "of the first minus (trained − untrained) of the second, in percentage points. Only clips that "
    "both models have scored count. A positive difference means that training raised the cue's "
    "contribution more in the first model. The interval is that to the difference of one more pair "
    "of untrained models. A conclusion says that these two models differ. It does not say why: for "
    "sizes or training recipes, train several seeds of each."
)
_KEYS = ["side", "stack", "measure", "model", "other"]


def model_pairs(stacks: pd.DataFrame, headline: pd.DataFrame) -> pd.DataFrame:
    """Compare the gains of every two models, stack by stack.

    `stacks` has contributions of whole stacks (%), by clip, model, init and seed; `headline` the
    same against the twins, a row for each model, side, stack and measure. The result has the
    columns side, stack, measure, model, other, and those of `compare_with_twins`; it is empty for
    one model.
    """
    gaps = [
        _subtract_models(stacks[stacks["model"] == model], stacks[stacks["model"] == other])
        for model, other in itertools.combinations(pd.unique(stacks["model"].astype(object)), 2)
    ]
    gaps = [gap for gap in gaps if {"trained", "random"} <= set(gap["init"])]
    if not gaps:
        return pd.DataFrame()
    table = pd.concat(gaps, ignore_index=True)
    if STRENGTH in headline:
        strength = headline.set_index(["model", "side", "stack", "measure"])[STRENGTH]
        keys = [
            pd.MultiIndex.from_frame(table[[name, "side", "stack", "measure"]])
            for name in ("model", "other")
        ]
        table[STRENGTH] = np.minimum(*(strength.reindex(key).to_numpy() for key in keys))
    return compare_with_twins(table, by=_KEYS, group="group")


def _subtract_models(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """Subtract the second model from the first, clip by clip, for trained models and pairs of
    twins."""
    keys = ["side", "stack", "measure", "clip", "group", "init", "draw"]
    first, second = (
        _number_twins(model_table)[[*keys, "model", "contribution"]]
        for model_table in (first, second)
    )
    merged = first.merge(
        second.rename(columns={"model": "other"}), on=keys, suffixes=("", "_of_other")
    )
    merged["contribution"] -= merged.pop("contribution_of_other")
    return merged.rename(columns={"draw": "seed"})


def _number_twins(table: pd.DataFrame) -> pd.DataFrame:
    """Number twins in the order of their seeds, in a column "draw"."""
    plain_table = table.astype(
        {name: object for name in table if isinstance(table[name].dtype, pd.CategoricalDtype)}
    )
    seed = (
        plain_table["seed"].astype("Int64").fillna(-1)
        if "seed" in plain_table
        else pd.Series(-1, index=plain_table.index)
    )
    draw = seed.where(plain_table["init"] == "random", -1).rank(method="dense").astype(int)
    return plain_table.assign(draw=draw)


def pair_sentences(pairs: pd.DataFrame, *, measure: str) -> list[str]:
    """Write one sentence for each two models and side: in which stacks training raised the cue's
    contribution more."""
    sentences = []
    for (side, model, other), rows in pairs[pairs["measure"] == measure].groupby(
        ["side", "model", "other"], sort=False
    ):
        records = rows.to_dict("records")
        models_and_side = (
            f"{model_name(model)} and {model_name(other)}{'' if side == 'all' else f', {side} cue'}"
        )
        reasons = list(dict.fromkeys(filter(None, map(unclaimed_reason, records))))
        differences = [
            f"{row['claim']} in {stack_phrase(row['stack'])} ({row['difference']:+.1f} points)"
            for row in records
            if row["claim"]
        ]
        if reasons:
            sentences.append(f"{models_and_side}: {reasons[0]}.")
        elif differences:
            sentences.append(
                f"{models_and_side}: training raised the cue's contribution {join_names(differences)} in the first "
                "of the two."
            )
        else:
            stacks = join_names([stack_phrase(row["stack"]) for row in records])
            sentences.append(
                f"{models_and_side}: whether training raised the cue's contribution more in one is "
                f"inconclusive in {stacks}."
            )
    return sentences
