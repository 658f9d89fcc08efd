"""What is said of probes follows their tests: on drawn answers, on the null, and with too little to
tell."""

from __future__ import annotations

import re

import numpy as np
import pytest

from speechmix.evaluation.statistics.intervals import mean_interval
from speechmix.extensions.probing.conclusions import describe_conclusions, draw_conclusions
from tests.evaluation.probing.synthetic_probes import synthetic_probes


def test_what_is_read_from_a_layer_on_is_said_so():
    claims = draw_conclusions(*synthetic_probes())
    assert claims.set_index("layer").read.to_dict() == {
        -1: False,
        0: False,
        1: False,
        2: True,
        3: True,
        4: True,
    }
    assert claims.more.all()  # of the mean over layers
    assert (claims.difference_low > 0).all()
    (sentence,) = describe_conclusions(claims, {"synthetic": "the model"})
    assert sentence.startswith(
        "the model: a probe predicts number from the vectors of the target in the encoder, from layer 2 on. Its best "
        "accuracy is 100 % (confidence interval"
    )
    assert "Over all layers, the probe is more accurate than in untrained models (" in sentence
    assert re.search(r"mean: \+\d+ points, 95 % interval \+\d+ to \+\d+\)", sentence)


def test_a_state_that_tells_it_untrained_is_read_but_not_learned():
    claims = draw_conclusions(
        *synthetic_probes(
            (0.95,) * 6, (0.95,) * 6, groups=60, stack="decoder", position="deciding", part="left"
        )
    )
    assert claims.read.all()
    assert not claims.more.any()
    (sentence,) = describe_conclusions(claims)
    assert (
        "synthetic, left cue: a probe predicts number from the vectors of the deciding position in the decoder, from the "
        "input of the first layer on" in sentence
    )
    assert "inconclusive whether the probe is more accurate than in untrained models (9" in sentence


@pytest.mark.long
def test_chance_is_passed_over_in_silence():
    said = [
        describe_conclusions(draw_conclusions(*synthetic_probes((0.5,) * 6, seed=seed)))
        for seed in range(5)
    ]
    assert sum(map(len, said)) <= 1


def test_few_groups_and_few_twins_say_less():
    few = draw_conclusions(*synthetic_probes(groups=7))
    assert not few[["read", "more"]].any(axis=None)
    assert describe_conclusions(few) == []
    for twins in (0, 4):
        claims = draw_conclusions(*synthetic_probes(twins=twins))
        assert claims.read.any()
        assert not claims.more.any()
        (sentence,) = describe_conclusions(claims)
        assert sentence.endswith(
            "It is not known whether training added this: the comparison needs 5 untrained twins and 15 "
            f"groups; there are {twins} and 24."
        )


def test_reading_is_corrected_over_all_layers_of_a_model():
    """An accuracy whose own 95 % interval leaves out chance, in one of six layers, is not
    enough."""
    table, answers = synthetic_probes((0.5, 0.5, 0.5, 0.5, 0.5, 0.66), twins=2, seed=27)
    of_layer = answers[(answers["init"] == "trained") & (answers["layer"] == 4)]
    means = of_layer.groupby("group")["right"].mean()
    assert mean_interval(means)[0] > 0.5
    assert mean_interval(means, level=1 - 0.05 / 6)[0] < 0.5
    assert not draw_conclusions(table, answers).read.any()


def test_without_a_trained_model_there_is_nothing_to_claim():
    table, answers = synthetic_probes()
    untrained = draw_conclusions(*(one[one["init"] == "random"] for one in (table, answers)))
    assert untrained.empty
    assert describe_conclusions(untrained) == []


def test_a_twin_that_poses_as_trained_is_not_claimed():
    table, answers = synthetic_probes((0.7,) * 6, (0.7,) * 6, seed=2)
    claims = draw_conclusions(table, answers)
    assert not claims.more.any()
    assert np.isfinite(claims.difference_low).all()
