"""Say in sentences how much the cue contributes and whether spelling needs it.

In: the rows of whole stacks, and what spelling loses without the cue. Out: for
each model and side, how much the cue contributes, and whether ablating it lowers accuracy.

Tables of spelling loss without the cue, by stack, layer and number.

In: a run's ablation table, clips with their groups, and the rows of whole stacks. Out: tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from ...evaluation.cue_need import (
    CHANCE_PERCENT,
    MARGIN_POINTS,
    measure_cue_need,
    measure_layer_need,
)
from ...evaluation.statistics.claim_rule import FEWEST_CLAIM_GROUPS
from ...evaluation.statistics.grouped_means import TableRow
from ...mixing.maps.measure_registry import leading_measure
from ...mixing.maps.numerics import STRENGTH_FLOOR
from ...runs.results.open_run import StoredRun
from ..plots.figure_style import model_name
from .result_sentences import (
    format_count,
    idle_stack,
    is_idle,
    join_names,
    unclaimed_reason,
)
from .table_format import format_interval, stack_name, stack_phrase

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


def stack_sentences(
    headline: pd.DataFrame, need: pd.DataFrame, by_number: pd.DataFrame
) -> list[str]:
    """Write one paragraph for each model and side: cue contribution, and need of the cue, by stack.

    `headline` has whole stacks with claims; `need` and `by_number` come from `need_table` and
    `need_by_number`, and may be empty.
    """
    paragraphs = []
    for model_and_side, model_rows in _iterate_models_and_sides(headline):
        rows = model_rows.to_dict("records")
        sentences = [
            _stack_sentence(row, find_stack_row(need, row), find_stack_row(by_number, row))
            for row in rows
        ]
        paragraphs.append(f"{model_and_side}: {' '.join(sentences)}{_ranking_sentence(rows, need)}")
    return paragraphs


def short_answers(headline: pd.DataFrame, need: pd.DataFrame) -> list[str]:
    """Say for each model and side in which stacks spelling needs the cue, and where it contributes
    more.

    More is more than in untrained models. `headline` has whole stacks with claims; `need` comes
    from `need_table`, and may be empty.
    """
    answers = []
    for model_and_side, model_rows in _iterate_models_and_sides(headline):
        rows = model_rows.to_dict("records")
        answers.append(
            " ".join(
                filter(
                    None,
                    [f"{model_and_side}:", _need_answer(rows, need), _contribution_answer(rows)],
                )
            )
        )
    return answers


def _iterate_models_and_sides(headline: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Yield the rows of the main measure for each model and side, with the name that begins their
    sentence."""
    for (model, side), model_rows in main_measure(headline).groupby(["model", "side"], sort=False):
        yield model_name(model) + (f", {side} cue" if side != "all" else ""), model_rows


def _need_answer(rows: Sequence[TableRow], need: pd.DataFrame) -> str:
    """Say in which stacks ablating the cue lowers spelling accuracy, in which it does not, and
    which are inconclusive."""
    by_verdict: dict[str, list[str]] = {}
    stack_needs = [
        (row, stack_need) for row in rows if (stack_need := find_stack_row(need, row)) is not None
    ]
    if not stack_needs:
        return ""
    if max(stack_need["groups"] for _, stack_need in stack_needs) < FEWEST_CLAIM_GROUPS:
        groups = format_count(
            int(max(stack_need["groups"] for _, stack_need in stack_needs)), "group"
        )
        return (
            f"It was not tested whether spelling needs the cue: the test needs {FEWEST_CLAIM_GROUPS} groups "
            f"of clips, and this run has {groups}."
        )
    for row, stack_need in stack_needs:
        stack = stack_phrase(row["stack"])
        if stack_need["verdict"] == "needed":
            intact_accuracy, ablated = stack_need["right"], stack_need["without_cue"]
            stack += f" (from {intact_accuracy:.0f} % to {ablated:.0f} %)"
        by_verdict.setdefault(str(stack_need["verdict"]), []).append(stack)
    sentences = []
    for verdict, text in _NEED_ANSWERS.items():
        if verdict in by_verdict:
            sentences.append(
                text.format(
                    join_names(by_verdict[verdict], "or" if verdict == "not needed" else "and")
                )
            )
    return " ".join(sentences)


