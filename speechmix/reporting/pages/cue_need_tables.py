"""What spelling loses without the cue, by stack, layer and number; and claims with their controls.

In: a run's ablation table, clips with their groups, and the rows of whole stacks. Out: tables.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ...evaluation.cue_need import measure_cue_need, measure_layer_need
from ...evaluation.statistics.grouped_means import TableRow
from ...mixing.maps.measure_registry import leading_measure
from ...runs.results.open_run import StoredRun
from ..plots.panels import model_name
from .table_format import format_interval, format_p

NEED_KEYS = ["side", "model", "ablated"]


def trained_ablations(run: StoredRun, clips: pd.DataFrame) -> pd.DataFrame:
    """Ablation of trained models with side, number and group of each clip; of clips about whose
    target the cue decides.

    Parameters
    ----------
    run : StoredRun
    clips : DataFrame
        From `clip_groups.grouped_clips`.
    """
    table = run.ablation
    if table.empty:
        return pd.DataFrame(
            columns=[*NEED_KEYS, "clip", "source", "layer", "margin", "right", "group"]
        )
    columns = [name for name in ("side", "number", "control") if name in clips]
    table = table[table["init"] == "trained"].merge(clips[["clip", "group", *columns]], on="clip")
    table["side"] = table["side"].replace("", "all") if "side" in table else "all"
    if "content" in clips:  # copies of a clip are no further evidence
        table = table[table["clip"].isin(set(clips["content"]))]
    return table[table["control"] != "yes"] if "control" in table else table


def need_table(ablations: pd.DataFrame) -> pd.DataFrame:
    """What spelling loses without the cue, for each side, model and stack."""
    return measure_cue_need(ablations, by=NEED_KEYS) if len(ablations) else pd.DataFrame()


def need_by_number(ablations: pd.DataFrame) -> pd.DataFrame:
    """Share of clips (%) spelled right without the cue, by number of the noun: columns side, model,
    ablated, then numbers."""
    whole = (
        ablations[ablations["layer"].isna() & (ablations["source"] == "cue")]
        if len(ablations)
        else ablations
    )
    if whole.empty or "number" not in whole or whole["number"].nunique() < 2:
        return pd.DataFrame(columns=NEED_KEYS)
    shares = whole.groupby([*NEED_KEYS, "number"], sort=False)["right"].mean().mul(100)
    return shares.unstack("number").reset_index()


def drops_by_layer(ablations: pd.DataFrame) -> pd.DataFrame:
    """Drop of the margin with the cue ablated in one layer, for each side, model and stack."""
    return measure_layer_need(ablations, by=NEED_KEYS)


def format_need_table(need: pd.DataFrame) -> pd.DataFrame:
    """The table of need as people read it."""
    interval = [
        format_interval(low, high) for low, high in zip(need["low"], need["high"], strict=True)
    ]
    shown = need.assign(
        p=need["p"].map(format_p), verdict=need["verdict"].replace("", "inconclusive")
    ).round(1)
    shown["95 % interval"] = interval
    names = {
        "ablated": "stack",
        "right": "right (%)",
        "without_cue": "cue ablated (%)",
        "without_other": "another word (%)",
        "lost": "lost (points)",
        "drop": "margin lost (nats)",
        "drop_other": "by another word",
    }
    order = [
        *NEED_KEYS,
        "right",
        "without_cue",
        "without_other",
        "lost",
        "95 % interval",
        "p",
        "drop",
        "drop_other",
        "groups",
        "clips",
    ]
    shown = shown[[*order, "verdict"]].rename(columns=names)
    return shown.drop(columns="side") if set(shown["side"]) == {"all"} else shown


def row_of_stack(table: pd.DataFrame, row: TableRow, stack: str = "ablated") -> TableRow | None:
    """The row of another table about the same side, model and stack (which it has in this column),
    and measure."""
    if table.empty:
        return None
    here = (
        (table["side"] == row["side"])
        & (table["model"] == row["model"])
        & (table[stack] == row["stack"])
    )
    if "measure" in table:
        here &= table["measure"] == row["measure"]
    return table[here].to_dict("records")[0] if here.any() else None


def controls_table(
    headline: pd.DataFrame, need: pd.DataFrame, controls: Mapping[str, pd.DataFrame | None]
) -> pd.DataFrame:
    """What is claimed, with its controls beside it: a row for each side, model and stack.

    Parameters
    ----------
    headline : DataFrame
        Of whole stacks, with claims.
    need : DataFrame
        From `need_table`; may be empty.
    controls : mapping of name to headline or None
        What the measure shows where there is nothing to show.
    """
    rows = []
    for row in main_measure(headline).to_dict("records"):
        cells = {"side": row["side"], "model": model_name(row["model"]), "stack": row["stack"]}
        cells["trained - untrained"] = _said_difference(row)
        for name, control in controls.items():
            cells[name] = (
                "" if control is None else _said_difference(row_of_stack(control, row, "stack"))
            )
        needed = row_of_stack(need, row)
        for name, column in (
            ("right (%)", "right"),
            ("cue ablated", "without_cue"),
            ("another word ablated", "without_other"),
        ):
            value = float("nan") if needed is None else needed[column]
            cells[name] = "" if value != value else f"{value:.0f}"
        rows.append(cells)
    table = pd.DataFrame(rows)
    empty = [name for name in table if (table[name] == "").all()]
    return table.drop(columns=[*empty, *(["side"] if set(table["side"]) == {"all"} else [])])


def main_measure(headline: pd.DataFrame) -> pd.DataFrame:
    """Rows of Value Zeroing (of the first measure without it) that have a trained model."""
    measure = leading_measure(headline["measure"].unique())
    return headline[(headline["measure"] == measure) & headline["trained"].notna()]


def _said_difference(row: TableRow | None) -> str:
    """A difference in points, and whether anything is claimed of it."""
    difference = float("nan") if row is None else row.get("difference", float("nan"))
    if row is None or difference != difference:
        return ""
    return f"{difference:+.1f}{'' if row.get('claim') else ' (inconclusive)'}"
