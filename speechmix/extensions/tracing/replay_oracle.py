"""Check a table against Value Zeroing as it is defined, on the model's own layers.

In: a small random model in double precision, its table, inputs with padding. For some sources, what
attention reads as values is set to zero where torch multiplies it, and the whole layer runs again on
the input that it had. The states must be those that the table gives, by replay and by the delta
engine. The definition's side reads no path of projections, norms or feed-forwards from the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ...adapters.binding.bound_layers import Stack
from ...adapters.capture.attention_calls import own_caches
from ...adapters.capture.forward_pass import Capture, use_attention
from ...adapters.capture.layer_run import Block
from ...adapters.delta_engine.change_propagator import ChangePropagator
from ...adapters.model import Model
from ...adapters.transformers_types import (
    HookArguments,
    HookKeywords,
    Inputs,
    ModelOutput,
    TorchFunction,
)
from ...errors import ModelError
from .recording import iterate_tensors

TOLERANCE = 1e-6  # of the largest change
_SINGLE_TOLERANCE = 1e-4  # where norms or softmax compute in single precision, whatever they get
_PRODUCTS = ("matmul", "bmm", "__matmul__")


@dataclass(frozen=True)
class ReplayComparison:
    """How far a table's states are from those of the definition.

    Parameters
    ----------
    stack : str
    error : float
        Largest difference, relative to the largest change.
    in_single_precision : bool
        True if the layers compute something in single precision, though they are given double.
    source_count : int
        Positions that attention reads.
    """

    stack: str
    error: float
    in_single_precision: bool
    source_count: int

    @property
    def agrees(self) -> bool:
        """True if the difference is rounding."""
        return self.error <= (_SINGLE_TOLERANCE if self.in_single_precision else TOLERANCE)


class _ZeroedValues(TorchFunctionMode):
    """Set one source's row of what attention reads as values to zero.

    Blocks of positions that attend within themselves come in one call, or one call after the other.

    Parameters
    ----------
    source, source_count : int
    is_only_attention : bool
        False if the layer has attention to another number of positions, too, which stays as it is.
    """

    def __init__(self, source: int, source_count: int, *, is_only_attention: bool):
        super().__init__()
        self._source, self._count = source, source_count
        self._is_only_attention = is_only_attention
        self._softmax: Tensor | None = None
        self.seen_count = 0
        self.in_single_precision = False

    def __torch_function__(
        self,
        func: TorchFunction,
        types: tuple[type, ...],
        args: HookArguments = (),
        kwargs: HookKeywords | None = None,
    ) -> ModelOutput:
        kwargs, name = dict(kwargs or {}), getattr(func, "__name__", "")
        if name == "scaled_dot_product_attention":
            if "value" in kwargs:
                kwargs["value"] = self._zero(kwargs["value"])
            else:
                args = (*args[:2], self._zero(args[2]), *args[3:])
        elif name in _PRODUCTS and self._is_weights(args[0]):
            self._softmax = None
            args = (args[0], self._zero(args[1]), *args[2:])
        elif name == "multi_head_attention_forward":
            raise ModelError("values are made within torch's multi_head_attention_forward")
        result = func(*args, **kwargs)
        if name == "softmax":
            self._softmax = result
        self.in_single_precision |= any(
            x.dtype == torch.float32 and x.ndim > 2 for x in iterate_tensors(result)
        )
        return result

    def _is_weights(self, tensor: Tensor) -> bool:
        softmax = self._softmax
        return (
            softmax is not None
            and tensor.shape[-2] == softmax.shape[-2]
            and tensor.shape[-1] in (softmax.shape[-1], softmax.shape[-1] - 1)
        )

    def _zero(self, values: Tensor) -> Tensor:
        size = values.shape[-2]
        if not self._is_only_attention and size != self._count:
            return values
        if self.seen_count >= self._count:
            raise ModelError("a layer reads values twice, so that it has two contexts of a source")
        blocks = values if values.ndim > 3 else values[None]
        blocks = blocks.flatten(0, -4)
        start = self._source - self.seen_count
        self.seen_count += len(blocks) * size
        if not 0 <= start < len(blocks) * size:
            return values
        zeroed = blocks.clone()
        zeroed[start // size, ..., start % size, :] = 0
        return zeroed.reshape(values.shape)


@dataclass
class _LayerCall:
    """A layer with what it was given."""

    module: nn.Module
    args: HookArguments
    kwargs: HookKeywords


def compare_with_replay(model: Model, inputs: Inputs) -> list[ReplayComparison]:
    """Compare each stack's states, with one source's values zeroed, with those of the definition.

    Parameters
    ----------
    model : Model
        In the precision to compare in.
    inputs : dict of str to Tensor
        Of one clip or sentence; may have padding.

    Raises
    ------
    ModelError
        If values cannot be zeroed in a layer, or the zeroed source changes nothing.
    """
    return [_compare_stack(model, stack, inputs) for stack in model.stacks.values()]


def _compare_stack(model: Model, stack: Stack, inputs: Inputs) -> ReplayComparison:
    calls: dict[nn.Module, _LayerCall] = {}
    states_by_table: dict[int, _TableStates] = {}

    def record_call(module: nn.Module, args: HookArguments, kwargs: HookKeywords) -> None:
        calls[module] = _LayerCall(module, _copy(args), _copy(kwargs))

    def on_block(block: Block) -> None:
        states_by_table[block.layer] = _TableStates.of(block)

    with torch.no_grad(), use_attention(model.module, model.readable_attention):
        with ExitStack() as hooks, Capture([stack], on_block):
            for layer in stack.layers:
                hook = layer.module.register_forward_pre_hook(record_call, with_kwargs=True)
                hooks.callback(hook.remove)
            model.family.run(model.base, inputs, tuple(model.stacks))
        results = [
            _compare_layer(
                stack,
                calls[stack.layers[index].module],
                table_states,
                stack.final_norm if index == len(stack) - 1 else None,
            )
            for index, table_states in states_by_table.items()
        ]
    errors, is_single = zip(*results, strict=True)
    return ReplayComparison(
        stack.name, max(errors), any(is_single), states_by_table[0].source_count
    )


@dataclass
class _TableStates:
    """States of a layer by its table: as they are, and by each engine without each source."""

    rows: Tensor
    sources: list[int]
    source_count: int
    states: Tensor
    changed: list[list[Tensor]]

    @classmethod
    def of(cls, block: Block) -> _TableStates:
        sources = block.unmasked_sources
        all_rows = torch.arange(block.n_targets)
        is_self = block.n_targets == block.n_sources
        rows = all_rows[torch.tensor(sources)] if is_self else all_rows
        zeroed_sources = sorted({sources[0], sources[len(sources) // 2], sources[-1]})
        changed = []
        for source in zeroed_sources:
            context = block.context_without(slice(source, source + 1))
            changed.append([states[rows] for states in _apply_engines(block, context)])
        return cls(rows, zeroed_sources, block.n_sources, block.states(all_rows)[rows], changed)


def _apply_engines(block: Block, context: Tensor) -> list[Tensor]:
    """States [Q, D] with another attention context: replayed, and by the delta engine where the
    table describes the layer."""
    rows = torch.arange(block.n_targets)
    if block.modules.runs_whole:
        results = [block.replay_all(context[None])[0]]
    else:
        results = [block.replay(rows, context)]
    if block.modules.post_attention is not None:
        propagator = ChangePropagator(block, rows)
        change = (context - block.context)[propagator.input_positions].flatten(1)[None]
        results.append(block.states(rows) + propagator(change)[0])
    return results


def _compare_layer(
    stack: Stack, call: _LayerCall, table_states: _TableStates, norm: nn.Module | None
) -> tuple[float, bool]:
    """The largest difference as a share of the largest change, and whether single precision was
    seen."""

    def run_layer(source: int) -> tuple[Tensor, bool]:
        zeroing = _ZeroedValues(
            source, table_states.source_count, is_only_attention=len(stack.spec.blocks) == 1
        )
        with zeroing:
            kwargs = own_caches(_copy(call.kwargs))
            output = next(iterate_tensors(call.module(*_copy(call.args), **kwargs)))
        source_count = table_states.source_count
        if zeroing.seen_count < source_count:
            raise ModelError(
                f"{stack.name}: attention read {zeroing.seen_count} rows of values, and there are "
                f"{source_count} sources"
            )
        states = output if norm is None else norm(output)
        return states.reshape(-1, states.shape[-1])[table_states.rows], zeroing.in_single_precision

    differences, changes, is_single = [], [], False
    for source, changed in zip(table_states.sources, table_states.changed, strict=True):
        expected, single = run_layer(source)
        is_single |= single
        changes.append((expected - table_states.states).abs().max())
        differences += [(states - expected).abs().max() for states in changed]
    largest = torch.stack(changes).max()
    if not bool(largest > 0):
        raise ModelError(f"{stack.name}: zeroing the values of a source changes nothing")
    return float(torch.stack(differences).max() / largest), is_single


def _copy(value: ModelOutput) -> ModelOutput:
    """Copies of tensors, which a layer may write into."""
    if isinstance(value, Tensor):
        return value.clone()
    if isinstance(value, tuple | list):
        return type(value)(_copy(item) for item in value)
    if isinstance(value, dict):
        return {name: _copy(item) for name, item in value.items()}
    return value


def explain_disagreement(comparisons: Sequence[ReplayComparison]) -> str:
    """Say which stacks are not as the definition has them; empty if all are."""
    return "; ".join(
        f"with the values of a source zeroed, states of the {comparison.stack} are off by "
        f"{comparison.error:.1g} of the largest change"
        for comparison in comparisons
        if not comparison.agrees
    )
