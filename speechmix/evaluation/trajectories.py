"""Trajectories: what changes over training steps, in which layer, and when it begins.

In: tables of a run of checkpoints and untrained twins, and which model is which step. Out: values by
checkpoint, layer and group of clips; curves with intervals; the onset of each rise; which rise is first.

    contribution   share of the cue in the target's (or the deciding) row, 0 to 1
    need           what the margin of the target over its foil loses without the cue's values, nats
    other_word     the same without the values of another word of about the cue's length
    margin, right  of the intact model: nats, and the share of clips spelled right
    error_rate     edits per character of its transcripts

Of all but the contribution, clips are averaged for each spelling of a group first, so that a mere
preference for one spelling cancels where a group has both.

An onset is claimed by `statistics.onsets`, of the difference from the training's own step 0 (without
one, from the mean of its twins), where the value is also above every twin, and a need above that of the
other word. Without step 0 the last checkpoint must be significant by rank among `FEWEST_TWINS` twins.
The onset of a contribution is claimed only if some need is: else the change has another reason.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np
import pandas as pd

from ..interventions.cue_ablation import CONTROL, CUE
from .statistics.intervals import LEVEL, mean_intervals
from .statistics.onsets import FEWEST_ONSET_GROUPS, claim_onsets
from .statistics.random_twin_comparison import WHOLE_STACK, whole_stack
from .statistics.twin_rank_test import rank_p

CELL = ["quantity", "measure", "stack", "layer"]
CONTRIBUTION, NEED, OTHER = "contribution", "need", "other_word"
FEWEST_TWINS = 19  # whose ranks reach 5 %, where there is no step 0
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
_CELL_COLUMNS = ["training", "step", "seed", *CELL, "group", "value"]
_REASONS = {
    "groups": f"fewer than {FEWEST_ONSET_GROUPS} groups of clips",
    "reference": f"it needs a checkpoint of step 0, or {FEWEST_TWINS} untrained twins",
    "rise": "no rise that holds from its onset to the last checkpoint",
    "need": "it rises, and the spelling does not come to need the cue",
}


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
        stack, layer (-1: the whole stack), group, value.
    """
    parts = [_contribution_values(contributions), *_spelling_values(ablation)]
    if transcripts is not None and len(transcripts):
        rates = transcripts.rename(columns={"character_error_rate": "value"})
        rates = rates.assign(quantity="error_rate", measure="", stack="", layer=WHOLE_STACK)
        parts.append(rates[list(parts[0])])
    table = pd.concat([part for part in parts if len(part)] or parts, ignore_index=True)
    about = clips.set_index("clip")[["group", "target"]]
    if "control" in clips:  # words about which the cue decides nothing
        about = about[(clips["control"] != "yes").to_numpy()]
    table = table.join(about, on="clip", how="inner")
    is_twin = table["init"] == "random"
    keys_of = table["model"].map(steps)
    table["training"] = keys_of.str[0].mask(is_twin, "")
    table["step"] = keys_of.str[1].astype("Int64").mask(is_twin)
    table = table[is_twin | table["step"].notna()]
    table.loc[table["quantity"] == CONTRIBUTION, "target"] = ""
    keys = ["training", "step", "seed", *CELL, "group"]
    means = table.groupby([*keys, "target"], dropna=False, sort=False)["value"].mean()
    return means.groupby(level=keys, dropna=False, sort=False).mean().reset_index()[_CELL_COLUMNS]


def _contribution_values(table: pd.DataFrame) -> pd.DataFrame:
    """Contribution by clip: of the deciding row where there is one, layers and whole stacks."""
    if table.empty:
        return pd.DataFrame(columns=["model", "init", "seed", "clip", *CELL, "value"])
    has_deciding = table.groupby(["model", "stack"], observed=True)["rows"].transform(
        lambda rows: (rows == "deciding").any()
    )
    rows = table[(table["rows"] == "deciding") | ~has_deciding]
    columns = ["model", "init", "seed", "clip", "measure", "stack", "layer"]
    rows = rows[[*columns, "contribution", "mixing_strength"]]
    both = pd.concat([rows, whole_stack(rows)[list(rows)]], ignore_index=True)
    return both.rename(columns={"contribution": "value"}).assign(quantity=CONTRIBUTION)[
        ["model", "init", "seed", "clip", *CELL, "value"]
    ]


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
    """Average over groups, with 95 % intervals and the range of the untrained twins.

    Parameters
    ----------
    cells : DataFrame
        Of `measure_trajectory`.

    Returns
    -------
    DataFrame
        training, step, quantity, measure, stack, layer, value, low, high (missing for fewer than
        eight groups), twin_low, twin_high, groups.
    """
    trained = cells[cells["step"].notna()]
    wide = trained.pivot_table(
        index=["training", *CELL, "step"], columns="group", values="value", sort=False
    )
    low, high = mean_intervals(wide.to_numpy(float))
    curves = pd.DataFrame(
        {"value": wide.mean(axis=1), "low": low, "high": high, "groups": wide.notna().sum(axis=1)}
    ).reset_index()
    twins = cells[cells["step"].isna()].groupby([*CELL, "seed"], dropna=False)["value"].mean()
    limits = twins.groupby(level=CELL).agg(twin_low="min", twin_high="max")
    curves = curves.join(limits, on=CELL).astype({"step": int, "layer": int})
    order = pd.factorize(pd.MultiIndex.from_frame(curves[["training", *CELL]]))[0]
    rows = np.lexsort([curves["step"].to_numpy(), order])
    return curves.iloc[rows][CURVE_COLUMNS].reset_index(drop=True)


