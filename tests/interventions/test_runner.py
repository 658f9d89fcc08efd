"""The runner: removals and patches in one call are what each is alone; shared sounds are encoded once."""

from __future__ import annotations

import numpy as np
import pytest

from speechmix.adapters.patching.patches import Patch
from speechmix.errors import InputError
from speechmix.inputs.bundled import clips
from speechmix.interventions.decision import Decision
from speechmix.interventions.removals import DECODER_IDS, SOUND, TEXT_IDS, Removal, change_inputs
from speechmix.interventions.runner import NO_REMOVAL, InterventionCache, run_interventions
from tests.conftest import trained
from tests.interventions.test_shapley import in_double_precision
from tests.models.text_models import gpt2


def decision_of_whisper():
    return Decision.prepare(in_double_precision("tiny-french-whisper"), clips()[0])


def interventions_of(decision):
    (source, *_) = decision.sources["decoder"]
    sound = Removal(SOUND, (0,), "zeros")
    tokens = [Removal(DECODER_IDS, source.positions, fill) for fill in ("remove", "unk")]
    patch = Patch("decoder", range(1), source.positions)
    return [
        NO_REMOVAL,
        (sound,),
        *((sound, text) for text in tokens),
        *((t,) for t in tokens),
        patch,
    ]


def test_interventions_together_are_what_each_is_alone():
    decision = decision_of_whisper()
    changes = interventions_of(decision)
    together = run_interventions(decision, changes)
    alone = [run_interventions(decision_of_whisper(), [change])[0] for change in changes]
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-9)
    assert len(np.unique(together.round(9))) == len(changes)
    assert together[0] == pytest.approx(decision.margin, abs=1e-9)


def test_runs_with_one_sound_share_a_pass_of_the_encoder():
    decision, rows = decision_of_whisper(), []
    encoder = decision.model.module.get_encoder()
    hook = encoder.register_forward_pre_hook(
        lambda _, args, kwargs: rows.append(len([*args, *kwargs.values()][0])), with_kwargs=True
    )
    try:
        run_interventions(
            decision, [c for c in interventions_of(decision) if not isinstance(c, Patch)]
        )
    finally:
        hook.remove()
    assert sum(rows) <= 2  # the item's own sound, and the one without the word


def test_what_follows_a_removed_token_is_read_behind_the_one_before_it():
    decision = Decision.prepare(gpt2(), {"input_ids": [[9, 10, 11, 12]]}, objective=(3, 7, 9))
    model, inputs = decision.model, decision.prepared.inputs
    removals = [Removal(TEXT_IDS, (0, 2), "remove")]
    assert change_inputs(model, None, inputs, removals)[1] == (-1, 0, 0, 1)
    (logits,) = run_interventions(decision, [tuple(removals)], reader=lambda output: output.logits)
    assert np.isnan(logits[0]).all()
    np.testing.assert_array_equal(logits[1], logits[2])
    assert np.isfinite(logits[3]).all()


def test_what_has_been_run_is_not_run_again():
    decision = decision_of_whisper()
    changes = [c for c in interventions_of(decision) if not isinstance(c, Patch)]
    cache = InterventionCache(decision)
    first = cache.read([*changes, changes[0]])
    decision.__dict__["read_output"] = None  # nothing new is run
    np.testing.assert_array_equal(cache.read(changes), first[:-1])
    assert len(cache) == len(changes)


def test_a_sound_is_changed_with_the_fills_of_a_sound():
    decision = Decision.prepare(trained("tiny-french-ctc"), clips()[0])
    with pytest.raises(InputError, match="expected a fill of a sound"):
        run_interventions(decision, [(Removal(SOUND, (0,), (3,)),)])
