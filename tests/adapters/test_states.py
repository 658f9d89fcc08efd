"""States of all layers in one pass are those that transformers hands out, whatever it does with the
last one."""

from __future__ import annotations

import pytest
import torch

from speechmix.adapters.capture.forward_pass import hidden_states, stacks_with_states
from speechmix.errors import InputError
from tests.conftest import inputs_of, tiny


def whole(stack, states):
    return states.clone()


def plainly(model, inputs):
    """By `output_hidden_states`, stack by stack; the last entry is what the base model calls its
    last hidden state."""
    with torch.no_grad():
        out = model.base(**inputs, output_hidden_states=True, return_dict=True)
    if "cross" in model.stacks:
        return {
            "encoder": [*out.encoder_hidden_states[:-1], out.encoder_last_hidden_state],
            "decoder": [*out.decoder_hidden_states[:-1], out.last_hidden_state],
        }
    return {next(iter(model.stacks)): [*out.hidden_states[:-1], out.last_hidden_state]}


def test_states_are_those_of_transformers(any_model):
    inputs = inputs_of(any_model)
    expected, states = plainly(any_model, inputs), hidden_states(any_model, inputs, whole)
    assert list(states) == list(expected) == list(stacks_with_states(any_model))
    for stack, entries in states.items():
        assert len(entries) == len(any_model.stacks[stack]) + 1
        for ours, theirs in zip(entries, expected[stack], strict=True):
            assert torch.allclose(ours, theirs, atol=1e-10, rtol=1e-10)


def test_the_last_entry_can_be_had_before_the_final_norm(any_model):
    inputs = inputs_of(any_model)
    normed, raw = (
        hidden_states(any_model, inputs, whole, final_norm=norm) for norm in (True, False)
    )
    for stack, entries in raw.items():
        final_norm = any_model.stacks[stack].final_norm
        expected = entries[-1] if final_norm is None else final_norm(entries[-1])
        assert torch.allclose(normed[stack][-1], expected, atol=1e-12)
        assert all(torch.equal(a, b) for a, b in zip(entries[:-1], normed[stack][:-1], strict=True))


def test_one_stack_alone_and_what_has_no_states():
    model = tiny("whisper-80")
    inputs = inputs_of(model)
    both, encoder = (
        hidden_states(model, inputs, whole),
        hidden_states(model, inputs, whole, stacks=["encoder"]),
    )
    assert list(encoder) == ["encoder"]
    assert all(torch.equal(a, b) for a, b in zip(both["encoder"], encoder["encoder"], strict=True))
    with pytest.raises(InputError, match="cross"):
        hidden_states(model, inputs, whole, stacks=["cross"])


def test_a_batch_is_read_together():
    model = tiny("bert")
    inputs = {name: tensor.repeat(2, 1) for name, tensor in inputs_of(model).items()}
    shapes = hidden_states(model, inputs, lambda stack, states: tuple(states.shape))["encoder"]
    assert set(shapes) == {(2, 11, 32)}
