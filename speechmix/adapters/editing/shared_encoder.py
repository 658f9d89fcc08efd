"""Runs behind one sound: what cross-attention makes of an encoder's states is made once for all of
them.

In: a model whose decoder is fed many inputs behind the same states, given as one expanded tensor
[n, T, D] (``expand``: it has one row in memory). Out: the same numbers. Keys and values of the
states are projected once a layer and not once a run, and what all runs ask of them is asked as the
rows of one: for a Whisper's 1,500 frames that is nearly all that a short text costs. Undone on
leaving.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ..capture.block import first_output
from ..transformers_types import HookArguments, HookKeywords, ModelOutput

if TYPE_CHECKING:
    from ..binding.layer_components import Layer
    from ..model import Model


@contextmanager
def heard_once(model: Model) -> Iterator[None]:
    """While it lasts, runs that share their encoder states attend to them together."""
    with ExitStack() as undo:
        if "cross" in model.stacks:
            for layer in model.stacks["cross"].layers:
                project_once(layer, undo)
                _attend_as_one(layer, undo)
        yield


def project_once(layer: Layer, undo: ExitStack) -> None:
    """Have a layer's cross-attention project states that all runs share once, until `undo` is
    closed."""
    for projection in (layer.attention.key, layer.attention.value):
        counts: list[int] = []

        def before(
            module: nn.Module, args: HookArguments, counts: list[int] = counts
        ) -> tuple[Any, ...] | None:
            shared = _is_shared(args[0])
            counts.append(len(args[0]) if shared else 0)
            return (args[0][:1], *args[1:]) if shared else None

        def after(
            module: nn.Module, args: HookArguments, output: Tensor, counts: list[int] = counts
        ) -> Tensor | None:
            count = counts.pop()
            return output.expand(count, *output.shape[1:]) if count else None

        undo.callback(projection.register_forward_pre_hook(before).remove)
        undo.callback(projection.register_forward_hook(after).remove)


def _attend_as_one(layer: Layer, undo: ExitStack) -> None:
    """Have n runs of Q positions go through a layer's cross-attention as one of n Q, where each row
    is attended for itself."""
    counts: list[int] = []

    def before(
        module: nn.Module, args: HookArguments, kwargs: HookKeywords
    ) -> tuple[HookArguments, HookKeywords] | None:
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        shared = [tensor for tensor in tensors if _is_shared(tensor)]
        asking = [tensor for tensor in tensors if not _is_shared(tensor)]
        # No mask, no positions of the rows.
        alone = len(shared) == len(asking) == 1 and asking[0].ndim == 3
        counts.append(len(asking[0]) if alone and len(asking[0]) == len(shared[0]) else 0)
        if not counts[-1]:
            return None

        def joined(value: ModelOutput) -> ModelOutput:
            if not isinstance(value, Tensor):
                return value
            return value[:1] if value is shared[0] else value.reshape(1, -1, value.shape[-1])

        return tuple(map(joined, args)), {name: joined(value) for name, value in kwargs.items()}

    def after(module: nn.Module, args: HookArguments, output: ModelOutput) -> ModelOutput:
        count = counts.pop()
        if not count:
            return None
        states = first_output(output)
        states = states.reshape(count, -1, states.shape[-1])
        return (states, *output[1:]) if isinstance(output, tuple) else states

    undo.callback(layer.attention.module.register_forward_pre_hook(before, with_kwargs=True).remove)
    undo.callback(layer.attention.module.register_forward_hook(after).remove)


def _is_shared(states: Tensor) -> bool:
    """Whether the rows of a batch are one in memory."""
    return states.ndim == 3 and len(states) > 1 and states.stride(0) == 0
