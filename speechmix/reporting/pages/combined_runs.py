"""Contributions of several runs in one table, with the groups of their clips and the options they
share.

In: runs, opened as studies. Out: the table that `model_comparison` compares models with.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ...errors import InputError
from ...evaluation.statistics.grouped_means import grouped_means
from ...evaluation.statistics.groups import assign_groups
from ...evaluation.statistics.twin_comparison import STRENGTH
from ...runs.results.open_run import StoredRun
from .study_results import Study

WHOLE = "whole stack"
QUARTERS = (
    "1st quarter",
    "2nd quarter",
    "3rd quarter",
    "4th quarter",
)  # names that sort in this order


def mixing_quarters(percent: pd.DataFrame) -> pd.Series:
    """The quarter of its stack's mixing that each row's layer lies in: the middle of the layer,
    each as wide as its strength."""
    keys = [
        name for name in ("side", "model", "init", "seed", "stack", "measure") if name in percent
    ]
    rows = percent.assign(
        width=percent[STRENGTH].astype(float).fillna(0) if STRENGTH in percent else 1.0
    )
    if "seed" in keys:
        rows["seed"] = rows["seed"].astype("Int64").fillna(-1)
    widths = grouped_means(rows, [*keys, "layer"], "width", sort=True)
    width = widths["width"] + 1e-12
    names = [widths[name] for name in keys]
    ends, total = (width.groupby(names, observed=True).transform(how) for how in ("cumsum", "sum"))
    number = (4 * (ends - width / 2) / total).astype(int).clip(0, 3)
    quarter = pd.Series(
        [QUARTERS[place] for place in number],
        index=pd.MultiIndex.from_frame(widths[[*keys, "layer"]]),
    )
    return pd.Series(
        quarter.reindex(pd.MultiIndex.from_frame(rows[[*keys, "layer"]])).to_numpy(),
        index=percent.index,
    )


def shared_options(studies: Sequence[Study]) -> dict[str, object]:
    """Options of `mix` that all runs have in common; None where they differ."""
    first, *others = (study.run.description.get("options", {}) for study in studies)
    return {
        name: value if all(other.get(name) == value for other in others) else None
        for name, value in first.items()
    }


def combine_contributions(
    studies: Sequence[Study],
    tables: Sequence[pd.DataFrame],
    measures: Sequence[str] | None,
    stacks: Sequence[str] | None,
) -> pd.DataFrame:
    """Contributions of all runs, of the measures and stacks asked for, each with its run and
    relative depth."""
    names = _names([study.run for study in studies])
    tables = [table.assign(run=name) for table, name in zip(tables, names, strict=True)]
    table = pd.concat(
        [table for table in tables if "contribution" in table] or [pd.DataFrame()],
        ignore_index=True,
    )
    for column, asked in (("measure", measures), ("stack", stacks)):
        if asked is not None and len(table):
            table = table[table[column].isin(list(asked))]
    if table.empty or not table.contribution.notna().any():
        raise InputError(
            "these runs hold no cue contribution to compare: it needs clips with a cue and a target"
        )
    return table.assign(model=_distinct(table))


def _names(runs: Sequence[StoredRun]) -> list[str]:
    """Names of the folders, whole paths where these are alike."""
    short = [run.out.resolve().name for run in runs]
    return short if len(set(short)) == len(short) else [str(run.out) for run in runs]


def combine_groups(runs: Sequence[StoredRun]) -> tuple[dict[str, str], str]:
    """Groups of the clips of all runs together."""
    clips = pd.concat([run.clips for run in runs], ignore_index=True).fillna("")
    for column in ("text", "sound", "cue", "target", "foil"):
        values = clips[clips[column] != ""].groupby("clip")[column].nunique()
        if (values > 1).any():
            name, what = (
                values.index[values > 1][0],
                "recordings" if column == "sound" else f"{column}s",
            )
            raise InputError(
                f"the clip {name!r} has different {what} in these runs: clips of one name must be "
                "the same"
            )
    clips = clips.drop_duplicates("clip").reset_index(drop=True)
    groups, ties = assign_groups(clips)
    return dict(zip(clips["clip"], groups, strict=True)), ties


def _distinct(table: pd.DataFrame) -> pd.Series:
    """Model names, with the run's where a model is in several runs."""
    names = table["model"].astype(object)
    runs = table.groupby(names).run.transform("nunique")
    return names.where(runs == 1, names + " (" + table["run"] + ")")
