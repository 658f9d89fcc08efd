"""Record of one layer's run: modules, input, output, projections; can be run again.

`Block` adds what a measure reads of its attention. forward_pass.py makes both; they live no
longer than their layer.

A captured attention block: what a measure sees of one layer while the forward pass runs.

Attention weights of chosen rows, values, the layer's output states; `LayerRun` runs
the rest of the layer on rows whose attention context was changed.

Replace what a module returns, or what attention's function returns while its module runs.

The second is for attention of which no more is known: a gate or a norm behind the function, and
whatever else the module does, are its own code.

Split packed states [runs * T, D] into single runs, and pack them again.

The audio tower of Qwen2.5-Omni cuts sound into chunks and runs its layers on all chunks of all
clips in a row; attention, called once for each chunk, stays within it, and all else is
position-wise. In: states as such a layer takes or returns them, and how many runs of one length are
in them. Out: the same with an axis of runs, as everything here reads them; and back. States that
have the axis already are left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import repeat
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ...errors import ModelError
from ..binding.bound_layers import AttentionModules, Layer, Stack, module_bias, projection_weight
from ..transformers_types import HookArguments, HookKeywords, ModelOutput, TorchFunction
from .attention_calls import (
    AttentionCall,
    AttentionReader,
    LayerTrace,
    WeightedSumFinder,
    own_caches,
)

if TYPE_CHECKING:
    from .forward_pass import Capture


class _ReplacedContext(TorchFunctionMode):
    """Replaces what the first attention function returns, or the first product behind a softmax."""

    def __init__(self, contexts: Tensor, *, is_eager: bool):
        super().__init__()
        self._context: Tensor | None = contexts.transpose(1, 2)  # [N, H, Q, d]
        self._sum_finder = WeightedSumFinder() if is_eager else None

    def __torch_function__(
        self,
        func: TorchFunction,
        types: tuple[type, ...],
        args: HookArguments = (),
        kwargs: HookKeywords | None = None,
    ) -> Any:
        result, context = func(*args, **(kwargs or {})), self._context
        is_attention = (
            func is F.scaled_dot_product_attention
            if self._sum_finder is None
            else self._sum_finder.is_weighted_sum(func, args, result)
        )
        if context is None or not is_attention:
            return result
        self._context = None
        padding = result.shape[-1] - context.shape[-1]  # heads may be padded for speed
        return F.pad(context, (0, padding)).reshape(result.shape)


@contextmanager
def replaced_context(attention: AttentionModules, contexts: Tensor) -> Iterator[None]:
    """Let an attention module go on from N other contexts [N, Q, H, d] while the block lasts; it is
    called with N items."""
    forward = attention.module.forward

    def run_replaced(*args: ModelOutput, **kwargs: ModelOutput) -> ModelOutput:
        with _ReplacedContext(contexts, is_eager=attention.needs_eager):
            return forward(*args, **kwargs)

    with _replaced_forward(attention.module, run_replaced):
        yield


@contextmanager
def stub_outputs(module: nn.Module, outputs: Iterator[ModelOutput]) -> Iterator[None]:
    """Let a module return the next of some outputs at each call, without running."""
    with _replaced_forward(module, lambda *args, **kwargs: next(outputs)):
        yield


@contextmanager
def _replaced_forward(module: nn.Module, forward: Callable[..., ModelOutput]) -> Iterator[None]:
    instance_forward = module.__dict__.get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if instance_forward is None:
            del module.forward
        else:
            module.forward = instance_forward


def unpack_states(states: Tensor, run_count: int = 1) -> Tensor:
    """States [runs, T, D] of packed ones [runs T, D].

    Examples
    --------
    >>> import torch
    >>> unpack_states(torch.zeros(6, 4), run_count=2).shape, unpack_states(torch.zeros(5, 3, 4)).shape
    (torch.Size([2, 3, 4]), torch.Size([5, 3, 4]))
    """
    return states.unflatten(0, (run_count, -1)) if states.ndim == 2 else states


def pack_like(reference: Tensor, states: Tensor) -> Tensor:
    """States [R, T, D] in the form of `reference`, which the layer took: packed, if that is."""
    return states.flatten(0, 1) if reference.ndim == 2 else states


class LayerRun:
    """One layer of one clip, recorded in a forward pass; `clip` is the clip's index in the batch.

    Axis letters: H heads, Q target positions, K source positions, d width of a head, D width of the
    model.
    """

    clip_count = 1

    def __init__(
        self,
        capture: Capture,
        stack: Stack,
        layer: int,
        trace: LayerTrace,
        output: Tensor,
        clip: int = 0,
    ):
        self.stack, self.layer, self.clip = stack, layer, clip
        self.modules: Layer = stack.layers[layer]
        self._capture, self._trace, self._output = capture, trace, output
        self._call = self.call(self.modules.studied_index)

    @property
    def n_targets(self) -> int:
        return self._call.query.shape[1]

    @property
    def output(self) -> Tensor:
        """The layer's output [Q, D] as it goes into the next layer."""
        return self._output

    def output_rows(self, rows: Tensor) -> Tensor:
        """The layer's output at the rows, [R, D]."""
        return self._output[rows]

    def check_residual(self) -> None:
        """Raise a ModelError if it is not certain what the block's output is added to."""
        if self.stack.unknown_sum_reason:
            raise ModelError(
                f"the residual stream of the {self.stack.name} cannot be read: "
                f"{self.stack.unknown_sum_reason}. Measures that count it "
                "(alti, mixing ratios, attention norms with the residual) need a table that says; "
                "value_zeroing, attention and "
                "attention_norm do not"
            )

    def residual(self, rows: Tensor, *, confirmed: bool = True) -> Tensor:
        """What the block's output is added to, [R, D]: the layer's input, for cross-attention the
        state before it.

        A ModelError says that this is not certain (`Stack.unknown_sum_reason`); with `confirmed`
        False there is no check.
        """
        if confirmed:
            self.check_residual()
        return self._trace.residuals[self.modules.studied_index][0, rows]

    def recorded_output(
        self, projection: nn.Module, rows: Tensor, compute_output: Callable[[], Tensor]
    ) -> Tensor:
        """Return a projection's output at the rows in the forward pass, [R, out].

        `compute_output` computes it where the projection did not run as a module of its own on [B,
        Q, in].
        """
        output = self._trace.projections.get(projection)
        if output is None or output.ndim != 3 or output.shape[1] != self.n_targets:
            return compute_output()
        return output[0, rows]

    def channels(self, convolution: nn.Module, rows: Tensor) -> Tensor:
        """Return a convolution's output at the rows in the forward pass, [R, C]."""
        return self._trace.projections[convolution][0].T[rows]

    def input_channels(self, convolution: nn.Module, rows: Tensor, left_padding: int) -> Tensor:
        """Return a convolution's input at the rows, [R, C]; `left_padding` may have been put in front."""
        states = self._trace.inputs[convolution][0].T
        return states[rows if len(states) == self.n_targets else rows + left_padding]

    def call(self, attention_index: int) -> AttentionCall:
        """Return queries, keys and values of one of the layer's attention blocks, by its index in
        the spec."""
        return self._trace.calls[attention_index][0]

    def run_attention(
        self, attention_index: int, arguments: HookArguments, keywords: HookKeywords
    ) -> AttentionCall:
        """Run an attention module again, with the layer's hooks paused, and return its call."""
        attention, trace = self.modules.attentions[attention_index], replace(self._trace, calls={})
        with self._capture.paused(), AttentionReader(trace, attention_index, attention):
            attention.module.forward(*arguments, **own_caches(keywords))
        return trace.calls[attention_index][0]

    def run_twice(self) -> Tensor:
        """Run the layer on its clip twice, as a batch whose `shared` arguments stay as they are:
        [2, Q, D], or [1, Q, D] where states have no axis of clips."""
        if self._trace.packed:
            return self._output[None]
        shared = self.stack.spec.shared

        def repeat_clip(name: str, x: ModelOutput) -> ModelOutput:
            if not isinstance(x, Tensor) or x.ndim < 2 or name in shared:
                return x
            if name == "position_bias" and x.ndim == 3:  # WavLM's [clips heads, T, T]
                return x.repeat(2, 1, 1)
            return x.expand(2, *x.shape[1:]) if len(x) == 1 else x

        kwargs = {name: repeat_clip(name, x) for name, x in self._trace.kwargs.items()}
        with self._capture.paused():
            return self._run_layer(self._trace.hidden.expand(2, -1, -1), kwargs)

    @property
    def final_norm(self) -> nn.Module | None:
        """The norm behind this layer: the stack's own, if this is its last layer and it has one."""
        return self.stack.final_norm if self.layer == len(self.stack) - 1 else None

    def rerun(self, hidden: Tensor | None = None, memory: Tensor | None = None) -> Tensor:
        """Run the whole layer on other inputs: its states [Q, D], or the encoder's [K, D] behind
        cross-attention.

        Returns the layer's output [Q, D], behind the final norm if this is the stack's last layer;
        differentiable where autograd is on.
        """
        trace = self._trace
        kwargs = (
            trace.kwargs
            if memory is None
            else {**trace.kwargs, "encoder_hidden_states": memory[None]}
        )
        return self._apply_final_norm(
            self._run_layer(trace.hidden if hidden is None else hidden[None], kwargs)[0]
        )

    @property
    def inputs(self) -> Tensor:
        """Sources' states: the layer's input [K, D], or for cross-attention the encoder's
        output."""
        if self.stack.name == "cross":
            result: Tensor = self._trace.kwargs["encoder_hidden_states"][0]
            return result
        return self._trace.hidden[0]

    def states(self, rows: Tensor) -> Tensor:
        """Layer output [R, D] at the rows; of the stack's last layer behind the final norm."""
        return self._apply_final_norm(self._output[rows])

    def replay_all(self, contexts: Tensor) -> Tensor:
        """Run the layer's own modules on all rows in their order, for N other attention contexts
        [N, Q, H, d].

        For layers that mix positions behind attention, where a changed row changes others, and for
        attention of which only the function is known. Returns [N, Q, D], as `replay` does.
        """
        trace, attention = self._trace, self.modules.attention
        with ExitStack() as stubs:
            stubs.enter_context(self._capture.paused())
            if attention.is_rerun:
                stubs.enter_context(replaced_context(attention, contexts))
            else:
                attention_output = _replace_states(
                    trace.outputs[self.modules.studied_index], _project_context(attention, contexts)
                )
                stubs.enter_context(stub_outputs(attention.module, repeat(attention_output)))
            states = self._run_layer(trace.hidden.expand(len(contexts), -1, -1), trace.kwargs)
        return self._apply_final_norm(states)

    def replay(self, rows: Tensor, context: Tensor, *, number: int | None = None) -> Tensor:
        """Run the layer's own modules on chosen rows, with the attention context replaced.

        `rows` [P] are target positions, in any order and with repetitions; `context` [P, H, d] is
        attention before the output projection. `number` chooses another attention block of the
        layer than the studied one. Returns the layer's output [P, D], behind the final norm if this
        is the stack's last layer.
        """
        trace, changed_index = self._trace, self.modules.studied_index if number is None else number
        with ExitStack() as stubs:
            stubs.enter_context(self._capture.paused())
            for attention_index, attention in enumerate(self.modules.attentions):
                if (
                    attention_index > changed_index
                ):  # runs for real on the changed rows; its keys and values are as before
                    for projection in (attention.key, attention.value):
                        recorded = repeat(trace.projections[projection])
                        stubs.enter_context(stub_outputs(projection, recorded))
                    continue
                recorded_output = trace.outputs[attention_index]
                attention_output = _project_context(attention, context[None])
                if attention_index < changed_index:
                    attention_output = first_output(recorded_output)[:, rows]
                replaced = repeat(_replace_states(recorded_output, attention_output))
                stubs.enter_context(stub_outputs(attention.module, replaced))
            states = self._run_layer(trace.hidden[:, rows], self._select_kwargs(rows))
        return self._apply_final_norm(states[0])

    def _run_layer(self, hidden: Tensor, kwargs: HookKeywords) -> Tensor:
        """Run the layer's own module on states [N, P, D]."""
        layer_input = hidden.flatten(0, 1) if self._trace.packed else hidden
        output = self.modules.module.forward(layer_input, **own_caches(kwargs))
        return unpack_states(first_output(output), len(hidden))

    def _select_kwargs(self, rows: Tensor) -> HookKeywords:
        """The layer's keyword arguments for chosen rows: what attention behind the studied block
        adds to scores has rows."""

        def select_rows(value: ModelOutput) -> ModelOutput:
            has_rows = (
                isinstance(value, Tensor) and value.ndim >= 4 and value.shape[-2] == self.n_targets
            )
            return value[..., rows, :] if has_rows else value

        return {name: select_rows(value) for name, value in self._trace.kwargs.items()}

    def _apply_final_norm(self, states: Tensor) -> Tensor:
        return states if self.final_norm is None else self.final_norm(states)


