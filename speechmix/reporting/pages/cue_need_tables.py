"""Tables of spelling loss without the cue, by stack, layer and number.

In: a run's ablation table, clips with their groups, and the rows of whole stacks. Out: tables.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ...evaluation.cue_need import measure_cue_need, measure_layer_need
from ...evaluation.statistics.grouped_means import TableRow
from ...mixing.maps.measure_registry import leading_measure
from ...runs.results.open_run import StoredRun
from ..plots.figure_style import model_name
from .table_format import format_interval, stack_name

NEED_KEYS = ["side", "model", "ablated"]


def trained_ablations(run: StoredRun, clips: pd.DataFrame) -> pd.DataFrame:
    """Select the ablations of trained models, without control clips; add side, number and group of
    each clip.

    The clips come from `add_clip_groups`.
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
    """Compute what spelling loses without the cue, for each side, model and stack."""
    return measure_cue_need(ablations, by=NEED_KEYS) if len(ablations) else pd.DataFrame()


def need_by_number(ablations: pd.DataFrame) -> pd.DataFrame:
    """Compute the share of clips (%) spelled right without the cue, by number of the noun."""
    cue_rows = (
        ablations[ablations["layer"].isna() & (ablations["source"] == "cue")]
        if len(ablations)
        else ablations
    )
    if cue_rows.empty or "number" not in cue_rows or cue_rows["number"].nunique() < 2:
        return pd.DataFrame(columns=NEED_KEYS)
    shares = cue_rows.groupby([*NEED_KEYS, "number"], sort=False)["right"].mean().mul(100)
    return shares.unstack("number").reset_index()


def drops_by_layer(ablations: pd.DataFrame) -> pd.DataFrame:
    """Compute the drop of the margin with the cue ablated in one layer, for each side, model and
    stack."""
    return measure_layer_need(ablations, by=NEED_KEYS)


def format_need_table(need: pd.DataFrame) -> pd.DataFrame:
    """Format the table of need for readers."""
    interval = [
        format_interval(low, high) for low, high in zip(need["low"], need["high"], strict=True)
    ]
    formatted = need.assign(verdict=need["verdict"].replace("", "inconclusive")).round(1)
    formatted["95 % interval"] = interval
    names = {
        "ablated": "stack",
        "right": "intact (%)",
        "without_cue": "cue ablated (%)",
        "without_other": "another word (%)",
        "lost": "lost (points)",
        "drop": "margin lost (nats)",
        "drop_other": "another word, margin lost",
    }
    order = [
        *NEED_KEYS,
        "right",
        "without_cue",
        "without_other",
        "lost",
        "95 % interval",
        "drop",
        "drop_other",
        "groups",
        "clips",
    ]
    formatted = formatted[[*order, "verdict"]].rename(columns=names)
    return formatted.drop(columns="side") if set(formatted["side"]) == {"all"} else formatted


def find_stack_row(table: pd.DataFrame, row: TableRow, stack: str = "ablated") -> TableRow | None:
    """Find the row of another table for the same side, model, stack (in this column) and
    measure."""
    if table.empty:
        return None
    is_match = (
        (table["side"] == row["side"])
        & (table["model"] == row["model"])
        & (table[stack] == row["stack"])
    )
    if "measure" in table:
        is_match &= table["measure"] == row["measure"]
    return table[is_match].to_dict("records")[0] if is_match.any() else None


def controls_table(
    headline: pd.DataFrame, need: pd.DataFrame, controls: Mapping[str, pd.DataFrame | None]
) -> pd.DataFrame:
    """Put each difference beside its controls: a row for each side, model and stack.

    `headline` has whole stacks with claims; `need` comes from `need_table`, and may be empty.
    `controls` map a name to what the measure shows where there is nothing to show, or to None.
    """
    rows = []
    for row in main_measure(headline).to_dict("records"):
        cells = {
            "side": row["side"],
            "model": model_name(row["model"]),
            "stack": stack_name(row["stack"]),
        }
        cells["trained - untrained (points)"] = _format_difference_cell(row)
        for name, control in controls.items():
            cells[name] = (
                ""
                if control is None
                else _format_difference_cell(find_stack_row(control, row, "stack"))
            )
        need_row = find_stack_row(need, row)
        for name, column in (
            ("intact (%)", "right"),
            ("cue ablated (%)", "without_cue"),
            ("another word ablated (%)", "without_other"),
        ):
            value = float("nan") if need_row is None else need_row[column]
            cells[name] = "" if value != value else f"{value:.0f}"
        rows.append(cells)
    table = pd.DataFrame(rows)
    empty_columns = [name for name in table if (table[name] == "").all()]
    return table.drop(
        columns=[*empty_columns, *(["side"] if set(table["side"]) == {"all"} else [])]
    )


def main_measure(headline: pd.DataFrame) -> pd.DataFrame:
    """Select the rows of Value Zeroing (of the first measure without it) that have a trained
    model."""
    measure = leading_measure(headline["measure"].unique())
    return headline[(headline["measure"] == measure) & headline["trained"].notna()]


def _format_difference_cell(row: TableRow | None) -> str:
    """Format a difference in percentage points with its interval."""
    difference = float("nan") if row is None else row.get("difference", float("nan"))
    if row is None or difference != difference:
        return ""
    interval = format_interval(row["low"], row["high"])
    return f"{difference:+.1f}{interval and f' ({interval})'}"
