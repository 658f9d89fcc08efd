"""Contribution and need together: the numbers and the sentences of the page's first screen.

In: a run's ablation table, clips with their groups, and the headline. Out: what spelling loses without the cue, by stack, layer
and number; and one sentence for each model and side that says both what the cue gives and whether the decision needs it there.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from ..evaluation.need import need_by_layer, need_of_cue
from ..plots.panels import model_name
from ..storage.reading import StoredRun
from .study_tables import said_interval, said_p
from .wording import number_of

_BY = ["side", "model", "ablated"]
Row = Mapping[Hashable, Any]


def ablations_of(run: StoredRun, clips: pd.DataFrame) -> pd.DataFrame:
    """Ablation of trained models with side, number and group of each clip; of clips about whose target the cue decides.

    Parameters
    ----------
    run : StoredRun
    clips : DataFrame
        From `study_tables.grouped_clips`.
    """
    table = run.ablation
    if table.empty or "source" not in table:  # a run of an earlier version silenced the cue alone, and in whole stacks
        return pd.DataFrame(columns=[*_BY, "clip", "source", "layer", "margin", "right", "group"])
    columns = [name for name in ("side", "number", "control") if name in clips]
    table = table[table["init"] == "trained"].merge(clips[["clip", "group", *columns]], on="clip")
    table["side"] = table["side"].replace("", "all") if "side" in table else "all"
    return table[table["control"] != "yes"] if "control" in table else table


def need_table(ablations: pd.DataFrame) -> pd.DataFrame:
    """What spelling loses without the cue, for each side, model and stack."""
    return need_of_cue(ablations, by=_BY) if len(ablations) else pd.DataFrame()


def need_by_number(ablations: pd.DataFrame) -> pd.DataFrame:
    """Share of clips (%) spelled right without the cue, by number of the noun: columns side, model, ablated, then numbers."""
    whole = ablations[ablations["layer"].isna() & (ablations["source"] == "cue")] if len(ablations) else ablations
    if whole.empty or "number" not in whole or whole["number"].nunique() < 2:
        return pd.DataFrame(columns=_BY)
    shares = whole.groupby([*_BY, "number"], sort=False)["right"].mean().mul(100)
    return shares.unstack("number").reset_index()


def drops_by_layer(ablations: pd.DataFrame) -> pd.DataFrame:
    """Drop of the margin with the cue silenced in one layer, for each side, model and stack."""
    return need_by_layer(ablations, by=_BY)


def shown_need(need: pd.DataFrame) -> pd.DataFrame:
    """The table of need as people read it."""
    interval = [said_interval(low, high) for low, high in zip(need["low"], need["high"], strict=True)]
    shown = need.assign(q=need["q"].map(said_p)).round(1)
    shown["95 % interval"] = interval
    names = {
        "ablated": "stack", "right": "right (%)", "without_cue": "cue silenced (%)", "without_other": "another word (%)",
        "lost": "lost (points)", "drop": "margin lost (nats)", "drop_other": "by another word",
    }  # fmt: skip
    order = [
        *_BY,
        "right",
        "without_cue",
        "without_other",
        "lost",
        "95 % interval",
        "q",
        "drop",
        "drop_other",
        "groups",
        "clips",
    ]
    shown = shown[[*order, "verdict"]].rename(columns=names)
    return shown.drop(columns="side") if set(shown["side"]) == {"all"} else shown


def joint_sentences(headline: pd.DataFrame, need: pd.DataFrame, by_number: pd.DataFrame) -> list[str]:
    """One sentence for each model and side: what the cue gives in each stack, and whether spelling needs it there.

    Parameters
    ----------
    headline : DataFrame
        Of the best layer, with claims.
    need : DataFrame
        From `need_table`; may be empty.
    by_number : DataFrame
        From `need_by_number`; may be empty.
    """
    sentences = []
    for where, part in _by_model_and_side(headline):
        clauses = [_clause(row, _row_of(need, row), _row_of(by_number, row)) for row in part.to_dict("records")]
        sentences.append(f"{where}: {'; '.join(clauses)}.{_ranking(part, need)}")
    return sentences


def short_answers(headline: pd.DataFrame, need: pd.DataFrame) -> list[str]:
    """One short sentence for each model and side: in which stacks spelling needs the cue, and where it is given more.

    Parameters
    ----------
    headline : DataFrame
        Of the best layer, with claims.
    need : DataFrame
        From `need_table`; may be empty.
    """
    answers = []
    for where, part in _by_model_and_side(headline):
        rows = part.to_dict("records")
        answers.append(f"{where}: {_needed_where(rows, need)}. {_given_where(rows)}.")
    return answers


def _by_model_and_side(headline: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Rows of the main measure by model and side, each with what a sentence about them begins with."""
    for (model, side), part in main_measure(headline).groupby(["model", "side"], sort=False):
        yield model_name(model) + (f", {side} cue" if side != "all" else ""), part


