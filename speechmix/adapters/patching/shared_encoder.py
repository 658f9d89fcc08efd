"""Share one encoder output and its cross-attention projections among many runs.

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

from ..capture.layer_run import first_output
from ..transformers_types import HookArguments, HookKeywords, ModelOutput

if TYPE_CHECKING:
    from ..binding.layer_components import Layer
    from ..model import Model


@contextmanager
def share_encoder_states(model: Model) -> Iterator[None]:
    """Let runs that share their encoder states attend to them together, as long as the block lasts."""
    with ExitStack() as exit_stack:
        if "cross" in model.stacks:
            for layer in model.stacks["cross"].layers:
                share_projections(layer, exit_stack)
                _merge_queries(layer, exit_stack)
        yield


def share_projections(layer: Layer, exit_stack: ExitStack) -> None:
    """Project states that all runs share once in a layer's cross-attention, until `exit_stack`
    closes."""
    for projection in (layer.attention.key, layer.attention.value):
        run_counts: list[int] = []

        def keep_first_row(
            module: nn.Module, args: HookArguments, run_counts: list[int] = run_counts
        ) -> tuple[Any, ...] | None:
            is_shared = _is_shared(args[0])
            run_counts.append(len(args[0]) if is_shared else 0)
            return (args[0][:1], *args[1:]) if is_shared else None

        def expand_output(
            module: nn.Module,
            args: HookArguments,
            output: Tensor,
            run_counts: list[int] = run_counts,
        ) -> Tensor | None:
            count = run_counts.pop()
            return output.expand(count, *output.shape[1:]) if count else None

        exit_stack.callback(projection.register_forward_pre_hook(keep_first_row).remove)
        exit_stack.callback(projection.register_forward_hook(expand_output).remove)


def _merge_queries(layer: Layer, exit_stack: ExitStack) -> None:
    """Run n runs of Q positions through a layer's cross-attention as one run of n Q positions."""
    run_counts: list[int] = []

    def merge_rows(
        module: nn.Module, args: HookArguments, kwargs: HookKeywords
    ) -> tuple[HookArguments, HookKeywords] | None:
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        shared_states = [tensor for tensor in tensors if _is_shared(tensor)]
        queries = [tensor for tensor in tensors if not _is_shared(tensor)]
        # No mask, no positions of the rows.
        is_plain_call = len(shared_states) == len(queries) == 1 and queries[0].ndim == 3
        run_counts.append(
            len(queries[0]) if is_plain_call and len(queries[0]) == len(shared_states[0]) else 0
        )
        if not run_counts[-1]:
            return None

        def merge_tensor(value: ModelOutput) -> ModelOutput:
            if not isinstance(value, Tensor):
                return value
            return value[:1] if value is shared_states[0] else value.reshape(1, -1, value.shape[-1])

        return tuple(map(merge_tensor, args)), {
            name: merge_tensor(value) for name, value in kwargs.items()
        }

    def split_rows(module: nn.Module, args: HookArguments, output: ModelOutput) -> ModelOutput:
        count = run_counts.pop()
        if not count:
            return None
        states = first_output(output)
        states = states.reshape(count, -1, states.shape[-1])
        return (states, *output[1:]) if isinstance(output, tuple) else states

    exit_stack.callback(
        layer.attention.module.register_forward_pre_hook(merge_rows, with_kwargs=True).remove
    )
    exit_stack.callback(layer.attention.module.register_forward_hook(split_rows).remove)


def _is_shared(states: Tensor) -> bool:
    """Whether the rows of a batch are one in memory."""
    return states.ndim == 3 and len(states) > 1 and states.stride(0) == 0
