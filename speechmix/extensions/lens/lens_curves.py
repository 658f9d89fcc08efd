"""Lenses over many clips: in how many the target beats its foil behind each layer, and how the text errs.

In: tables of `speechmix.lens` of trained models and untrained twins. Out: a table of curves, in which a
layer decides only if its accuracy is above chance and above every twin, there and in all later layers.
Chance is what a model reaches that always prefers the same spelling of a word, whatever it hears.

Draw lenses: margins by layer and word with each layer's text, and curves over clips.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ...errors import InputError
from ...evaluation.statistics.groups import assign_item_groups, build_item_table, describe_groups
from ...evaluation.statistics.intervals import bootstrap_interval
from ...reporting.plots.figure_style import (
    LABEL_SIZE,
    LAYER_LABEL,
    LINE_COLORS,
    TICK_SIZE,
    model_name,
    new_figure,
    shorten_text,
    style_curve_axis,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ...inputs.clips.clip import Clip
    from ...inputs.sentences.sentence import Sentence
    from .lens_result import LensResult

_VALUES = ("accuracy", "error_rate", "difference")


def lens_curves(
    table: pd.DataFrame, items: Sequence[Clip | Sentence], *, group: str | None = None
) -> pd.DataFrame:
    """Average lenses over clips, with intervals and untrained twins.

    Parameters
    ----------
    table : DataFrame
        Rows of `LensResult.to_dataframe`, one below the other, or ``lens.parquet`` of a run.
    items : sequence of Clip or Sentence
        Those of the table.
    group : str, optional
        A column of the items' `meta` that says which belong together, and are drawn together; by
        default speakers, or pair, sentence and target word.

    Returns
    -------
    DataFrame
        A row for each trained model, kind, stack and layer. ``accuracy`` is the share of clips in which
        the target beats its foil, ``chance`` the highest accuracy without evidence, by one constant
        preference for each pair of spellings: 0.5 if each is as often the target as the foil, 1 if
        the same one always is. ``error_rate`` and ``difference`` are of the texts. Each has ``_low``
        and ``_high``, a 95 % bootstrap interval over groups (missing for fewer than five), and
        ``twin_``, the best of the untrained twins of the model. ``decides``: in this and every later
        layer the interval of the accuracy is above chance and above all twins. ``attrs["grouping"]``
        says how many groups and speakers there are.

    Raises
    ------
    InputError
        If the table has a clip that is not among the items, or two different ones of one name.
    """
    clips = build_item_table(items)
    groups, ties = assign_item_groups(clips, items, group)
    group_of = dict(zip(clips["clip"], groups, strict=True))
    if unknown := sorted(set(table["clip"]) - set(group_of)):
        raise InputError(f"the table has a clip that is not among the items: {unknown[0]!r}")
    keys = ["model", "init", "seed", "kind", "stack", "layer", "clip"]
    table = table.assign(group=table["clip"].map(group_of))
    by_clip = _select_distinct(table, keys, ["group", "error_rate", "difference"])
    is_decision = table["against"] == "foil"
    decisions = _select_distinct(table[is_decision], keys, ["margin", "label", "foil"])
    margins = decisions.pop("margin")
    by_clip["accuracy"] = ((margins > 0) + 0.5 * (margins == 0)).where(margins.notna())
    by_clip = by_clip.join(decisions)
    parts = []
    for _, rows in by_clip.groupby(keys[:5], dropna=False, sort=False):
        curve = pd.concat([_average(rows, value) for value in _VALUES], axis=1).reset_index()
        owner = rows.reset_index()[keys[:5]].head(1)  # a trained model has no seed
        parts.append(owner.assign(chance=_chance(rows)).merge(curve, how="cross"))
    compared = _compare_twins(pd.concat(parts, ignore_index=True))
    curves = compared[[*keys[:6], *(column for column in compared if column not in keys)]]
    used = table["clip"].unique()
    curves.attrs["grouping"] = describe_groups(clips.assign(group=groups), ties, names=used)
    return curves


def _select_distinct(table: pd.DataFrame, keys: list[str], values: list[str]) -> pd.DataFrame:
    """Return the values of each key; repeated rows count once, rows that disagree are refused."""
    rows = table[[*keys, *values]].drop_duplicates()
    if (is_repeated := rows.duplicated(keys)).any():
        name = rows.loc[is_repeated, "clip"].iloc[0]
        raise InputError(
            f"the table has different results of {name!r} by the same model: give each clip a name "
            "of its own (clip.with_name), and run the lens again"
        )
    return rows.set_index(keys)


def _chance(rows: pd.DataFrame) -> float:
    """Return the share of clips in which the best constant preference is right."""
    decided = rows.dropna(subset="accuracy")
    spellings = [
        tuple(sorted(pair)) for pair in zip(decided["label"], decided["foil"], strict=True)
    ]
    counts = decided.groupby([pd.Series(spellings, decided.index, dtype=object), "label"]).size()
    return float(counts.groupby(level=0).max().sum() / counts.sum()) if len(counts) else np.nan


def _average(rows: pd.DataFrame, value: str) -> pd.DataFrame:
    """Mean of a value by layer, with its interval over groups."""
    cells = rows.dropna(subset=value).groupby(["layer", "group"])[value]
    sums, counts = (cells.agg(how).unstack("group", fill_value=0) for how in ("sum", "count"))
    layers = pd.Index(sorted(rows.index.get_level_values("layer").unique()), name="layer")
    sums, counts = sums.reindex(layers), counts.reindex(layers)
    low, high = bootstrap_interval(sums.to_numpy(float), counts.to_numpy(float))
    mean = sums.sum(axis=1, min_count=1) / counts.sum(axis=1, min_count=1)
    return pd.DataFrame({value: mean, f"{value}_low": low, f"{value}_high": high})


def _compare_twins(curves: pd.DataFrame) -> pd.DataFrame:
    """Trained models beside their best twin, and which layers decide."""
    keys = ["model", "kind", "stack", "layer"]
    is_twin = curves["init"] == "random"
    best = {"accuracy": "max", "error_rate": "min", "difference": "min"}
    twins = curves[is_twin].groupby(keys)[list(_VALUES)].agg(best).add_prefix("twin_")
    trained = curves[~is_twin].join(twins, on=keys)
    limit = trained[["chance", "twin_accuracy"]].max(axis=1)
    above = (trained["accuracy_low"] > limit).astype(int)
    later = above.iloc[::-1].groupby([trained[key] for key in (*keys[:3], "seed")], dropna=False)
    return trained.assign(decides=later.cummin().astype(bool))


_CURVE_LABELS = {
    "accuracy": "target beats foil (share of clips)",
    "error_rate": "character error rate",
    "difference": "difference from the last layer's text",
}


def lens_panel(result: LensResult, *, ax: Axes | None = None) -> Axes:
    """Draw the margins as a map, with what each layer would have written on the right.

    Blue: the layer prefers the word. A dot marks the layer that decides it.
    """
    count, rows = len(result.choices), result.decided_layers + 1
    size = (3.6 + 0.7 * count, 1.2 + 0.24 * len(result.texts))
    ax = new_figure(*size).subplots() if ax is None else ax
    limit = np.abs(result.margins[np.isfinite(result.margins)]).max(initial=1e-9)
    style = {"cmap": "RdBu", "vmin": -limit, "vmax": limit, "aspect": "auto", "origin": "lower"}
    image = ax.imshow(result.margins, **style)
    ax.scatter(np.arange(count), rows, s=14, color="black")
    labels = [f"{c.label}\nnot {c.foil}" if c.foil else c.label for c in result.choices]
    ax.set_xticks(range(count), labels, parse_math=False)
    ax.set_yticks(range(len(result.texts)), ["input", *map(str, result.layers[1:])])
    ax.tick_params(labelsize=TICK_SIZE, length=2, width=0.6)
    ax.set_ylabel(LAYER_LABEL, size=LABEL_SIZE)
    for row, text in enumerate(result.texts):
        label = shorten_text(text, 40) or "–"
        ax.text(count - 0.4, row, label, va="center", size=TICK_SIZE, parse_math=False)
    title = f"{result.kind} lens of the {result.stack}: text by layer on the right"
    ax.set_title(title, size=TICK_SIZE)
    bar = ax.figure.colorbar(image, ax=ax, location="left", shrink=0.8, pad=1.1 / size[0])
    bar.set_label("margin (nats)", size=LABEL_SIZE)
    bar.ax.tick_params(labelsize=TICK_SIZE)
    return ax


def lens_curve_panel(
    curves: pd.DataFrame, *, value: str = "accuracy", ax: Axes | None = None
) -> Axes:
    """Draw "accuracy", "error_rate" or "difference" of `speechmix.lens_curves` over layers.

    The band is the interval of a model, the dashed line the best of its untrained twins, the grey
    line chance.
    """
    ax = new_figure(4.2, 3.0).subplots() if ax is None else ax
    for (model, rows), color in zip(curves.groupby("model", sort=False), LINE_COLORS, strict=False):
        layers, name = rows["layer"], model_name(model)
        ax.plot(layers, rows[value], color=color, marker="o", markersize=3, label=name)
        ax.fill_between(
            layers, rows[f"{value}_low"], rows[f"{value}_high"], color=color, alpha=0.15
        )
        twin = rows[f"twin_{value}"]
        ax.plot(layers, twin, color=color, linestyle="--", label=f"{name}: best untrained twin")
    if value == "accuracy":
        ax.axhline(curves["chance"].max(), color="0.6", linewidth=0.7)
    ax.set_xlabel(LAYER_LABEL, size=LABEL_SIZE)
    ax.set_ylabel(_CURVE_LABELS[value], size=LABEL_SIZE)
    style_curve_axis(ax)
    ax.set_xticks(sorted(curves["layer"].unique()))
    ax.legend(fontsize=TICK_SIZE, frameon=False)
    return ax
