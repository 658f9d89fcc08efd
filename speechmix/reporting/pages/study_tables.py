"""Compute the tables of a study: contribution by stack and layer, ablation, one row per clip.

A trained model is compared with its twins over groups of clips (`random_twin_comparison`): whole
stacks, weighted by mixing strength, and layers. Numbers are in percent.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from ...evaluation.statistics.grouped_means import TableRow, grouped_means, select_cells
from ...evaluation.statistics.random_twin_comparison import (
    BASELINES,
    STRENGTH,
    WHOLE_STACK,
    compare_with_twins,
    whole_stack,
)
from ...inputs.words.cue_and_target import CONTROL
from ...mixing.maps.measure_registry import LEADING_MEASURE
from ...mixing.maps.numerics import STRENGTH_FLOOR
from ...runs.results.open_run import StoredRun
from ..plots.cue_tables import DECIDING, select_target_rows
from ..plots.distributions import best_layers
from .table_format import stack_name

KEYS = ("side", "model", "stack", "measure")
# Columns of a manifest that part the clips: each that has two to eight values gets a figure of its
# own.
PARTS = ("template", "number", "cue")
CELL_COLUMNS = (
    "model",
    "init",
    "seed",
    "clip",
    "group",
    "stack",
    "measure",
    "rows",
    "layer",
    "depth",
    "contribution",
    STRENGTH,
)


def study_table(
    contributions: pd.DataFrame, clips: pd.DataFrame, *, target_rows: str = DECIDING
) -> pd.DataFrame:
    """Select the cue contributions that a study uses; add side, group and columns of the manifest.

    The clips come from `add_clip_groups`. `target_rows` chooses, for decoder and cross maps, the
    row that decides between target and foil, where it is known ("deciding"), or all rows of the
    target ("target").
    """
    columns = [
        name for name in ("side", "control", *PARTS) if name in clips and name not in contributions
    ]
    columns_of_clips = clips[["clip", "group", "content", *columns]]
    for name, default in (("side", "all"), ("control", "no")):
        values = clips[name].replace("", "all") if name in columns else default
        columns_of_clips = columns_of_clips.assign(**{name: values})
    table = select_target_rows(_merge_clip_columns(contributions, columns_of_clips), target_rows)
    table.index = pd.RangeIndex(len(table))
    return table


def _merge_clip_columns(table: pd.DataFrame, clips: pd.DataFrame) -> pd.DataFrame:
    """Add the columns of the clip table to contributions; categories stay categories."""
    columns = [name for name in table if name not in ("side", "control")]
    if not isinstance(table["clip"].dtype, pd.CategoricalDtype):
        return table[columns].merge(clips, on="clip")
    row_of_clip = pd.Index(clips["clip"]).get_indexer(table["clip"].cat.categories)
    row = row_of_clip[table["clip"].cat.codes]
    merged = select_cells(table, columns, row >= 0)
    for name in clips:
        if name != "clip":
            merged[name] = pd.Categorical(clips[name]).take(row[row >= 0])
    return merged


def drop_control_clips(table: pd.DataFrame) -> pd.DataFrame:
    """Drop the control clips, in which the cue does not decide the target."""
    return table[table.control != "yes"]


def contribution_cells(table: pd.DataFrame) -> pd.DataFrame:
    """Compare trained and untrained models in each layer and each whole stack (`WHOLE_STACK`), in
    %.

    The table comes from `study_table`; the result has the columns of `compare_with_twins`, by
    `KEYS` and layer.
    """
    percent = percent_table(table)
    if percent.empty:
        return _compare_models(percent)
    stacks = whole_stack(percent)
    return _compare_models(pd.concat([percent, stacks[list(percent)]], ignore_index=True))


def stack_cells(table: pd.DataFrame) -> pd.DataFrame:
    """Compare trained and untrained models in whole stacks alone: the `stack_rows` of
    `contribution_cells`."""
    percent = percent_table(table)
    return stack_rows(_compare_models(percent if percent.empty else whole_stack(percent)))


def _compare_models(rows: pd.DataFrame) -> pd.DataFrame:
    if rows.empty:
        return pd.DataFrame(
            columns=[*KEYS, "layer", "trained", "random", "difference", "claim", "groups", "twins"]
        )
    return _sort_cells(compare_with_twins(rows, by=[*KEYS, "layer"], group="group"))


def _sort_cells(cells: pd.DataFrame) -> pd.DataFrame:
    """Sort rows independently of the order of clips: sides, models, stacks, Value Zeroing first."""
    ranks = pd.DataFrame(
        {
            "side": cells["side"].astype(str),
            "model": pd.factorize(cells["model"])[0],
            "stack": cells["stack"].map({"encoder": 0, "decoder": 1, "cross": 2}).fillna(3),
            "measure": cells["measure"].astype(str).where(cells["measure"] != LEADING_MEASURE, ""),
            "layer": cells["layer"],
        }
    )
    columns = ["side", "model", "stack", "measure", "layer"]
    return cells.loc[ranks.sort_values(columns, kind="stable").index].reset_index(drop=True)


def layer_rows(cells: pd.DataFrame) -> pd.DataFrame:
    """Select the rows of single layers."""
    return cells[cells["layer"] != WHOLE_STACK].reset_index(drop=True)


def stack_rows(cells: pd.DataFrame) -> pd.DataFrame:
    """Select the rows of whole stacks."""
    return cells[cells["layer"] == WHOLE_STACK].drop(columns="layer").reset_index(drop=True)


def percent_table(table: pd.DataFrame) -> pd.DataFrame:
    """Convert contributions to %, without control clips; copies of a clip get its first name."""
    names = (*KEYS, "layer", "init", "seed", "clip", "group", "contribution", STRENGTH, *BASELINES)
    percent = select_cells(
        table, [name for name in names if name in table], table["control"] != "yes"
    )
    for name in ("contribution", *BASELINES):
        if name in percent:
            percent[name] = percent[name].astype(float) * 100
    if "content" in table:
        percent["clip"] = table["content"][table["control"] != "yes"]
    return percent


def main_rows(headline: pd.DataFrame) -> pd.DataFrame:
    """Choose for each side the row whose clips are shown: Value Zeroing if there, with the largest
    difference."""
    if headline.empty:
        return headline
    value = "difference" if "difference" in headline else "trained"
    is_leading_measure = headline.measure == LEADING_MEASURE
    rows = headline[is_leading_measure] if is_leading_measure.any() else headline
    rows = rows.assign(_value=rows[value].fillna(rows[["trained", "random"]].max(axis=1)))
    return (
        rows.sort_values("_value", ascending=False)
        .drop_duplicates("side")
        .drop(columns="_value")
        .sort_index()
    )


def clip_values(table: pd.DataFrame, row: TableRow) -> pd.DataFrame:
    """Compute the contribution of each clip in one stack, in %: trained, random, difference.

    `attrs["layer"]` is the layer whose maps are shown first: of those that move the target, the one
    with the largest difference.
    """
    names = [name for name in CELL_COLUMNS if name in table]
    table = select_cells(
        table, names, np.logical_and.reduce([table[name] == row[name] for name in KEYS])
    )
    moving_rows = _moving_layers(table)
    layer = (
        int(best_layers(moving_rows).iloc[0])
        if moving_rows.contribution.notna().any()
        else int(table.layer.iloc[0])
    )
    needed_columns = [
        name
        for name in ("clip", "init", "seed", "layer", "contribution", STRENGTH)
        if name in table
    ]
    means = grouped_means(whole_stack(table[needed_columns]), ["clip", "init"], "contribution")
    means = means.astype({"clip": object, "init": object})
    values = means.pivot(index="clip", columns="init", values="contribution").reindex(
        pd.unique(means["clip"])
    )
    values = values.reindex(columns=["trained", "random"]) * 100
    values["difference"] = values["trained"] - values["random"]
    values.attrs["layer"] = layer
    return values


def _moving_layers(table: pd.DataFrame) -> pd.DataFrame:
    """Select the rows of layers that move the target in the trained model; all rows if there is
    none."""
    if STRENGTH not in table:
        return table
    strength = table[table["init"] == "trained"].groupby("layer")[STRENGTH].mean()
    moving_rows = table[table["layer"].isin(strength.index[strength >= STRENGTH_FLOOR])]
    return moving_rows if len(moving_rows) else table


def ablation_table(run: StoredRun, *, by: str | None = None) -> pd.DataFrame:
    """Compute the share of clips (%) whose target spelling wins, by what was ablated.

    `by` is a column of the clip table with what the two spellings differ in: then the result has
    trained models alone and a row for each value. It is empty if the clips have no such column, or
    one value.
    """
    table = run.ablation
    if table.empty:
        return table
    if "source" in table:  # the cue, in whole stacks; not its control, nor single layers
        table = table[table["layer"].isna() & (table["source"] != CONTROL)]
    columns = [name for name in ("side", by) if name in run.clips]
    table = table.merge(run.clips[["clip", *columns]], on="clip")
    if "side" not in table:
        table["side"] = "all"
    keys = ["side", "model", "init"]
    if by is not None:
        keys, table = ["side", "model", by], table[table.init == "trained"]
        if by not in table or table[by].nunique() < 2:
            return pd.DataFrame()
    shares = table.groupby([*keys, "ablated"], sort=False).right.mean().mul(100).round(1)
    counts = table.groupby(keys, sort=False)["clip"].nunique().rename("clips")
    result = shares.unstack("ablated").join(counts).reset_index()
    ablated_columns = [name for name in ("none", "encoder", "decoder", "cross") if name in result]
    headings = {name: f"cue ablated in {stack_name(name)}" for name in ablated_columns}
    headings["none"] = "nothing ablated"
    return result[[*keys, *ablated_columns, "clips"]].rename(columns=headings)
