"""Lenses over many clips: in how many the target beats its foil behind each layer, and how the text errs.

In: tables of `speechmix.lens` of trained models and untrained twins. Out: a table of curves, in which a
layer decides only if its accuracy is above chance and above every twin, there and in all later layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from ..errors import InputError
from .statistics.bootstrap import bootstrap_interval
from .statistics.groups import assign_groups, build_item_table

if TYPE_CHECKING:
    from ..inputs.clips.clip import Clip
    from ..inputs.sentences.sentence import Sentence

_CHANCE = 0.5
_VALUES = ("accuracy", "error_rate", "difference")


def lens_curves(table: pd.DataFrame, items: Sequence[Clip | Sentence]) -> pd.DataFrame:
    """Average lenses over clips, with intervals and untrained twins.

    Parameters
    ----------
    table : DataFrame
        Rows of `LensResult.to_dataframe`, one below the other, or ``lens.parquet`` of a run.
    items : sequence of Clip or Sentence
        Those of the table: clips of one pair, sentence or word are drawn together.

    Returns
    -------
    DataFrame
        A row for each trained model, kind, stack and layer. ``accuracy`` is the share of clips in which
        the target beats its foil: 0.5 is chance if each spelling is as often the target as the foil.
        ``error_rate`` and ``difference`` are of the texts. Each has ``_low`` and ``_high``, a 95 %
        bootstrap interval over groups (missing for fewer than five), and ``twin_``, the best of the
        untrained twins of the model. ``decides``: in this and every later layer the interval of
        the accuracy is above 0.5 and above all twins.

    Raises
    ------
    InputError
        If the table has a clip that is not among the items.
    """
    clips = build_item_table(items)
    group_of = dict(zip(clips["clip"], assign_groups(clips)[0], strict=True))
    if unknown := sorted(set(table["clip"]) - set(group_of)):
        raise InputError(f"the table has a clip that is not among the items: {unknown[0]!r}")
    keys = ["model", "init", "seed", "kind", "stack", "layer", "clip"]
    table = table.assign(group=table["clip"].map(group_of))
    by_clip = table.drop_duplicates(keys).set_index(keys)[["group", "error_rate", "difference"]]
    margins = table[table["against"] == "foil"].set_index(keys)["margin"]
    by_clip["accuracy"] = ((margins > 0) + 0.5 * (margins == 0)).where(margins.notna())
    parts = []
    for _, rows in by_clip.groupby(keys[:5], dropna=False, sort=False):
        curve = pd.concat([_average(rows, value) for value in _VALUES], axis=1).reset_index()
        owner = rows.reset_index()[keys[:5]].head(1)  # a trained model has no seed
        parts.append(owner.merge(curve, how="cross"))
    compared = _compare_twins(pd.concat(parts, ignore_index=True))
    return compared[[*keys[:6], *(column for column in compared if column not in keys)]]


def _average(rows: pd.DataFrame, value: str) -> pd.DataFrame:
    """Mean of a value by layer, with its interval over groups."""
    known = rows.dropna(subset=value).groupby(["layer", "group"])[value]
    sums, counts = (known.agg(how).unstack("group", fill_value=0) for how in ("sum", "count"))
    layers = pd.Index(sorted(rows.index.get_level_values("layer").unique()), name="layer")
    sums, counts = sums.reindex(layers), counts.reindex(layers)
    low, high = bootstrap_interval(sums.to_numpy(float), counts.to_numpy(float))
    mean = sums.sum(axis=1, min_count=1) / counts.sum(axis=1, min_count=1)
    return pd.DataFrame({value: mean, f"{value}_low": low, f"{value}_high": high})


def _compare_twins(curves: pd.DataFrame) -> pd.DataFrame:
    """Trained models beside their best twin, and which layers decide."""
    keys = ["model", "kind", "stack", "layer"]
    is_twin = curves["init"] == "random"
    best = {"accuracy": "max", "error_rate": "min", "difference": "min"}
    twins = curves[is_twin].groupby(keys)[list(_VALUES)].agg(best).add_prefix("twin_")
    trained = curves[~is_twin].join(twins, on=keys)
    bar = trained["twin_accuracy"].clip(lower=_CHANCE).fillna(_CHANCE)
    above = (trained["accuracy_low"] > bar).astype(int)
    later = above.iloc[::-1].groupby([trained[key] for key in (*keys[:3], "seed")], dropna=False)
    return trained.assign(decides=later.cummin().astype(bool))
