"""The numbers of a study: which rows it looks at, the headline, layer by layer, ablation, one row per clip.

In: tables of a finished run. Out: tables in percent. Fixed before looking: what is compared is trained - random twin;
uncertainty is over groups of clips that belong together (`evaluation.groups`) and over random twins (`evaluation.twins`);
reported are the mean over all layers of a stack, and the best layer, cross-fitted (chosen on one half of the groups, read on
the other).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from ..errors import InputError
from ..evaluation.grouped_means import grouped_means, taken
from ..evaluation.groups import groups_of
from ..evaluation.statistics import BASELINES, by_layer, cross_fitted_layer, trained_against_random
from ..evaluation.twins import combined_p
from ..interventions.ablation import CONTROL
from ..plots.cue_tables import DECIDING, rows_of_target
from ..plots.distributions import best_layers
from ..storage.reading import StoredRun

KEYS = ("side", "model", "stack", "measure")
# Columns of a manifest that part the clips: each that has two to eight values gets a figure of its own.
PARTS = ("template", "number", "cue")
BEST_LAYER, ALL_LAYERS = "best layer", "all layers"
# What the page calls the columns of the tables that it writes; of the limits over clips alone and the two p it shows nothing.
_NAMES = {
    "length_matched": "length-matched", "share_of_length": "share of length", "effect": "effect size d",
    "positive": "above zero (%)",
}  # fmt: skip
_OF_CLIPS = ("model", "init", "clip", "group", "stack", "measure", "rows", "layer", "depth", "contribution")
_UNSEEN = ["clips_low", "clips_high", "p_clips", "p_twins"]
_ROUNDED = (
    "trained",
    "random",
    "difference",
    "share of length",
    "length-matched",
    "above zero (%)",
    "smallest",
    "largest",
)


def study_table(contributions: pd.DataFrame, clips: pd.DataFrame, *, target_rows: str = DECIDING) -> pd.DataFrame:
    """Cue contributions of the rows that a study looks at, with side, group and whatever parts the clips.

    Parameters
    ----------
    contributions : DataFrame
        Of a run.
    clips : DataFrame
        From `grouped_clips`.
    target_rows : {"deciding", "target"}
        Of decoder and cross maps: the row that decides between target and foil, where it is known; or all of the target's.
    """
    columns = [name for name in ("side", "control", *PARTS) if name in clips and name not in contributions]
    columns_of_clips = clips[["clip", "group", *columns]]
    for name, default in (("side", "all"), ("control", "no")):
        values = clips[name].replace("", "all") if name in columns else default
        columns_of_clips = columns_of_clips.assign(**{name: values})
    table = rows_of_target(_beside_clips(contributions, columns_of_clips), target_rows)
    table.index = pd.RangeIndex(len(table))
    return table


def _beside_clips(table: pd.DataFrame, clips: pd.DataFrame) -> pd.DataFrame:
    """Rows of clips that are in both tables, with the clips' columns; categories where the table has categories."""
    columns = [name for name in table if name not in ("side", "control")]
    if not isinstance(table["clip"].dtype, pd.CategoricalDtype):
        return table[columns].merge(clips, on="clip")
    row_of_clip = pd.Index(clips["clip"]).get_indexer(table["clip"].cat.categories)
    row = row_of_clip[table["clip"].cat.codes]
    beside = taken(table, columns, row >= 0)
    for name in clips:
        if name != "clip":
            beside[name] = pd.Categorical(clips[name]).take(row[row >= 0])
    return beside


def without_control(table: pd.DataFrame) -> pd.DataFrame:
    """Rows of clips about whose target the cue decides something."""
    return table[table.control != "yes"]


def grouped_clips(clips: pd.DataFrame, *, group: str | None = None) -> pd.DataFrame:
    """Clip table with the group of each clip; `attrs["ties"]` says what makes a group.

    Parameters
    ----------
    clips : DataFrame
    group : str, optional
        Column that says which clips are drawn as one; by default what `groups_of` finds.

    Raises
    ------
    InputError
        If there is no such column, or two that may be meant.
    """
    groups, ties = groups_of(clips) if group is None else (clips[_column(clips, group)].astype(str), group)
    clips = clips.assign(group=groups)
    clips.attrs["ties"] = ties
    return clips


