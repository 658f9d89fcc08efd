"""Where a label can be read, and where better than off untrained models: what may be said of
probes.

In: the tables of `Probes`. Out: one row for each layer of each trained model, with two questions
kept apart:

    read    is accuracy above the larger of majority and control? the interval over groups leaves it out, at a level that is
            corrected over all rows of the model (Bonferroni)
            (random labels for few words are read below chance, so the control alone would be too low a bar)
    more    is it above untrained models of the architecture? the rank among the twins and the interval over groups, as in
            `twin_comparison.compare_with_twins`, in one test over all rows of the model

A decoder whose own input holds the answer is read
in every layer, trained or not: then only `more` says something of training.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from ..statistics.grouped_means import TableRow
from ..statistics.intervals import FEWEST_GROUPS, mean_interval
from ..statistics.rank_test import SURE, TWINS_NEEDED
from ..statistics.twin_comparison import compare_with_twins

KEYS = ["part", "model", "stack", "position", "label"]


def probe_claims(table: pd.DataFrame, answers: pd.DataFrame) -> pd.DataFrame:
    """Test every layer of every trained model.

    Parameters
    ----------
    table, answers : DataFrame
        `Probes.table` and `Probes.answers` of logistic probes.

    Returns
    -------
    DataFrame
        Columns `KEYS`, layer, accuracy, low, high, majority, control, groups, n; untrained (mean
        accuracy of twins), twins, read (bool), p_twins, more (bool). Empty without a trained model.
    """
    by = [*KEYS, "layer"]
    rows = table[table["init"] == "trained"].set_index(by)
    trained = answers[answers["init"] == "trained"]
    if rows.empty or trained.empty:
        return pd.DataFrame(columns=[*by, "accuracy", "read", "more", "groups"])
    result = rows[["accuracy", "low", "high", "majority", "control", "groups", "n"]].copy()
    bar = result[["majority", "control"]].max(axis=1)
    means = trained.groupby([*by, "group"], sort=False)["right"].mean()
    rows_of_model = result.groupby("model")["accuracy"].transform("size")
    lowest = {
        key: mean_interval(values, level=1 - SURE / rows_of_model[key])[0]
        for key, values in means.groupby(level=by, sort=False)
    }
    always = {
        key: values.nunique() == 1 and len(values) >= FEWEST_GROUPS
        for key, values in means.groupby(level=by, sort=False)
    }
    result["read"] = (pd.Series(lowest).reindex(result.index) > bar) | (
        pd.Series(always).reindex(result.index) & (result["accuracy"] > bar)
    )
    scores = answers.rename(columns={"item": "clip"}).assign(
        contribution=100 * answers["right"].astype(float)
    )
    against = compare_with_twins(scores, by=by, group="group").set_index(by)
    result["untrained"] = against["random"].reindex(result.index) / 100
    result["twins"] = against["twins"].reindex(result.index)
    result["p_twins"] = against["p"].reindex(result.index)
    result["more"] = against["claim"].reindex(result.index) == "more"
    return result.reset_index()


def sentences(claims: pd.DataFrame, names: Mapping[str, str] | None = None) -> list[str]:
    """One sentence for each model, part, stack and position off which something can be read;
    nothing is said of others.

    Parameters
    ----------
    claims : DataFrame
        From `probe_claims`.
    names : mapping of model to str, optional
        What models are called in the text.
    """
    told = [
        _sentence(key, rows.sort_values("layer"), names or {})
        for key, rows in claims.groupby(KEYS, sort=False)
    ]
    return [sentence for sentence in told if sentence]


def _sentence(key: Iterable[object], rows: pd.DataFrame, names: Mapping[str, str]) -> str:
    part, model, stack, position, label = map(str, key)
    if not rows["read"].any() or rows["groups"].max() < FEWEST_GROUPS:
        return ""
    where = names.get(model, model) + ("" if part == "all" else f", {part} cue")
    off = {"deciding": "the deciding position", "between": "the words between"}.get(position)
    off = off or (f"word {position}" if position.isdigit() else f"the {position}")
    best = rows[rows["read"]].sort_values("accuracy", kind="stable").iloc[-1].to_dict()
    text = (
        f"{where}: {label} can be read off {off} in the {stack} {_layers(rows, 'read')} "
        f"({_numbers(best)})"
    )
    if rows["twins"].max() < TWINS_NEEDED:
        twins = f"{rows['twins'].max():.0f} untrained twins"
        return (
            f"{text}; with {twins} nothing is claimed of what training added ({TWINS_NEEDED} "
            "are needed)."
        )
    rows = rows.assign(both=rows["read"] & rows["more"])
    if not rows["both"].any():
        return (
            f"{text}, but whether better than off untrained models is inconclusive "
            f"({100 * best['untrained']:.0f} %)."
        )
    same = rows["both"].tolist() == rows["read"].tolist()
    layers = "" if same else f" {_layers(rows, 'both')}"
    return f"{text}, better than off untrained models{layers} ({100 * best['untrained']:.0f} %)."


def _numbers(row: TableRow) -> str:
    accuracy = (
        f"at best {100 * row['accuracy']:.0f} % right [{100 * row['low']:.0f}, "
        f"{100 * row['high']:.0f}]"
    )
    return (
        f"{accuracy}; random labels {100 * row['control']:.0f} %, most frequent label "
        f"{100 * row['majority']:.0f} %"
    )


def _layers(rows: pd.DataFrame, column: str) -> str:
    """In which layers something holds, in words.

    Examples
    --------
    >>> _layers(pd.DataFrame({"layer": [-1, 0, 1, 2], "read": [False, False, True, True]}), "read")
    'from layer 1 on'
    >>> _layers(pd.DataFrame({"layer": [-1, 0, 1, 2], "read": [True, False, True, False]}), "read")
    'in its input and in layer 1'
    """
    layers = rows["layer"].tolist()
    holds = [layer for layer, is_so in zip(layers, rows[column], strict=True) if is_so]
    if holds == layers[-len(holds) :]:
        return "from its input on" if holds[0] < 0 else f"from layer {holds[0]} on"
    named = [str(layer) for layer in holds if layer >= 0]
    word = "layer" if len(named) == 1 else "layers"
    inner = (
        f"in {word} {' and '.join(part for part in (', '.join(named[:-1]), *named[-1:]) if part)}"
        if named
        else ""
    )
    return " and ".join(part for part in ("in its input" if holds[0] < 0 else "", inner) if part)
