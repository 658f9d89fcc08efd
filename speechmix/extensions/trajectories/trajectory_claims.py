"""Which contributions and needs rise for good in a training.

In: values by checkpoint and group (`measure_trajectory`). Out: a claim for each cell, or the reason why
there is none. A claim is one of `statistics.onsets`, of the difference from the training's own step 0;
without step 0, of the difference to one more untrained model (as in `random_twin_comparison`).

- Needs, and contributions by the leading measure, may be claimed; other measures are described.
- Claims are corrected for all whole stacks of all trainings. Layers are tested only in a stack that
  rises, and corrected for all layers (hierarchical testing; Meinshausen 2008, Biometrika 95).
- The value must also be above every twin, a need above that of the other word, and the layer of a
  contribution must move the target's state.
- A contribution is claimed only if some need is: else it changes for another reason.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from ...evaluation.statistics.claim_rule import FEWEST_CLAIM_GROUPS, FEWEST_TWINS
from ...evaluation.statistics.random_twin_comparison import WHOLE_STACK
from ...mixing.maps.measure_registry import leading_measure
from ...mixing.maps.numerics import STRENGTH_FLOOR
from .onsets import claim_onsets, fewest_checkpoints
from .trajectories import (
    CELL,
    CONTRIBUTION,
    NEED,
    OTHER,
    Cell,
    average_groups,
    reference_differences,
    step_values,
    twin_values,
)

_NO_RISE = "no rise that holds from its onset to the last checkpoint"


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
    trainings = dict(list(cells[cells["step"].notna()].groupby("training", sort=False)))
    lead = leading_measure(cells.loc[cells["quantity"] == CONTRIBUTION, "measure"].unique())
    tables = [_list_cells(rows, lead) for rows in trainings.values()]
    if not tables:
        return pd.DataFrame(columns=["training", *CELL, "claim", "groups", "reason"])
    table = pd.concat(tables, ignore_index=True)
    tested = table.loc[table["is_tested"], "is_stack"]
    table["curves"] = np.where(table["is_stack"], tested.sum(), (~tested).sum())
    parts = [
        _claim_training(part, trainings[name], twins)
        for name, part in table.groupby("training", sort=False)
    ]
    return pd.concat(parts, ignore_index=True)


def _list_cells(rows: pd.DataFrame, lead: str) -> pd.DataFrame:
    """Return a row for each need and contribution of a training."""
    is_listed = rows["quantity"].isin([NEED, CONTRIBUTION])
    table = rows.loc[is_listed, ["training", *CELL]].drop_duplicates()
    is_need = table["quantity"] == NEED
    return table.assign(
        is_stack=table["layer"] == WHOLE_STACK,
        is_need=is_need,
        is_tested=is_need | (table["measure"] == lead),
    )


def _claim_training(table: pd.DataFrame, rows: pd.DataFrame, twins: pd.DataFrame) -> pd.DataFrame:
    """Decide the claims of one training; `table` has its cells, and how many `curves` are corrected
    together."""
    cells: list[Cell] = list(table[CELL].itertuples(index=False, name=None))
    steps, differences = reference_differences(rows, twins, cells)
    by_twin = twin_values(twins, cells, rows)  # [twins, C, G]
    twin_means = None if steps[0] == 0 else average_groups(by_twin).T  # [C, twins]
    groups = np.isfinite(differences).all(axis=1).sum(axis=-1)
    unmet = _list_unmet(table, rows, groups, twin_means)
    is_ready = ~np.any(list(unmet.values()), axis=0)
    rises = claim_onsets(
        differences,
        _is_possible(rows, cells, steps, by_twin) & is_ready[:, None],
        steps=steps,
        twin_means=twin_means,
        cells=table["curves"].to_numpy(),
    )
    is_need, is_stack = table["is_need"].to_numpy(), table["is_stack"].to_numpy()
    stacks = {cell[:-1] for cell, is_risen in zip(cells, rises & is_stack, strict=True) if is_risen}
    is_below = np.array([cell[:-1] not in stacks for cell in cells])
    unmet["it rises, and its whole stack does not"] = rises & is_below
    is_needed = (rises & is_need).any() or not is_need.any()
    unmet["it rises, and the spelling does not come to need the cue"] = (
        rises & ~is_below & ~is_need & (not is_needed)
    )
    claim = rises & ~np.any(list(unmet.values()), axis=0)
    reasons = [
        "" if claim[index] else "; ".join(text for text in unmet if unmet[text][index]) or _NO_RISE
        for index in range(len(cells))
    ]
    names = table[["training", *CELL]]
    return names.assign(claim=claim, groups=groups, reason=reasons)


def _list_unmet(
    table: pd.DataFrame, rows: pd.DataFrame, groups: np.ndarray, twin_means: np.ndarray | None
) -> dict[str, np.ndarray]:
    """Say which conditions of a claim are not met, and by which cells [C]."""
    curves = table["curves"].to_numpy()
    has_start, checkpoints = twin_means is None, rows["step"].nunique()
    is_bare = np.zeros(len(table), dtype=bool)
    if twin_means is not None:
        is_bare = np.isfinite(twin_means).sum(axis=1) < FEWEST_TWINS
    unmet = {
        "claims are made of the leading measure alone": ~table["is_tested"].to_numpy(),
        f"it needs a checkpoint of step 0 or {FEWEST_TWINS} untrained twins": is_bare,
    }
    for count in np.unique(groups[groups < FEWEST_CLAIM_GROUPS]):
        text = f"it needs {FEWEST_CLAIM_GROUPS} groups of clips, found {count}"
        unmet[text] = (groups == count) & ~is_bare
    for count in np.unique(curves):
        fewest = fewest_checkpoints(count) - (not has_start)  # twins are one checkpoint more
        text = f"of {count} curves it takes {fewest} checkpoints, found {checkpoints}"
        unmet[text] = (curves == count) & (checkpoints < fewest)
    strengths = _last_strengths(rows, table)
    unmet[f"the block moves the target's state by less than {STRENGTH_FLOOR:.0%}"] = (
        strengths < STRENGTH_FLOOR
    )
    return unmet


def _last_strengths(rows: pd.DataFrame, table: pd.DataFrame) -> np.ndarray:
    """Return the mixing strength of each cell at the last checkpoint [C]; NaN where there is none."""
    last = rows[rows["step"] == rows["step"].max()]
    means = last.groupby(CELL)["strength"].mean()
    strengths: np.ndarray = means.reindex(pd.MultiIndex.from_frame(table[CELL])).to_numpy(float)
    return strengths


def _is_possible(
    rows: pd.DataFrame, cells: Sequence[Cell], steps: Sequence[int], by_twin: np.ndarray
) -> np.ndarray:
    """Say where the mean is above every twin, and a need above that of another word [C, T].

    What was not measured (NaN) excludes nothing: twins have needs of whole stacks alone.
    """
    means = average_groups(step_values(rows, cells, steps))
    highest = average_groups(by_twin).max(axis=0, initial=-np.inf)
    others = [(OTHER, *cell[1:-1], WHOLE_STACK) if cell[0] == NEED else cell for cell in cells]
    other = average_groups(step_values(rows, others, steps))
    is_need = np.array([cell[0] == NEED for cell in cells])[:, None]
    possible: np.ndarray = ~(means <= highest[:, None]) & ~(is_need & (means <= other))
    return possible
