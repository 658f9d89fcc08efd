"""Packed states (the audio tower of Qwen2.5-Omni): chunks of a sound one behind the other, against
hooks on the model itself.

211 frames in chunks of 60, 60, 60 and 31; words within a chunk and across the border of two.
"""

from __future__ import annotations

from contextlib import contextmanager

import numpy as np
import pytest
import torch

import speechmix
from speechmix.adapters.capture.forward_pass import hidden_states
from speechmix.adapters.patching.patched_runs import run_patches
from speechmix.adapters.patching.patches import Patch
from speechmix.errors import InputError
from tests import oracle_by_path as oracle
from tests.models import shared_models
from tests.models.more_families import MORE_FAMILIES, built

ENTRY = MORE_FAMILIES["qwen2.5-omni"]
WHERE = ENTRY.stacks["encoder"]
CHUNKS = [range(60), range(60, 120), range(120, 180), range(180, 211)]
WORDS = [(3, 9), (55, 70), (119, 121), (200, 211)]
READ = 113  # the last of 105 positions of sound and 9 others


@pytest.fixture
def model():
    return shared_models.shared(
        ("more", "qwen2.5-omni"), lambda: speechmix.load(built("qwen2.5-omni"))
    )


@pytest.fixture
def inputs():
    return ENTRY.inputs(211)


def read(output):
    return output.logits[:, READ, 0]


def margin(model, inputs):
    with torch.no_grad():
        return read(model.module(**inputs, use_cache=False)).item()


def layers(model):
    return list(oracle.at(model.module, WHERE.layers))


