"""Compare a trained model with its randomly initialised twins.

In: a long table of values by clip, with the group of each clip. Out: one row for each cell (a layer,
or a whole stack, of one measure).

- Only clips that the trained model and all twins have scored count.
- Clips are averaged within groups first: those of one pair, sentence or word are not independent.
- The test is the rank of the trained model among its twins (`twin_rank_test`), over all its cells.
- A claim needs p <= 5 % in both directions together, a confidence interval over groups without zero,
  and a block that moves the target's state by `STRENGTH_FLOOR`. With fewer than `TWINS_NEEDED` twins,
  or `FEWEST_GROUPS` groups, nothing is claimed.

A whole stack has the mean over its layers, weighted by mixing strength; idle layers change nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ...mixing.maps.numerics import STRENGTH_FLOOR
from .grouped_means import grouped_means, iterate_matrices, select_cells
from .intervals import twin_difference_interval
from .twin_rank_test import FALSE_CLAIM_RATE, rank_p, twin_limits

WHOLE_STACK = -1  # in the column layer
DEFAULT_TWINS = 9  # untrained twins of a model, where nobody says how many
FEWEST_TWINS = 5  # below which nothing is claimed
FEWEST_CLAIM_GROUPS = 15  # independent groups of clips, below which nothing is claimed
BASELINES = ("share_of_length", "length_matched")
STRENGTH = "mixing_strength"
_TRAINED_DRAW = -1  # number of the trained model among the draws


@dataclass(frozen=True)
class _Cell:
    """One cell: means of the trained model and of its twins, and both by group."""

    key: tuple[Hashable, ...]
    means: pd.Series  # by draw
    trained: pd.Series  # by group; empty if there is nothing to compare
    twins: pd.Series  # by group, their mean
    clip_count: int
    group_count: int

    @property
    def differences(self) -> pd.Series:
        """Trained minus the mean of the twins, by group."""
        return self.trained - self.twins


def compare_with_twins(
    table: pd.DataFrame,
    *,
    by: Sequence[str],
    group: str = "clip",
    family: Sequence[str] = ("model",),
    scale: float | None = 100.0,
) -> pd.DataFrame:
    """Compare trained models with their untrained twins, and say what may be claimed.

    Parameters
    ----------
    table : DataFrame
        Columns init ("trained", "random"), clip, contribution, those of `by`, and `group`; seed
        where there are several twins; mixing_strength, share_of_length, length_matched where they
        are known.
    by : sequence of str
        What makes a cell, e.g. ("model", "stack", "measure", "layer").
    group : str
        Column of clips that are drawn as one: "clip", "pair", "group".
    family : sequence of str
        Cells that share these are corrected together; they must have the same twins.
    scale : float, optional
        The value that stands for a share of one (100 for %); None for values that are no shares.

    Returns
    -------
    DataFrame
        Columns of `by`; trained, random (mean of the twins); twins (how many), twin_low, twin_high
        (lowest and highest twin); difference (paired within groups) with low, high (95 % over
        groups and twins); p (both directions, corrected over the family); effect (difference /
        standard deviation over groups), positive (share of groups above zero); mixing_strength;
        claim ("more", "less", ""); groups, clips; the means of the baselines. What cannot be stated
        is NaN.
    """
    by = list(by)
    cells = list(_build_cells(table, by, group))
    rows = [_comparison_row(cell, by) for cell in cells]
    result = pd.DataFrame(rows, columns=[*by, *_COLUMNS])
    names = [name for name in (STRENGTH, *BASELINES) if name in table]
    for name in names:
        means = _mean_strength(table, by) if name == STRENGTH else grouped_means(table, by, name)
        result = result.drop(columns=name, errors="ignore").merge(
            _decode_categories(means), on=by, how="left"
        )
    p = np.full((2, len(cells)), np.nan)
    can_claim = np.ones(len(cells), dtype=bool)
    if STRENGTH in names:
        can_claim = ~(result[STRENGTH] < STRENGTH_FLOOR).to_numpy()
    keys = [name for name in family if name in by]
    families = (
        result.groupby(keys, sort=False).indices.values() if keys else [np.arange(len(cells))]
    )
    for indices in families:
        family_cells = [cells[index] for index in indices]
        p[:, indices] = _family_p_values(family_cells, can_claim[indices], scale)
    return _add_claims(result, p)


_COLUMNS = (
    "trained random twins twin_low twin_high difference low high p effect positive claim "
    "groups clips"
).split()


def _build_cells(table: pd.DataFrame, by: list[str], group: str) -> list[_Cell]:
    columns = [
        name
        for name in dict.fromkeys([*by, "init", "seed", "clip", group, "contribution"])
        if name in table
    ]
    rows = select_cells(
        table, columns, table["init"].isin(["trained", "random"]) & table["contribution"].notna()
    )
    if "clip" not in rows:
        rows["clip"] = rows[group]
    seed = rows["seed"].astype("Int64").fillna(0).astype(int) if "seed" in rows else 0
    rows["draw"] = np.where(rows["init"] == "trained", _TRAINED_DRAW, seed)
    clip_rows = rows.drop_duplicates("clip")
    group_by_clip = pd.Series(
        clip_rows[group].astype(object).to_numpy(), index=clip_rows["clip"].astype(object)
    )
    means = grouped_means(rows, [*by, "draw", "clip"], "contribution")
    return [
        _build_cell(key, matrix, group_by_clip)
        for key, matrix in iterate_matrices(
            means, by, rows="clip", columns="draw", value="contribution"
        )
    ]


def _build_cell(
    key: tuple[Hashable, ...], by_clip: pd.DataFrame, group_by_clip: pd.Series
) -> _Cell:
    """Build a cell from values [clips, draws], NaN if a model has not scored a clip."""
    scored_draws = by_clip.dropna(axis="columns", how="all")
    shared_clips = scored_draws[scored_draws.notna().all(axis="columns")]
    by_group = shared_clips.groupby(
        group_by_clip.reindex(shared_clips.index).to_numpy(), sort=True
    ).mean()
    twins = by_group.drop(columns=_TRAINED_DRAW, errors="ignore")
    has_both = _TRAINED_DRAW in by_group and twins.shape[1] > 0
    empty_series = pd.Series(dtype=float)
    trained_means, twin_means = (
        (by_group[_TRAINED_DRAW], pd.Series(_row_means(twins), index=twins.index))
        if has_both
        else (empty_series, empty_series)
    )
    return _Cell(key, by_group.mean(), trained_means, twin_means, len(shared_clips), len(by_group))


def _row_means(values: pd.DataFrame) -> np.ndarray:
    """Mean of each row [G]. The order of a sum, and so its last bit, must not depend on how pandas
    lays the table out in memory, which text and category columns change."""
    means: np.ndarray = np.ascontiguousarray(values.to_numpy(dtype=float)).mean(axis=1)
    return means


def _comparison_row(cell: _Cell, by: list[str]) -> dict[str, object]:
    twins = cell.means.drop(_TRAINED_DRAW, errors="ignore").to_numpy()
    twin_low, twin_high = twin_limits(twins)
    differences = cell.differences
    low, high = twin_difference_interval(differences, twins)
    spread = differences.std(ddof=1) if len(differences) > 1 else 0.0
    return {
        **dict(zip(by, cell.key, strict=True)),
        "trained": cell.means.get(_TRAINED_DRAW, np.nan),
        "random": twins.mean() if len(twins) else np.nan,
        "twins": len(twins),
        "twin_low": twin_low,
        "twin_high": twin_high,
        "difference": differences.mean() if len(differences) else np.nan,
        "low": low,
        "high": high,
        "effect": differences.mean() / spread if spread > 0 else np.nan,
        "positive": (differences > 0).mean() if len(differences) else np.nan,
        "groups": cell.group_count,
        "clips": cell.clip_count,
    }


def _family_p_values(
    cells: Sequence[_Cell], can_claim: np.ndarray, scale: float | None
) -> np.ndarray:
    """Compute p of "more" and "less" [2, cells] for one model; NaN if it or a twin has no
    number."""
    draws = sorted({draw for cell in cells for draw in cell.means.index})
    if not draws or draws[0] != _TRAINED_DRAW:
        return np.full((2, len(cells)), np.nan)
    groups = sorted({group for cell in cells for group in cell.trained.index}, key=str)
    values = np.full((len(draws), len(cells)), np.nan)
    group_values = np.full((2, len(cells), len(groups)), np.nan)
    for index, cell in enumerate(cells):
        values[np.searchsorted(draws, cell.means.index.to_numpy()), index] = cell.means
        group_values[:, index] = [cell.trained.reindex(groups), cell.twins.reindex(groups)]
    return rank_p(values, group_values, can_claim=can_claim, scale=scale)


def _add_claims(result: pd.DataFrame, p: np.ndarray) -> pd.DataFrame:
    is_above_twins = (p[0] <= FALSE_CLAIM_RATE / 2 + 1e-9) & (result["low"] > 0)
    is_below_twins = (p[1] <= FALSE_CLAIM_RATE / 2 + 1e-9) & (result["high"] < 0)
    result["p"] = np.minimum(1, 2 * np.fmin(p[0], p[1]))
    result["claim"] = np.select([is_above_twins, is_below_twins], ["more", "less"], default="")
    return result


def _mean_strength(table: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Average the mixing strength of the trained model in each cell; without one, of the twins."""
    strengths = grouped_means(table, [*by, "init"], STRENGTH)
    is_trained = strengths["init"] == "trained"
    return (
        strengths.sort_values("init", key=lambda init: init != "trained", kind="stable")
        .drop_duplicates(by)
        .drop(columns="init")
        if is_trained.any()
        else strengths.drop(columns="init")
    )


