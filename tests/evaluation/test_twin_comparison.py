"""A trained model against its twins: what is averaged, what counts as one, and the three things that a claim needs."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from speechmix.evaluation.intervals import FEWEST_GROUPS
from speechmix.evaluation.rank_test import TWINS_NEEDED
from speechmix.evaluation.twin_comparison import WHOLE_STACK, compare_with_twins, whole_stack
from speechmix.maps.numerics import STRENGTH_FLOOR


def contributions(
    gain: float = 20,
    *,
    twins: int = TWINS_NEEDED,
    clips: int = 12,
    strength: float = 0.3,
    layers: int = 3,
    seed: int = 0,
) -> pd.DataFrame:
    """Shares in % of a trained model, `gain` higher in layer 1, and of its twins, about 20 everywhere."""
    rng, rows = np.random.default_rng(seed), []
    for init, draw in (("trained", None), *(("random", number) for number in range(twins))):
        shift = rng.normal(0, 1)
        for clip in range(clips):
            for layer in range(layers):
                value = 20 + shift + rng.normal(0, 2) + (gain if init == "trained" and layer == 1 else 0)
                rows.append(("m", init, draw, f"c{clip}", layer, value, strength))
    columns = ["model", "init", "seed", "clip", "layer", "contribution", "mixing_strength"]
    return pd.DataFrame(rows, columns=columns).astype({"seed": "Int64"})


def claims(table: pd.DataFrame, **options) -> list[str]:
    return compare_with_twins(table, by=["model", "layer"], **options)["claim"].tolist()


def test_a_difference_is_claimed_in_its_layer_and_direction():
    result = compare_with_twins(contributions(), by=["model", "layer"]).set_index("layer")
    assert result["claim"].tolist() == ["", "more", ""]
    assert result.loc[1, "difference"] == pytest.approx(20, abs=3)
    assert result.loc[1, "low"] < 20 < result.loc[1, "high"]
    assert result.loc[1, "p"] == pytest.approx(2 / (TWINS_NEEDED + 1))
    assert (result["twins"] == TWINS_NEEDED).all()
    assert claims(contributions(-15)) == ["", "less", ""]


@pytest.mark.parametrize(
    "lacking", [{"twins": TWINS_NEEDED - 1}, {"clips": FEWEST_GROUPS - 1}, {"strength": STRENGTH_FLOOR / 2}]
)
def test_without_enough_twins_groups_or_mixing_nothing_is_claimed(lacking):
    assert claims(contributions(60, **lacking)) == [""] * 3


def test_clips_of_a_group_count_as_one():
    table = contributions(clips=24)
    table["group"] = "g" + (table["clip"].str[1:].astype(int) // 4).astype(str)
    result = compare_with_twins(table, by=["model", "layer"], group="group")
    assert set(result["groups"]) == {6}
    assert set(result["clips"]) == {24}
    assert set(result["claim"]) == {""}


def test_only_clips_that_every_model_has_scored_count():
    table = contributions(clips=10)
    missing = (table["clip"] == "c0") & (table["seed"] == 3)
    table.loc[(table["clip"] == "c0") & (table["init"] == "trained"), "contribution"] = 1000
    result = compare_with_twins(table[~missing], by=["model", "layer"])
    assert set(result["clips"]) == {9}
    assert result["trained"].max() < 50


def test_the_interval_takes_in_that_few_twins_stand_for_all_untrained_models():
    many, few = (compare_with_twins(contributions(twins=twins), by=["model", "layer"]) for twins in (39, 3))
    assert ((few["high"] - few["low"]) > (many["high"] - many["low"])).all()
    assert (
        compare_with_twins(contributions(twins=1), by=["model", "layer"])[["low", "high", "p", "twin_low"]]
        .isna()
        .all(axis=None)
    )


def test_without_a_trained_model_or_a_twin_there_is_no_difference():
    table = contributions()
    for init, column in (("trained", "random"), ("random", "trained")):
        result = compare_with_twins(table[table["init"] == init], by=["model", "layer"])
        assert result[[column, "difference", "low", "p"]].isna().all(axis=None)
        assert set(result["claim"]) == {""}


def test_cells_that_name_no_family_are_corrected_together():
    table = contributions()
    expected = compare_with_twins(table, by=["model", "layer"])["p"]
    assert compare_with_twins(table, by=["layer"])["p"].tolist() == expected.tolist()


def test_a_whole_stack_weights_layers_by_how_far_they_move_the_target():
    table = pd.DataFrame({"clip": "a", "layer": [0, 1, 2], "contribution": [0.2, 0.9, 0.6]})
    assert whole_stack(table)["contribution"].item() == pytest.approx(1.7 / 3)
    result = whole_stack(table.assign(mixing_strength=[0.3, 0.0, 0.1]))
    assert (result["layer"].item(), result["contribution"].item()) == (WHOLE_STACK, pytest.approx(0.3))
    assert whole_stack(table.assign(mixing_strength=0.0))["contribution"].item() == pytest.approx(1.7 / 3)


def test_a_layer_without_a_value_does_not_count_in_a_whole_stack():
    table = pd.DataFrame(
        {"clip": "a", "layer": [0, 1, 2], "contribution": [0.2, np.nan, 0.6], "mixing_strength": [0.3, 0.6, 0.1]}
    )
    result = whole_stack(table)
    assert result["contribution"].item() == pytest.approx((0.3 * 0.2 + 0.1 * 0.6) / 0.4)
    unknown = whole_stack(table.assign(contribution=0.5, mixing_strength=[0.3, np.nan, 0.1]))
    assert unknown["mixing_strength"].item() == pytest.approx((0.3**2 + 0.1**2) / 0.4)


def test_idle_layers_do_not_change_a_whole_stack():
    table = contributions()
    idle = table[table["layer"] == 0].assign(layer=9, contribution=90.0, mixing_strength=0.0)
    whole, with_idle = (
        compare_with_twins(whole_stack(rows), by=["model"]) for rows in (table, pd.concat([table, idle]))
    )
    pd.testing.assert_frame_equal(whole, with_idle)
