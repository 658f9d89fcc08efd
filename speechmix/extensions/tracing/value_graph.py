"""Follow tensors through a recorded forward pass: back over functions that only change their shape,
and on which others a tensor depends.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from .recording import TracedValue

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
