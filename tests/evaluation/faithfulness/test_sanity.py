"""Cascading randomisation ends at the random twin and leaves the model alone; agreement of
seeds."""

from __future__ import annotations

import numpy as np
import pytest

import speechmix
from speechmix.errors import InputError
from speechmix.extensions.faithfulness import reliability
from speechmix.inputs import bundled
from tests.conftest import trained

MEASURES = ("value_zeroing", "attention")


@pytest.fixture(scope="module")
def clip():
    return next(clip for clip in bundled.clips() if len(clip.words) >= 4)


def test_the_last_copy_is_the_twin_and_the_model_is_as_before(clip):
    model = trained("tiny-french-ctc")
    before = model.fingerprint
    names, last = [], None
    for name, changed in reliability.randomised_copies(model, seed=3):
        names.append(name)
        last = changed
    assert names == ["nothing", "encoder 3", "encoder 2", "encoder 1", "encoder 0", "everything"]
    twin = speechmix.load(model.module, init="random", seed=3, check=False)
    expected, found = twin.module.state_dict(), last.module.state_dict()
    assert all((found[name] == expected[name]).all() for name in expected)
    model.forget_fingerprint()
    assert model.fingerprint == before
    twin.feature_extractor = model.feature_extractor
    maps = [speechmix.mix(one, clip, measures=MEASURES, stacks="encoder") for one in (last, twin)]
    assert np.array_equal(
        maps[0]["attention", "encoder"].scores, maps[1]["attention", "encoder"].scores
    )


def test_maps_change_from_where_layers_were_exchanged(clip):
    table = reliability.cascading_randomisation(
        trained("tiny-french-whisper"), [clip], measures=MEASURES
    )
    rho = table.set_index(["randomised", "stack", "measure"])["rho"]
    for measure in MEASURES:
        assert rho["nothing", "decoder", measure] == pytest.approx(1)
        assert rho["decoder 0", "encoder", measure] == pytest.approx(1)  # the encoder lies below
        assert rho["decoder 2", "decoder", measure] < 0.99
        assert rho["everything", "encoder", measure] < 0.9


def test_seeds_agree_with_themselves_and_less_with_others(clip):
    model = trained("tiny-french-ctc")
    same = reliability.seed_agreement([model, model], [clip], measures=MEASURES)
    assert np.allclose(same["rho"], 1)
    twin = speechmix.load(model.module, init="random", seed=0, check=False)
    twin.feature_extractor, twin.tokenizer = model.feature_extractor, model.tokenizer
    other = reliability.seed_agreement([model, model, twin], [clip], measures=MEASURES)
    assert (other["rho"] < 1).all()
    assert set(other["pairs"]) == {3}


def test_what_cannot_be_compared_is_refused(clip):
    model = trained("tiny-french-ctc")
    with pytest.raises(InputError, match="at least two models"):
        reliability.seed_agreement([model], [clip])
    with pytest.raises(InputError, match="2 shapes"):
        reliability.seed_agreement([model, trained("tiny-french-whisper")], [clip])
    with pytest.raises(InputError, match="measures that read the model"):
        reliability.cascading_randomisation(model, [clip], measures=["random"])
