"""Record the states that layers and stacks pass on, for the self-check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch
import transformers
from torch import Tensor, nn

from ..model import Model
from ..transformers_types import HookArguments, HookKeywords, ModelOutput

ROUNDING_TOLERANCE = 100


# The check runs in float32 or better. Two ways to the same states agree to rounding, a few units of
# the last place of the largest; beyond that a difference counts by its share of what attention
# changes.
_EFFECT_TOLERANCE = 1e-3


@contextmanager
def record_part_inputs(model: Model) -> Iterator[dict[nn.Module, list[Tensor]]]:
    """Record the input of each part of the layer that is running: its first argument, if that is a
    tensor."""
    part_inputs: dict[nn.Module, list[Tensor]] = {}
    layers = dict.fromkeys(
        layer.module for stack in model.stacks.values() for layer in stack.layers
    )

    def record_input(submodule: nn.Module, args: HookArguments, kwargs: HookKeywords) -> None:
        first_argument = args[0] if args else next(iter(kwargs.values()), None)
        if isinstance(first_argument, Tensor) and first_argument.ndim >= 2:
            part_inputs.setdefault(submodule, []).append(first_argument)

    with ExitStack() as hooks:
        for layer in layers:
            hooks.callback(layer.register_forward_pre_hook(lambda *_: part_inputs.clear()).remove)
            for submodule in layer.modules():
                if submodule is not layer:
                    hooks.callback(
                        submodule.register_forward_pre_hook(record_input, with_kwargs=True).remove
                    )
        yield part_inputs


@contextmanager
def record_stack_outputs(model: Model, outputs: dict[str, list[Tensor]]) -> Iterator[None]:
    """Record what the module that holds each stack's layers returns: the encoder, the decoder, or
    the base model itself.

    States that are not the last layer's in shape (pooled, projected) are left out of the
    comparison.
    """
    with ExitStack() as hooks:
        for stack in model.stacks.values():

            def record_output(
                module: nn.Module, args: HookArguments, output: ModelOutput, name: str = stack.name
            ) -> None:
                outputs[name] = [
                    states[0] for states in _list_output_states(output) if states.ndim == 3
                ]

            hooks.callback(stack.holder.register_forward_hook(record_output).remove)
        yield


def _list_output_states(output: ModelOutput) -> list[Tensor]:
    """List the tensors that may be a module's states: its first output, or all named ones."""
    if isinstance(output, (tuple, list, transformers.utils.generic.ModelOutput)):
        candidates = [output[0]]
    elif isinstance(output, Tensor):
        candidates = [output]
    else:
        candidates = [
            *(output if isinstance(output, Mapping) else getattr(output, "__dict__", {})).values()
        ]
    return [states for states in candidates if isinstance(states, Tensor)]


def states_agree(
    x: Tensor, y: Tensor, *, effect: Tensor | float = 1.0, size: Tensor | None = None
) -> bool:
    """Return True if x is y up to rounding and a small share of an effect."""
    if x.shape != y.shape:
        return False
    size = y.abs().max() if size is None else size
    return bool(
        (x - y).abs().max()
        <= _EFFECT_TOLERANCE * effect + ROUNDING_TOLERANCE * torch.finfo(y.dtype).eps * size
    )
