"""measure_recovery(): which pairs are judged, what stands in its table, and its numbers against a count by
hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.planted.planting import plant
from speechmix.extensions.planted.recovery import (
    DECISION_MAPS,
    measure_recovery,
    score_planted_model,
)


def counted(scores, true_pairs, pairs) -> float:
    """Average precision by going down the ranking, equal scores together at the place of the last
    of them."""
    precision = []
    for pair in true_pairs:
        above = [other for other in pairs if scores[other] >= scores[pair]]
        precision.append(len(set(above) & set(true_pairs)) / len(above))
    return sum(precision) / len(precision)


@pytest.mark.parametrize(
    ("family", "stack", "n_pairs"),
    [("gpt2", "decoder", 3 * 21), ("bert", "encoder", 3 * 42), ("whisper", "cross", 3 * 49)],
)
def test_layer_rows_judge_every_pair_that_a_mask_allows_but_the_own_and_the_first(
    family, stack, n_pairs
):
    planted = plant("redundant", family=family, stack=stack, layer=2, noise=0.01)
    rows = [
        row
        for row in score_planted_model(planted, ["value_zeroing", "attention"], aggregations=())
        if row["level"] == "layer"
    ]
    for row in rows:
        name = row["measure"]
        scores = speechmix.mix(planted.model, planted.item, measures=name, stacks=stack)[
            name, stack
        ].scores
        pairs = [
            (layer, t, s)
            for layer, t, s in itertools.product(range(3), range(1, 8), range(1, 8))
            if (s < t if stack == "decoder" else stack == "cross" or s != t)
        ]
        assert row["n_pairs"] == len(pairs) == n_pairs
        assert row["average_precision"] == pytest.approx(
            counted(scores, [(2, 6, 2), (2, 6, 4)], pairs)
        )
        shares = scores / scores.sum(axis=-1, keepdims=True)
        is_reported = [
            shares[pair] > 1 / (pair[1] + 1 if stack == "decoder" else 8) for pair in pairs
        ]
        assert row["n_reported"] == sum(is_reported)


def test_table_has_a_row_for_each_measure_aggregation_and_question():
    table = measure_recovery(
        measures=["attention", "hta_input", "gradient_input"],
        cases=["copy"],
        families=["gpt2"],
        seeds=[1],
    )
    asked = set(zip(table["measure"], table["aggregation"], table["level"], strict=True))
    ways = ["rollout", "flow", "mean", "max", "last"]
    assert asked == {
        ("attention", "none", "layer"),
        *itertools.product(["attention"], ways, ["input to output", "decision"]),
        *itertools.product(["hta_input"], ["last"], ["input to output", "decision"]),
        ("gradient_input", "first layer", "decision"),
        *itertools.product(DECISION_MAPS, ["max"], ["decision"]),
    }
    assert len(table) == len(asked)
    assert set(table.layer) == {1}


def test_whisper_is_judged_on_its_composed_maps():
    table = measure_recovery(
        measures=["alti"], cases=["copy"], families=["whisper"], seeds=[0], aggregations=["rollout"]
    )
    asked = set(zip(table["stack"], table["aggregation"], table["level"], strict=True))
    assert ("cross", "composed", "input to output") in asked
    assert {stack for stack, way, level in asked if (way, level) == ("composed", "decision")} == {
        "encoder",
        "decoder",
        "cross",
    }
    composed = table[(table.aggregation == "composed") & (table.level == "decision")]
    assert set(composed.n_pairs) == {7 + 5}  # frames, and tokens before the deciding one


def test_decision_maps_are_judged_by_their_largest_effect_over_layers():
    effects = np.zeros((3, 8))
    effects[1, 2], effects[2, 4] = -0.9, 0.5
    rows = measure_recovery(
        measures=[],
        cases=["copy"],
        families=["whisper"],
        seeds=[0],
        decision_maps={"mine": lambda planted: effects},
    )
    assert set(rows["measure"]) == {"mine"}
    assert (rows.average_precision == 1).all()
    assert (rows.recall == 1).all()
    with pytest.raises(
        speechmix.errors.InputError,
        match=r"expected effects \[layers, 8 sources\], found shape \(1, 3\)",
    ):
        measure_recovery(
            measures=[],
            cases=["copy"],
            families=["gpt2"],
            seeds=[0],
            decision_maps={"mine": lambda planted: [1, 2, 3]},
        )


def test_noise_hides_edges_by_and_by():
    options = {
        "measures": ["value_zeroing"],
        "cases": ["copy"],
        "families": ["gpt2"],
        "seeds": range(2),
        "aggregations": (),
    }
    quiet, loud = (
        measure_recovery(noise=noise, **options).query("level == 'layer'").average_precision.mean()
        for noise in (0.0, 0.5)
    )
    assert quiet == 1
    assert loud < 0.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"measures": ["atention"]}, "unknown measure"),
        ({"measures": ["mixing_ratio_globenc"]}, "does not rank sources"),
        ({"cases": ["cpoy"]}, "no planted case"),
        ({"families": ["t5"]}, "family should be one of"),
        ({"families": ["gpt2"], "aggregations": ["median"]}, "aggregations should be of"),
    ],
)
def test_what_is_not_there_is_refused(options, message):
    with pytest.raises(speechmix.errors.InputError, match=message):
        measure_recovery(**options)


def test_what_goes_wrong_in_parts_that_are_defined_is_an_error(monkeypatch):
    def broken(*args, **options):
        raise InputError("the parts do not add up")

    monkeypatch.setattr("speechmix.extensions.planted.recovery.logit_contributions", broken)
    planted = plant("copy", family="gpt2")
    with pytest.raises(InputError, match="do not add up"):
        list(score_planted_model(planted, ["alti_logit"], decision_maps={}))
    assert not list(
        score_planted_model(plant("copy", family="bert"), ["alti_logit"], decision_maps={})
    )  # post-norm: not defined
