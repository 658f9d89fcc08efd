"""Onsets over training: where a rise begins, when it may be claimed, which rise is first; nulls claim
nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from speechmix.extensions.trajectories.trajectories import measure_trajectory, trajectory_curves
from speechmix.extensions.trajectories.trajectory_claims import (
    ALL_TRAININGS,
    claim_onsets,
    date_onsets,
    draw_onsets,
    fewest_checkpoints,
    locate_onsets,
    trajectory_claims,
    trajectory_leads,
)

CHECKPOINTS, GROUPS = 12, 16


def slow_onset(curve):
    """The first checkpoint from which on all are above a quarter of the mean of the last three."""
    final = sum(curve[-3:]) / 3
    for onset in range(len(curve)):
        if final > 0 and all(value > final / 4 for value in curve[onset:]):
            return onset
    return len(curve)


def rising(onset, *, height=5.0, start=0.0):
    return np.where(np.arange(CHECKPOINTS) < onset, start, height)


def wandering(random, size, keep=0.8, checkpoints=CHECKPOINTS):
    """A walk that returns to zero, common to all groups: what weights do while they are trained."""
    walk, value = [], 0.0
    for _ in range(checkpoints):
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
            for index in range(len(need)):
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
    steps = {f"{training}@{index}": (training, 100 * index) for index in range(len(need))}
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


@pytest.mark.parametrize("checkpoints", [6, pytest.param(8, marks=pytest.mark.long), 12])
def test_needs_that_wander_as_random_walks_are_no_rise(checkpoints):
    claims = 0
    for seed in range(11):
        random = np.random.default_rng(seed)
        need, share = (wandering(random, 0.5, 1.0, checkpoints) for _ in range(2))
        claims += claimed(measure_trajectory(*tables(random, need, share)))["claim"].any()
    assert claims == 0


def test_walks_of_many_layers_claim_one_in_few_tables():
    """Independent walks, also with single large steps: corrected over all cells."""
    claims, tables_count = 0, 400
    for seed in range(tables_count):
        random = np.random.default_rng(seed)
        steps = random.standard_t(3, (9, CHECKPOINTS)) if seed % 2 else random.normal(size=(9, 12))
        walks = np.cumsum(steps, axis=1)
        values = walks[..., None] * random.normal(1, 0.3, (9, 1, GROUPS))
        claims += claim_onsets(values - values[:, :1]).any()
    assert claims <= 0.06 * tables_count


def test_clips_that_shift_for_good_with_a_skewed_distribution_are_no_rise():
    """A few clips lose much and most gain a little after step 0; the mean over all clips is zero."""
    claims = 0
    for seed in range(110):
        random = np.random.default_rng(seed)
        shift = np.exp(0.5) - random.lognormal(0, 1, (2, 1, GROUPS))
        values = shift * (np.arange(CHECKPOINTS) > 0)[:, None]
        claims += claim_onsets(values + random.normal(0, 0.05, values.shape)).any()
    assert claims <= 0.11 * 110


def test_a_rise_without_a_fall_is_as_probable_as_a_coin_that_never_shows_tails():
    for checkpoints in (6, 9):
        rise = np.linspace(0, 1, checkpoints)[:, None] * np.random.default_rng(0).normal(
            1, 0.1, (1, 1, GROUPS)
        )
        cells = int(0.05 * 2 ** (checkpoints - 1))  # p is 2^-(checkpoints - 1)
        assert fewest_checkpoints(cells) == checkpoints
        assert claim_onsets(rise, cells=cells - (checkpoints > 6)).all()
        assert fewest_checkpoints(2 * cells + 1) > checkpoints
        assert not claim_onsets(rise, cells=2 * cells + 1).any()


def test_noise_of_clips_alone_claims_in_at_most_five_percent():
    random = np.random.default_rng(2)
    false = [claim_onsets(random.normal(0, 1, (3, 9, 15))).any() for _ in range(100)]
    assert sum(false) <= 5


def test_groups_that_lack_a_checkpoint_do_not_count():
    values = np.random.default_rng(0).normal(1, 0.1, (1, CHECKPOINTS, 17)) * rising(4)[:, None]
    values[:, 7, :2] = np.nan
    assert claim_onsets(values).all()  # fifteen groups are whole
    values[:, 7, 2] = np.nan
    assert not claim_onsets(values).any()


def test_few_groups_and_few_checkpoints_claim_nothing():
    cells = measure_trajectory(*tables(np.random.default_rng(0), rising(4), rising(4), groups=14))
    claims = trajectory_claims(cells)
    assert not claims["claim"].any()
    assert set(claims["reason"]) == {"it needs 15 groups of clips, found 14"}
    cells = measure_trajectory(*tables(np.random.default_rng(0), rising(2)[:6], rising(2)[:6]))
    reasons = trajectory_claims(cells).set_index(["quantity", "layer"])["reason"]
    assert reasons["need", -1] == "of 2 curves it takes 7 checkpoints, found 6"


def twin_tables(shares, ablation, seeds, size):
    """Tables of twins: the first checkpoint, with a need and a contribution of their own."""
    parts = []
    for seed in range(seeds):
        about = {"model": "a", "init": "random", "seed": seed}
        twin, spelled = (
            table[table["model"] == "a@0"].assign(**about) for table in (shares, ablation)
        )
        draw = np.random.default_rng(seed).normal(0, size)
        twin["contribution"] += 0.1 * draw
        spelled.loc[spelled["source"] == "cue", "margin"] -= draw
        parts.append((twin, spelled))
    return [
        pd.concat([table, *twins])
        for table, twins in zip((shares, ablation), zip(*parts, strict=True), strict=True)
    ]


@pytest.mark.parametrize(
    ("twins", "size", "claim"), [(4, 0.1, False), (5, 0.1, True), (9, 0.1, True), (9, 3.0, False)]
)
def test_without_step_0_a_rise_is_one_above_one_more_untrained_model(twins, size, claim):
    shares, ablation, clips, steps = tables(np.random.default_rng(0), rising(4), rising(4))
    later = {name: key for name, key in steps.items() if key[1] > 0}
    cells = measure_trajectory(shares, ablation, clips, later)
    text = "it needs a checkpoint of step 0 or 5 untrained twins"
    assert set(trajectory_claims(cells)["reason"]) == {text}
    cells = measure_trajectory(*twin_tables(shares, ablation, twins, size), clips, later)
    row = claimed(cells).loc["need"]
    assert row["claim"] == claim
    assert (row["reason"] == text) == (twins < 5)


@pytest.mark.parametrize("seeds", [4, pytest.param(11, marks=pytest.mark.long)])
def test_twins_that_pose_as_trained_claim_nothing(seeds):
    """A training that leaves the need of each model as it was at its start, without its step 0."""
    claims = 0
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        need = np.where(np.arange(CHECKPOINTS) > 0, random.normal(0, 1), 0.0)
        shares, ablation, clips, steps = tables(random, need)
        later = {name: key for name, key in steps.items() if key[1] > 0}
        given = twin_tables(shares, ablation, 9, 1.0)
        claims += claimed(measure_trajectory(*given, clips, later))["claim"].any()
    assert claims == 0


def test_layers_are_claimed_in_a_stack_that_rises_and_never_idle_ones():
    shares, ablation, clips, steps = tables(np.random.default_rng(0), rising(4), rising(4))
    other = shares.assign(measure="attention")
    idle = shares.assign(layer=1, mixing_strength=0.001)
    flat = shares[shares["model"] == "a@0"]["contribution"]
    weights = {"layer": 2, "mixing_strength": 99.0, "contribution": np.resize(flat, len(shares))}
    given = pd.concat([shares, idle, other])
    claims = trajectory_claims(measure_trajectory(given, ablation, clips, steps))
    shares_of = claims[claims["quantity"] == "contribution"].set_index(["measure", "layer"])
    assert shares_of["claim"].to_dict() == {
        ("value_zeroing", 0): True,
        ("value_zeroing", 1): False,
        ("value_zeroing", -1): True,
        ("attention", 0): False,
        ("attention", -1): False,
    }
    assert "less than 1%" in shares_of["reason"]["value_zeroing", 1]
    assert "leading measure alone" in shares_of["reason"]["attention", 0]
    given = pd.concat([shares, shares.assign(**weights)])
    claims = trajectory_claims(measure_trajectory(given, ablation, clips, steps))
    reasons = claims[claims["quantity"] == "contribution"].set_index("layer")["reason"]
    assert reasons[0] == "it rises, and its whole stack does not"


def test_models_that_write_no_text_have_a_trajectory_without_twins():
    """Their only table is that of contributions, whose texts a run stores as categories."""
    shares, ablation, clips, steps = tables(np.random.default_rng(0), rising(4), rising(4))
    texts = ["model", "init", "stack", "measure", "rows", "clip"]
    given = shares.astype(dict.fromkeys(texts, "category"))
    cells = measure_trajectory(given, ablation.iloc[:0], clips, steps)
    expected = measure_trajectory(shares, ablation.iloc[:0], clips, steps)
    pd.testing.assert_frame_equal(cells, expected)
    assert claimed(cells).loc["contribution", "claim"]
    assert trajectory_curves(cells)["twin_low"].isna().all()


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
