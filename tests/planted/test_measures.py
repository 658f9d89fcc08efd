"""What each measure must find in a planted model, and what it must miss by its definition."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import speechmix
from speechmix.extensions.planted.case_table import cases
from speechmix.extensions.planted.planting import plant
from speechmix.extensions.planted.recovery import measure_recovery

FAMILIES = ["bert", "gpt2"]
COPIES = ("copy", "relay", "gate")
DECOYS = ("attention decoy", "norm decoy, output", "norm decoy, feed-forward")
BY_NORM = [
    "attention_norm",
    "attention_norm_residual",
    "attention_norm_residual_layernorm",
    "globenc",
    "alti_l2",
]


@functools.cache
def layer_table():
    names = ["value_zeroing", "attention", *BY_NORM, "alti", "hta", "random"]
    table = measure_recovery(
        measures=names, families=FAMILIES, seeds=[1], aggregations=(), decision_maps={}
    )
    return table[table.level == "layer"].set_index(["case", "measure"]).sort_index()


@functools.cache
def path_table(case: str):
    names = ["value_zeroing", "attention", "hta_input", "gradient_input", "integrated_gradients"]
    return measure_recovery(
        measures=names,
        cases=[case],
        families=FAMILIES,
        seeds=[1],
        aggregations=("rollout", "last", "max"),
        decision_maps={},
    )


def precisions(case: str, measure: str) -> np.ndarray:
    return layer_table().loc[[(case, measure)]].average_precision.to_numpy()


@pytest.mark.parametrize("measure", ["value_zeroing", "attention", "hta", *BY_NORM])
@pytest.mark.parametrize("case", COPIES)
def test_every_measure_but_alti_finds_what_is_plainly_copied(case, measure):
    assert (precisions(case, measure) == 1).all()


@pytest.mark.parametrize("case", DECOYS)
def test_value_zeroing_is_taken_in_by_no_decoy(case):
    rows = layer_table().loc[[(case, "value_zeroing")]]
    assert (rows.average_precision == 1).all()
    assert (rows.precision == 1).all()


@pytest.mark.parametrize("case", DECOYS)
def test_attention_is_taken_in_by_every_decoy(case):
    assert (precisions(case, "attention") <= 1 / 3).all()


@pytest.mark.parametrize("measure", BY_NORM)
def test_norms_of_parts_are_taken_in_by_what_the_feed_forward_cancels_alone(measure):
    assert (precisions("attention decoy", measure) == 1).all()
    assert (precisions("norm decoy, feed-forward", measure) <= 1 / 3).all()
    if measure != "alti_l2":
        assert (precisions("norm decoy, output", measure) == 1).all()


@pytest.mark.parametrize("measure", ["value_zeroing", "hta"])
def test_value_zeroing_and_jacobians_miss_redundant_cues(measure):
    """Without one of them, or with a little less of one, nothing changes."""
    assert precisions("redundant", measure).mean() < 0.4
    assert (layer_table().loc[[("redundant", measure)]].recall == 0).all()
    assert all((precisions("redundant", by_norm) == 1).all() for by_norm in ("attention", *BY_NORM))


def test_a_jacobian_counts_what_could_flow_where_nothing_does():
    assert (precisions("attention decoy", "hta") <= 1 / 3).all()


def test_nothing_is_reported_by_value_zeroing_where_there_is_no_edge():
    rows = layer_table().loc[(slice(None), "value_zeroing"), :].reset_index()
    without = rows[rows.n_edges == 0]
    assert set(without.case) == {"residual", "nothing"}
    assert (without[without.case == "residual"].n_reported == 0).all()


def test_what_goes_round_attention_is_in_no_map():
    options = {
        "cases": ["round attention"],
        "families": ["wav2vec2"],
        "seeds": range(4),
        "aggregations": ["rollout"],
    }
    table = measure_recovery(measures=["value_zeroing", "attention", "gradient_input"], **options)
    assert (table[table.level == "layer"].n_edges == 0).all()
    assert (
        table[table.level != "layer"].groupby(["measure", "level"]).average_precision.mean() < 0.75
    ).all()


def test_two_steps_are_seen_by_rollout_and_by_no_single_layer():
    table = path_table("relay")
    decided = table[(table.level == "decision") & (table.measure == "value_zeroing")].set_index(
        "aggregation"
    )
    assert (decided.average_precision["rollout"] == 1).all()
    assert (decided.average_precision["max"] < 1).all()
    attention = table[(table.level == "decision") & (table.measure == "attention")].set_index(
        "aggregation"
    )
    assert (
        attention.average_precision["rollout"] < 1
    ).all()  # half of the relay's own input is taken for its content


def flips(planted) -> np.ndarray:
    """What negating each source's content does to the margin, [S]: the truth itself, as a decision
    map."""
    margin, stack = planted.margin(), planted.source_stack
    return np.array(
        [
            planted.margin(planted.negate_contents([(stack, p)])) - margin
            for p in range(len(planted.contents[stack]))
        ]
    )


def test_maps_of_contribution_do_not_tell_what_decides_and_a_decision_map_does():
    options = {
        "cases": ["gate"],
        "families": FAMILIES,
        "seeds": [0, 1],
        "aggregations": ["rollout"],
    }
    table = measure_recovery(
        measures=["value_zeroing", "attention_norm"], **options, decision_maps={"flips": flips}
    )
    table = table[table.level == "decision"].set_index("measure")
    assert (table.average_precision["flips"] == 1).all()
    assert (
        table.average_precision[["value_zeroing", "attention_norm"]] == 0.5
    ).all()  # the idle cue comes first


@pytest.mark.parametrize("family", ["bert", "gpt2", "whisper"])
@pytest.mark.long
def test_states_put_in_where_the_first_layer_begins_tell_what_decides(family):
    table = measure_recovery(measures=[], families=[family], seeds=[0])
    table = table[(table.n_edges > 0) & (table.measure == "patch (first layer)")]
    assert set(table["case"]) >= {"copy", "relay", "redundant", "gate"}
    assert (table.average_precision == 1).all()


def test_a_knock_out_finds_the_relay_beside_the_cue():
    table = measure_recovery(measures=[], cases=["copy", "relay"], families=["gpt2"], seeds=[0, 1])
    table = table[table.measure == "knock_out"].set_index("case").average_precision
    assert (table["copy"] == 1).all()
    assert table["relay"].between(0.5, 1).all()


def test_gradients_on_a_path_find_redundant_cues():
    table = path_table("redundant").query("level == 'decision'").set_index("measure")
    assert (table.average_precision["integrated_gradients"] == 1).all()


ROTATED_ALIKE = [
    "value_zeroing",
    "attention",
    "attention_norm",
    "attention_norm_residual",
    "alti_l2",
    "hta",
]


@pytest.mark.parametrize(
    ("family", "stack"), [("bert", "encoder"), ("gpt2", "decoder"), ("whisper", "cross")]
)
def test_maps_do_not_depend_on_the_basis_but_those_of_alti_do(family, stack):
    models = [
        plant("redundant", family=family, stack=stack, rotation_seed=seed, noise=0.01)
        for seed in (None, 5)
    ]
    names = [
        name for name in ROTATED_ALIKE if stack != "cross" or name != "attention_norm_residual"
    ]
    maps = [
        speechmix.mix(p.model, p.item, measures=[*names, "alti"], stacks=[stack]) for p in models
    ]
    for name in names:
        np.testing.assert_allclose(
            maps[0][name, stack].scores, maps[1][name, stack].scores, rtol=1e-6, atol=1e-10
        )
    alti = [found["alti", stack].normalized().scores[1, 6] for found in maps]
    assert abs(alti[0] - alti[1]).max() > 1e-3


@pytest.mark.long
def test_alti_finds_copies_along_the_axes_and_loses_them_in_a_rotated_basis():
    tables = {
        rotated: measure_recovery(
            measures=["alti"],
            cases=["copy", "relay"],
            families=FAMILIES,
            seeds=range(3),
            rotated=rotated,
            aggregations=(),
        )
        for rotated in (False, True)
    }
    means = {
        rotated: table[table.level == "layer"].average_precision.mean()
        for rotated, table in tables.items()
    }
    assert means[False] == 1
    assert means[True] < 0.8


def test_every_case_is_tried():
    assert set(layer_table().reset_index().case) == {
        case.name for case in cases() if not case.families
    }
