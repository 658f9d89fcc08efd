"""Where a label can be read, and where better than off untrained models: what may be said of probes.

In: the tables of `Probes`. Out: one row for each layer of each trained model, with two questions kept apart:

    read    is accuracy above the larger of majority and control? permutation test over groups, and the interval leaves it out
            (random labels for few words are read below chance, so the control alone would be too low a bar)
    more    is it above untrained models of the architecture? both tests of `statistics.trained_against_random`, over groups and
            over twins; needs two twins at least

p of each question is corrected over all rows (Benjamini & Hochberg 1995). A decoder whose own input holds the answer is read
in every layer, trained or not: then only `more` says something of training.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from ..statistics import SURE, corrected, over_groups, trained_against_random, with_claims

KEYS = ["part", "model", "stack", "position", "label"]
FEWEST_GROUPS = 6  # below which no permutation test reaches p < 0.05


def probe_claims(table: pd.DataFrame, answers: pd.DataFrame) -> pd.DataFrame:
    """Test every layer of every trained model.

    Parameters
    ----------
    table, answers : DataFrame
        `Probes.table` and `Probes.answers` of logistic probes.

    Returns
    -------
    DataFrame
        Columns `KEYS`, layer, accuracy, low, high, majority, control, groups, n; untrained (mean accuracy of twins), twins,
        q_read, read (bool), q_twins, more (bool). Empty without a trained model.
    """
    by = [*KEYS, "layer"]
    rows = table[table["init"] == "trained"].set_index(by)
    trained = answers[answers["init"] == "trained"]
    if rows.empty or trained.empty:
        return pd.DataFrame(columns=[*by, "accuracy", "read", "more", "groups"])
    result = rows[["accuracy", "low", "high", "majority", "control", "groups", "n"]].copy()
    bar = result[["majority", "control"]].max(axis=1)
    means = trained.groupby([*by, "group"], sort=False)["right"].mean()
    p = {key: over_groups(right - bar[key])["p_clips"] for key, right in means.groupby(level=by, sort=False)}
    p_read = pd.Series(p).reindex(result.index)
    result["q_read"] = corrected(p_read)
    result["read"] = (result["q_read"] < SURE) & (result["low"] > bar)
    scores = answers.rename(columns={"item": "clip"}).assign(contribution=100 * answers["right"].astype(float))
    (against,) = with_claims(trained_against_random(scores, by=by, group="group"))
    against = against.set_index(by)
    result["untrained"] = against["random"].reindex(result.index) / 100
    result["twins"] = against["twins"].reindex(result.index) if "twins" in against else 0
    result["q_twins"] = against["q"].reindex(result.index) if "q" in against else np.nan
    result["more"] = (against["claim"].reindex(result.index) == "more") if "claim" in against else False
    return result.reset_index()


def sentences(claims: pd.DataFrame, names: Mapping[str, str] | None = None) -> list[str]:
    """One sentence for each model, part, stack and position off which something can be read; nothing is said of others.

    Parameters
    ----------
    claims : DataFrame
        From `probe_claims`.
    names : mapping of model to str, optional
        What models are called in the text.
    """
    told = [_sentence(key, rows.sort_values("layer"), names or {}) for key, rows in claims.groupby(KEYS, sort=False)]
    return [sentence for sentence in told if sentence]


def _sentence(key: Any, rows: pd.DataFrame, names: Mapping[str, str]) -> str:
    part, model, stack, position, label = map(str, key)
    if not rows["read"].any() or rows["groups"].max() < FEWEST_GROUPS:
        return ""
    where = names.get(model, model) + ("" if part == "all" else f", {part} cue")
    off = {"deciding": "the deciding position", "between": "the words between"}.get(position)
    off = off or (f"word {position}" if position.isdigit() else f"the {position}")
    best = rows[rows["read"]].sort_values("accuracy", kind="stable").iloc[-1].to_dict()
    text = f"{where}: {label} can be read off {off} in the {stack} {_layers(rows, 'read')} ({_numbers(best)})"
    if rows["twins"].max() < 2:
        twins = "one random twin" if rows["twins"].max() == 1 else "no random twin"
        return f"{text}; with {twins} nothing says what of it is learned."
    rows = rows.assign(both=rows["read"] & rows["more"])
    if not rows["both"].any():
        return f"{text}, but not surely better than off untrained models ({100 * best['untrained']:.0f} %)."
    same = rows["both"].tolist() == rows["read"].tolist()
    layers = "" if same else f" {_layers(rows, 'both')}"
    return f"{text}, better than off untrained models{layers} ({100 * best['untrained']:.0f} %)."


def _numbers(row: Mapping[Hashable, Any]) -> str:
    accuracy = f"at best {100 * row['accuracy']:.0f} % right [{100 * row['low']:.0f}, {100 * row['high']:.0f}]"
    return f"{accuracy}; random labels {100 * row['control']:.0f} %, most frequent label {100 * row['majority']:.0f} %"


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
    inner = f"in {word} {' and '.join(part for part in (', '.join(named[:-1]), *named[-1:]) if part)}" if named else ""
    return " and ".join(part for part in ("in its input" if holds[0] < 0 else "", inner) if part)