def trajectory_claims(cells: pd.DataFrame) -> pd.DataFrame:
    """Say in which cells a contribution or a need rises for good.

    Parameters
    ----------
    cells : DataFrame
        Of `measure_trajectory`.

    Returns
    -------
    DataFrame
        A row for each training and cell: training, quantity, measure, stack, layer, claim, groups,
        reason (why nothing is claimed).
    """
    twins = cells[cells["step"].isna()]
    parts = []
    for training, rows in cells[cells["step"].notna()].groupby("training", sort=False):
        parts.append(_claim_training(rows, twins).assign(training=training))
    columns = ["training", *CELL, "claim", "groups", "reason"]
    return pd.concat(parts, ignore_index=True)[columns] if parts else pd.DataFrame(columns=columns)


def _value_array(
    rows: pd.DataFrame, keys: Sequence[Cell], names: list[str], groups: pd.Index
) -> np.ndarray:
    """Return the values with some keys in the columns `names` as an array [keys, groups]; NaN where one lacks."""
    wide = rows.pivot_table(index=names, columns="group", values="value", sort=False)
    index = pd.MultiIndex.from_tuples(keys, names=names)
    values: np.ndarray = wide.reindex(index=index, columns=groups).to_numpy(float)
    return values


def _step_values(rows: pd.DataFrame, cells: Sequence[Cell], steps: Sequence[int]) -> np.ndarray:
    """Return the values of a training [cells, steps, groups]."""
    keys = [(*cell, step) for cell in cells for step in steps]
    values = _value_array(rows, keys, [*CELL, "step"], _list_groups(rows))
    return values.reshape(len(cells), len(steps), -1)


def _twin_values(twins: pd.DataFrame, cells: Sequence[Cell], rows: pd.DataFrame) -> np.ndarray:
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
    values, by_twin = _step_values(rows, cells, steps), _twin_values(twins, cells, rows)
    has_start = steps[0] == 0 or not len(by_twin)
    return steps, values - (values[:, :1] if has_start else by_twin.mean(axis=0)[:, None])


def _average_groups(values: np.ndarray) -> np.ndarray:
    """Return means over groups [..., G]; NaN where no group has a value."""
    with np.errstate(invalid="ignore"):
        means: np.ndarray = np.nansum(values, axis=-1) / np.isfinite(values).sum(axis=-1)
    return means


def _claim_training(rows: pd.DataFrame, twins: pd.DataFrame) -> pd.DataFrame:
    """Decide the claims of one training."""
    named = rows.loc[rows["quantity"].isin([NEED, CONTRIBUTION]), CELL].drop_duplicates()
    cells: list[Cell] = list(named.itertuples(index=False, name=None))
    steps, differences = reference_differences(rows, twins, cells)
    by_twin = _twin_values(twins, cells, rows)  # [twins, C, G]
    groups = np.isfinite(differences).all(axis=1).sum(axis=-1)
    possible = _is_possible(rows, cells, steps, by_twin)
    is_comparable = steps[0] == 0 or len(by_twin) >= FEWEST_TWINS
    if steps[0] != 0 and is_comparable:
        last = _step_values(rows, cells, steps[-1:])[None, :, 0]
        means = _average_groups(np.concatenate([last, by_twin]))
        ranked = np.isfinite(means).all(axis=0)
        ranked[ranked] = rank_p(means[:, ranked])[0] <= 1 - LEVEL + 1e-9
        possible &= ranked[:, None]
    rises = claim_onsets(differences, possible & is_comparable)
    is_need = np.array([cell[0] == NEED for cell in cells])
    is_gated = rises & ~is_need & is_need.any() & ~rises[is_need].any()
    reason = np.where(is_gated, "need", "rise" if is_comparable else "reference")
    reason = np.where(groups < FEWEST_ONSET_GROUPS, "groups", reason)
    claim = rises & ~is_gated
    reasons = ["" if c else _REASONS[name] for c, name in zip(claim, reason, strict=True)]
    return named.assign(claim=claim, groups=groups, reason=reasons)


def _is_possible(
    rows: pd.DataFrame, cells: Sequence[Cell], steps: Sequence[int], by_twin: np.ndarray
) -> np.ndarray:
    """Say where the mean is above every twin, and a need above that of another word [C, T].

    What was not measured (NaN) excludes nothing: twins have needs of whole stacks alone.
    """
    means = _average_groups(_step_values(rows, cells, steps))
    highest = _average_groups(by_twin).max(axis=0, initial=-np.inf)
    others = [(OTHER, *cell[1:-1], WHOLE_STACK) if cell[0] == NEED else cell for cell in cells]
    other = _average_groups(_step_values(rows, others, steps))
    is_need = np.array([cell[0] == NEED for cell in cells])[:, None]
    possible: np.ndarray = ~(means <= highest[:, None]) & ~(is_need & (means <= other))
    return possible