def whole_stack(table: pd.DataFrame) -> pd.DataFrame:
    """Average each clip's values over the layers of a stack, weighted by mixing strength.

    Parameters
    ----------
    table : DataFrame
        Columns layer and contribution, and mixing_strength where it is known; every other column
        but depth tells rows apart.

    Returns
    -------
    DataFrame
        The same columns, with `WHOLE_STACK` for layer; mixing strengths are weighted means, too.
        Layers below the floor do not count. Without strengths, and for a clip whose layers all lie
        below the floor, layers count alike.
        A layer without a value (NaN) does not count.

    Examples
    --------
    >>> table = pd.DataFrame({"clip": "a", "layer": [0, 1, 2], "contribution": [0.2, 0.9, 0.6],
    ...                       "mixing_strength": [0.3, 0.0, 0.1]})
    >>> whole_stack(table).round(3).to_dict("list")
    {'clip': ['a'], 'contribution': [0.3], 'mixing_strength': [0.25], 'layer': [-1]}
    """
    values = [name for name in ("contribution", STRENGTH, *BASELINES) if name in table]
    keys = [str(name) for name in table if name not in (*values, "layer", "depth")]
    columns: dict[str, object] = {name: table[name].array for name in keys}
    columns |= {name: table[name].to_numpy(dtype=float, na_value=np.nan) for name in values}
    if "seed" in columns:
        columns["seed"] = table["seed"].astype("Int64").fillna(_TRAINED_DRAW).array
    rows = pd.DataFrame(columns, copy=False)
    strength = rows[STRENGTH].to_numpy() if STRENGTH in rows else np.ones(len(rows))
    strength = np.where(strength >= STRENGTH_FLOOR, strength, 0.0)
    result = grouped_means(rows, keys, "contribution")
    for name in values:
        rows["weight"] = np.where(np.isfinite(rows[name]), strength, np.nan)
        rows["weighted"] = rows["weight"] * rows[name]
        total, weighted, unweighted = (
            grouped_means(rows, keys, column)[column].to_numpy()
            for column in ("weight", "weighted", name)
        )
        result[name] = np.where(total > 0, weighted / np.where(total > 0, total, 1), unweighted)
    if "seed" in result:
        result["seed"] = result["seed"].mask(result["seed"] == _TRAINED_DRAW)
    return result.assign(layer=WHOLE_STACK)


def _decode_categories(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table with texts in place of categories."""
    return table.astype(
        {name: object for name in table if isinstance(table[name].dtype, pd.CategoricalDtype)}
    )
