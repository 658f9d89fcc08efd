"""Trajectories: what changes over training steps, and in which layer.

In: tables of a run of checkpoints and untrained twins, and which model is which step. Out: values by
checkpoint, layer and group of clips; curves with intervals. What they show: `trajectory_claims`.

    contribution   share of the cue in the target's (or the deciding) row, 0 to 1
    need           what the margin of the target over its foil loses without the cue's values, nats
    other_word     the same without the values of another word of about the cue's length
    margin, right  of the intact model: nats, and the share of clips spelled right
    error_rate     edits per character of its transcripts

Of all but the contribution, clips are averaged for each spelling of a group first, so that a mere
preference for one spelling cancels where a group has both.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import pandas as pd

from ...evaluation.statistics.intervals import mean_intervals, twin_bands
from ...evaluation.statistics.random_twin_comparison import STRENGTH, WHOLE_STACK, whole_stack
from ...inputs.words.cue_and_target import CONTROL, CUE

CELL = ["quantity", "measure", "stack", "layer"]
CONTRIBUTION, NEED, OTHER = "contribution", "need", "other_word"
Cell = tuple[Hashable, ...]  # values of the columns CELL
CURVE_COLUMNS = [
    "training",
    "step",
    *CELL,
    "value",
    "low",
    "high",
    "twin_low",
    "twin_high",
    "groups",
]
_CELL_COLUMNS = ["training", "step", "seed", *CELL, "group", "value", "strength"]


def measure_trajectory(
    contributions: pd.DataFrame,
    ablation: pd.DataFrame,
    clips: pd.DataFrame,
    steps: Mapping[str, tuple[str, int]],
    transcripts: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Average what a run measured by checkpoint, cell and group of clips.

    Parameters
    ----------
    contributions, ablation, transcripts : DataFrame
        Tables of the run; any may be empty, the last missing.
    clips : DataFrame
        Columns clip, group, target.
    steps : mapping of str to (training, step)
        Of each checkpoint by the name of its model.

    Returns
    -------
    DataFrame
        training, step (missing for twins, whose training is ""), seed (of twins), quantity, measure,
        stack, layer (-1: the whole stack), group, value, strength (mixing strength of a contribution).
    """
    parts = [_contribution_values(contributions), *_spelling_values(ablation)]
    if transcripts is not None and len(transcripts):
        rates = transcripts.rename(columns={"character_error_rate": "value"})
        rates = rates.assign(quantity="error_rate", measure="", stack="", layer=WHOLE_STACK)
        parts.append(rates[["model", "init", "seed", "clip", *CELL, "value"]])
    table = pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)
    categories = [name for name in table if isinstance(table[name].dtype, pd.CategoricalDtype)]
    table = table.astype(dict.fromkeys(categories, object))
    about = clips.set_index("clip")[["group", "target"]]
    if "control" in clips:  # words about which the cue decides nothing
        about = about[(clips["control"] != "yes").to_numpy()]
    table = table.join(about, on="clip", how="inner")
    is_twin = table["init"] == "random"
    trainings, numbers = ({name: key[place] for name, key in steps.items()} for place in (0, 1))
    table["training"] = table["model"].map(trainings).mask(is_twin, "")
    table["step"] = table["model"].map(numbers).astype("Int64").mask(is_twin)
    table = table[is_twin | table["step"].notna()]
    table.loc[table["quantity"] == CONTRIBUTION, "target"] = ""
    keys = ["training", "step", "seed", *CELL, "group"]
    columns = ["value", "strength"]
    means = table.groupby([*keys, "target"], dropna=False, sort=False)[columns].mean()
    return means.groupby(level=keys, dropna=False, sort=False).mean().reset_index()[_CELL_COLUMNS]


def _contribution_values(table: pd.DataFrame) -> pd.DataFrame:
    """Contribution by clip: of the deciding row where there is one, layers and whole stacks."""
    names = ["model", "init", "seed", "clip", *CELL, "value", "strength"]
    if table.empty:
        return pd.DataFrame(columns=names)
    has_deciding = table.groupby(["model", "stack"], observed=True)["rows"].transform(
        lambda rows: (rows == "deciding").any()
    )
    rows = table[(table["rows"] == "deciding") | ~has_deciding]
    columns = ["model", "init", "seed", "clip", "measure", "stack", "layer"]
    rows = rows[[*columns, "contribution", STRENGTH]]
    both = pd.concat([rows, whole_stack(rows)[list(rows)]], ignore_index=True)
    both = both.rename(columns={"contribution": "value", STRENGTH: "strength"})
    return both.assign(quantity=CONTRIBUTION)[names]