def _column(clips: pd.DataFrame, name: str) -> str:
    """Column of the clip table that a user means, who knows it as the manifest calls it."""
    renamed = f"manifest_{name}"
    if name in clips and renamed in clips:
        raise InputError(f"{name!r} is a column of the run and one of the manifest: for the manifest's say {renamed!r}")
    if name not in clips and renamed not in clips:
        raise InputError(f"no column {name!r} in the table of clips; it has {', '.join(map(str, clips.columns))}")
    return name if name in clips else renamed


def headline(table: pd.DataFrame, *, layers: str = BEST_LAYER, statistics: pd.DataFrame | None = None) -> pd.DataFrame:
    """Contribution in %: trained, random, difference with interval, test and effect size, baselines of length.

    Parameters
    ----------
    table : DataFrame
        From `study_table`.
    layers : {"best layer", "all layers"}
        "best layer" is cross-fitted over clips; the column layer then says which were chosen. The twins that it was chosen on
        are those that it is held against, so p_twins is then of "some layer" (`combined_p` over all layers of the stack).
    statistics : DataFrame, optional
        `layer_statistics` of the table, if they are at hand.

    Returns
    -------
    DataFrame
        Columns of `trained_against_random`, and layer. What is claimed is for `with_claims` to say, of all rows of a page.

    Raises
    ------
    InputError
        For other layers.
    """
    if layers not in (BEST_LAYER, ALL_LAYERS):
        raise InputError(f"layers should be {BEST_LAYER!r} or {ALL_LAYERS!r}, found {layers!r}")
    percent = _in_percent(table)
    if layers == BEST_LAYER:
        percent = cross_fitted_layer(percent, by=KEYS, group="group")
    if percent.empty:
        return pd.DataFrame(columns=[*KEYS, "trained", "random", "groups"])
    result = trained_against_random(percent, by=KEYS, group="group")
    if layers != BEST_LAYER:
        return result
    layers_chosen = percent.groupby(list(KEYS), sort=False, observed=True).layer.agg(
        lambda best: ", ".join(map(str, sorted(best.unique())))
    )
    result = result.merge(layers_chosen.reset_index().astype(dict.fromkeys(KEYS, object)), on=list(KEYS))
    if "p" not in result:
        return result
    statistics = layer_statistics(table) if statistics is None else statistics
    some_layer = statistics.groupby(list(KEYS), sort=False).p_twins.agg(combined_p).reset_index()
    result = result.drop(columns="p_twins").merge(some_layer, on=list(KEYS))[list(result)]
    return result.assign(p=np.maximum(result.p_clips, result.p_twins))


def layer_statistics(table: pd.DataFrame) -> pd.DataFrame:
    """The same in every layer, in %, with q and claim: p corrected over all layers of all stacks and measures."""
    return by_layer(_in_percent(table), by=KEYS, group="group")


def headline_file(best: pd.DataFrame, mean: pd.DataFrame) -> pd.DataFrame:
    """Both headlines, of the best layer and of the mean over all, as one tidy table: the column layers tells them apart."""
    both = pd.concat([best.assign(layers=BEST_LAYER), mean.assign(layers=ALL_LAYERS)], ignore_index=True)
    first = [*KEYS, "layers", "layer"]
    return both[[*first, *(name for name in both if name not in first)]]


def _in_percent(table: pd.DataFrame) -> pd.DataFrame:
    """What the statistics ask for, without the control's clips."""
    columns = [
        name for name in (*KEYS, "layer", "init", "seed", "clip", "group", "contribution", *BASELINES) if name in table
    ]
    percent = taken(table, columns, table["control"] != "yes")
    for name in ("contribution", *BASELINES):
        if name in percent:
            percent[name] = percent[name].astype(float) * 100
    return percent


def shown_layers(statistics: pd.DataFrame) -> pd.DataFrame:
    """Layers of which it is claimed that trained and random differ, in words."""
    if "claim" not in statistics:
        return pd.DataFrame()
    rows = []
    for key, part in statistics.groupby(list(KEYS), sort=False):
        differing = {
            "trained above random": _ranges(part[part.claim == "more"].layer),
            "trained below random": _ranges(part[part.claim == "less"].layer),
        }
        rows.append({**dict(zip(KEYS, key, strict=True)), **differing, "layers": len(part)})
    return _without_single_side(pd.DataFrame(rows))


def _ranges(layers: Iterable[int]) -> str:
    """Layers as ranges: "0, 3 to 5"; "none" if there is none."""
    ranges: list[list[int]] = []
    for layer in sorted(set(map(int, layers))):
        if ranges and ranges[-1][-1] == layer - 1:
            ranges[-1][1:] = [layer]
        else:
            ranges.append([layer])
    return ", ".join(" to ".join(map(str, ends)) for ends in ranges) or "none"


