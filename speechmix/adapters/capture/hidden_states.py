"""Hidden states of one forward pass of an unmodified model: what enters a stack's first layer, and
what each layer gives.

In: a `Model` and prepared inputs. Out: for each stack L + 1 states: entry 0 is the input of the
first layer (behind embeddings, positional convolution and whatever norm comes before the layers),
entry l + 1 the output of layer l, layers counted from 0.

The last entry is the last layer's output *behind the stack's final norm*, where it has one: the
rule of every map here (`Block.states`), and of the published code. The `output_hidden_states` of
transformers keep no one rule: that of a wav2vec2 with stable layer norm ends with the raw output,
that of Whisper with the normed one. "cross" has no states of its own: its layers are the decoder's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TypeVar

import torch
from torch import Tensor, nn

from ...errors import InputError
from ..binding.bound_layers import Stack
from ..model import Model
from ..transformers_types import HookArguments, HookKeywords, ModelOutput, TorchFunction
from .device_copy import inputs_to_device
from .forward_pass import arguments_by_name
from .layer_run import first_output
from .packed_states import pack_like, unpack_states

Reading = TypeVar("Reading")
INPUT = -1  # where layers are counted from 0: what enters the first of them


def stacks_with_states(model: Model) -> tuple[str, ...]:
    """Stacks that have states of their own, in the model's order."""
    return tuple(name for name in model.stacks if name != "cross")


def hidden_states(
    model: Model,
    inputs: Mapping[str, Tensor],
    read_states: Callable[[str, Tensor], Reading],
    *,
    stacks: Sequence[str] | None = None,
    final_norm: bool = True,
    transform_input: Callable[[Tensor], Tensor] | None = None,
) -> dict[str, list[Reading]]:
    """Read the states of every layer while one forward pass runs.

    Parameters
    ----------
    model : Model
    inputs : mapping of str to Tensor
        Prepared inputs; moved to the model's device and the precision that it computes in.
    read_states : callable
        ``read_states(stack, states)`` is given each state [B, T, D] as soon as it is there, and returns
        what is kept of it: a mean over some positions is small, the states of a long clip in all
        layers are not.
    stacks : sequence of str, optional
        "encoder", "decoder"; all by default.
    final_norm : bool
        False for the last entry as it leaves the last layer, before the stack's final norm.
    transform_input : callable, optional
        Given what enters the first layer of a stack [B, T, D], returns what enters it instead.

    Returns
    -------
    dict of str to list
        What `read_states` returned, L + 1 entries for each stack.

    Raises
    ------
    InputError
        If a stack has no states of its own, or the inputs do not reach it; of several clips, if
        their states are packed.

    Examples
    --------
    >>> planted = speechmix.planted.plant("copy", family="gpt2")
    >>> states = hidden_states(planted.model, planted.item, lambda stack, states: states[0])
    >>> {stack: (len(entries), entries[0].shape[0]) for stack, entries in states.items()}
    {'decoder': (4, 8)}
    """
    names = stacks_with_states(model) if stacks is None else tuple(stacks)
    for name in names:
        if name not in stacks_with_states(model):
            available_stacks = list(stacks_with_states(model))
            raise InputError(
                f"{model.name} has states of its own in {available_stacks}; asked for {name!r}"
            )
    entries: dict[str, list[Reading]] = {name: [] for name in names}
    with model.in_use(model.state_dtype), torch.no_grad(), ExitStack() as hooks:
        clip_count = len(next(iter(inputs.values())))
        for name in names:
            _hook_stack(
                model.stacks[name],
                entries[name],
                read_states,
                final_norm,
                transform_input,
                hooks,
                clip_count,
            )
        model.family.run(
            model.base, inputs_to_device(inputs, model.device, model.state_dtype), names
        )
    return entries


def _hook_stack(
    stack: Stack,
    readings: list[Reading],
    read_states: Callable[[str, Tensor], Reading],
    final_norm: bool,
    transform_input: Callable[[Tensor], Tensor] | None,
    hooks: ExitStack,
    clip_count: int,
) -> None:
    """Hook the input of a stack's first layer and the output of each."""
    last_index = len(stack) - 1

    def read_input(
        module: nn.Module, args: HookArguments, kwargs: HookKeywords
    ) -> tuple[HookArguments, HookKeywords] | None:
        layer_input, keyword_arguments = arguments_by_name(module, args, kwargs)
        if layer_input.ndim == 2 and clip_count > 1:
            raise InputError(
                f"the {stack.name} runs {clip_count} clips in one row of states, which do not say where "
                "one ends: give one at a time"
            )
        states = (
            unpack_states(layer_input)
            if transform_input is None
            else transform_input(unpack_states(layer_input))
        )
        readings.append(read_states(stack.name, states))
        return (
            None
            if transform_input is None
            else ((pack_like(layer_input, states),), keyword_arguments)
        )

    def make_output_hook(index: int) -> TorchFunction:
        def hook(module: nn.Module, args: HookArguments, output: ModelOutput) -> None:
            states = unpack_states(first_output(output))
            if final_norm and index == last_index and stack.final_norm is not None:
                states = stack.final_norm(states)
            readings.append(read_states(stack.name, states))

        return hook

    input_hook = stack.layers[0].module.register_forward_pre_hook(read_input, with_kwargs=True)
    hooks.callback(input_hook.remove)
    for index, layer in enumerate(stack.layers):
        hooks.callback(layer.module.register_forward_hook(make_output_hook(index)).remove)