def _needed_where(rows: Sequence[Row], need: pd.DataFrame) -> str:
    """In which stacks spelling needs the cue, in which it does not, and in which that is not known."""
    by_verdict: dict[str, list[str]] = {}
    for row in rows:
        of_stack = _row_of(need, row)
        verdict = "not asked" if of_stack is None else str(of_stack["verdict"])
        stack = _spoken(row["stack"])
        if of_stack is not None and verdict == "needed":
            stack += f" ({of_stack['right']:.0f} % right, {of_stack['without_cue']:.0f} % without it)"
        by_verdict.setdefault(verdict, []).append(stack)
    needed, not_needed = by_verdict.get("needed"), by_verdict.get("not needed")
    clauses = [f"spelling needs it in {_listed(needed)}"] if needed else []
    if not_needed:
        beginning = "not" if needed else "spelling does not need it"
        clauses = [", ".join([*clauses, f"{beginning} in {_listed(not_needed, 'or')}"])]
    for verdict, text in _NOT_KNOWN.items():
        if verdict in by_verdict:
            clauses.append(f"{text} in {_listed(by_verdict[verdict], 'or')}")
    return "; ".join(clauses)


_NOT_KNOWN = {
    "": "whether spelling needs it cannot be told",
    "at chance": "it spells no better than chance",
    "not asked": "whether spelling needs it was not asked",
}


def _given_where(rows: Sequence[Row]) -> str:
    """In which stacks the cue is given more, or less, than in untrained models."""
    differences = [row.get("difference", float("nan")) for row in rows]
    if all(difference != difference for difference in differences):
        shares = [f"{row['trained']:.1f} % in {_spoken(row['stack'])}" for row in rows]
        return f"It is given {_listed(shares)} (no untrained model to compare with)"
    if not any(_is_tested(row) for row in rows):
        shown = [f"{row['difference']:+.1f} points in {_spoken(row['stack'])}" for row in rows]
        return f"Against untrained models it is given {_listed(shown)}: {_UNTESTED}"
    clauses = []
    for claim in ("more", "less"):
        claimed = [row for row in rows if row.get("claim") == claim]
        if claimed:
            stacks = [f"{_spoken(row['stack'])} ({row['difference']:+.1f} points)" for row in claimed]
            clauses.append(f"{claim} than in untrained models in {_listed(stacks)}")
    untested = [_spoken(row["stack"]) for row in rows if not _is_tested(row)]
    told = f"It is given {', '.join(clauses)}" if clauses else "In no stack is it given more than untrained models may"
    return f"{told}; {_listed(untested)}: {_UNTESTED}" if untested else told


_UNTESTED = "too few clips or twins to claim anything"


def _is_tested(row: Row) -> bool:
    """Whether a claim could be made: with few groups of clips, or one twin, there is no q."""
    q = row.get("q", 1.0)
    return q == q


def _listed(names: Sequence[str], joint: str = "and") -> str:
    """Names as people list them.

    Examples
    --------
    >>> _listed(["a", "b", "c"]), _listed(["a"])
    ('a, b and c', 'a')
    """
    return " ".join(filter(None, [", ".join(names[:-1]), joint if names[:-1] else "", names[-1]]))


def _row_of(table: pd.DataFrame, row: Row, stack: str = "ablated") -> Row | None:
    """The row of another table about the same side, model and stack (which it has in this column), and measure."""
    if table.empty:
        return None
    here = (table["side"] == row["side"]) & (table["model"] == row["model"]) & (table[stack] == row["stack"])
    if "measure" in table:
        here &= table["measure"] == row["measure"]
    return table[here].to_dict("records")[0] if here.any() else None