def _spelling_values(table: pd.DataFrame) -> list[pd.DataFrame]:
    """Margin, accuracy and what is lost without a word, by clip."""
    if table.empty:
        return []
    keys = ["model", "init", "seed", "clip"]
    rows = table.assign(measure="", layer=table["layer"].fillna(WHOLE_STACK).astype(int))
    intact = rows[rows["ablated"] == "none"].assign(stack="")
    lost = rows[rows["ablated"] != "none"].merge(
        intact[[*keys, "margin"]], on=keys, suffixes=("", "_intact")
    )
    lost = lost.assign(
        value=lost["margin_intact"] - lost["margin"],
        quantity=lost["source"].map({CUE: NEED, CONTROL: OTHER}),
        stack=lost["ablated"],
    )
    parts = [lost, intact.assign(value=intact["margin"], quantity="margin")]
    parts.append(intact.assign(value=intact["right"].astype(float), quantity="right"))
    return [part[[*keys, *CELL, "value"]] for part in parts]


def trajectory_curves(cells: pd.DataFrame) -> pd.DataFrame:
    """Average over groups, with 95 % intervals, and say where one more untrained twin would lie.

    Parameters
    ----------
    cells : DataFrame
        Of `measure_trajectory`.

    Returns
    -------
    DataFrame
        training, step, quantity, measure, stack, layer, value, low, high (missing for fewer than
        eight groups), twin_low, twin_high (of one more twin, 95 %; missing for fewer than two twins),
        groups.
    """
    trained = cells[cells["step"].notna()]
    wide = trained.pivot_table(
        index=["training", *CELL, "step"], columns="group", values="value", sort=False
    )
    low, high = mean_intervals(wide.to_numpy(float))
    curves = pd.DataFrame(
        {"value": wide.mean(axis=1), "low": low, "high": high, "groups": wide.notna().sum(axis=1)}
    ).reset_index()
    limits = limit_twins(cells[cells["step"].isna()])
    curves = curves.join(limits, on=CELL).astype({"step": int, "layer": int})
    order = pd.factorize(pd.MultiIndex.from_frame(curves[["training", *CELL]]))[0]
    rows = np.lexsort([curves["step"].to_numpy(), order])
    return curves.iloc[rows][CURVE_COLUMNS].reset_index(drop=True)


def limit_twins(twins: pd.DataFrame) -> pd.DataFrame:
    """Return where one more twin lies (`twin_bands`) by cell, from columns CELL, seed and value."""
    means = twins.pivot_table("value", CELL, "seed")
    low, high = twin_bands(means.to_numpy(float))
    return pd.DataFrame({"twin_low": low, "twin_high": high}, index=means.index)


def _value_array(
    rows: pd.DataFrame, keys: Sequence[Cell], names: list[str], groups: pd.Index
) -> np.ndarray:
    """Return the values with some keys in the columns `names` as an array [keys, groups]; NaN where one lacks."""
    wide = rows.pivot_table(index=names, columns="group", values="value", sort=False)
    index = pd.MultiIndex.from_tuples(keys, names=names)
    values: np.ndarray = wide.reindex(index=index, columns=groups).to_numpy(float)
    return values


def step_values(rows: pd.DataFrame, cells: Sequence[Cell], steps: Sequence[int]) -> np.ndarray:
    """Return the values of a training [cells, steps, groups]."""
    keys = [(*cell, step) for cell in cells for step in steps]
    values = _value_array(rows, keys, [*CELL, "step"], _list_groups(rows))
    return values.reshape(len(cells), len(steps), -1)


def twin_values(twins: pd.DataFrame, cells: Sequence[Cell], rows: pd.DataFrame) -> np.ndarray:
    """Return the values of each twin [twins, cells, groups], over the groups of a training."""
    seeds, groups = list(twins["seed"].unique()), _list_groups(rows)
    if not seeds:
        return np.empty((0, len(cells), len(groups)))
    keys = [(seed, *cell) for seed in seeds for cell in cells]
    values = _value_array(twins, keys, ["seed", *CELL], groups)
    return values.reshape(len(seeds), len(cells), -1)


def _list_groups(rows: pd.DataFrame) -> pd.Index:
    groups: pd.Index = pd.Index(sorted(rows["group"].unique(), key=str))
    return groups


def reference_differences(
    rows: pd.DataFrame, twins: pd.DataFrame, cells: Sequence[Cell]
) -> tuple[list[int], np.ndarray]:
    """Return the steps of a training, and its values minus those of the untrained model [C, T, G].

    The untrained model is the training's step 0; without one, the mean of the twins.
    """
    steps = sorted(rows["step"].unique())
    values, by_twin = step_values(rows, cells, steps), twin_values(twins, cells, rows)
    has_start = steps[0] == 0 or not len(by_twin)
    return steps, values - (values[:, :1] if has_start else by_twin.mean(axis=0)[:, None])


def average_groups(values: np.ndarray) -> np.ndarray:
    """Return means over groups [..., G]; NaN where no group has a value."""
    with np.errstate(invalid="ignore"):
        means: np.ndarray = np.nansum(values, axis=-1) / np.isfinite(values).sum(axis=-1)
    return means
