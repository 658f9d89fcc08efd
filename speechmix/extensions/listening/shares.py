"""Shares of items that need the sound, are solved without it, or follow the text against the sound.

In: one row for each item (`item_table`). Out: a table of shares with confidence intervals over groups of items, for all
items and for each kind, and a verdict. With right(x) whether the answer to an item with the sound x is right:

    needs the sound     mean of right(own) - right(other), over items whose other sound has another answer
    changes             the answer with the other sound differs from that with the own sound, over the same items
    solved without      mean of right(silence) and right(noise)
    text dominance      conflict items that follow the text, of those that follow text or sound

An item that is right by luck with its own sound is as often right with another one: its mean is zero. The verdict rests
on exchanged recordings. Silence and noise are unusual inputs: a model that has learnt to ignore recordings may still
change its answer in silence. Groups of items that share a recording, a pair or a transcript have equal weight.
Intervals are exact binomial ones, with a group as one trial; that of the first share is of a difference of two.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ...evaluation.statistics.grouped_means import TableRow
from ...evaluation.statistics.intervals import (
    FEWEST_GROUPS,
    LEVEL,
    difference_interval,
    proportion_interval,
)
from .effects import NO_PROMPT, PLAYERS
from .item_groups import group_items
from .items import ListeningItem
from .questions import NOISE, OTHER, OWN, SILENCE

ALL_ITEMS = "all"
NEGLIGIBLE = 0.05  # share of items whose answer may change, of a model that does not listen
NEEDS, CHANGES, SOLVED, SOLVED_WITHOUT, DOMINANCE = SHARES = (
    "needs the sound",
    "answer changes with the sound",
    "solved with the sound",
    "solved without the sound",
    "text dominance",
)
VERDICTS = {
    "uses the sound": "The model uses the sound in {} of these items: with other recordings, fewer answers are right.",
    "does not use the sound": "On these items the model does not use the sound: at most 5 % of its answers change with "
    "other recordings.",
    "reacts to the sound": "The sound changes the answers of the model, but it is not shown to lead to the right ones.",
    "inconclusive": "These items do not show whether the model uses the sound: more of them are needed.",
    "too few groups": f"Nothing is claimed: fewer than {FEWEST_GROUPS} independent groups of items have another "
    "recording with another answer.",
}


def item_table(
    conditions: pd.DataFrame, items: Sequence[ListeningItem], group: str | None = None
) -> pd.DataFrame:
    """Summarize the conditions of each item in one row.

    Parameters
    ----------
    conditions : DataFrame
        Rows of `listening_effects` with the column item.
    items : sequence of ListeningItem
    group : str, optional
        As for `group_items`.

    Returns
    -------
    DataFrame
        item, kind, group, answer, choice; correct (with its sound); needs (1: right only with its own sound, -1: only
        with another, 0; NaN if the other sound has the same answer, or there is none); changes (1: the answer differs
        with the other sound, 0; NaN likewise); changes_muted (whether it differs in silence or noise); solved_without
        (0 to 1); follows ("sound", "text", "other"; empty without a conflict); chance; sound_effect (nats that the right
        answer loses, mean over silence, noise and another sound), prompt_effect; probabilities by condition; Shapley
        values.
    """
    by_name = {item.name: item for item in items}
    groups = group_items(items, group)
    rows = []
    for name, item_conditions in conditions.groupby("item", sort=False):
        item = by_name[str(name)]
        by_condition = item_conditions.set_index("condition").to_dict("index")
        rows.append(
            {"item": item.name, "kind": item.kind, "group": groups[item.name]}
            | _summarize_item(item, by_condition, by_name)
        )
    return pd.DataFrame(rows)


def _summarize_item(
    item: ListeningItem,
    by_condition: Mapping[Hashable, TableRow],
    by_name: Mapping[str, ListeningItem],
) -> dict[str, Any]:
    own_row, other_row = by_condition[OWN], by_condition.get(OTHER)
    muted = [by_condition[name] for name in (SILENCE, NOISE)]
    donor = by_name.get(own_row["donor"])
    needs = changes = np.nan
    if other_row and donor and donor.answer.casefold() != item.answer.casefold():
        needs = float(own_row["correct"]) - float(other_row["correct"])
        changes = float(own_row["choice"] != other_row["choice"])
    follows = ""
    if item.is_conflict:
        follows = {item.answer: "sound", item.text_answer: "text"}.get(own_row["choice"], "other")
    replaced = [*muted, other_row] if other_row else muted
    losses = [own_row["log_probability"] - row["log_probability"] for row in replaced]
    no_prompt = by_condition.get(NO_PROMPT, {}).get("log_probability", np.nan)
    return {
        "answer": item.answer,
        "choice": own_row["choice"],
        "correct": own_row["correct"],
        "needs": needs,
        "changes": changes,
        "changes_muted": any(row["choice"] != own_row["choice"] for row in muted),
        "solved_without": np.mean([row["correct"] for row in muted]),
        "follows": follows,
        "chance": item.chance,
        "sound_effect": float(np.mean(losses)),
        "prompt_effect": own_row["log_probability"] - no_prompt,
        "mass": own_row["mass"],
        **{f"probability ({name})": row["probability"] for name, row in by_condition.items()},
        **{f"shapley_{player}": own_row[f"shapley_{player}"] for player in PLAYERS},
    }


def listening_shares(table: pd.DataFrame) -> pd.DataFrame:
    """Compute the shares for all items and for each kind.

    Parameters
    ----------
    table : DataFrame
        As `item_table` returns it.

    Returns
    -------
    DataFrame
        kind ("all" first), share (its name), value, low, high (0 to 1; intervals of the kinds hold together, corrected
        by Bonferroni; NaN for fewer than 8 groups), items, groups, chance.
    """
    kinds = [kind for kind in table["kind"].unique() if kind]
    rows = _share_rows(ALL_ITEMS, table, LEVEL)
    for kind in kinds if len(kinds) > 1 else []:
        rows += _share_rows(kind, table[table["kind"] == kind], 1 - (1 - LEVEL) / len(kinds))
    return pd.DataFrame(rows)


def _share_rows(kind: str, table: pd.DataFrame, level: float) -> list[dict[str, Any]]:
    conflicts = table[table["follows"].isin(["sound", "text"])]
    columns = {
        NEEDS: table["needs"],
        CHANGES: table["changes"],
        SOLVED: table["correct"],
        SOLVED_WITHOUT: table["solved_without"],
        DOMINANCE: conflicts["follows"] == "text",
    }
    rows = []
    for name, values in columns.items():
        values = values.astype(float).dropna()
        if values.empty:
            continue
        members = table.loc[values.index]
        gains, losses = (
            (sign * values).clip(lower=0).groupby(members["group"]).mean() for sign in (1, -1)
        )
        count, limits = len(gains), (np.nan, np.nan)
        if count >= FEWEST_GROUPS and name == NEEDS:
            limits = difference_interval(gains.sum(), losses.sum(), count, level=level)
        elif count >= FEWEST_GROUPS:
            limits = proportion_interval(gains.sum(), count, level=level)
        value = float(gains.mean() - losses.mean())
        row = {"kind": kind, "share": name, "value": value, "low": limits[0], "high": limits[1]}
        counts = {"items": len(values), "groups": count, "chance": members["chance"].mean()}
        rows.append(row | counts)
    return rows


def find_share(shares: pd.DataFrame, name: str, kind: str = ALL_ITEMS) -> TableRow | None:
    """Return the row of a share; None if no item has it."""
    rows = shares[(shares["share"] == name) & (shares["kind"] == kind)].to_dict("records")
    return rows[0] if rows else None


def describe_shares(shares: pd.DataFrame, kind: str = ALL_ITEMS) -> dict[str, str]:
    """Return each share with its interval, in %, by its name.

    Examples
    --------
    >>> row = {"kind": "all", "share": NEEDS, "value": 0.5, "low": 0.375, "high": 0.62, "groups": 70, "chance": 0}
    >>> describe_shares(pd.DataFrame([row]))
    {'needs the sound': '50 % [38, 62]'}
    """
    texts = {}
    for row in shares[shares["kind"] == kind].to_dict("records"):
        count, text = row["groups"], f"{round(100 * row['value'])} %"
        if count >= FEWEST_GROUPS:
            text += f" [{round(100 * row['low'])}, {round(100 * row['high'])}]"
        else:
            text += f" ({count} group{'s' * (count != 1)}, no interval)"
        if row["share"] in (SOLVED, SOLVED_WITHOUT) and row["chance"] > 0:
            text += f" (guessing: {round(100 * row['chance'])} %)"
        texts[row["share"]] = text
    return texts


def listening_verdict(shares: pd.DataFrame) -> str:
    """Say whether the answers depend on the sound, from input to output.

    Returns
    -------
    {"uses the sound", "does not use the sound", "reacts to the sound", "inconclusive", "too few groups"}
        "Uses": the share of items that need the sound is above zero. "Does not use": at most 5 % of the answers change
        with the recording of another item (upper limit of the interval). "Reacts": answers change, but not shown toward
        the right one. All at 95 %.
    """
    needs, changes = find_share(shares, NEEDS), find_share(shares, CHANGES)
    if changes is None or changes["groups"] < FEWEST_GROUPS:
        return "too few groups"
    if needs is not None and needs["low"] > 0:
        return "uses the sound"
    if changes["high"] <= NEGLIGIBLE:
        return "does not use the sound"
    return "reacts to the sound" if changes["low"] > NEGLIGIBLE else "inconclusive"
