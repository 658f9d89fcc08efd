"""Sentences that conclude where a label can be read, against untrained models.

In: the tables of `Probes`. Out: one row for each layer of each trained model, with two questions
kept apart:

    read    is accuracy above the larger of majority and control? the interval over groups leaves it
            out, at a level that is corrected over all rows of the model (Bonferroni; random labels
            for few words are read below chance, so the control alone would be too low a bar).
            Numbers: is R^2 above 0 and the control, and above what the position alone explains, both
            likewise, and p of the shuffles significant in all rows of the model together?
    more    is it above untrained models of the architecture? the interval to one more untrained
            model (`compare_with_twins`) of the mean over all layers of a stack, together over all
            stacks, positions and labels; layers have a band, and nothing is concluded from one

A decoder whose own input holds the answer is read
in every layer, trained or not: then only `more` says something of training.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pandas as pd

from ...evaluation.statistics.claim_rule import FEWEST_CLAIM_GROUPS, FEWEST_TWINS
from ...evaluation.statistics.grouped_means import TableRow
from ...evaluation.statistics.intervals import FEWEST_GROUPS, LEVEL, mean_interval
from ...evaluation.statistics.random_twin_comparison import WHOLE_STACK, compare_with_twins
from ...mixing.passes.request import AUDIO_UNITS

PROBE_KEYS = ["part", "model", "stack", "position", "label"]


def draw_conclusions(table: pd.DataFrame, answers: pd.DataFrame) -> pd.DataFrame:
    """Test every layer of every trained model.

    Parameters
    ----------
    table, answers : DataFrame
        `Probes.scores` and `Probes.answers` of logistic probes, or of ridge regressions.

    Returns
    -------
    DataFrame
        Columns `PROBE_KEYS`, layer, accuracy (or r2), low, high, majority (or by_position), control, groups,
        n; untrained (mean of twins), twins, twin_low, twin_high (a band over layers), read (bool); and of
        the mean over layers, the same in each layer of a stack: difference, difference_low,
        difference_high, more (bool). Empty without a trained model.
    """
    by = [*PROBE_KEYS, "layer"]
    is_number = "r2" in table
    value, answer, baseline = (
        ("r2", "explained", "by_position") if is_number else ("accuracy", "right", "majority")
    )
    rows = table[table["init"] == "trained"].set_index(by)
    trained_answers = answers[answers["init"] == "trained"]
    if rows.empty or trained_answers.empty:
        return pd.DataFrame(columns=[*by, value, "read", "more", "groups"])
    result = rows[[value, "low", "high", baseline, "control", "groups", "n"]].copy()
    rows_of_model = result.groupby("model")[value].transform("size")
    if is_number:
        explained = trained_answers[answer].astype(float)
        gains = explained - trained_answers["by_position"].astype(float)
        places = result.reset_index()[PROBE_KEYS].drop_duplicates()["model"].value_counts()
        levels = (1 - LEVEL) / places.reindex(result.index.get_level_values("model"))
        result["read"] = (
            (rows["p"] <= levels.to_numpy())
            & (
                _lower_limits(_values_by_group(trained_answers, by, explained), rows_of_model)
                > rows["control"].clip(0).fillna(0)
            )
            & (_lower_limits(_values_by_group(trained_answers, by, gains), rows_of_model) > 0)
        )
    else:
        means = trained_answers.groupby([*by, "group"], sort=False)[answer].mean()
        limit = result[["majority", "control"]].max(axis=1)
        is_constant = means.groupby(level=by, sort=False).agg(
            lambda values: values.nunique() == 1 and len(values) >= FEWEST_GROUPS
        )
        result["read"] = (_lower_limits(means, rows_of_model) > limit) | (
            is_constant.reindex(result.index) & (result["accuracy"] > limit)
        )
    scores = answers.rename(columns={"item": "clip"}).assign(
        contribution=100 * answers[answer].astype(float)
    )
    over_layers = scores.assign(layer=WHOLE_STACK - 1)  # -1 is the input of the first layer
    comparison = compare_with_twins(
        pd.concat([scores, over_layers], ignore_index=True),
        by=by,
        group="group",
        primary={"layer": WHOLE_STACK - 1},
    ).set_index(by)
    of_layers = comparison.reindex(result.index)
    result["untrained"] = of_layers["random"] / 100
    result["twins"] = of_layers["twins"]
    result[["twin_low", "twin_high"]] = of_layers[["twin_low", "twin_high"]] / 100
    of_stacks = comparison.reset_index()
    of_stacks = of_stacks[of_stacks["layer"] == WHOLE_STACK - 1].set_index(PROBE_KEYS)
    of_stacks = of_stacks.reindex(result.index.droplevel("layer"))
    for column, name in _STACK_COLUMNS.items():
        result[name] = of_stacks[column].to_numpy() / 100
    result["more"] = (of_stacks["claim"] == "more").to_numpy()
    return result.reset_index()


_STACK_COLUMNS = {"difference": "difference", "low": "difference_low", "high": "difference_high"}


def _values_by_group(answers: pd.DataFrame, by: list[str], values: pd.Series) -> pd.Series:
    """Values of each group, whose mean is that over items (`scores.ratio_by_group`)."""
    sums = values.groupby([answers[name] for name in [*by, "group"]], sort=False)
    table = sums.agg(["sum", "count"])
    means = table.groupby(level=by, sort=False)
    ratio = means["sum"].transform("mean") / means["count"].transform("mean")
    return ratio + (table["sum"] - ratio * table["count"]) / means["count"].transform("mean")


def _lower_limits(means: pd.Series, rows_of_model: pd.Series) -> pd.Series:
    """Lower limits over groups of each row, corrected over the rows of its model."""
    by = list(rows_of_model.index.names)
    limits = {
        key: mean_interval(values, level=1 - (1 - LEVEL) / rows_of_model[key])[0]
        for key, values in means.groupby(level=by, sort=False)
    }
    return pd.Series(limits).reindex(rows_of_model.index)


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
    position_text = {
        "deciding": "the deciding position",
        "between": "the words between",
        **{level: f"each {level}" for level in AUDIO_UNITS},
    }.get(position)
    position_text = position_text or (
        f"word {position}" if position.isdigit() else f"the {position}"
    )
    value = "r2" if "r2" in rows else "accuracy"
    best_row = rows[rows["read"]].sort_values(value, kind="stable").iloc[-1].to_dict()
    text = (
        f"{model_text}: a probe predicts {label} from the vectors of {position_text} in the {stack}, "
        f"{_describe_layers(rows, 'read')}. {_format_score(best_row)}"
    )
    if rows["twins"].max() < FEWEST_TWINS or rows["groups"].max() < FEWEST_CLAIM_GROUPS:
        return (
            f"{text} It is not known whether training added this: the comparison needs "
            f"{FEWEST_TWINS} untrained twins and {FEWEST_CLAIM_GROUPS} groups; there are "
            f"{rows['twins'].max():.0f} and {rows['groups'].max():.0f}."
        )
    comparative, untrained = (
        ("better", f"R² {best_row['untrained']:.2f}")
        if value == "r2"
        else ("more accurate", f"{100 * best_row['untrained']:.0f} %")
    )
    unit, scale = ("", 1) if value == "r2" else (" points", 100)
    row = rows.iloc[0]
    mean, low, high = (
        f"{scale * row[name]:+.{2 if scale == 1 else 0}f}"
        for name in ("difference", "difference_low", "difference_high")
    )
    interval = (
        f"{mean}{unit}, 95 % interval {low} to {high}"
        if row["difference_low"] == row["difference_low"]
        else f"{mean}{unit}"
    )
    if not row["more"]:
        return (
            f"{text} It is inconclusive whether the probe is {comparative} than in untrained models "
            f"({untrained} there; mean over all layers: {interval})."
        )
    return (
        f"{text} Over all layers, the probe is {comparative} than in untrained models ({untrained} "
        f"there; mean: {interval})."
    )


def _format_score(row: TableRow) -> str:
    if "r2" in row:
        control = (
            ""
            if row["control"] != row["control"]
            else (f" Random values for each word (a control) have {row['control']:.2f}.")
        )
        return (
            f"Its best R² (share of variance) is {row['r2']:.2f} (confidence interval {row['low']:.2f} to "
            f"{row['high']:.2f}). The position in the clip alone has {row['by_position']:.2f}.{control}"
        )
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
