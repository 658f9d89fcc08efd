"""Need of the cue: counted by hand, told from nothing and from a control, and silent where it
cannot be told."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from speechmix.evaluation.cue_need import (
    groups_for_equivalence,
    measure_cue_need,
    measure_layer_need,
)
from speechmix.evaluation.statistics.intervals import difference_interval, proportion_interval

BY = ["side", "model", "ablated"]


def ablations(
    right_without: list[bool], *, groups: list[str] | None = None, control: bool = True, layers=()
) -> pd.DataFrame:
    """Clips that are right as they are (margin 2), and right or not without the cue; another word
    costs 0.5 nats."""
    rows = []
    for number, right in enumerate(right_without):
        told = {
            "side": "all",
            "model": "m",
            "clip": f"c{number}",
            "group": (groups or [f"g{number}" for number in range(99)])[number],
        }
        rows.append(
            {**told, "source": "", "ablated": "none", "layer": None, "margin": 2.0, "right": True}
        )
        rows.append(
            {
                **told,
                "source": "cue",
                "ablated": "decoder",
                "layer": None,
                "margin": 1.0 if right else -1.0,
                "right": right,
            }
        )
        if control:
            rows.append(
                {
                    **told,
                    "source": "another word",
                    "ablated": "decoder",
                    "layer": None,
                    "margin": 1.5,
                    "right": True,
                }
            )
        for layer, drop in enumerate(layers):
            margin = 2.0 - drop
            rows.append(
                {
                    **told,
                    "source": "cue",
                    "ablated": "decoder",
                    "layer": layer,
                    "margin": margin,
                    "right": margin > 0,
                }
            )
    return pd.DataFrame(rows).astype({"layer": "Int64"})


def test_what_is_lost_is_counted_in_points_of_clips():
    (row,) = measure_cue_need(ablations([True, False, False, False]), by=BY).to_dict("records")
    assert (row["right"], row["without_cue"], row["without_other"]) == (100, 25, 100)
    assert row["lost"] == 75
    assert row["drop"] == pytest.approx((1 + 3 * 3) / 4)
    assert row["drop_other"] == pytest.approx(0.5)
    assert (row["groups"], row["clips"]) == (4, 4)


def test_clips_of_a_group_count_once():
    (row,) = measure_cue_need(
        ablations([True, False, False, False], groups=["a", "b", "b", "b"]), by=BY
    ).to_dict("records")
    assert row["lost"] == 50
    assert row["groups"] == 2


@pytest.mark.parametrize(
    ("right_without", "verdict"),
    [
        ([False] * 15, "needed"),
        ([False] * 14, ""),  # too few groups for a conclusion
        ([False] * 3 + [True] * 12, ""),
        ([True] * 59, "not needed"),
        ([True] * 58, ""),
        ([False] + [True] * 92, "not needed"),
        ([False] + [True] * 91, ""),
        ([True], ""),
    ],
)
def test_verdicts_follow_the_interval(right_without, verdict):
    (row,) = measure_cue_need(ablations(right_without), by=BY).to_dict("records")
    assert row["verdict"] == verdict
    assert (row["low"] > 0) or row["verdict"] != "needed"


def test_more_stacks_take_more_groups_to_say_that_the_cue_is_not_needed():
    for groups, verdict in ((79, ""), (80, "not needed")):
        table = ablations([True] * groups)
        others = [
            table[table["ablated"] == "decoder"].assign(ablated=stack)
            for stack in ("encoder", "cross")
        ]
        needs = measure_cue_need(pd.concat([table, *others]), by=BY)
        assert needs["verdict"].tolist() == [verdict] * 3
    assert groups_for_equivalence(3) == 80


def test_a_loss_in_one_group_of_many_clips_is_no_need():
    """A group is one trial, however many clips it has."""
    groups = [*["a"] * 50, *"bcdefghijklmnop"]
    (row,) = measure_cue_need(ablations([False] * 50 + [True] * 15, groups=groups), by=BY).to_dict(
        "records"
    )
    assert row["groups"] == 16
    assert row["low"] < 0
    assert row["verdict"] == ""


def test_intervals_hold_together_over_all_rows():
    table = ablations([False] * 15)
    both = pd.concat([table, table[table["ablated"] == "decoder"].assign(ablated="cross")])
    alone, together = (measure_cue_need(rows, by=BY)["low"] for rows in (table, both))
    assert (together < alone[0]).all()
    lost = proportion_interval(15, 15)[0], proportion_interval(0, 15)[1]
    assert alone[0] == pytest.approx(100 * difference_interval(15, 0, 15)[0])
    assert 100 * (lost[0] - lost[1]) <= alone[0] < 100 * lost[0]


@pytest.mark.parametrize(("pairs", "verdict"), [(8, ""), (40, "at chance")])
def test_a_model_that_guesses_has_nothing_to_lose(pairs, verdict):
    table = ablations([True, False] * pairs)
    table.loc[table["ablated"] == "none", "right"] = [True, False] * pairs
    (row,) = measure_cue_need(table, by=BY).to_dict("records")
    assert (row["lost"], row["verdict"]) == (0, verdict)


@pytest.mark.long
def test_chance_is_rarely_called_need():
    """The null: what a model without a cue gets right by guessing, intact and silenced alike."""
    rng, needed = np.random.default_rng(0), 0
    for _ in range(100):
        table = ablations(rng.random(16) < 0.5, control=False)
        intact = rng.random(16) < 0.5
        table.loc[table["ablated"] == "none", "right"] = intact
        needed += (measure_cue_need(table, by=BY)["verdict"] == "needed").sum()
    assert needed <= 8  # one-sided, so about 2.5 in 100


def test_without_another_word_there_is_no_control():
    (row,) = measure_cue_need(ablations([False] * 15, control=False), by=BY).to_dict("records")
    assert np.isnan(row["without_other"])
    assert row["verdict"] == "needed"


def test_drops_by_layer_are_means_with_intervals_over_groups():
    table = measure_layer_need(ablations([True] * 6, layers=(0.25, 3.0)), by=BY)
    assert table["layer"].tolist() == [0, 1]
    assert table["drop"].tolist() == [0.25, 3.0]
    assert (table["groups"] == 6).all()


def test_no_layers_no_table():
    assert measure_layer_need(ablations([True, False]), by=BY).empty
