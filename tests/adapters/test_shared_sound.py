"""Runs behind one sound in one batch, against each of them alone; float64."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from speechmix.adapters.capture.model_use import wrap_encoder_states
from speechmix.adapters.patching.patched_runs import share_encoder_states
from speechmix.interventions.decision import Decision
from speechmix.interventions.runner import run_inputs
from tests.conftest import ALL_FAMILIES, inputs_of
from tests.measures.test_gradients import OBJECTIVE, with_head

HEARING = [
    name
    for name in ALL_FAMILIES
    if name.startswith(("whisper", "speech_to_text", "speech2text", "moonshine"))
]


def calls_of(module, log):
    """Note the shape of what enters a module."""
    return module.register_forward_pre_hook(lambda _, args: log.append(tuple(args[0].shape)))


@pytest.mark.parametrize("name", HEARING)
def test_runs_together_are_those_alone(name):
    model = with_head(name)
    decision = Decision.prepare(model, inputs_of(model), objective=OBJECTIVE)
    ids = decision.prepared.inputs["decoder_input_ids"]
    texts = [ids, ids.flip(1), ids.roll(1, 1), (ids + 1) % 11]
    fed = [
        (decision.with_encoder_states({"decoder_input_ids": text}, decision.encoder_output), None)
        for text in texts
    ]
    log, cross = [], model.stacks["cross"].layers[0].attention
    hooks = [calls_of(cross.key, log), calls_of(cross.value, log)]
    try:
        together = run_inputs(decision, fed, decision.objective.function)
    finally:
        for hook in hooks:
            hook.remove()
    assert [shape[0] for shape in log] == [1, 1]  # projected once
    alone = [
        decision.input_margin({**decision.prepared.inputs, "decoder_input_ids": text})
        for text in texts
    ]
    assert len(set(np.round(alone, 9))) == len(texts)
    np.testing.assert_allclose(together, alone, rtol=1e-11)


def test_states_of_their_own_and_masks_are_left_alone():
    model = with_head("whisper-80")
    inputs = inputs_of(model)
    ids = inputs["decoder_input_ids"].repeat(2, 1)
    states = model.module.get_encoder()(inputs["input_features"]).last_hidden_state
    both, log = torch.cat([states, states.flip(1)]), []
    hook = calls_of(model.stacks["cross"].layers[0].attention.key, log)
    try:
        with share_encoder_states(model), torch.no_grad():
            found = model.module(
                encoder_outputs=wrap_encoder_states(both), decoder_input_ids=ids, use_cache=False
            ).logits
    finally:
        hook.remove()
    assert [shape[0] for shape in log] == [2]
    with torch.no_grad():
        for row, of_one in enumerate(both):
            again = model.module(
                encoder_outputs=wrap_encoder_states(of_one[None]),
                decoder_input_ids=ids[:1],
                use_cache=False,
            )
            torch.testing.assert_close(found[row], again.logits[0])
