"""Find the calls of torch that compute attention in a layer, and their arguments."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .recording import TracedValue
from .traced_layer import TracedLayer
from .value_graph import MATRIX_PRODUCTS, strip_shape

TORCH_ATTENTION = ("scaled_dot_product_attention", "multi_head_attention_forward")


@dataclass(eq=False)
class AttentionOperation:
    """A call of torch that computes attention: its arguments as values."""

    value: TracedValue
    query: TracedValue | None
    key: TracedValue | None
    values: TracedValue | None
    scores: TracedValue | None = None


def has_attention(layer: TracedLayer) -> bool:
    """Return True if attention runs in a layer."""
    return next(iterate_operations(layer), None) is not None


def iterate_operations(layer: TracedLayer) -> Iterator[AttentionOperation]:
    """Yield the attention of a layer: calls of torch's functions, and products behind a softmax."""
    softmax: list[TracedValue] = []
    for value in layer.values:
        if value.operation == "scaled_dot_product_attention":
            query, key, values = value.sources[:3]
            yield AttentionOperation(value, query, key, values)
        elif value.operation == "multi_head_attention_forward":
            if value.tensor.ndim == 3 and value.tensor.shape == value.sources[0].tensor.shape:
                yield AttentionOperation(value, None, None, None)
        elif value.operation == "softmax":
            softmax.append(value)
        elif value.operation in MATRIX_PRODUCTS and len(value.sources) == 2:
            weights = _strip_mask(value.sources[0])
            if weights in softmax and weights.tensor.ndim >= 3:
                yield AttentionOperation(value, None, None, value.sources[1], weights.sources[0])


def _strip_mask(value: TracedValue) -> TracedValue:
    """Go back over weights of masked positions set to zero."""
    value = strip_shape(value)
    while value.operation in ("masked_fill", "masked_fill_"):
        value = strip_shape(value.sources[0])
    return value
