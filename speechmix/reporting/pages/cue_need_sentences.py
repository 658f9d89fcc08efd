"""Contribution and need together, in sentences.

In: the rows of whole stacks, and what spelling loses without the cue (`cue_need_tables`). Out: for
each model and side, how much the cue contributes in each stack, and whether ablating it there
lowers spelling accuracy.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from ...evaluation.cue_need import CHANCE_PERCENT, MARGIN_POINTS
from ...evaluation.statistics.grouped_means import TableRow
from ...evaluation.statistics.intervals import FEWEST_GROUPS
from ...mixing.maps.numerics import STRENGTH_FLOOR
from ..plots.panels import model_name
from .cue_need_tables import NEED_KEYS, main_measure, row_of_stack
from .table_format import format_interval
from .wording import format_count, idle_stack, is_idle, join_names, reason_for_silence, stack_phrase


def joint_sentences(
    headline: pd.DataFrame, need: pd.DataFrame, by_number: pd.DataFrame
) -> list[str]:
    """One paragraph for each model and side: contribution in each stack, and whether spelling needs
    the cue there.

    Parameters
    ----------
    headline : DataFrame
        Of whole stacks, with claims.
    need : DataFrame
        From `need_table`; may be empty.
    by_number : DataFrame
        From `need_by_number`; may be empty.
    """
    paragraphs = []
    for where, part in _by_model_and_side(headline):
        rows = part.to_dict("records")
        parts = [
            _stack_sentence(row, row_of_stack(need, row), row_of_stack(by_number, row))
            for row in rows
        ]
        paragraphs.append(f"{where}: {' '.join(parts)}{_ranking(rows, need)}")
    return paragraphs


def short_answers(headline: pd.DataFrame, need: pd.DataFrame) -> list[str]:
    """For each model and side: in which stacks spelling needs the cue, and where it contributes
    more than untrained.

    Parameters
    ----------
    headline : DataFrame
        Of whole stacks, with claims.
    need : DataFrame
        From `need_table`; may be empty.
    """
    answers = []
    for where, part in _by_model_and_side(headline):
        rows = part.to_dict("records")
        answers.append(
            " ".join(
                filter(None, [f"{where}:", _need_answer(rows, need), _contribution_answer(rows)])
            )
        )
    return answers


def _by_model_and_side(headline: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Rows of the main measure by model and side, each with what a sentence about them begins
    with."""
    for (model, side), part in main_measure(headline).groupby(["model", "side"], sort=False):
        yield model_name(model) + (f", {side} cue" if side != "all" else ""), part


def _need_answer(rows: Sequence[TableRow], need: pd.DataFrame) -> str:
    """In which stacks ablating the cue lowers spelling accuracy, in which it does not, and which
    are inconclusive."""
    by_verdict: dict[str, list[str]] = {}
    of_stacks = [(row, found) for row in rows if (found := row_of_stack(need, row)) is not None]
    if not of_stacks:
        return ""
    if max(found["groups"] for _, found in of_stacks) < FEWEST_GROUPS:
        groups = format_count(int(max(found["groups"] for _, found in of_stacks)), "group")
        return f"With {groups} of clips nothing is claimed about need ({FEWEST_GROUPS} are needed)."
    for row, found in of_stacks:
        stack = stack_phrase(row["stack"])
        if found["verdict"] == "needed":
            stack += f" (from {found['right']:.0f} % to {found['without_cue']:.0f} % right)"
        by_verdict.setdefault(str(found["verdict"]), []).append(stack)
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
    "needed": "Ablating the cue lowers spelling accuracy in {}.",
    "not needed": f"Ablating it loses less than {MARGIN_POINTS:.0f} points in {{}}.",
    "at chance": "The intact model spells no better than chance, so need cannot be tested in {}.",
    "": "Whether spelling needs the cue is inconclusive in {}.",
}


def _contribution_answer(rows: Sequence[TableRow]) -> str:
    """In which stacks the cue contributes more, or less, than in untrained models."""
    if all(
        row.get("difference", float("nan")) != row.get("difference", float("nan")) for row in rows
    ):
        shares = [f"{row['trained']:.1f} % in {stack_phrase(row['stack'])}" for row in rows]
        return f"The cue contributes {join_names(shares)} (no untrained model to compare with)."
    moving = [row for row in rows if not is_idle(row) and row["difference"] == row["difference"]]
    of_reason: dict[str, list[TableRow]] = {}
    for row in moving:
        of_reason.setdefault(reason_for_silence(row), []).append(row)
    testable = of_reason.pop("", [])
    clauses = [
        f"{claim} in {join_names(stacks)}"
        for claim in ("more", "less")
        if (stacks := _claimed_stacks(testable, claim))
    ]
    silent = [
        stack_phrase(row["stack"])
        for row in testable
        if not (row["claim"] or row.get("more_in") or row.get("less_in"))
    ]
    sentences = []
    if clauses:
        sentences.append(
            f"Compared with untrained models, the cue contributes {', '.join(clauses)}."
        )
    if silent:
        sentences.append(
            f"The comparison with untrained models is inconclusive in {join_names(silent)}."
        )
    sentences += [f"{_differences(rows)} {reason}." for reason, rows in of_reason.items()]
    return " ".join([*sentences, *(f"{idle_stack(row)}." for row in rows if is_idle(row))])


