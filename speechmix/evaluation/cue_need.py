"""Loss of the target's spelling when the cue's values are zeroed, against a control word.

In: the ablation table of a run (`interventions.value_knock_out.ablate_with_control`), of trained models,
with the groups that clips belong to. Out: for each model and stack the share of clips spelled
right, intact and without the cue; what is lost, with its interval; and a verdict. Contribution says
what a state is made of, need what the decision depends on: neither follows from the other.

Verdicts, at 95 % for all rows together (Bonferroni), with exact binomial limits, one group as one
trial:

    needed       the printed interval of the loss lies above zero, with `FEWEST_CLAIM_GROUPS` groups
    not needed   equivalence test: at most `MARGIN_POINTS` points of the groups' clips are lost, as the upper limit says
    at chance    equivalence test: the intact model spells at most `CHANCE_PERCENT` + `CHANCE_MARGIN_POINTS` % correctly

Else the result is inconclusive (""): with few groups nothing else is possible. To say "not needed"
of one stack takes 59 groups without a loss, because 0.95^59 = 5 %.

How well the scores of one row point to its cue: share, average precision, and what chance gives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..errors import InputError
from ..inputs.words.cue_and_target import CONTROL, CUE
from .statistics.claim_rule import FEWEST_CLAIM_GROUPS
from .statistics.intervals import (
    FEWEST_GROUPS,
    LEVEL,
    difference_interval,
    mean_intervals,
    proportion_interval,
)

CHANCE_PERCENT = 50.0  # % of clips, between two spellings
# A model that spells at most so many percentage points better than by guessing is at chance.
CHANCE_MARGIN_POINTS = 10.0
MARGIN_POINTS = 5.0  # points of clips: a smaller loss counts as none


def measure_cue_need(
    table: pd.DataFrame, *, by: Sequence[str], group: str = "group"
) -> pd.DataFrame:
    """Measure the loss of accuracy when the cue's values are zeroed in a stack.

    The table has the columns of `by` (with "ablated", the stack, among them), clip, source, layer,
    margin, right and `group` (clips that are drawn as one); rows of the intact model have "none"
    for ablated.

    The result has the columns of `by`; right, without_cue, without_other: share spelled right (%,
    mean over groups), intact, with the cue and with another word ablated (missing where there is
    none); right_low, right_high; lost: right - without_cue, in points, with low, high (95 %
    together over all rows); drop, drop_other: of the margin, nats; groups, clips; verdict:
    "needed", "not needed", "at chance", or "" where the result is inconclusive.
    """
    whole_stack_rows = table[table["layer"].isna()]
    key_columns = [name for name in by if name != "ablated"]
    intact = (
        whole_stack_rows[whole_stack_rows["ablated"] == "none"]
        .set_index([*key_columns, "clip"])[["margin", "right"]]
        .add_suffix("_intact")
    )
    rows: list[dict[str, object]] = []
    rows_by_key = whole_stack_rows[whole_stack_rows["source"] == CUE].groupby(list(by), sort=False)
    row_count = rows_by_key.ngroups
    for key, ablated_rows in rows_by_key:
        row: dict[str, object] = dict(
            zip(by, key if isinstance(key, tuple) else (key,), strict=True)
        )
        control = whole_stack_rows[
            (whole_stack_rows["source"] == CONTROL)
            & (whole_stack_rows[list(by)] == pd.Series(row)).all(axis=1)
        ]
        row |= _cue_losses(ablated_rows.join(intact, on=[*key_columns, "clip"]), group, row_count)
        row |= _control_losses(control.join(intact, on=[*key_columns, "clip"]), group)
        rows.append(row)
    result = pd.DataFrame(rows)
    if len(result):
        result["verdict"] = [_conclude(row, row_count) for row in result.to_dict("records")]
        result = result.drop(columns=["losses"])
    return result


def _cue_losses(ablated: pd.DataFrame, group: str, row_count: int) -> dict[str, float]:
    """Compute accuracy and loss from rows with the ablated and the intact decision of each clip."""
    was_correct, is_correct = ablated["right_intact"].astype(float), ablated["right"].astype(float)
    columns = {
        "right": was_correct,
        "without": is_correct,
        "loss": (was_correct - is_correct).clip(lower=0),
    }
    columns |= {
        "gain": (is_correct - was_correct).clip(lower=0),
        "drop": ablated["margin_intact"] - ablated["margin"],
    }
    means = pd.DataFrame(columns).astype(float).groupby(ablated[group].to_numpy()).mean()
    count, net_losses = len(means), means["loss"] - means["gain"]
    level = 1 - (1 - LEVEL) / row_count
    low, high = difference_interval(means["loss"].sum(), means["gain"].sum(), count, level=level)
    right_low, right_high = proportion_interval(means["right"].sum(), count)
    return {
        "right": 100 * means["right"].mean(),
        "right_low": 100 * right_low,
        "right_high": 100 * right_high,
        "without_cue": 100 * means["without"].mean(),
        "lost": 100 * net_losses.mean(),
        "low": 100 * low if count >= FEWEST_GROUPS else np.nan,
        "high": 100 * high if count >= FEWEST_GROUPS else np.nan,
        "losses": means["loss"].sum(),
        "drop": means["drop"].mean(),
        "groups": count,
        "clips": len(ablated),
    }


def _control_losses(control: pd.DataFrame, group: str) -> dict[str, float]:
    """Compute accuracy and drop of the margin with the control word ablated."""
    if control.empty:
        return {"without_other": np.nan, "drop_other": np.nan}
    columns = {
        "right": control["right"].astype(float),
        "drop": control["margin_intact"] - control["margin"],
    }
    means = pd.DataFrame(columns).groupby(control[group].to_numpy()).mean().mean()
    return {"without_other": 100 * means["right"], "drop_other": means["drop"]}


def _conclude(row: dict[Any, Any], row_count: int) -> str:
    """Return the conclusion about a row, at 95 % for all rows together."""
    if row["groups"] < FEWEST_CLAIM_GROUPS:
        return ""
    level = 1 - 2 * (1 - LEVEL) / row_count  # of a two-sided interval whose upper limit is used
    max_accuracy = (
        100 * proportion_interval(row["right"] / 100 * row["groups"], row["groups"], level=level)[1]
    )
    if max_accuracy <= CHANCE_PERCENT + CHANCE_MARGIN_POINTS:
        return "at chance"
    if row["right_low"] <= CHANCE_PERCENT:
        return ""
    if row["low"] > 0:
        return "needed"
    max_loss = 100 * proportion_interval(row["losses"], row["groups"], level=level)[1]
    return "not needed" if max_loss <= MARGIN_POINTS else ""


def groups_for_equivalence(row_count: int = 1) -> int:
    """Return how many groups without a loss are necessary to say "not needed" of each of some
    stacks.

    Examples
    --------
    >>> groups_for_equivalence(), groups_for_equivalence(3)
    (59, 80)
    """
    return math.ceil(math.log((1 - LEVEL) / row_count) / math.log(1 - MARGIN_POINTS / 100))


def measure_layer_need(
    table: pd.DataFrame, *, by: Sequence[str], group: str = "group"
) -> pd.DataFrame:
    """Measure the mean drop of the margin (nats) with the cue ablated in one layer.

    The table is that of `measure_cue_need`. The result has the columns of `by`, layer, drop, low
    and high (95 % over groups), and groups; it is empty where no layer was ablated by itself.
    """
    key_columns = [name for name in by if name != "ablated"]
    intact = (
        table[table["ablated"] == "none"]
        .set_index([*key_columns, "clip"])["margin"]
        .rename("intact")
    )
    layer_rows = table[table["layer"].notna() & (table["source"] == CUE)].join(
        intact, on=[*key_columns, "clip"]
    )
    if layer_rows.empty:
        return pd.DataFrame(columns=[*by, "layer", "drop", "low", "high", "groups"])
    layer_rows = layer_rows.assign(drop=layer_rows["intact"] - layer_rows["margin"])
    means = layer_rows.groupby([*by, "layer", group], sort=False)["drop"].mean()
    rows = []
    key: Any
    for key, group_drops in means.groupby(level=[*by, "layer"], sort=False):
        low, high = mean_intervals(group_drops.to_numpy()[None])
        values = {
            "drop": group_drops.mean(),
            "low": low[0],
            "high": high[0],
            "groups": len(group_drops),
        }
        rows.append({**dict(zip((*by, "layer"), key, strict=True)), **values})
    return pd.DataFrame(rows).astype({"layer": int})


def dot_product(shares: np.ndarray, cue: np.ndarray) -> np.ndarray:
    """Return the share [...] of the cue columns (bool [K]) in rows [..., K] that sum to one.

    Examples
    --------
    >>> float(dot_product(np.array([0.5, 0.2, 0.3]), np.array([True, False, True])))
    0.8
    """
    shares, cue = _check_shapes(shares, cue)
    cue_shares: np.ndarray = shares[..., cue].sum(axis=-1)
    return cue_shares


def average_precision(scores: np.ndarray, cue: np.ndarray) -> np.ndarray:
    """Average the precision at each cue column; only the order of the scores matters.

    Scores are [..., K], the cue is bool [K]. The result [...] lies between the share of cue columns
    (or less) and 1; it is NaN for a row with a score that is not finite.

    Examples
    --------
    >>> cue = np.array([True, False, True, False])
    >>> float(average_precision(np.array([0.4, 0.3, 0.2, 0.1]), cue)).__round__(3)  # (1/1 + 2/3) / 2
    0.833
    >>> float(average_precision(np.array([0.25, 0.25, 0.25, 0.25]), cue))
    0.5
    """
    scores, cue = _check_shapes(scores, cue)
    is_above = scores[..., None, :] >= scores[..., cue][..., :, None]  # [..., cue columns, K]
    precision = is_above[..., cue].sum(axis=-1) / np.maximum(is_above.sum(axis=-1), 1)
    return np.where(np.isfinite(scores).all(axis=-1), precision.mean(axis=-1), np.nan)


def chance_level(cue: np.ndarray) -> dict[str, float]:
    """Return the expected metrics of an uninformed row: equal shares, or columns in random order.

    Examples
    --------
    >>> chance_level(np.array([True, False]))
    {'dot_product': 0.5, 'average_precision': 0.75}
    """
    column_count, cue_count = len(cue), int(np.count_nonzero(cue))
    rank = np.arange(1, column_count + 1)
    # At each place: the cue column that is there, and the others that are expected above it.
    expected_precision = (1 + (rank - 1) * (cue_count - 1) / max(column_count - 1, 1)) / rank
    return {
        "dot_product": cue_count / column_count,
        "average_precision": float(expected_precision.mean()),
    }


def _check_shapes(scores: np.ndarray, cue: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scores, cue = np.asarray(scores, dtype=float), np.asarray(cue, dtype=bool)
    if cue.ndim != 1 or scores.shape[-1:] != cue.shape or not cue.any():
        raise InputError(
            "expected scores [..., K] and a cue of K booleans, at least one of them true; found "
            f"{scores.shape} and "
            f"{cue.shape} with {np.count_nonzero(cue)} true"
        )
    return scores, cue