@contextmanager
def states_entering(layer, rows, states):
    """Other states [P, D] at rows of what enters a layer."""

    def put(_, args, kwargs):
        hidden = args[0].clone()
        hidden[rows] = states
        return (hidden, *args[1:]), kwargs

    hook = layer.register_forward_pre_hook(put, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def values_instead(layer, rows, values):
    """Other values [P, D] at rows."""
    hook = layer.self_attn.v_proj.register_forward_hook(
        lambda _, args, output: output.index_copy(0, torch.tensor(rows), values)
    )
    try:
        yield
    finally:
        hook.remove()


def test_attention_is_a_softmax_within_each_chunk(model, inputs):
    shown = speechmix.mix(model, inputs, stacks="encoder", measures="attention", heads="each")[
        "attention", "encoder"
    ]
    seen = oracle.run(model.module, inputs, layers(model))
    for layer, (args, _, _), alpha in zip(layers(model), seen, shown.scores, strict=True):
        hidden = layer.self_attn_layer_norm(args[0])
        query, key = (
            projection(hidden).unflatten(-1, (4, 8)).transpose(0, 1)
            for projection in (layer.self_attn.q_proj, layer.self_attn.k_proj)
        )
        expected = np.zeros_like(alpha)
        for chunk in CHUNKS:
            places = slice(chunk.start, chunk.stop)
            scores = query[:, places] @ key[:, places].transpose(1, 2) / 8**0.5
            expected[:, places, places] = scores.softmax(dim=-1)
        assert np.abs(alpha - expected).max() < 1e-12


@pytest.mark.parametrize("engine", ["delta", "replay"])
def test_nothing_comes_from_another_chunk(model, inputs, engine):
    frames = [(frame, frame + 1) for frame in (0, 59, 60, 130, 210)]
    measure = f"value_zeroing:engine={engine}"
    options = {"stacks": "encoder", "spans": frames, "measures": measure}
    scores = speechmix.mix(model, inputs, **options)[measure, "encoder"].scores
    together = np.equal.outer([0, 0, 1, 2, 3], [0, 0, 1, 2, 3])
    # Where a processor rounds a row otherwise when more rows run beside it, replayed states differ
    # by 1e-16, and their cosine distance is the square of that.
    assert (scores[:, ~together] <= {"delta": 0, "replay": 1e-30}[engine]).all()
    assert (scores[:, together] > 1e-12).all()


def test_a_knocked_out_word_is_a_pass_with_its_values_zeroed(model, inputs):
    words = list(range(len(WORDS)))
    branches = [
        Patch("encoder", range(layer, layer + 1), range(*word))
        for layer in range(2)
        for word in WORDS
    ]
    with model.in_use():
        clean, found = run_patches(model, inputs, branches, read)
        again = run_patches(model, inputs, branches, read, batch_size=3)[1]
    assert clean.item() == pytest.approx(margin(model, inputs), abs=1e-12)
    assert torch.allclose(found, again, atol=1e-12)
    for number, branch in enumerate(branches):
        layer = layers(model)[branch.layers.start]
        with oracle.zeroed(oracle.at(layer, WHERE.value), WHERE, list(branch.positions), None):
            assert found[number].item() == pytest.approx(margin(model, inputs), abs=1e-5)
    assert len({round(value, 6) for value in found.tolist()}) == 2 * len(words)


def test_states_and_values_of_another_sound_are_put_in(model, inputs):
    donor = {**inputs, "input_features": inputs["input_features"].flip(-1)}
    theirs = oracle.run(model.module, donor, layers(model))
    values = [
        layer.self_attn.v_proj(layer.self_attn_layer_norm(args[0]))
        for layer, (args, _, _) in zip(layers(model), theirs, strict=True)
    ]
    for (start, stop), layer in zip(WORDS, (0, 1, 1, 0), strict=True):
        rows = list(range(start, stop))
        by_head = values[layer][rows].unflatten(-1, (4, 8)).transpose(0, 1)
        branches = [
            Patch("encoder", range(layer, layer + 1), rows, states=theirs[layer][0][0][rows]),
            Patch("encoder", range(layer, layer + 1), rows, values={layer: by_head}),
        ]
        with model.in_use():
            _, found = run_patches(model, inputs, branches, read)
        with states_entering(layers(model)[layer], rows, theirs[layer][0][0][rows]):
            assert found[0].item() == pytest.approx(margin(model, inputs), abs=1e-5)
        with values_instead(layers(model)[layer], rows, values[layer][rows]):
            assert found[1].item() == pytest.approx(margin(model, inputs), abs=1e-5)
        assert (found - margin(model, inputs)).abs().min() > 1e-4


def test_states_have_an_axis_of_clips(model, inputs):
    seen = oracle.run(model.module, inputs, layers(model))
    found = hidden_states(model, inputs, lambda stack, states: states, stacks=["encoder"])[
        "encoder"
    ]
    assert [tuple(states.shape) for states in found] == [(1, 211, 32)] * 3
    assert torch.equal(found[0][0], seen[0][0][0])
    two = {name: torch.cat([tensor, tensor]) for name, tensor in inputs.items()}
    with pytest.raises(InputError, match="one at a time"):
        hidden_states(model, two, lambda stack, states: states, stacks=["encoder"])
    assert torch.equal(found[2][0], oracle.at(model.module, WHERE.final_norm)(seen[1][2]))


def test_gradients_are_those_of_the_states_that_enter_a_layer(model, inputs):
    options = {"stacks": "encoder", "spans": WORDS, "objective": (READ, 5)}
    integrated = "integrated_gradients:steps=4"
    found = speechmix.mix(model, inputs, measures=["gradient_input", integrated], **options)
    for number, layer in enumerate(layers(model)):
        entered = []

        def keep(_, args, kwargs, entered=entered):
            entered.append(args[0].detach().requires_grad_(True))
            return (entered[0], *args[1:]), kwargs

        hook = layer.register_forward_pre_hook(keep, with_kwargs=True)
        value = model.module(**inputs, use_cache=False).logits[0, READ, 5]
        hook.remove()
        (gradient,) = torch.autograd.grad(value, entered)
        parts = (entered[0] * gradient).sum(-1).abs().detach()
        expected = [parts[start:stop].mean().item() for start, stop in WORDS]
        assert found["gradient_input", "encoder"].scores[number, 0] == pytest.approx(
            expected, rel=1e-4
        )
    assert np.isfinite(found["integrated_gradients:steps=4", "encoder"].scores).all()


def test_jacobians_stay_within_a_chunk(model, inputs):
    options = {"stacks": "encoder", "spans": WORDS, "targets": [2], "layers": [0]}
    scores = speechmix.mix(model, inputs, measures="hta", **options)["hta", "encoder"].scores
    assert (scores[0, 0, [0, 3]] == 0).all()
    assert (scores[0, 0, [1, 2]] > 0).all()
