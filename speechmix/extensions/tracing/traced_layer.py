"""One layer of a recorded forward pass: its calls by what they compute.

In: the recording and the call of a layer. Out: a `TracedLayer`, which knows the projections, norms
and activations that ran in it and which of them made a value.

Follow tensors through a recorded forward pass: back over functions that only change their shape,
and on which others a tensor depends.

What a module of a layer computes, tested on the numbers that it was given: a linear projection, a
norm of rows, an activation of single numbers, a convolution over positions.

In: a recorded call. Out: yes or no. Names of classes decide nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from ...adapters.binding.bound_layers import module_bias, projection_weight
from ...errors import ModelError
from .recording import ModuleCall, Recording, TracedValue

# They move numbers, or leave some out, and compute none.
_SHAPE_OPERATIONS = frozenset(
    "view reshape transpose permute contiguous flatten unflatten squeeze unsqueeze expand repeat "
    "repeat_interleave __getitem__ chunk split unbind tensor_split to float double type type_as "
    "clone detach dropout alpha_dropout movedim swapaxes __get__ narrow expand_as view_as t "
    "swapdims pad select split_with_sizes transpose_ squeeze_ unsqueeze_ resolve_conj".split()
)
_ADDITIONS = frozenset(("add", "add_", "__add__", "__radd__", "__iadd__"))
_MULTIPLICATIONS = frozenset(("mul", "mul_", "__mul__", "__rmul__", "__imul__", "multiply"))
_MASKS = _MULTIPLICATIONS | {"masked_fill", "masked_fill_", "where"}
MATRIX_PRODUCTS = frozenset(("matmul", "bmm", "__matmul__", "einsum", "baddbmm"))


def strip_shape(value: TracedValue) -> TracedValue:
    """Go back over functions that change no number, and over multiplication by one.

    Examples
    --------
    >>> import torch
    >>> from speechmix.extensions.tracing.recording import record_forward_pass
    >>> x = torch.ones(2, 3)
    >>> values = record_forward_pass(torch.nn.Identity(), lambda: (2 * x).T.reshape(6)).values
    >>> strip_shape(values[-1]).operation
    'mul'
    """
    while True:
        if value.operation in _SHAPE_OPERATIONS and value.sources:
            value = value.sources[0]
        elif value.operation in _MASKS and (unmasked := _find_equal_source(value)) is not None:
            value = unmasked
        elif (scaled := _split_scale(value)) is not None and scaled[1] == 1:
            value = scaled[0]
        else:
            return value


def _find_equal_source(value: TracedValue) -> TracedValue | None:
    """The tensor that a mask left as it was: there was no padding."""
    for source in value.sources:
        if source.tensor.shape == value.tensor.shape and torch.equal(source.tensor, value.tensor):
            return source
    return None


def strip_scale(value: TracedValue) -> tuple[TracedValue, float]:
    """Go back over changes of shape and multiplications by a number; return that number too."""
    scale = 1.0
    while True:
        value = strip_shape(value)
        scaled = _split_scale(value)
        if scaled is None:
            return value, scale
        value, scale = scaled[0], scale * scaled[1]


def _split_scale(value: TracedValue) -> tuple[TracedValue, float] | None:
    """The tensor and the number whose product a value is; None if it is no such product."""
    if len(value.arguments) != 2 or not value.sources:
        return None
    numbers = [x for x in value.arguments if isinstance(x, int | float)]
    if len(numbers) != 1:
        return None
    if value.operation in _MULTIPLICATIONS:
        return value.sources[0], float(numbers[0])
    if value.operation in ("div", "__truediv__") and isinstance(value.arguments[0], Tensor):
        return value.sources[0], 1 / float(numbers[0])
    return None


def addends(value: TracedValue) -> tuple[TracedValue, TracedValue] | None:
    """Return the two tensors whose sum a value is, without their changes of shape."""
    if value.operation not in _ADDITIONS or len(value.sources) != 2:
        return None
    return strip_shape(value.sources[0]), strip_shape(value.sources[1])


def factors(value: TracedValue) -> tuple[TracedValue, TracedValue] | None:
    """Return the two tensors whose product a value is, without their changes of shape."""
    if value.operation not in _MULTIPLICATIONS or len(value.sources) != 2:
        return None
    return strip_shape(value.sources[0]), strip_shape(value.sources[1])


def depends_on(value: TracedValue, origin: TracedValue) -> bool:
    """Return True if a value was computed from another (or is it)."""
    return origin in collect_ancestors((value,), oldest=origin.index)


def collect_ancestors(values: Iterable[TracedValue], *, oldest: int = -1) -> set[TracedValue]:
    """Return values and all that they were computed from, back to the index `oldest`."""
    ancestors: set[TracedValue] = set()
    waiting = list(values)
    while waiting:
        value = waiting.pop()
        if value in ancestors or value.index < oldest:
            continue
        ancestors.add(value)
        waiting += value.sources
    return ancestors


def nearest_ancestors(
    value: TracedValue, wanted: Iterable[TracedValue], *, oldest: int = -1
) -> list[TracedValue]:
    """Return the wanted values that a value was computed from with no other wanted value between.

    Examples
    --------
    >>> import torch
    >>> a = TracedValue(torch.zeros(1), "input", (), 0)
    >>> b = TracedValue(torch.zeros(1), "exp", (a,), 1)
    >>> c = TracedValue(torch.zeros(1), "exp", (b,), 2)
    >>> nearest_ancestors(c, [a, b]) == [b]
    True
    """
    wanted_values, ancestors = set(wanted), []
    seen: set[TracedValue] = set()
    waiting = [value]
    while waiting:
        current = waiting.pop()
        if current in seen or current.index < oldest:
            continue
        seen.add(current)
        if current in wanted_values:
            ancestors.append(current)
        else:
            waiting += current.sources
    return sorted(ancestors, key=lambda ancestor: ancestor.index)


_LARGE = 1e3  # beside it the epsilon of a norm is nothing
_TOLERANCE = 1e-3


def is_projection_call(call: ModuleCall) -> bool:
    """Return True if a call multiplied its input by the module's weight and added its bias.

    Examples
    --------
    >>> from speechmix.extensions.tracing.recording import record_forward_pass
    >>> layer = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> calls = record_forward_pass(layer, lambda: layer(torch.randn(4, 2))).calls
    >>> [is_projection_call(call) for call in calls[:2]]
    [True, False]
    """
    states = _single_input(call)
    weight = getattr(call.module, "weight", None)
    if states is None or not isinstance(weight, Tensor) or weight.ndim not in (2, 3):
        return False
    if weight.ndim == 3 and not (
        isinstance(call.module, nn.Conv1d)
        and call.module.kernel_size == (1,)
        and call.module.groups == 1
        and call.module.stride == (1,)
    ):
        return False
    output = call.outputs[0].tensor
    if isinstance(call.module, nn.Conv1d):
        states, output = states.transpose(-1, -2), output.transpose(-1, -2)
    matrix = projection_weight(call.module)
    if matrix.shape != (output.shape[-1], states.shape[-1]):
        return False
    expected = nn.functional.linear(
        states.to(matrix.dtype), matrix.detach(), module_bias(call.module)
    )
    return expected.shape == output.shape and _is_close(expected, output)


def is_norm_call(call: ModuleCall) -> bool:
    """Return True if a call normed each row: the same for rows of any size, odd but for a bias, and
    a number depends on its row.

    Examples
    --------
    >>> from speechmix.extensions.tracing.recording import record_forward_pass
    >>> layer = nn.Sequential(nn.LayerNorm(3), nn.Tanh(), nn.RMSNorm(3))
    >>> calls = record_forward_pass(layer, lambda: layer(torch.randn(4, 3))).calls
    >>> [is_norm_call(call) for call in calls[:3]]
    [True, False, True]
    """
    states = _single_input(call, is_leaf=any(x.ndim != 1 for x in call.module.parameters()))
    if states is None or states.shape[-1] < 2 or states.shape != call.outputs[0].tensor.shape:
        return False
    rows = states.reshape(-1, states.shape[-1])
    noise = torch.randn(6, rows.shape[-1], generator=torch.Generator().manual_seed(0))
    noise = _LARGE * noise.to(rows)
    normed, doubled, opposite = (
        _try_module(call.module, x[None]) for x in (noise, 2 * noise, -noise)
    )
    if normed is None or doubled is None or opposite is None or normed.shape[1:] != noise.shape:
        return False
    center = normed + opposite
    changed = noise.clone()
    changed[:, 0] += 3 * _LARGE
    other = _try_module(call.module, changed[None])
    return (
        other is not None
        and _is_close(normed, doubled)
        and _is_close(center, center[:, :1].expand_as(center), normed)
        and not _is_close(other[..., 1:], normed[..., 1:])
    )


def is_activation_call(call: ModuleCall) -> bool:
    """Return True if a call changed each number by itself, and is no identity."""
    states = _single_input(call)
    if states is None or next(iter(call.module.parameters()), None) is not None:
        return False
    output = call.outputs[0].tensor
    if output.shape != states.shape or torch.equal(output, states):
        return False
    reversed_output = _try_module(call.module, states.flip(-1))
    return reversed_output is not None and _is_close(reversed_output.flip(-1), output)


def is_positional_convolution(call: ModuleCall) -> bool:
    """Return True for a convolution with a window of several positions."""
    module = call.module
    return isinstance(module, nn.Conv1d) and module.kernel_size[0] > 1


def _single_input(call: ModuleCall, *, is_leaf: bool = True) -> Tensor | None:
    """The input of a call of a module (without parts, if `is_leaf`) that takes one tensor and
    returns one."""
    has_parts = next(iter(call.module.children()), None) is not None
    if (is_leaf and has_parts) or len(call.inputs) != 1 or len(call.outputs) != 1:
        return None
    states = call.inputs[0].tensor
    return states if states.is_floating_point() and states.ndim >= 2 else None


def _try_module(module: nn.Module, states: Tensor) -> Tensor | None:
    try:
        with torch.no_grad():
            output = module(states.clone())
    except Exception:  # it takes other shapes
        return None
    return output if isinstance(output, Tensor) and output.shape == states.shape else None


def _is_close(actual: Tensor, expected: Tensor, size: Tensor | None = None) -> bool:
    size = expected if size is None else size
    scale = size.abs().max().clamp_min(torch.finfo(size.dtype).tiny)
    return bool((actual - expected).abs().max() <= _TOLERANCE * scale)


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