def _clause(row: Row, need: Row | None, numbers: Row | None) -> str:
    """What the cue gives in one stack, and whether spelling needs it there."""
    if need is None:
        return f"{_gives(row)} (whether spelling needs it there was not asked)"
    by_number = _numbers(numbers) if need["verdict"] == "needed" else ""
    without = f"{need['right']:.0f} % right, {need['without_cue']:.0f} % without it{by_number}"
    if need["without_other"] == need["without_other"]:
        without += f", {need['without_other']:.0f} % without another word"
    if need["verdict"] == "needed":
        return f"{_gives(row)}, and spelling needs it there: {without}"
    if need["verdict"] == "at chance":
        return f"{_gives(row)}; it spells no better than chance ({need['right']:.0f} % right), so need cannot be asked"
    if need["verdict"] == "not needed":
        joint = "yet" if row.get("claim") == "more" else "and"
        return f"{_gives(row)}, {joint} spelling does not need it there ({without})"
    lost = said_interval(need["low"], need["high"])
    told = (
        f"; between {lost.replace(' to ', ' and ')} points lost" if lost else f"; {number_of(need['groups'], 'group')}"
    )
    return f"{_gives(row)}, and whether spelling needs it there cannot be told ({without}{told})"


def _gives(row: Row) -> str:
    """Contribution of the cue in a stack against untrained models."""
    stack = _spoken(row["stack"])
    difference = row.get("difference", float("nan"))
    if difference != difference:
        return f"{stack} gives the cue {row['trained']:.1f} % (no untrained model to compare with)"
    if row.get("claim"):
        return f"{stack} gives the cue {abs(difference):.1f} points {row['claim']} than untrained models do"
    if not _is_tested(row):
        return f"{stack} gives the cue {difference:+.1f} points against untrained models ({_UNTESTED})"
    return f"{stack} gives the cue no more than untrained models may ({difference:+.1f} points)"


def _spoken(stack: object) -> str:
    return "cross-attention" if stack == "cross" else f"the {stack}"


def _numbers(numbers: Row | None) -> str:
    """Which number is lost, where the two fare differently."""
    shares = {name: share for name, share in (numbers or {}).items() if name not in _BY}
    if len(shares) != 2 or abs(max(shares.values()) - min(shares.values())) < 25:
        return ""
    spoken = {"sg": "singular", "pl": "plural"}
    shown = ", ".join(f"{spoken.get(str(name), str(name))} {share:.0f} %" for name, share in shares.items())
    return f" ({shown})"


def _ranking(rows: pd.DataFrame, need: pd.DataFrame) -> str:
    """Whether the stack that comes first by contribution is the one that is needed most; "" for one stack."""
    if len(rows) < 2 or need.empty or "difference" not in rows or rows["difference"].isna().all():  # no untrained model
        return ""
    first = rows.loc[rows["difference"].idxmax()]
    here = need[(need["side"] == first["side"]) & (need["model"] == first["model"])]
    if here.empty or not (here["verdict"] == "needed").any():
        return ""
    most = here.loc[here["lost"].idxmax(), "ablated"]
    if most == first["stack"]:
        return f" Contribution and need both point to {_spoken(most)}."
    order = f"Contribution puts {_spoken(first['stack'])} first; what is needed is {_spoken(most)}"
    return f" {order}: do not read the one for the other."


def with_controls(
    headline: pd.DataFrame, need: pd.DataFrame, controls: Mapping[str, pd.DataFrame | None]
) -> pd.DataFrame:
    """What is claimed, with its controls beside it: a row for each side, model and stack.

    Parameters
    ----------
    headline : DataFrame
        Of the best layer, with claims.
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
            cells[name] = "" if control is None else _said_difference(_row_of(control, row, "stack"))
        needed = _row_of(need, row)
        for name, column in (
            ("right (%)", "right"),
            ("cue silenced", "without_cue"),
            ("another word silenced", "without_other"),
        ):
            value = float("nan") if needed is None else needed[column]
            cells[name] = "" if value != value else f"{value:.0f}"
        rows.append(cells)
    table = pd.DataFrame(rows)
    empty = [name for name in table if (table[name] == "").all()]
    return table.drop(columns=[*empty, *(["side"] if set(table["side"]) == {"all"} else [])])


def main_measure(headline: pd.DataFrame) -> pd.DataFrame:
    """Rows of Value Zeroing (of the first measure without it) that have a trained model."""
    measures = list(headline["measure"].unique())
    measure = "value_zeroing" if "value_zeroing" in measures else measures[0] if measures else ""
    return headline[(headline["measure"] == measure) & headline["trained"].notna()]


def _said_difference(row: Row | None) -> str:
    """A difference in points, and whether anything is claimed of it."""
    difference = float("nan") if row is None else row.get("difference", float("nan"))
    if row is None or difference != difference:
        return ""
    return f"{difference:+.1f}{'' if row.get('claim') else ' (no claim)'}"