def _project_context(attention: AttentionModules, context: Tensor) -> Tensor:
    """Return an attention module's output for another context [N, P, H, d]: [N, P, D], or
    (unprojected) [N, P, H d]."""
    joined_heads = context.flatten(2)
    return attention.output(joined_heads) if attention.includes_output else joined_heads


def _replace_states(output: ModelOutput, states: Tensor) -> ModelOutput:
    """Return a module's output, a tensor alone or first among others, with that tensor replaced by
    another [N, P, D]."""
    states = pack_like(first_output(output), states)
    return (states, *output[1:]) if isinstance(output, tuple) else states


def first_output(output: ModelOutput) -> ModelOutput:
    return output[0] if isinstance(output, tuple) else output


class Block(LayerRun):
    """One attention block of one layer, captured: what a measure sees."""

    _cached_weights: tuple[Tensor | None, Tensor] | None = None

    @property
    def causal(self) -> bool:
        return self.stack.spec.causal

    @property
    def n_sources(self) -> int:
        return self._call.key.shape[1]

    @property
    def unmasked_sources(self) -> list[int]:
        """Source positions that the attention mask leaves to some target; padding is left to
        none."""
        mask = self._call.mask
        if self._call.alpha is not None:
            mask = self._call.alpha > 0
        if mask is None:
            return list(range(self.n_sources))
        is_unmasked = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
        is_attended = is_unmasked.flatten(0, -2).any(dim=0).expand(self.n_sources)
        return is_attended.nonzero()[:, 0].tolist()

    @property
    def values(self) -> Tensor:
        """Value vectors, bias in, [H, K, d]."""
        return self._call.value

    def attention(self, rows: Tensor | None = None) -> Tensor:
        """Return attention weights [H, R, K] of target positions; the last ones are cached."""
        if self._cached_weights is None or self._cached_weights[0] is not rows:
            self._cached_weights = (rows, self._call.weights(rows))
        return self._cached_weights[1]

    def sink(self, rows: Tensor) -> Tensor | float:
        """Share of the attention [H, R] that goes to no position (attention sinks); 0 where the
        model has none."""
        return 0.0 if self._call.sink is None else self._call.sink[:, rows]

    @cached_property
    def context(self) -> Tensor:
        """Attention-weighted values before the output projection, [Q, H, d]."""
        if self._call.context is not None:
            return self._call.context
        return (self.attention() @ self.values).transpose(0, 1)

    def context_without(self, source_indices: slice | Tensor, heads: slice = slice(None)) -> Tensor:
        """Return the context [Q, H, d] with the values of some sources at zero, in some heads."""
        context, values = self.context.clone(), self.values[heads]
        alpha = self.attention()[heads]  # [H', Q, K]
        if (
            self.modules.attention.is_rerun
        ):  # a norm behind it would amplify what a difference rounds
            alpha = alpha.clone()
            alpha[:, :, source_indices] = 0
            context[:, heads] = (alpha @ values).transpose(0, 1)
        else:
            removed = alpha[:, :, source_indices] @ values[:, source_indices]
            context[:, heads] -= removed.transpose(0, 1)
        return context

    @property
    def output_weight(self) -> Tensor:
        """Output projection W_O split by head, [H, d, D].

        Raises
        ------
        ModelError
            If it reads something else than the context (`AttentionSpec.is_rerun`).
        """
        if self.modules.attention.is_rerun:
            raise ModelError(
                f"in the {self.stack.name} something lies between attention and its output projection (a "
                "gate or a norm), or its sum is not known: measures that decompose attention's output have "
                "no equation there; value_zeroing and attention do"
            )
        weight = projection_weight(self.modules.attention.output)  # [D, H d]
        return weight.T.reshape(self.values.shape[0], -1, weight.shape[0])

    @property
    def output_bias(self) -> Tensor:
        """Bias of the output projection, [D]; zeros where it has none."""
        bias = module_bias(self.modules.attention.output)
        return self._trace.hidden.new_zeros(self.stack.width) if bias is None else bias

    def attention_output(self, rows: Tensor) -> Tensor:
        """Return the attention block's output at the rows, behind its output projection, [R, D]."""
        projection = self.modules.attention.output
        if self.modules.attention.is_rerun:
            return self._trace.projections[projection][0, rows]
        return self.recorded_output(
            projection, rows, lambda: projection(self.context[rows].flatten(1))
        )

    @property
    def floats_per_pair(self) -> int:
        """About how many numbers a (target position, source) pair takes in the delta engine."""
        later_indices = range(self.modules.studied_index + 1, len(self.modules.attentions))
        later_calls = [
            self.call(attention_index)
            for attention_index in later_indices
            if attention_index in self._trace.calls
        ]
        feed_forward_width = max(
            (
                projection_weight(feed_forward.up).shape[0]
                for feed_forward in self.modules.feed_forwards
            ),
            default=4 * self.stack.width,
        )
        return (
            6 * self.stack.width
            + 2 * feed_forward_width
            + sum(3 * call.key.shape[0] * call.key.shape[1] for call in later_calls)
        )