_NEED_ANSWERS = {
    "needed": "Spelling accuracy falls if the cue is ablated in {}.",
    "not needed": f"Ablating the cue costs less than {MARGIN_POINTS:.0f} points of accuracy in {{}}.",
    "at chance": "The need for the cue cannot be tested in {}: the intact model spells no better "
    "than chance.",
    "": "It is inconclusive whether spelling needs the cue in {}.",
}


def _contribution_answer(rows: Sequence[TableRow]) -> str:
    """Say in which stacks the cue contributes more, or less, than in untrained models."""
    if all(
        row.get("difference", float("nan")) != row.get("difference", float("nan")) for row in rows
    ):
        shares = [f"{row['trained']:.1f} % in {stack_phrase(row['stack'])}" for row in rows]
        return (
            f"The cue's share in the target is {join_names(shares)}. The run has no untrained model "
            "to compare with."
        )
    moving_rows = [
        row for row in rows if not is_idle(row) and row["difference"] == row["difference"]
    ]
    rows_by_reason: dict[str, list[TableRow]] = {}
    for row in moving_rows:
        rows_by_reason.setdefault(unclaimed_reason(row), []).append(row)
    testable_rows = rows_by_reason.pop("", [])
    clauses = [
        f"{claim} to the target in {join_names(stacks)}"
        for claim in ("more", "less")
        if (stacks := _list_claimed_stacks(testable_rows, claim))
    ]
    unclaimed_rows = [row for row in testable_rows if not row["claim"]]
    sentences = []
    if clauses:
        sentences.append(
            f"Compared with untrained models, the cue contributes {', '.join(clauses)}."
        )
    if unclaimed_rows:
        stacks = [
            f"{stack_phrase(row['stack'])} ({_format_difference(row)})" for row in unclaimed_rows
        ]
        sentences.append(
            f"The comparison with untrained models is inconclusive in {join_names(stacks)}."
        )
    sentences += [f"{_list_differences(rows)} {reason}." for reason, rows in rows_by_reason.items()]
    return " ".join([*sentences, *(f"{idle_stack(row)}." for row in rows if is_idle(row))])


def _format_difference(row: TableRow) -> str:
    """Format a difference in points, with its interval if there is one."""
    interval = format_interval(row["low"], row["high"])
    return f"{row['difference']:+.1f} points{interval and f', 95 % interval {interval}'}"


def _list_differences(rows: Sequence[TableRow]) -> str:
    """List differences to untrained models, in words."""
    differences = [
        f"{row['difference']:+.1f} points in {stack_phrase(row['stack'])}" for row in rows
    ]
    return f"The cue's contribution differs from untrained models by {join_names(differences)}."


def _list_claimed_stacks(rows: Sequence[TableRow], claim: str) -> list[str]:
    """List the stacks of which this is concluded."""
    names = []
    for row in rows:
        if row["claim"] == claim:
            names.append(f"{stack_phrase(row['stack'])} ({_format_difference(row)})")
    return names


def _stack_sentence(row: TableRow, need: TableRow | None, numbers: TableRow | None) -> str:
    """Say what the cue contributes in one stack, and what ablating it there does to spelling."""
    contribution = f"In {stack_phrase(row['stack'])}, {_contribution_text(row)}."
    if need is None:
        return f"{contribution} It was not tested whether spelling needs the cue there."
    intact, ablated = f"{need['right']:.0f} %", f"{need['without_cue']:.0f} %"
    is_more = row.get("claim") == "more"
    verdict = need["verdict"]
    if verdict == "at chance":
        return (
            f"{contribution} The intact model spells no better than chance ({intact} correct), so "
            "the need for the cue cannot be tested."
        )
    if verdict == "needed":
        opening = "Ablating" if is_more else "However, ablating"
        effect = (
            f"{opening} the cue there lowers spelling accuracy from {intact} to {ablated}"
            f"{_number_shares_text(numbers)}."
        )
    elif verdict == "not needed":
        opening = "However, ablating" if is_more else "Ablating"
        effect = (
            f"{opening} the cue there costs less than {MARGIN_POINTS:.0f} points of accuracy "
            f"({intact} intact, {ablated} ablated)."
        )
    else:
        effect = (
            "It is inconclusive whether spelling needs the cue there. Accuracy is "
            f"{intact} for the intact model and {ablated} with the cue ablated ({_inconclusive_reason(need)})."
        )
    if need["without_other"] == need["without_other"]:
        effect += f" With another word ablated, it is {need['without_other']:.0f} %."
    return f"{contribution} {effect}"


