"""A captured attention block: what a measure sees of one layer while the forward pass runs.

Attention weights of chosen rows, values, the layer's output states, and `Block.replay`, which runs
the rest of the layer on rows whose attention context was changed. `forward_pass.py` makes these; they
live no longer than their layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ...errors import ModelError
from ..binding.bound_layers import Stack
from ..binding.layer_components import AttentionModules, Layer, bias_of, weight_of
from ..transformers_types import HookKeywords, ModelOutput
from .packed_states import pack_like, unpack_states
from .trace import AttentionCall, Trace

if TYPE_CHECKING:
    from .forward_pass import Capture


class Block:
    """One attention block of one layer, captured: what a measure sees.

    Axis letters: H heads, Q target positions, K source positions, d width of a head, D width of the
    model.

    Attributes
    ----------
    stack : Stack
    layer : int
    modules : Layer
        The layer's modules.
    clip : int
        Which clip of the batch this is of.
    """

    def __init__(
        self,
        capture: Capture,
        stack: Stack,
        layer: int,
        trace: Trace,
        output: Tensor,
        clip: int = 0,
    ):
        self.stack, self.layer, self.clip = stack, layer, clip
        self.modules: Layer = stack.layers[layer]
        self._capture, self._trace, self._output = capture, trace, output
        self._call = self.call(self.modules.studied)
        self._weights: tuple[Tensor | None, Tensor] | None = None

    @property
    def causal(self) -> bool:
        return self.stack.spec.causal

    @property
    def n_targets(self) -> int:
        return self._call.query.shape[1]

    @property
    def n_sources(self) -> int:
        return self._call.key.shape[1]

    @property
    def unmasked(self) -> list[int]:
        """Source positions that the attention mask leaves to some target; padding is left to
        none."""
        mask = self._call.mask
        if self._call.alpha is not None:
            mask = self._call.alpha > 0
        if mask is None:
            return list(range(self.n_sources))
        left = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
        seen = left.flatten(0, -2).any(dim=0).expand(self.n_sources)
        return seen.nonzero()[:, 0].tolist()

    @property
    def values(self) -> Tensor:
        """Value vectors, bias in, [H, K, d]."""
        return self._call.value

    def attention(self, rows: Tensor | None = None) -> Tensor:
        """Attention weights [H, R, K] of the chosen target positions; those asked for last are
        kept."""
        if self._weights is None or self._weights[0] is not rows:
            self._weights = (rows, self._call.weights(rows))
        return self._weights[1]

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

    @property
    def output_weight(self) -> Tensor:
        """Output projection W_O split by head, [H, d, D]."""
        weight = weight_of(self.modules.attention.output)  # [D, H d]
        return weight.T.reshape(self.values.shape[0], -1, weight.shape[0])

    @property
    def output_bias(self) -> Tensor:
        """Bias of the output projection, [D]; zeros where it has none."""
        bias = bias_of(self.modules.attention.output)
        return self._trace.hidden.new_zeros(self.stack.width) if bias is None else bias

    @property
    def output(self) -> Tensor:
        """The layer's output [Q, D] as it goes into the next layer."""
        return self._output

    def residual(self, rows: Tensor, *, confirmed: bool = True) -> Tensor:
        """What the block's output is added to, [R, D]: the layer's input, for cross-attention the
        state before it.

        Raises
        ------
        ModelError
            If it is not certain to be that (`Stack.unknown_sum`), unless `confirmed` is False.
        """
        if confirmed and self.stack.unknown_sum:
            raise ModelError(
                f"the residual stream of the {self.stack.name} cannot be read: "
                f"{self.stack.unknown_sum}. Measures that count it "
                "(alti, mixing ratios, attention norms with the residual) need a table that says; "
                "value_zeroing, attention and "
                "attention_norm do not"
            )
        return self._trace.residuals[self.modules.studied][0, rows]

    def attention_output(self, rows: Tensor) -> Tensor:
        """What the attention block gives the rows, behind its output projection, [R, D]."""
        projection = self.modules.attention.output
        return self.seen(projection, rows, lambda: projection(self.context[rows].flatten(1)))

    def seen(self, projection: nn.Module, rows: Tensor, otherwise: Callable[[], Tensor]) -> Tensor:
        """What one of the layer's projections gave the rows in the forward pass, [R, out].

        Parameters
        ----------
        otherwise : callable
            Computes it, where the projection did not run as a module of its own on [B, Q, in].
        """
        output = self._trace.projections.get(projection)
        if output is None or output.ndim != 3 or output.shape[1] != self.n_targets:
            return otherwise()
        return output[0, rows]

    def channels(self, convolution: nn.Module, rows: Tensor) -> Tensor:
        """What a convolution over time gave the rows in the forward pass, [R, C]."""
        return self._trace.projections[convolution][0].T[rows]

    def entering_channels(self, convolution: nn.Module, rows: Tensor, left: int) -> Tensor:
        """What entered it at the rows, [R, C]; `left` is how much may have been padded in front."""
        states = self._trace.entered[convolution][0].T
        return states[rows if len(states) == self.n_targets else rows + left]

    def call(self, index: int) -> AttentionCall:
        """Queries, keys and values of one of the layer's attention blocks, by its place in the
        spec."""
        return self._trace.calls[index][0]

    @property
    def floats_per_pair(self) -> int:
        """About how many numbers a (target position, source) pair takes while a change is carried
        through the layer."""
        later = range(self.modules.studied + 1, len(self.modules.attentions))
        behind = [self.call(number) for number in later if number in self._trace.calls]
        feed_forward = max(
            (weight_of(part.up).shape[0] for part in self.modules.feed_forwards),
            default=4 * self.stack.width,
        )
        return (
            6 * self.stack.width
            + 2 * feed_forward
            + sum(3 * call.key.shape[0] * call.key.shape[1] for call in behind)
        )

    @property
    def final_norm(self) -> nn.Module | None:
        """The norm behind this layer: the stack's own, if this is its last layer and it has one."""
        return self.stack.final_norm if self.layer == len(self.stack) - 1 else None

    def rerun(self, hidden: Tensor | None = None, memory: Tensor | None = None) -> Tensor:
        """Run the whole layer on other inputs: its states [Q, D], or the encoder's [K, D] behind
        cross-attention.

        Returns
        -------
        Tensor [Q, D]
            Layer output, behind the final norm if this is the stack's last layer. Differentiable
            where autograd is on.
        """
        trace = self._trace
        kwargs = (
            trace.kwargs
            if memory is None
            else {**trace.kwargs, "encoder_hidden_states": memory[None]}
        )
        return self._finish(
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
        """Layer output [R, D] at the chosen rows; behind the stack's final norm if this is its last
        layer."""
        return self._finish(self._output[rows])

    def replay_all(self, contexts: Tensor) -> Tensor:
        """Run the layer's own modules on all rows in their order, with the attention contexts
        replaced.

        For layers that mix positions behind attention: a changed row changes others.

        Parameters
        ----------
        contexts : Tensor [N, Q, H, d]
            N ways in which attention gives something else.

        Returns
        -------
        Tensor [N, Q, D]
            As for `replay`.
        """
        trace, attention = self._trace, self.modules.attention
        given = _like(trace.outputs[self.modules.studied], _replaced(attention, contexts))
        with self._capture.paused(), _stub(attention.module, given):
            states = self._run_layer(trace.hidden.expand(len(contexts), -1, -1), trace.kwargs)
        return self._finish(states)

    def replay(self, rows: Tensor, context: Tensor, *, number: int | None = None) -> Tensor:
        """Run the layer's own modules on chosen rows, with the attention context replaced.

        Parameters
        ----------
        rows : Tensor [P]
            Target positions, in any order and as often as wanted.
        context : Tensor [P, H, d]
            What attention gives each of them instead, before the output projection.
        number : int, optional
            Which of the layer's attention blocks it is the context of; the studied one by default.

        Returns
        -------
        Tensor [P, D]
            Layer output, behind the final norm if this is the stack's last layer.
        """
        trace, changed = self._trace, self.modules.studied if number is None else number
        with ExitStack() as stubs:
            stubs.enter_context(self._capture.paused())
            for place, attention in enumerate(self.modules.attentions):
                if (
                    place > changed
                ):  # runs for real on the changed rows; its keys and values are as before
                    for projection in (attention.key, attention.value):
                        stubs.enter_context(_stub(projection, trace.projections[projection]))
                    continue
                before = trace.outputs[place]
                given = _replaced(attention, context[None])
                if place < changed:
                    given = first_output(before)[:, rows]
                stubs.enter_context(_stub(attention.module, _like(before, given)))
            states = self._run_layer(trace.hidden[:, rows], self._kwargs_of(rows))
        return self._finish(states[0])

    def _run_layer(self, hidden: Tensor, kwargs: HookKeywords) -> Tensor:
        """Run the layer's own module on states [N, P, D]."""
        given = hidden.flatten(0, 1) if self._trace.packed else hidden
        return unpack_states(
            first_output(self.modules.module.forward(given, **kwargs)), len(hidden)
        )

    def _kwargs_of(self, rows: Tensor) -> HookKeywords:
        """The layer's keyword arguments for chosen rows: what attention behind the studied block
        adds to scores has rows."""

        def of_rows(value: ModelOutput) -> ModelOutput:
            has_rows = (
                isinstance(value, Tensor) and value.ndim >= 4 and value.shape[-2] == self.n_targets
            )
            return value[..., rows, :] if has_rows else value

        return {name: of_rows(value) for name, value in self._trace.kwargs.items()}

    def _finish(self, states: Tensor) -> Tensor:
        return states if self.final_norm is None else self.final_norm(states)


def _replaced(attention: AttentionModules, context: Tensor) -> Tensor:
    """What an attention module gives for another context [N, P, H, d], [N, P, D] or (unprojected)
    [N, P, H d]."""
    inner = context.flatten(2)
    return attention.output(inner) if attention.projects else inner


def _like(before: ModelOutput, given: Tensor) -> ModelOutput:
    """What a module gave, a tensor alone or first among others, with something else [N, P, D] in
    the tensor's place."""
    given = pack_like(first_output(before), given)
    return (given, *before[1:]) if isinstance(before, tuple) else given


@contextmanager
def _stub(module: nn.Module, result: ModelOutput) -> Iterator[None]:
    """Let a module return something given, without running."""
    before = module.__dict__.get("forward")
    module.forward = lambda *args, **kwargs: result
    try:
        yield
    finally:
        if before is None:
            del module.forward
        else:
            module.forward = before


def first_output(output: ModelOutput) -> ModelOutput:
    return output[0] if isinstance(output, tuple) else output
