"""One layer of a recorded forward pass: its calls by what they compute.

In: the recording and the call of a layer. Out: a `TracedLayer`, which knows the projections, norms
and activations that ran in it and which of them made a value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from ...errors import ModelError
from .module_roles import is_activation_call, is_norm_call, is_projection_call
from .recording import ModuleCall, Recording, TracedValue
from .value_graph import strip_scale, strip_shape


class UntracedPartError(ModelError):
    """A part of a layer that tracing did not understand; the message says which."""


@dataclass
class TracedLayer:
    """A layer's call and what ran in it.

    Parameters
    ----------
    recording : Recording
    call : ModuleCall
    states : TracedValue
        Its input states.
    output : TracedValue
    """

    recording: Recording
    call: ModuleCall
    states: TracedValue
    output: TracedValue

    @cached_property
    def calls(self) -> list[ModuleCall]:
        """Calls within the layer, in the order they ended."""
        return self.recording.calls_within(self.call)

    @cached_property
    def values(self) -> list[TracedValue]:
        """Values made within the layer."""
        return self.recording.values_within(self.call)

    @cached_property
    def projections(self) -> dict[TracedValue, ModuleCall]:
        """Outputs of linear projections, with their calls."""
        return self._outputs_of(is_projection_call)

    @cached_property
    def norms(self) -> dict[TracedValue, ModuleCall]:
        """Outputs of norms, with their calls."""
        return self._outputs_of(is_norm_call)

    @cached_property
    def activations(self) -> dict[TracedValue, ModuleCall]:
        """Outputs of activations, with their calls."""
        return self._outputs_of(is_activation_call)

    def _outputs_of(self, has_role: Callable[[ModuleCall], bool]) -> dict[TracedValue, ModuleCall]:
        calls_by_output: dict[TracedValue, ModuleCall] = {}
        for call in self.calls:
            if len(call.outputs) == 1 and has_role(call):
                calls_by_output.setdefault(call.outputs[0], call)
        return calls_by_output

    def path_of(self, call: ModuleCall) -> str:
        """Return the path of a module, from the layer."""
        return call.path.removeprefix(f"{self.call.path}.")

    def optional_path(self, call: ModuleCall | None) -> str | None:
        """Return the path of a module, or None for none."""
        return None if call is None else self.path_of(call)

    def strip_to_module(self, value: TracedValue) -> TracedValue:
        """Go back over changes of shape, but not past the output of a projection, norm or
        activation."""
        while value not in self.projections and value not in self.norms:
            stripped = strip_shape(value)
            if stripped is value or value in self.activations:
                return value
            value = _step_back(value)
        return value

    def strip_scale_to_module(self, value: TracedValue) -> tuple[TracedValue, float]:
        """Go back over multiplications by a number, too; return that number."""
        scale = 1.0
        while True:
            value = self.strip_to_module(value)
            is_input = value.index < self.call.start or value is strip_shape(self.states)
            if is_input or value in self.projections or value in self.norms:
                return value, scale
            stripped, factor = strip_scale(value)
            if stripped is value:
                return value, scale
            value, scale = stripped, scale * factor


def _step_back(value: TracedValue) -> TracedValue:
    return value.sources[0]


def states_of(call: ModuleCall) -> TracedValue | None:
    """Return the first input of a call that may be states: numbers with two axes or more."""
    return next((value for value in call.inputs if _is_states(value.tensor)), None)


def output_states(call: ModuleCall) -> TracedValue | None:
    """Return the first output of a call that may be states."""
    return next((value for value in call.outputs if _is_states(value.tensor)), None)


def _is_states(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.ndim >= 2