def _inconclusive_reason(need: TableRow) -> str:
    """Say why the effect of an ablation is inconclusive."""
    if need["groups"] < FEWEST_CLAIM_GROUPS:
        groups = format_count(int(need["groups"]), "group")
        return f"{groups} of clips; a test needs {FEWEST_CLAIM_GROUPS}"
    if need["right_low"] <= CHANCE_PERCENT:
        return (
            f"the confidence interval of the intact accuracy is {need['right_low']:.0f} to "
            f"{need['right_high']:.0f} %, which includes chance"
        )
    interval = format_interval(need["low"], need["high"])
    return f"confidence interval of the loss: {interval} points"


def _contribution_text(row: TableRow) -> str:
    """Compare the contribution of the cue in a stack with untrained models, in words."""
    difference = row.get("difference", float("nan"))
    if difference != difference:
        return f"the cue contributes {row['trained']:.1f} % to the target"
    if is_idle(row):
        return (
            f"the target's representation changes by less than {100 * STRENGTH_FLOOR:.0f} %, so the "
            "cue's share says nothing"
        )
    if row["claim"]:
        return (
            f"the cue contributes {abs(difference):.1f} percentage points {row['claim']} to the target "
            "than in untrained models"
        )
    open_text = (
        "the cue's contribution differs from untrained models by"
        if unclaimed_reason(row)
        else "it is inconclusive whether the cue contributes more or less than in untrained models:"
    )
    return f"{open_text} {_format_difference(row)}"


def _number_shares_text(numbers: TableRow | None) -> str:
    """Give the accuracy for singular and plural where the two differ much."""
    shares = {name: share for name, share in (numbers or {}).items() if name not in NEED_KEYS}
    if len(shares) != 2 or abs(max(shares.values()) - min(shares.values())) < 25:
        return ""
    names = {"sg": "singular", "pl": "plural"}
    share_texts = ", ".join(
        f"{names.get(str(name), str(name))}: to {share:.0f} %" for name, share in shares.items()
    )
    return f" ({share_texts})"


def _ranking_sentence(rows: Sequence[TableRow], need: pd.DataFrame) -> str:
    """Say whether the stack with the largest contribution is the one that spelling needs most; ""
    without a significant contribution."""
    claimed_rows = [row for row in rows if row.get("claim") == "more"]
    row_needs = [
        (row, stack_need) for row in rows if (stack_need := find_stack_row(need, row)) is not None
    ]
    needed_rows = [
        (row, stack_need) for row, stack_need in row_needs if stack_need["verdict"] == "needed"
    ]
    if len(row_needs) < 2 or not claimed_rows or not needed_rows:
        return ""
    largest_stack = max(claimed_rows, key=lambda row: row["difference"])["stack"]
    most_needed_stack = max(needed_rows, key=lambda pair: pair[1]["lost"])[0]["stack"]
    if most_needed_stack == largest_stack:
        stack = stack_phrase(most_needed_stack, start=True)
        return f" {stack} has both the largest contribution and the largest loss by ablation."
    return (
        f" The contribution is largest in {stack_phrase(largest_stack)}, but the loss by ablation "
        f"is largest in {stack_phrase(most_needed_stack)}. A high contribution is no evidence that "
        "the model uses the cue."
    )
