"""Onsets over training: where a rise begins, when it may be claimed, which rise is first; nulls claim
nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from speechmix.evaluation.statistics.onsets import claim_onsets, draw_onsets, locate_onsets
from speechmix.evaluation.trajectories import (
    measure_trajectory,
    trajectory_claims,
    trajectory_curves,
)
from speechmix.evaluation.trajectory_leads import ALL_TRAININGS, date_onsets, trajectory_leads

CHECKPOINTS, GROUPS = 12, 12


def slow_onset(curve):
    """The first checkpoint from which on all are above a quarter of the mean of the last three."""
    final = sum(curve[-3:]) / 3
    for onset in range(len(curve)):
        if final > 0 and all(value > final / 4 for value in curve[onset:]):
            return onset
    return len(curve)


def rising(onset, *, height=5.0, start=0.0):
    return np.where(np.arange(CHECKPOINTS) < onset, start, height)


def wandering(random, size, keep=0.8):
    """A walk that returns to zero, common to all groups: what weights do while they are trained."""
    walk, value = [], 0.0
    for _ in range(CHECKPOINTS):
        value = keep * value + random.normal(0, size)
        walk.append(value)
    return np.array(walk) - walk[0]


def tables(random, need, contribution=None, *, training="a", groups=GROUPS, noise=0.3, sign=1):
    """Tables of a run with a pair of clips in each group; `need` and `contribution` [T] by checkpoint.

    `sign` -1 turns the need of the plural round: a mere preference for one spelling.
    """
    ablation, shares = [], []
    for group in range(groups):
        own = 1 + noise * random.normal()
        for number in ("sg", "pl"):
            clip = {"clip": f"{group}_{number}", "init": "trained", "seed": pd.NA}
            for index in range(CHECKPOINTS):
                about = {**clip, "model": f"{training}@{index}", "layer": pd.NA}
                drop = need[index] * own + 0.05 * random.normal()
                drop *= sign if number == "pl" else 1
                rows = [("", "none", 3.0), ("cue", "decoder", 3.0 - drop)]
                rows += [("another word", "decoder", 3.0 - 0.05 * random.normal())]
                ablation += [
                    {**about, "source": s, "ablated": a, "margin": m, "right": m > 0}
                    for s, a, m in rows
                ]
                share = 0.2 if contribution is None else 0.2 + 0.1 * contribution[index] * own
                more = {
                    "stack": "decoder",
                    "measure": "value_zeroing",
                    "rows": "target",
                    "layer": 0,
                }
                shares.append(
                    {**about, **more, "contribution": share + 0.01 * random.normal()}
                    | {"mixing_strength": 1.0}
                )
    clips = pd.DataFrame(
        [
            {"clip": f"{group}_{number}", "group": str(group), "target": f"{group}{number}"}
            for group in range(groups)
            for number in ("sg", "pl")
        ]
    )
    steps = {f"{training}@{index}": (training, 100 * index) for index in range(CHECKPOINTS)}
    return pd.DataFrame(shares), pd.DataFrame(ablation), clips, steps


def claimed(cells):
    claims = trajectory_claims(cells)
    return claims[claims["layer"] == -1].set_index("quantity")


def test_onsets_are_those_of_the_definition():
    random = np.random.default_rng(0)
    curves = random.normal(0, 1, (200, 9)).cumsum(axis=1)
    np.testing.assert_array_equal(locate_onsets(curves), [slow_onset(curve) for curve in curves])


def test_draws_are_onsets_of_resampled_groups():
    random = np.random.default_rng(1)
    values = random.normal(0, 0.5, (1, CHECKPOINTS, 8)) + rising(5)[None, :, None]
    draws = draw_onsets(values)
    assert draws.shape[0] == 1
    assert set(np.unique(draws)) == {5}


@pytest.mark.parametrize("onset", [1, 4, CHECKPOINTS - 3])
def test_a_planted_rise_is_found_where_it_begins(onset):
    cells = measure_trajectory(*tables(np.random.default_rng(onset), rising(onset), rising(onset)))
    dated = date_onsets(cells, trajectory_claims(cells))
    assert dated["claim"].all()
    assert set(dated["onset"]) == {100.0 * onset}
    assert set(dated["previous"]) == {100.0 * (onset - 1)}
    assert (dated["low"] <= dated["onset"]).all()
    assert (dated["high"] >= dated["onset"]).all()


def test_a_rise_of_the_last_two_checkpoints_is_too_short():
    cells = measure_trajectory(*tables(np.random.default_rng(0), rising(CHECKPOINTS - 2)))
    assert not claimed(cells)["claim"].any()


def test_a_rise_that_is_no_higher_than_an_earlier_one_is_none():
    need = rising(8) + np.where(np.arange(CHECKPOINTS) == 3, 6.0, 0.0)
    assert not claimed(measure_trajectory(*tables(np.random.default_rng(0), need)))["claim"].any()


def count_null_claims(count, seed):
    """Of so many trainings in which the cue never helps: weights wander, groups differ."""
    random = np.random.default_rng(seed)
    false = 0
    for _ in range(count):
        need = wandering(random, 0.3)
        cells = measure_trajectory(*tables(random, need, wandering(random, 0.3), groups=8))
        false += bool(trajectory_claims(cells)["claim"].any())
    return false


def test_twenty_trainings_in_which_the_cue_never_helps_claim_at_most_one_onset():
    assert count_null_claims(20, seed=5) <= 1


@pytest.mark.long
def test_few_of_many_nulls_claim_an_onset():
    assert count_null_claims(400, seed=7) <= 20


def test_noise_of_clips_alone_claims_in_at_most_five_percent():
    random = np.random.default_rng(2)
    false = [claim_onsets(random.normal(0, 1, (3, 6, 8))).any() for _ in range(100)]
    assert sum(false) <= 5


def test_groups_that_lack_a_checkpoint_do_not_count():
    values = np.random.default_rng(0).normal(1, 0.1, (1, CHECKPOINTS, 8)) * rising(4)[:, None]
    values[:, 7, :2] = np.nan
    assert claim_onsets(values).all()  # six groups are whole
    values[:, 7, 2] = np.nan
    assert not claim_onsets(values).any()


def test_few_groups_claim_nothing():
    cells = measure_trajectory(*tables(np.random.default_rng(0), rising(4), rising(4), groups=5))
    claims = trajectory_claims(cells)
    assert not claims["claim"].any()
    assert set(claims["reason"]) == {"fewer than 6 groups of clips"}


def test_without_step_0_it_takes_19_twins():
    shares, ablation, clips, steps = tables(np.random.default_rng(0), rising(4), rising(4))
    later = {name: key for name, key in steps.items() if key[1] > 0}
    cells = measure_trajectory(shares, ablation, clips, later)
    assert "19 untrained twins" in trajectory_claims(cells)["reason"].iloc[0]
    for count, claim in ((18, False), (19, True)):
        twins = [
            table[table["model"] == "a@0"].assign(model="a", init="random", seed=seed)
            for seed in range(count)
            for table in (shares,)
        ]
        spelled = [
            ablation[ablation["model"] == "a@0"].assign(
                model="a",
                init="random",
                seed=seed,
                margin=lambda t, s=seed: t["margin"] + 0.001 * s,
            )
            for seed in range(count)
        ]
        for seed, twin in enumerate(twins):
            twin["contribution"] += 0.002 * np.sin(seed)
            is_cue = spelled[seed]["source"] == "cue"
            spelled[seed].loc[is_cue, "margin"] += 0.01 * np.sin(seed)
        cells = measure_trajectory(
            pd.concat([shares, *twins]), pd.concat([ablation, *spelled]), clips, later
        )
        assert claimed(cells).loc["need", "claim"] == claim


def test_a_value_that_a_twin_reaches_is_no_rise():
    shares, ablation, clips, steps = tables(np.random.default_rng(0), rising(4), rising(4))
    twin = ablation[ablation["model"] == "a@11"].assign(model="a", init="random", seed=0)
    cells = measure_trajectory(shares, pd.concat([ablation, twin]), clips, steps)
    assert not claimed(cells).loc["need", "claim"]


def test_a_contribution_alone_is_claimed_only_with_a_need():
    flat = np.zeros(CHECKPOINTS)
    cells = measure_trajectory(*tables(np.random.default_rng(3), flat, rising(4)))
    row = claimed(cells).loc["contribution"]
    assert not row["claim"]
    assert "does not come to need" in row["reason"]


def test_a_preference_for_one_spelling_is_no_need():
    cells = measure_trajectory(*tables(np.random.default_rng(3), rising(4), sign=-1, noise=0.0))
    curves = trajectory_curves(cells)
    assert abs(curves.loc[curves["quantity"] == "need", "value"]).max() < 0.2
    assert not claimed(cells)["claim"].any()


def test_a_loss_without_any_word_is_no_need():
    shares, ablation, clips, steps = tables(np.random.default_rng(3), rising(4))
    cue = ablation[ablation["source"] == "cue"]
    other = cue.assign(source="another word", margin=cue["margin"] - 0.5)
    ablation = pd.concat([ablation[ablation["source"] != "another word"], other])
    assert not claimed(measure_trajectory(shares, ablation, clips, steps)).loc["need", "claim"]


@pytest.mark.parametrize(
    ("contribution", "need", "first"), [(3, 7, "contribution"), (7, 3, "need"), (5, 5, "")]
)
def test_which_is_first(contribution, need, first):
    random, parts = np.random.default_rng(1), []
    for training in "abc":
        given = tables(random, rising(need), rising(contribution), training=training)
        parts.append(measure_trajectory(*given))
    cells = pd.concat(parts, ignore_index=True)
    leads = trajectory_leads(cells, trajectory_claims(cells))
    assert leads["training"].tolist() == ["a", "b", "c", ALL_TRAININGS]
    assert set(leads["lag"]) == {100.0 * (need - contribution)}
    assert set(leads["first"]) == {first}


def test_trainings_that_disagree_do_not_show_which_is_first():
    random, parts = np.random.default_rng(1), []
    for training, onset in zip("abc", (3, 5, 7), strict=True):
        given = tables(random, rising(5), rising(onset), training=training)
        parts.append(measure_trajectory(*given))
    cells = pd.concat(parts, ignore_index=True)
    last = trajectory_leads(cells, trajectory_claims(cells)).iloc[-1]
    assert (last["first"], last["lag"]) == ("", 0.0)


def test_the_order_of_rows_changes_nothing():
    shares, ablation, clips, steps = tables(np.random.default_rng(0), rising(4), rising(4))
    one = trajectory_claims(measure_trajectory(shares, ablation, clips, steps))
    mixed = [table.sample(frac=1, random_state=0) for table in (shares, ablation, clips)]
    other = trajectory_claims(measure_trajectory(*mixed, steps))
    keys = ["quantity", "stack", "layer"]
    pd.testing.assert_frame_equal(
        one.sort_values(keys, ignore_index=True), other.sort_values(keys, ignore_index=True)
    )


def test_curves_are_means_over_groups():
    shares, ablation, clips, steps = tables(np.random.default_rng(0), rising(4), rising(4))
    curves = trajectory_curves(measure_trajectory(shares, ablation, clips, steps))
    row = curves[(curves["quantity"] == "need") & (curves["step"] == 600)].iloc[0]
    of_step = ablation[ablation["model"] == "a@6"].set_index(["clip", "source"])["margin"]
    drops = (of_step[:, ""] - of_step[:, "cue"]).groupby(lambda name: name.split("_")[0]).mean()
    assert row["value"] == pytest.approx(drops.mean(), abs=1e-12)
    assert row["low"] < row["value"] < row["high"]
    assert row["groups"] == GROUPS