def _differences(rows: Sequence[TableRow]) -> str:
    """Differences to untrained models, in words."""
    shown = [f"{row['difference']:+.1f} points in {stack_phrase(row['stack'])}" for row in rows]
    return f"The cue's contribution differs from untrained models by {join_names(shown)}."


def _claimed_stacks(rows: Sequence[TableRow], claim: str) -> list[str]:
    """Stacks of which "more" or "less" is claimed, of the whole or of single layers."""
    names = []
    for row in rows:
        if row["claim"] == claim:
            names.append(f"{stack_phrase(row['stack'])} ({row['difference']:+.1f} points)")
        elif row.get(f"{claim}_in"):
            names.append(f"single layers of {stack_phrase(row['stack'])}")
    return names


def _stack_sentence(row: TableRow, need: TableRow | None, numbers: TableRow | None) -> str:
    """What the cue contributes in one stack, and what ablating it there does to spelling."""
    contribution = f"In {stack_phrase(row['stack'])}, {_contribution(row)}"
    if need is None:
        return f"{contribution}; it was not tested whether spelling needs it there."
    accuracy = f"{need['right']:.0f} % right, {need['without_cue']:.0f} % without the cue"
    accuracy += _numbers(numbers) if need["verdict"] == "needed" else ""
    if need["without_other"] == need["without_other"]:
        accuracy += f", {need['without_other']:.0f} % without another word"
    is_more = row.get("claim") == "more" or (row.get("more_in") and not row.get("claim"))
    if need["verdict"] == "needed":
        return (
            f"{contribution}{', and' if is_more else ', but'} ablating it there lowers spelling "
            f"accuracy ({accuracy})."
        )
    if need["verdict"] == "not needed":
        joint = ", but" if is_more else ", and"
        return (
            f"{contribution}{joint} ablating it there loses less than {MARGIN_POINTS:.0f} points "
            f"({accuracy})."
        )
    if need["verdict"] == "at chance":
        chance = f"The intact model spells no better than chance ({need['right']:.0f} % right)"
        return f"{contribution}. {chance}: need cannot be tested."
    return (
        f"{contribution}. Whether spelling needs it there is inconclusive "
        f"({accuracy}{_why_inconclusive(need)})."
    )


def _why_inconclusive(need: TableRow) -> str:
    if need["groups"] < FEWEST_GROUPS:
        return f"; {format_count(int(need['groups']), 'group')}, {FEWEST_GROUPS} are needed"
    if need["right_low"] <= CHANCE_PERCENT:
        return (
            f"; the intact accuracy lies between {need['right_low']:.0f} and "
            f"{need['right_high']:.0f} %"
        )
    return f"; {format_interval(need['low'], need['high'])} points lost"


def _contribution(row: TableRow) -> str:
    """Contribution of the cue in a stack against untrained models."""
    difference = row.get("difference", float("nan"))
    if difference != difference:
        return (
            f"the cue contributes {row['trained']:.1f} % to the target (no untrained model to "
            "compare with)"
        )
    if is_idle(row):
        return (
            f"no source moves the target by {100 * STRENGTH_FLOOR:.0f} % of its state, so the "
            "cue's share says nothing"
        )
    if row["claim"]:
        return (
            f"the cue contributes {abs(difference):.1f} points {row['claim']} than in untrained "
            "models"
        )
    layers = [claim for claim in ("more", "less") if row.get(f"{claim}_in")]
    if layers:
        claims = " and ".join(layers)
        return (
            f"the cue contributes {claims} than in untrained models in single layers "
            f"({difference:+.1f} points overall)"
        )
    return f"the difference to untrained models is inconclusive ({difference:+.1f} points)"


def _numbers(numbers: TableRow | None) -> str:
    """Which number is lost, where the two differ."""
    shares = {name: share for name, share in (numbers or {}).items() if name not in NEED_KEYS}
    if len(shares) != 2 or abs(max(shares.values()) - min(shares.values())) < 25:
        return ""
    names = {"sg": "singular", "pl": "plural"}
    shown = ", ".join(
        f"{names.get(str(name), str(name))} {share:.0f} %" for name, share in shares.items()
    )
    return f" ({shown})"


def _ranking(rows: Sequence[TableRow], need: pd.DataFrame) -> str:
    """Whether the stack with the largest claimed contribution is one that spelling needs; "" where
    nothing is claimed."""
    claimed = [row for row in rows if row.get("claim") == "more"]
    needs = [(row, found) for row in rows if (found := row_of_stack(need, row)) is not None]
    needed = [(row, found) for row, found in needs if found["verdict"] == "needed"]
    if len(needs) < 2 or not claimed or not needed:
        return ""
    first = max(claimed, key=lambda row: row["difference"])["stack"]
    most = max(needed, key=lambda pair: pair[1]["lost"])[0]["stack"]
    if most == first:
        return f" Contribution and need both point to {stack_phrase(most)}."
    return (
        f" The contribution is largest in {stack_phrase(first)}, but the largest loss by ablation "
        "is in "
        f"{stack_phrase(most)}: a "
        "high contribution is no evidence that the model uses the cue."
    )
