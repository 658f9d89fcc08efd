"""A trained model against its twins: which clips count, what is claimed, and what must not change
it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student

from speechmix.evaluation.statistics.intervals import one_more_twin_intervals
from speechmix.evaluation.statistics.random_twin_comparison import (
    WHOLE_STACK,
    compare_with_twins,
    whole_stack,
)
from speechmix.mixing.maps.numerics import STRENGTH_FLOOR

BY = ["model", "layer"]


def contributions(
    *,
    layers: int = 3,
    groups: int = 16,
    twins: int = 9,
    shift: float = 0.0,
    below: int = 0,
    seed: int = 0,
) -> pd.DataFrame:
    """Synthetic contributions (%) of two clips a group; the last layer of the trained model is
    shifted."""
    rng = np.random.default_rng(seed)
    levels = rng.normal(20, 2, (1 + twins, layers))
    levels[0, -1] += shift
    levels[0, :below] -= 15
    clips = 2 * groups
    values = (
        levels[:, :, None]
        + rng.normal(0, 2, (1, layers, clips))
        + rng.normal(0, 1, (1 + twins, layers, clips))
    )
    draw, layer, clip = (place.ravel() for place in np.indices(values.shape))
    return pd.DataFrame(
        {
            "model": "m",
            "init": np.where(draw == 0, "trained", "random"),
            "seed": pd.array(np.where(draw == 0, pd.NA, draw - 1), dtype="Int64"),
            "layer": layer,
            "clip": [f"c{number:02d}" for number in clip],
            "group": [f"g{number // 2:02d}" for number in clip],
            "contribution": values.ravel(),
            "mixing_strength": 0.2,
        }
    )


def compared(table: pd.DataFrame) -> pd.DataFrame:
    """Layers and the whole stack, by layer."""
    both = pd.concat([table, whole_stack(table)], ignore_index=True)
    return compare_with_twins(both, by=BY, group="group").set_index("layer")


def claims(table: pd.DataFrame) -> dict[int, str]:
    return {layer: claim for layer, claim in compared(table)["claim"].items() if claim}


def with_idle_layers(table: pd.DataFrame) -> pd.DataFrame:
    """Between all layers one that moves nothing, with a share of its own (as a padded model and its
    padded twins have)."""
    idle = table.assign(layer=2 * table["layer"] + 1, contribution=80.0, mixing_strength=1e-6)
    return pd.concat([table.assign(layer=2 * table["layer"]), idle], ignore_index=True)


def test_a_whole_stack_above_is_claimed_and_no_layer():
    table = contributions(shift=30)
    assert claims(table) == {WHOLE_STACK: "more"}
    assert compared(table).loc[2, "low"] > 0  # described by its band
    assert claims(contributions(shift=0)) == {}


def test_the_interval_is_the_one_of_the_textbook():
    """Without skewness: difference -+ sqrt(clips^2 + (t s)^2 (1 + 1/T)), at 1 - .05/m."""
    spread = np.array([-3.0, -1.0, 1.0, 3.0] * 4)  # symmetric, so that Hall's correction is none
    twins = {"a": [10.0, 12.0, 11.0, 9.0, 13.0], "b": [30.0, 31.0, 29.0, 30.5, 29.5]}
    rows = [
        ("random" if draw else "trained", draw, stack, clip, value)
        for stack, levels in twins.items()
        for draw, level in enumerate([20.0, *levels])
        for clip, value in enumerate(level + (spread if draw == 0 else 0 * spread))
    ]
    table = pd.DataFrame(rows, columns=["init", "seed", "stack", "clip", "contribution"])
    result = compare_with_twins(table, by=["stack"]).set_index("stack")
    for stack, levels in twins.items():
        tail = 1 - 0.05 / 2 / 2  # two rows, two sides
        clips = student.ppf(tail, 15) * spread.std(ddof=1) / 4
        reach = np.hypot(clips, student.ppf(tail, 4) * np.std(levels, ddof=1) * np.sqrt(1 + 1 / 5))
        difference = 20 - np.mean(levels)
        row = result.loc[stack]
        assert row["rows"] == 2
        assert (row["low"], row["high"]) == pytest.approx((difference - reach, difference + reach))
        assert (row["twin_sd"], row["group_sd"]) == pytest.approx(
            (np.std(levels, ddof=1), spread.std(ddof=1))
        )


@pytest.mark.parametrize("seed", range(4))
def test_layers_below_make_no_stack_more(seed):
    found = claims(contributions(layers=12, below=3, groups=60, seed=seed))
    assert set(found.values()) <= {"less"}


def test_few_twins_or_groups_claim_nothing():
    assert claims(contributions(shift=30, twins=4)) == {}
    assert claims(contributions(shift=30, twins=5)) == {WHOLE_STACK: "more"}
    assert claims(contributions(shift=30, groups=14)) == {}
    assert claims(contributions(shift=30, groups=15)) == {WHOLE_STACK: "more"}
    few = compared(contributions(shift=30, groups=7))
    assert (few["claim"] == "").all()
    assert few["low"].isna().all()


def test_only_the_leading_measure_is_claimed():
    table = contributions(shift=30)
    both = pd.concat(
        [table.assign(measure="attention"), table.assign(measure="value_zeroing")],
        ignore_index=True,
    )
    stacks = compare_with_twins(whole_stack(both), by=["measure"], group="group")
    assert stacks.set_index("measure")["claim"].to_dict() == {
        "attention": "",
        "value_zeroing": "more",
    }
    assert stacks["low"].nunique() == 1  # each measure by itself


def test_rows_of_one_page_are_corrected_together():
    table = contributions(shift=30)
    alone = compare_with_twins(whole_stack(table), by=BY, group="group").iloc[0]
    others = [table.assign(model=name) for name in "xyz"]
    together = compare_with_twins(
        whole_stack(pd.concat([table, *others], ignore_index=True)), by=BY, group="group"
    ).iloc[0]
    assert (alone["rows"], together["rows"]) == (1, 4)
    assert together["low"] < alone["low"] < alone["high"] < together["high"]


@pytest.mark.parametrize("sd", [0.6, 3.0])
def test_a_twin_that_poses_as_trained_is_rarely_claimed(sd):
    """Three rows a page; in 1 - .05 of pages no interval excludes zero."""
    rng = np.random.default_rng(0)
    pages, rows = 400, 3
    levels = 30 + sd * rng.normal(size=(pages * rows, 10))
    clips = 15 * (rng.lognormal(0, 0.5, (pages * rows, 15)) - np.exp(0.125)) / 0.6
    low, high = one_more_twin_intervals(
        levels[:, :1] + clips - levels[:, 1:].mean(axis=1, keepdims=True), levels[:, 1:], rows=rows
    )
    assert ((low > 0) | (high < 0)).reshape(pages, rows).any(axis=1).mean() <= 0.06


def test_a_stack_that_moves_nothing_carries_no_claim():
    table = contributions(shift=30)
    table.loc[(table["layer"] == 2) & (table["init"] == "trained"), "mixing_strength"] = (
        STRENGTH_FLOOR / 2
    )
    assert claims(table) == {}  # the layer above has no weight in the stack
    deaf = contributions(shift=30).assign(mixing_strength=1e-4)
    assert claims(deaf) == {}


def test_idle_layers_change_nothing_of_the_stack():
    table = contributions(shift=30)
    row, padded = (compared(part).loc[WHOLE_STACK] for part in (table, with_idle_layers(table)))
    pd.testing.assert_series_equal(padded, row, atol=1e-2, check_exact=False)
    assert claims(with_idle_layers(table)) == {WHOLE_STACK: "more"}


def test_order_names_and_copies_change_nothing():
    table = contributions(shift=30)
    expected = compared(table)
    shuffled = table.sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(compared(shuffled).loc[expected.index], expected)
    renamed = table.assign(
        model="another", clip=table["clip"].map(lambda name: f"z{99 - int(name[1:])}")
    )
    pd.testing.assert_frame_equal(
        compared(renamed).drop(columns="model"), expected.drop(columns="model")
    )
    copied = pd.concat([table, table])  # each clip twice under its name
    pd.testing.assert_frame_equal(compared(copied), expected)


def test_only_clips_that_all_have_scored_count():
    table = contributions(shift=30)
    lacks = (table["init"] == "random") & (table["seed"] > 0) & (table["clip"] > "c17")
    changed = table.copy()
    changed.loc[changed["clip"] > "c17", "contribution"] += (
        500  # of clips that one twin alone has scored
    )
    first, second = (compared(part[~lacks]) for part in (table, changed))
    pd.testing.assert_frame_equal(first, second)
    assert set(first["clips"]) == {18}
    assert set(first["groups"]) == {9}


def test_clips_of_one_group_are_one_observation():
    table = contributions()
    row = compared(table).loc[0]
    by_group = (
        table[table["layer"] == 0]
        .groupby(["init", "seed", "group"], dropna=False)["contribution"]
        .mean()
    )
    expected = by_group["trained"].mean() - by_group["random"].groupby("seed").mean().mean()
    assert row["difference"] == pytest.approx(expected)
    assert row["groups"] == 16


def test_without_twins_means_are_there_and_nothing_else():
    table = contributions()
    alone = compared(table[table["init"] == "trained"])
    assert alone["trained"].notna().all()
    assert alone[["random", "difference", "low"]].isna().all(axis=None)
    one = compared(table[(table["init"] == "trained") | (table["seed"] == 0)])
    assert one["difference"].notna().all()
    assert one[["low", "twin_low"]].isna().all(axis=None)


def test_the_whole_stack_weights_layers_by_what_they_move():
    table = pd.DataFrame(
        {
            "clip": ["a", "a", "b", "b"],
            "layer": [0, 1, 0, 1],
            "contribution": [10.0, 50.0, 20.0, 40.0],
            "mixing_strength": [0.3, 0.1, 0.0, 0.0],
        }
    )
    stack = whole_stack(table).set_index("clip")
    assert stack["contribution"].to_dict() == pytest.approx({"a": 20.0, "b": 30.0})
    assert whole_stack(table.drop(columns="mixing_strength"))["contribution"].tolist() == [
        30.0,
        30.0,
    ]
