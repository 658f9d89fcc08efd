"""Lenses over many clips: in how many the target beats its foil behind each layer, and how the text errs.

In: tables of `speechmix.lens` of trained models and untrained twins. Out: a table of curves, in which a
layer decides only if its accuracy is above chance and above every twin, there and in all later layers.
Chance is what a model reaches that always prefers the same spelling of a word, whatever it hears.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ...errors import InputError
from ...evaluation.statistics.groups import assign_item_groups, build_item_table, describe_groups
from ...evaluation.statistics.intervals import bootstrap_interval

if TYPE_CHECKING:
    from ...inputs.clips.clip import Clip
    from ...inputs.sentences.sentence import Sentence

_VALUES = ("accuracy", "error_rate", "difference")


def lens_curves(
    table: pd.DataFrame, items: Sequence[Clip | Sentence], *, group: str | None = None
) -> pd.DataFrame:
    """Average lenses over clips, with intervals and untrained twins.

    Parameters
    ----------
    table : DataFrame
        Rows of `LensResult.to_dataframe`, one below the other, or ``lens.parquet`` of a run.
    items : sequence of Clip or Sentence
        Those of the table.
    group : str, optional
        A column of the items' `meta` that says which belong together, and are drawn together; by
        default speakers, or pair, sentence and target word.

    Returns
    -------
    DataFrame
        A row for each trained model, kind, stack and layer. ``accuracy`` is the share of clips in which
        the target beats its foil, ``chance`` the highest accuracy without evidence, by one constant
        preference for each pair of spellings: 0.5 if each is as often the target as the foil, 1 if
        the same one always is. ``error_rate`` and ``difference`` are of the texts. Each has ``_low``
        and ``_high``, a 95 % bootstrap interval over groups (missing for fewer than five), and
        ``twin_``, the best of the untrained twins of the model. ``decides``: in this and every later
        layer the interval of the accuracy is above chance and above all twins. ``attrs["grouping"]``
        says how many groups and speakers there are.

    Raises
    ------
    InputError
        If the table has a clip that is not among the items, or two different ones of one name.
    """
    clips = build_item_table(items)
    groups, ties = assign_item_groups(clips, items, group)
    group_of = dict(zip(clips["clip"], groups, strict=True))
    if unknown := sorted(set(table["clip"]) - set(group_of)):
        raise InputError(f"the table has a clip that is not among the items: {unknown[0]!r}")
    keys = ["model", "init", "seed", "kind", "stack", "layer", "clip"]
    table = table.assign(group=table["clip"].map(group_of))
    by_clip = _select_distinct(table, keys, ["group", "error_rate", "difference"])
    is_decision = table["against"] == "foil"
    decisions = _select_distinct(table[is_decision], keys, ["margin", "label", "foil"])
    margins = decisions.pop("margin")
    by_clip["accuracy"] = ((margins > 0) + 0.5 * (margins == 0)).where(margins.notna())
    by_clip = by_clip.join(decisions)
    parts = []
    for _, rows in by_clip.groupby(keys[:5], dropna=False, sort=False):
        curve = pd.concat([_average(rows, value) for value in _VALUES], axis=1).reset_index()
        owner = rows.reset_index()[keys[:5]].head(1)  # a trained model has no seed
        parts.append(owner.assign(chance=_chance(rows)).merge(curve, how="cross"))
    compared = _compare_twins(pd.concat(parts, ignore_index=True))
    curves = compared[[*keys[:6], *(column for column in compared if column not in keys)]]
    used = table["clip"].unique()
    curves.attrs["grouping"] = describe_groups(clips.assign(group=groups), ties, names=used)
    return curves


def _select_distinct(table: pd.DataFrame, keys: list[str], values: list[str]) -> pd.DataFrame:
    """Return the values of each key; repeated rows count once, rows that disagree are refused."""
    rows = table[[*keys, *values]].drop_duplicates()
    if (is_repeated := rows.duplicated(keys)).any():
        name = rows.loc[is_repeated, "clip"].iloc[0]
        raise InputError(
            f"the table has different results of {name!r} by the same model: give each clip a name "
            "of its own (clip.with_name), and run the lens again"
        )
    return rows.set_index(keys)


def _chance(rows: pd.DataFrame) -> float:
    """Return the share of clips in which the best constant preference is right."""
    decided = rows.dropna(subset="accuracy")
    spellings = [
        tuple(sorted(pair)) for pair in zip(decided["label"], decided["foil"], strict=True)
    ]
    counts = decided.groupby([pd.Series(spellings, decided.index, dtype=object), "label"]).size()
    return float(counts.groupby(level=0).max().sum() / counts.sum()) if len(counts) else np.nan


def _average(rows: pd.DataFrame, value: str) -> pd.DataFrame:
    """Mean of a value by layer, with its interval over groups."""
    cells = rows.dropna(subset=value).groupby(["layer", "group"])[value]
    sums, counts = (cells.agg(how).unstack("group", fill_value=0) for how in ("sum", "count"))
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
    limit = trained[["chance", "twin_accuracy"]].max(axis=1)
    above = (trained["accuracy_low"] > limit).astype(int)
    later = above.iloc[::-1].groupby([trained[key] for key in (*keys[:3], "seed")], dropna=False)
    return trained.assign(decides=later.cummin().astype(bool))
