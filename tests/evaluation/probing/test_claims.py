"""What is said of probes follows their tests: on drawn answers, on the null, and with too little to tell."""

from __future__ import annotations

import numpy as np
import pytest

from speechmix.evaluation.probing.claims import probe_claims, sentences
from tests.evaluation.probing.synthetic_probes import synthetic_probes


def test_what_is_read_from_a_layer_on_is_said_so():
    claims = probe_claims(*synthetic_probes())
    assert claims.set_index("layer").read.to_dict() == {-1: False, 0: False, 1: False, 2: True, 3: True, 4: True}
    assert claims.more.tolist() == claims.read.tolist()
    (sentence,) = sentences(claims, {"synthetic": "the model"})
    assert sentence.startswith(
        "the model: number can be read off the target in the encoder from layer 2 on (at best 100 % right"
    )
    assert "better than off untrained models (" in sentence


def test_a_state_that_tells_it_untrained_is_read_but_not_learned():
    claims = probe_claims(
        *synthetic_probes((0.95,) * 6, (0.95,) * 6, stack="decoder", position="deciding", part="left")
    )
    assert claims.read.all()
    assert not claims.more.any()
    (sentence,) = sentences(claims)
    assert (
        "synthetic, left cue: number can be read off the deciding position in the decoder from its input on" in sentence
    )
    assert "but not surely better than off untrained models (9" in sentence


@pytest.mark.long
def test_chance_is_passed_over_in_silence():
    said = [sentences(probe_claims(*synthetic_probes((0.5,) * 6, seed=seed))) for seed in range(5)]
    assert sum(map(len, said)) <= 1


def test_few_groups_and_few_twins_say_less():
    assert sentences(probe_claims(*synthetic_probes(groups=5))) == []
    (one,) = sentences(probe_claims(*synthetic_probes(twins=1)))
    assert one.endswith("with one random twin nothing says what of it is learned.")
    (none,) = sentences(probe_claims(*synthetic_probes(twins=0)))
    assert "with no random twin" in none


def test_without_a_trained_model_there_is_nothing_to_claim():
    table, answers = synthetic_probes()
    untrained = probe_claims(*(one[one["init"] == "random"] for one in (table, answers)))
    assert untrained.empty
    assert sentences(untrained) == []


def test_a_twin_that_poses_as_trained_is_not_claimed():
    table, answers = synthetic_probes((0.7,) * 6, (0.7,) * 6, twins=6, seed=2)
    claims = probe_claims(table, answers)
    assert not claims.more.any()
    assert np.isfinite(claims.q_twins).all()
