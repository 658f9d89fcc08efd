"""Sentences that conclude where a label can be read, against untrained models.

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
from ..statistics.random_twin_comparison import compare_with_twins
from ..statistics.twin_rank_test import FALSE_CLAIM_RATE, TWINS_NEEDED

PROBE_KEYS = ["part", "model", "stack", "position", "label"]


def draw_conclusions(table: pd.DataFrame, answers: pd.DataFrame) -> pd.DataFrame:
    """Test every layer of every trained model.

    Parameters
    ----------
    table, answers : DataFrame
        `Probes.scores` and `Probes.answers` of logistic probes.

    Returns
    -------
    DataFrame
        Columns `PROBE_KEYS`, layer, accuracy, low, high, majority, control, groups, n; untrained (mean
        accuracy of twins), twins, read (bool), p_twins, more (bool). Empty without a trained model.
    """
    by = [*PROBE_KEYS, "layer"]
    rows = table[table["init"] == "trained"].set_index(by)
    trained_answers = answers[answers["init"] == "trained"]
    if rows.empty or trained_answers.empty:
        return pd.DataFrame(columns=[*by, "accuracy", "read", "more", "groups"])
    result = rows[["accuracy", "low", "high", "majority", "control", "groups", "n"]].copy()
    baseline = result[["majority", "control"]].max(axis=1)
    means = trained_answers.groupby([*by, "group"], sort=False)["right"].mean()
    rows_of_model = result.groupby("model")["accuracy"].transform("size")
    lower_limits = {
        key: mean_interval(values, level=1 - FALSE_CLAIM_RATE / rows_of_model[key])[0]
        for key, values in means.groupby(level=by, sort=False)
    }
    is_constant = {
        key: values.nunique() == 1 and len(values) >= FEWEST_GROUPS
        for key, values in means.groupby(level=by, sort=False)
    }
    result["read"] = (pd.Series(lower_limits).reindex(result.index) > baseline) | (
        pd.Series(is_constant).reindex(result.index) & (result["accuracy"] > baseline)
    )
    scores = answers.rename(columns={"item": "clip"}).assign(
        contribution=100 * answers["right"].astype(float)
    )
    comparison = compare_with_twins(scores, by=by, group="group").set_index(by)
    result["untrained"] = comparison["random"].reindex(result.index) / 100
    result["twins"] = comparison["twins"].reindex(result.index)
    result["p_twins"] = comparison["p"].reindex(result.index)
    result["more"] = comparison["claim"].reindex(result.index) == "more"
    return result.reset_index()


def describe_conclusions(
    conclusions: pd.DataFrame, names: Mapping[str, str] | None = None
) -> list[str]:
    """One sentence for each model, part, stack and position off which something can be read;
    nothing is said of others.

    Parameters
    ----------
    conclusions : DataFrame
        From `draw_conclusions`.
    names : mapping of model to str, optional
        What models are called in the text.
    """
    sentences = [
        _describe_position(key, rows.sort_values("layer"), names or {})
        for key, rows in conclusions.groupby(PROBE_KEYS, sort=False)
    ]
    return [sentence for sentence in sentences if sentence]


def _describe_position(key: Iterable[object], rows: pd.DataFrame, names: Mapping[str, str]) -> str:
    part, model, stack, position, label = map(str, key)
    if not rows["read"].any() or rows["groups"].max() < FEWEST_GROUPS:
        return ""
    model_text = names.get(model, model) + ("" if part == "all" else f", {part} cue")
    position_text = {"deciding": "the deciding position", "between": "the words between"}.get(
        position
    )
    position_text = position_text or (
        f"word {position}" if position.isdigit() else f"the {position}"
    )
    best_row = rows[rows["read"]].sort_values("accuracy", kind="stable").iloc[-1].to_dict()
    text = (
        f"{model_text}: a probe predicts {label} from the vectors of {position_text} in the {stack}, "
        f"{_describe_layers(rows, 'read')}. {_format_accuracy(best_row)}"
    )
    if rows["twins"].max() < TWINS_NEEDED:
        twins = f"{rows['twins'].max():.0f}"
        return (
            f"{text} It is not known whether training added this: the comparison needs "
            f"{TWINS_NEEDED} untrained twins, and probes were run for {twins}."
        )
    rows = rows.assign(both=rows["read"] & rows["more"])
    if not rows["both"].any():
        return (
            f"{text} It is inconclusive whether the probe is more accurate than in untrained models "
            f"({100 * best_row['untrained']:.0f} %)."
        )
    has_same_layers = rows["both"].tolist() == rows["read"].tolist()
    layers = "" if has_same_layers else f" {_describe_layers(rows, 'both')}"
    return (
        f"{text} The probe is more accurate than in untrained models{layers} "
        f"({100 * best_row['untrained']:.0f} %)."
    )


def _format_accuracy(row: TableRow) -> str:
    accuracy = (
        f"Its best accuracy is {100 * row['accuracy']:.0f} % (confidence interval "
        f"{100 * row['low']:.0f} to {100 * row['high']:.0f} %)."
    )
    return (
        f"{accuracy} A probe of random labels (a control) has {100 * row['control']:.0f} %. Always choosing "
        f"the most frequent label gives {100 * row['majority']:.0f} %."
    )


def _describe_layers(rows: pd.DataFrame, column: str) -> str:
    """In which layers something holds, in words.

    Examples
    --------
    >>> _describe_layers(pd.DataFrame({"layer": [-1, 0, 1, 2], "read": [False, False, True, True]}), "read")
    'from layer 1 on'
    >>> _describe_layers(pd.DataFrame({"layer": [-1, 0, 1, 2], "read": [True, False, True, False]}), "read")
    'in the input of the first layer and in layer 1'
    """
    layers = rows["layer"].tolist()
    layers_with_effect = [layer for layer, is_so in zip(layers, rows[column], strict=True) if is_so]
    if layers_with_effect == layers[-len(layers_with_effect) :]:
        return (
            "from the input of the first layer on"
            if layers_with_effect[0] < 0
            else f"from layer {layers_with_effect[0]} on"
        )
    layer_names = [str(layer) for layer in layers_with_effect if layer >= 0]
    word = "layer" if len(layer_names) == 1 else "layers"
    layer_text = (
        f"in {word} {' and '.join(part for part in (', '.join(layer_names[:-1]), *layer_names[-1:]) if part)}"
        if layer_names
        else ""
    )
    return " and ".join(
        part
        for part in (
            "in the input of the first layer" if layers_with_effect[0] < 0 else "",
            layer_text,
        )
        if part
    )
