"""Many changed runs in one pass are what one pass each gives, with values zeroed, values or states
put in."""

from __future__ import annotations

import pytest
import torch

from speechmix.adapters.capture.forward_pass import Capture
from speechmix.adapters.patching.patched_runs import run_patches
from speechmix.adapters.patching.patches import Patch
from speechmix.errors import InputError
from tests import oracle
from tests.conftest import inputs_of, tiny

POSITIONS = [3, 4]


def states_of(output):
    """Logits where there is a head, else the last hidden states; [runs, T, ...]."""
    return output.logits if hasattr(output, "logits") else output[0]


def plainly(model, inputs):
    with torch.no_grad():
        return states_of(model.module(**inputs, **oracle.no_cache(model.module)))[0]


def zeroed_by_oracle(model, inputs, branch):
    layers = oracle.layers_of(model.module, branch.stack)
    modules = [oracle.attention_module(layers[index], branch.stack) for index in branch.layers]
    with oracle.zeroed_values_of_all(modules, list(branch.positions)):
        return plainly(model, inputs)


def all_branches(model):
    """Each layer of each stack alone, a window and all layers; one position and two."""
    for name, stack in model.stacks.items():
        windows = [range(index, index + 1) for index in range(len(stack))] + [
            range(1, len(stack)),
            range(len(stack)),
        ]
        yield from (Patch(name, layers, POSITIONS[: 1 + layers.start]) for layers in windows)


@pytest.mark.every_family
def test_zeroing_in_many_runs_together_is_zeroing_in_one_pass_each(any_model):
    inputs, branches = inputs_of(any_model), list(all_branches(any_model))
    clean, runs = run_patches(any_model, inputs, branches, states_of)
    assert torch.allclose(clean, plainly(any_model, inputs), atol=1e-10)
    for branch, run in zip(branches, runs, strict=True):
        expected = zeroed_by_oracle(any_model, inputs, branch)
        assert torch.allclose(run, expected, atol=1e-10), branch
        assert not torch.allclose(run, clean, atol=1e-8), branch


@pytest.mark.every_family
def test_how_many_run_together_changes_nothing(any_model):
    inputs, branches = inputs_of(any_model), list(all_branches(any_model))
    _, together = run_patches(any_model, inputs, branches, states_of)
    _, by_twos = run_patches(any_model, inputs, branches, states_of, batch_size=2)
    assert torch.allclose(together, by_twos, atol=1e-11)


def blocks_of(model, inputs):
    """Values [H, T, d] and states [T, D] that enter each layer of each stack."""
    seen = {}

    def keep(block):
        seen[block.stack.name, block.layer] = block.values.clone(), block.inputs.clone()

    with torch.no_grad(), Capture(list(model.stacks.values()), keep), model.in_use():
        model.family.run(model.base, inputs, tuple(model.stacks))
    return seen


@pytest.mark.parametrize(
    "name",
    ["wav2vec2-stable", "wavlm-post", "whisper-80", "bert", "gpt2", "llama", "gemma3_text", "bart"],
)
def test_own_values_and_states_change_nothing_and_all_of_another_s_states_give_the_other(name):
    model = tiny(name)
    inputs, other = inputs_of(model), inputs_of(model, seed=2)
    own, others = blocks_of(model, inputs), blocks_of(model, other)
    for stack_name, stack in model.stacks.items():
        last = len(stack) - 1
        count = own[stack_name, last][0].shape[1]
        whole = list(range(count))
        values = {index: own[stack_name, index][0] for index in range(len(stack))}
        branches = [Patch(stack_name, range(len(stack)), whole, values=values)]
        if stack_name != "cross":
            branches += [Patch(stack_name, range(1, 2), whole, states=own[stack_name, 1][1])]
            branches += [Patch(stack_name, range(1, 2), whole, states=others[stack_name, 1][1])]
        clean, runs = run_patches(model, inputs, branches, states_of)
        for run in runs[:2]:
            assert torch.allclose(run, clean, atol=1e-10)
        if set(model.stacks) == {stack_name}:
            assert torch.allclose(runs[2], plainly(model, other), atol=1e-10)


@pytest.mark.parametrize("name", ["wavlm-post", "whisper-80", "llama"])
def test_values_put_in_are_those_a_plain_hook_puts_in(name):
    """One layer's values at two positions, written by hand into what the value projection gives."""
    model = tiny(name)
    inputs, layer = inputs_of(model), 1
    stack_name = next(iter(model.stacks))
    other = blocks_of(model, inputs_of(model, seed=2))[stack_name, layer][0][:, POSITIONS]
    branch = Patch(stack_name, range(layer, layer + 1), POSITIONS, values={layer: other})
    _, runs = run_patches(model, inputs, [branch], states_of)
    if (
        name == "wavlm-post"
    ):  # its projection is a weight, not a module: exact only through the run itself
        assert not torch.allclose(runs[0], plainly(model, inputs), atol=1e-8)
        return
    attention = oracle.attention_module(
        oracle.layers_of(model.module, stack_name)[layer], stack_name
    )

    def put(module, args, output):
        output = output.clone()
        held = (
            output.shape[-1] // other.shape[-1]
        )  # heads of values: fewer in grouped-query attention
        output[0, POSITIONS] = other[:: len(other) // held].transpose(0, 1).flatten(1)
        return output

    handle = attention.v_proj.register_forward_hook(put)
    expected = plainly(model, inputs)
    handle.remove()
    assert torch.allclose(runs[0], expected, atol=1e-10)


def test_nothing_is_left_behind(any_model):
    inputs = inputs_of(any_model)
    before = plainly(any_model, inputs)
    hooks = [
        len(part._forward_hooks) + len(part._forward_pre_hooks)
        for part in any_model.module.modules()
    ]
    run_patches(any_model, inputs, list(all_branches(any_model))[:2], states_of)
    assert hooks == [
        len(part._forward_hooks) + len(part._forward_pre_hooks)
        for part in any_model.module.modules()
    ]
    assert torch.equal(plainly(any_model, inputs), before)


@pytest.mark.parametrize(
    ("branch", "said"),
    [
        (Patch("heart", range(1), [0]), "no stack 'heart'"),
        (Patch("encoder", range(2, 9), [0]), "within the 3 of the encoder"),
        (Patch("encoder", range(1), [999]), "position 999 is not among"),
        (
            Patch("cross", range(1), [0], states=torch.zeros(1, 32)),
            "ask for the encoder or the decoder",
        ),
    ],
)
def test_what_is_not_there_is_refused(branch, said):
    model = tiny("whisper-80")
    with pytest.raises(InputError, match=said):
        run_patches(model, inputs_of(model), [branch], states_of)
