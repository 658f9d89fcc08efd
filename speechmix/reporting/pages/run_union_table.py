"""Contributions of several runs in one table, with the groups of their clips and the options they
share.

In: runs, opened as studies. Out: the table that `model_comparison` compares models with.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ...errors import InputError
from ...evaluation.statistics.group_sentences import describe_groups
from ...evaluation.statistics.grouped_means import grouped_means
from ...evaluation.statistics.groups import assign_groups
from ...evaluation.statistics.random_twin_comparison import STRENGTH
from ...runs.results.open_run import StoredRun
from .study_results import Study

QUARTER_NAMES = (
    "1st quarter",
    "2nd quarter",
    "3rd quarter",
    "4th quarter",
)  # names that sort in this order


def mixing_quarters(percent: pd.DataFrame) -> pd.Series:
    """Return the quarter of its stack's mixing in which each row's layer lies. Layers are as wide
    as their mixing strength; the middle of a layer decides."""
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
    ends, total = (
        width.groupby(names, observed=True).transform(aggregation)
        for aggregation in ("cumsum", "sum")
    )
    quarter_index = (4 * (ends - width / 2) / total).astype(int).clip(0, 3)
    quarter = pd.Series(
        [QUARTER_NAMES[quarter_number] for quarter_number in quarter_index],
        index=pd.MultiIndex.from_frame(widths[[*keys, "layer"]]),
    )
    return pd.Series(
        quarter.reindex(pd.MultiIndex.from_frame(rows[[*keys, "layer"]])).to_numpy(),
        index=percent.index,
    )


def shared_options(studies: Sequence[Study]) -> dict[str, object]:
    """Return the options of `mix` that all runs share; None where they differ."""
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
    """Join the contributions of all runs, of the requested measures and stacks, with run and
    relative depth."""
    names = _run_names([study.run for study in studies])
    tables = [table.assign(run=name) for table, name in zip(tables, names, strict=True)]
    table = pd.concat(
        [table for table in tables if "contribution" in table] or [pd.DataFrame()],
        ignore_index=True,
    )
    for column, requested in (("measure", measures), ("stack", stacks)):
        if requested is not None and len(table):
            table = table[table[column].isin(list(requested))]
    if table.empty or not table.contribution.notna().any():
        raise InputError(
            "these runs hold no cue contribution to compare: it needs clips with a cue and a target"
        )
    return table.assign(model=_distinct_model_names(table))


def _run_names(runs: Sequence[StoredRun]) -> list[str]:
    """Name runs by their folders, by whole paths where folder names are equal."""
    folder_names = [run.out.resolve().name for run in runs]
    return (
        folder_names
        if len(set(folder_names)) == len(folder_names)
        else [str(run.out) for run in runs]
    )


def combine_groups(
    runs: Sequence[StoredRun], group: str | None = None
) -> tuple[dict[str, str], str, str]:
    """Group the clips of all runs together, by a column of them or that of the runs; return groups,
    what ties clips, and how many groups there are in a sentence."""
    clips = pd.concat([run.clips for run in runs], ignore_index=True).fillna("")
    for column in ("text", "sound", "cue", "target", "foil"):
        values = clips[clips[column] != ""].groupby("clip")[column].nunique()
        if (values > 1).any():
            name, plural = (
                values.index[values > 1][0],
                "recordings" if column == "sound" else f"{column}s",
            )
            raise InputError(
                f"the clip {name!r} has different {plural} in these runs: clips of one name must be "
                "the same"
            )
    clips = clips.drop_duplicates("clip").reset_index(drop=True)
    if group is None and len({run.group for run in runs}) == 1:
        group = runs[0].group
    groups, ties = assign_groups(clips, group)
    grouping = describe_groups(clips.assign(group=groups), ties)
    return dict(zip(clips["clip"], groups, strict=True)), ties, grouping


def _distinct_model_names(table: pd.DataFrame) -> pd.Series:
    """Name models; add the run's name where several runs have the model."""
    names = table["model"].astype(object)
    runs = table.groupby(names).run.transform("nunique")
    return names.where(runs == 1, names + " (" + table["run"] + ")")
