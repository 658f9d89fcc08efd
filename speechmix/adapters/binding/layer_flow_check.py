"""Check that states flow through a layer's parts as its table says, in a recorded forward pass.

From the layer's residual stream to its output: each norm, projection, activation and convolution that
the table names must have read what the table says that it reads, and the sums must be the states
that the layer goes on with. What a part gives is taken from the record, so that nothing is run again.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from ...errors import ModelError
from ..capture.layer_run import Block
from ..families.specs import ConvolutionSpec, FeedForwardSpec
from .layer_components import ConvolutionModules, FeedForwardModules, ProjectionHalf
from .self_check_states import PartRecorder, is_norm, states_agree


def check_layer_flow(block: Block, recorder: PartRecorder, layer_label: str) -> None:
    """Check that each part of a layer reads what the table says; a ModelError if not.

    Where the table does not describe the feed-forwards, the attention blocks alone are checked.
    """
    _LayerFlow(block, recorder, layer_label).check()


class _LayerFlow:
    def __init__(self, block: Block, recorder: PartRecorder, layer_label: str):
        self.block, self.calls, self.layer_label = block, recorder.calls, layer_label
        self.spec, self.modules = block.stack.spec, block.modules
        self.is_pre_norm = self.spec.norm_order == "pre"

    def check(self) -> None:
        if not self.modules.feed_forwards:
            self._check_undescribed()
            return
        stream = self._residual(0)
        layer_input = stream
        for index, (spec, attention) in enumerate(
            zip(self.spec.blocks, self.modules.attentions, strict=True)
        ):
            if attention.norm is None:
                raise self._error(
                    "it describes feed-forwards, but names no norm of "
                    f"the attention block {spec.module!r}"
                )
            stream = stream + self._attention_output(index, stream)
            if not self.is_pre_norm:
                stream = self._run(spec.norm, attention.norm, stream)
        if self.spec.convolution is not None and self.modules.convolution is not None:
            stream = stream + self._convolution_output(
                self.spec.convolution, self.modules.convolution, stream
            )
        for index, feed_forward in enumerate(self.modules.feed_forwards):
            feed_spec = self.spec.feed_forwards[index]
            states = layer_input if self.modules.parallel else stream
            stream = stream + self._feed_forward_output(feed_spec, feed_forward, states)
            if not self.is_pre_norm:
                stream = self._run(feed_spec.norm, feed_forward.norm, stream)
        if self.modules.closing_norm is not None:
            stream = self._run(self.spec.closing_norm, self.modules.closing_norm, stream)
        if not states_agree(stream, self.block.output, effect=0):
            raise self._error(
                "the layer's output is not the sum of its residual stream and the blocks that it names "
                "(closing_norm, scale and branch_norm included)"
            )

    def _check_undescribed(self) -> None:
        """Check what the table says of a layer whose feed-forwards it does not describe."""
        for index, attention in enumerate(self.modules.attentions):
            if not self.is_pre_norm and attention.norm is None and attention.branch_norm:
                raise self._error("it calls the layer post-norm, but names no norm behind the sum")
            self._attention_output(index, self._residual(index))
        if self.spec.convolution is not None and self.modules.convolution is not None:
            calls = self.calls.get(self.modules.convolution.norm, ())
            for states in (call.states for call in calls if call.states is not None):
                self._convolution_output(
                    self.spec.convolution, self.modules.convolution, _select_rows(states)
                )
        closing_norms = {
            norm
            for norm in filter(is_norm, self.calls)
            if any(
                _find_axis(call.output, self.block.output) is not None for call in self.calls[norm]
            )
        }
        if not self.is_pre_norm or self.modules.attention.is_rerun:
            closing_norms = set()  # the feed-forward's, or nothing that is read
        if closing_norms != {self.modules.closing_norm} - {None}:
            raise self._error("the norm behind the layer's last sum is another (closing_norm)")

    def _error(self, problem: str) -> ModelError:
        return ModelError(
            f"{self.layer_label}: the family's table does not fit: {problem}. Correct the table"
        )

    def _residual(self, index: int) -> Tensor:
        """What an attention block's output is added to."""
        attention = self.modules.attentions[index]
        module = attention.norm if self.is_pre_norm and attention.norm else attention.module
        states = self.calls[module][0].states if module in self.calls else None
        if states is None:
            raise self._error(f"{self.spec.blocks[index].norm!r} did not run in the layer")
        return _select_rows(states)[: self.block.n_targets]

    def _attention_output(self, index: int, stream: Tensor) -> Tensor:
        """What an attention block adds to the residual stream."""
        spec, attention = self.spec.blocks[index], self.modules.attentions[index]
        is_normed_first = self.is_pre_norm and attention.norm is not None
        states = self._run(spec.norm, attention.norm, stream) if is_normed_first else stream
        value_reader = attention.value if attention.value in self.calls else attention.module
        reads_layer = self._reads(value_reader, states)
        is_studied = index == self.modules.studied_index and not attention.is_rerun
        if is_studied and reads_layer == (self.spec.name == "cross"):
            raise self._error(
                f"the values of {spec.module!r} are {'' if reads_layer else 'not '}made of the states "
                f"that the table's norm of a {self.spec.name} stack leaves"
            )
        if not (reads_layer or self._reads(attention.query, states)) and not self._reads(
            attention.module, states
        ):
            raise self._error(f"{spec.module!r} does not read the states that its norm leaves")
        try:
            call = self.block.call(index)
        except KeyError:
            raise self._error(f"attention of {spec.module!r} could not be read") from None
        context = (call.weights() @ call.value).transpose(0, 1)
        if call.context is not None:
            if not states_agree(context, call.context, effect=0, size=call.value.abs().max()):
                raise self._error(
                    f"weights and values that were read of {spec.module!r} do not give its context"
                )
            context = call.context
        if attention.is_rerun:
            calls = self.calls.get(attention.output)
            if not calls or calls[-1].output is None:
                raise self._error(f"{spec.output!r} did not run in the layer")
            output = _select_rows(calls[-1].output)
        else:
            output = self._run(spec.output, attention.output, context.flatten(1))
        returned = output if attention.includes_output else context.flatten(1)
        module_calls = self.calls.get(attention.module, ())
        if all(_find_axis(call.output, returned) is None for call in module_calls):
            raise self._error(f"{spec.module!r} does not return the output of {spec.output!r}")
        if attention.is_rerun:
            return output
        self._check_neighbour_norms(index, output)
        if attention.branch_norm is not None:
            output = self._run(spec.branch_norm, attention.branch_norm, output)
        return output

    def _check_neighbour_norms(self, index: int, output: Tensor) -> None:
        """Check that no norm but the table's reads attention's output, and that in a post-norm layer
        the table's is the first behind it."""
        spec, attention = self.spec.blocks[index], self.modules.attentions[index]
        norms = [module for module in self.calls if is_norm(module)]
        if attention.branch_norm is None and any(self._reads(norm, output) for norm in norms):
            raise self._error(f"a norm of the output of {spec.module!r} is not named (branch_norm)")
        if self.is_pre_norm or attention.norm is None:
            return
        end = attention.output if attention.output in self.calls else attention.module
        later_norms = {
            call.order: norm
            for norm in norms
            for call in self.calls[norm]
            if call.order > self.calls[end][-1].order and norm is not attention.branch_norm
        }
        if not later_norms or later_norms[min(later_norms)] is not attention.norm:
            raise self._error(f"{spec.norm!r} is not the norm that follows {spec.module!r}")

    def _convolution_output(
        self, spec: ConvolutionSpec, modules: ConvolutionModules, stream: Tensor
    ) -> Tensor:
        states = self._run(spec.norm, modules.norm, stream)
        states = nn.functional.glu(self._run(spec.expand, modules.expand, states), dim=-1)
        depthwise, window = modules.depthwise, (modules.left, modules.right)
        convolved = self._run(spec.depthwise, depthwise, states, padding=modules.left)
        expected = nn.functional.conv1d(
            nn.functional.pad(states.T, window),
            depthwise.weight,
            depthwise.bias,
            dilation=depthwise.dilation,
            groups=depthwise.groups,
        ).T
        if not states_agree(convolved, expected, effect=expected.abs().max()):
            raise self._error(f"{spec.depthwise!r} has another window of positions (causal)")
        states = convolved
        states = self._run(spec.depthwise_norm, modules.depthwise_norm, states)
        states = self._activate(spec.activation, modules.activation, states)
        return self._run(spec.contract, modules.contract, states)

    def _feed_forward_output(
        self, spec: FeedForwardSpec, modules: FeedForwardModules, stream: Tensor
    ) -> Tensor:
        """What a feed-forward adds to the residual stream."""
        states = self._run(spec.norm, modules.norm, stream) if self.is_pre_norm else stream
        inner = self._run(spec.up, modules.up, states)
        if modules.gate is not None:
            gate = self._run(spec.gate, modules.gate, states)
            inner = self._activate(spec.activation, modules.activation, gate) * inner
        else:
            inner = self._activate(spec.activation, modules.activation, inner)
        output = self._run(spec.down, modules.down, inner)
        if modules.branch_norm is not None:
            output = self._run(spec.branch_norm, modules.branch_norm, output)
        return output * modules.scale

    def _activate(
        self, path: str, activation: Callable[[Tensor], Tensor], states: Tensor
    ) -> Tensor:
        """A module that is an activation must have run: others may give nearly the same."""
        if isinstance(activation, nn.Module) and activation not in self.calls:
            raise self._error(f"{path!r} did not run in the layer")
        return self._run(path, activation, states)

    def _run(
        self,
        path: str | None,
        part: Callable[[Tensor], Tensor] | None,
        states: Tensor,
        *,
        padding: int = 0,
    ) -> Tensor:
        """Return a part's recorded output for these states; run the part if its weights were used
        without running it."""
        assert part is not None
        if isinstance(part, ProjectionHalf):
            projection, half_index = part.projection
            return self._run(path, projection, states).chunk(2, dim=-1)[half_index]
        calls = self.calls.get(part, []) if isinstance(part, nn.Module) else []
        for call in calls:
            axis = _find_axis(call.states, states, padding)
            if axis is not None and call.output is not None:
                return _select_rows(call.output, axis)[: len(states)]
        if calls:
            raise self._error(f"{path!r} does not read the states that the table says it reads")
        return part(states)

    def _reads(self, part: nn.Module | None, states: Tensor) -> bool:
        calls = self.calls.get(part, []) if part is not None else []
        return any(_find_axis(call.states, states) is not None for call in calls)


def _select_rows(states: Tensor, axis: int = -2) -> Tensor:
    """States [..., T, D], or [..., D, T] of a convolution, as those of one clip [T, D]."""
    matrix = states.reshape(-1, *states.shape[-2:])[0]
    return matrix if axis == -2 else matrix.T


def _find_axis(recorded: Tensor | None, states: Tensor, padding: int = 0) -> int | None:
    """Find the axis along which a recorded tensor holds these states [T, D], perhaps with padding
    around them; None if it holds others."""
    if recorded is None:
        return None
    for axis in (-2, -1):
        rows = _select_rows(recorded, axis)
        if any(
            states_agree(rows[first : first + len(states)], states, effect=0)
            for first in {0, padding}
        ):
            return axis
    return None