def main_rows(headline: pd.DataFrame) -> pd.DataFrame:
    """For each side the row whose clips are looked at: Value Zeroing if there, with the largest difference."""
    if headline.empty:
        return headline
    value = "difference" if "difference" in headline else "trained"
    rows = headline[headline.measure == "value_zeroing"] if (headline.measure == "value_zeroing").any() else headline
    rows = rows.assign(_value=rows[value].fillna(rows[["trained", "random"]].max(axis=1)))
    return rows.sort_values("_value", ascending=False).drop_duplicates("side").drop(columns="_value").sort_index()


def clip_values(table: pd.DataFrame, row: Mapping[Hashable, Any]) -> pd.DataFrame:
    """Contribution of each clip in one row of the headline, in % at its best layer: trained, random, difference.

    `attrs["layer"]` is that layer.
    """
    asked = [name for name in _OF_CLIPS if name in table]
    table = taken(table, asked, np.logical_and.reduce([table[name] == row[name] for name in KEYS]))
    layer = int(best_layers(table).iloc[0]) if table.contribution.notna().any() else int(table.layer.iloc[0])
    means = grouped_means(table[table.layer == layer], ["clip", "init"], "contribution")
    means = means.astype({"clip": object, "init": object})
    values = means.pivot(index="clip", columns="init", values="contribution").reindex(pd.unique(means["clip"]))
    values = values.reindex(columns=["trained", "random"]) * 100
    values["difference"] = values["trained"] - values["random"]
    values.attrs["layer"] = layer
    return values


def ablation_table(run: StoredRun, *, by: str | None = None) -> pd.DataFrame:
    """Share of clips (%) in which the target's own spelling wins, by what was silenced, and how many clips that is.

    Parameters
    ----------
    run : StoredRun
    by : str, optional
        Column of the clip table with what the two spellings differ in: trained models alone, a row for each value. Empty
        if the clips have no such column, or one value.
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
    order = [name for name in ("none", "encoder", "decoder", "cross") if name in result]
    headings = {"none": "nothing silenced", **{name: f"cue silenced in {name}" for name in order if name != "none"}}
    return result[[*keys, *order, "clips"]].rename(columns=headings)


def shown(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table as people read it: rounded, an interval in one column, no column that says nothing."""
    table = _without_single_side(table).drop(columns=_UNSEEN, errors="ignore").copy()
    if "positive" in table:
        table["positive"] *= 100
    for low, high, name in (("low", "high", "95 % interval"), ("twin_low", "twin_high", "a new untrained model")):
        if low in table:
            pairs = zip(table[low], table[high], strict=True)
            table.insert(
                list(table).index(low), name, [said_interval(*pair, share=low == "twin_low") for pair in pairs]
            )
            table = table.drop(columns=[low, high])
    if {"p", "q"} <= set(table):
        table.insert(list(table).index("p") + 1, "q", table.pop("q"))
    for name in {"p", "q"} & set(table):
        table[name] = table[name].map(said_p)
    if "effect" in table:
        table["effect"] = table["effect"].map(lambda d: "" if d != d else f"{d:.2f}")
    if "length_matched" in table and "random" in table:  # beside the numbers it is there for
        table.insert(list(table).index("random") + 1, "length_matched", table.pop("length_matched"))
    table = table.rename(columns=_NAMES)
    return table.round({name: 1 for name in table if name in _ROUNDED})


def said_interval(low: float, high: float, *, share: bool = False) -> str:
    """An interval in words; of a share, which lies between 0 and 100 %, the part that can be.

    Examples
    --------
    >>> said_interval(-4.26, 19.5), said_interval(-4.26, 19.5, share=True), said_interval(float("nan"), float("nan"))
    ('-4.3 to 19.5', '0.0 to 19.5', '')
    """
    if low != low:
        return ""
    low, high = (max(low, 0.0), min(high, 100.0)) if share else (low, high)
    return f"{round(low, 1) + 0.0} to {round(high, 1) + 0.0}"


def said_p(p: float) -> str:
    """P value in words: "< 0.001" below what the permutations can tell.

    Examples
    --------
    >>> said_p(0.0002), said_p(0.0312), said_p(float("nan"))
    ('< 0.001', '0.031', '')
    """
    return "" if p != p else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _without_single_side(table: pd.DataFrame) -> pd.DataFrame:
    return table.drop(columns="side") if "side" in table and set(table.side) == {"all"} else table
