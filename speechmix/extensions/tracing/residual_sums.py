"""Follow the residual stream through a layer: what is added to it, and which norms it passes.

In: a `TracedLayer`. Out: its `ResidualSum`s in the order they run. In a sum of two tensors the
stream is the one from which the other was computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .recording import ModuleCall, TracedValue
from .traced_layer import TracedLayer, UntracedPartError
from .value_graph import addends, depends_on, strip_shape


@dataclass(eq=False)
class ResidualSum:
    """One addition to the residual stream.

    Parameters
    ----------
    stream : TracedValue
        The states that are added to.
    total : TracedValue
        The sum.
    branches : tuple of TracedValue
        What is added; several, where blocks run in parallel.
    norm : ModuleCall, optional
        The norm that the sum passes before anything else reads it.
    stream_scale : float
        What the stream is multiplied by in the sum.
    """

    stream: TracedValue
    total: TracedValue
    branches: tuple[TracedValue, ...]
    norm: ModuleCall | None = None
    stream_scale: float = 1.0


def trace_residual_sums(layer: TracedLayer) -> list[ResidualSum]:
    """Follow a layer's output back to its input, over norms and sums.

    Raises
    ------
    UntracedPartError
        If it passes something else on the way.
    """
    value, norm, sums = layer.strip_to_module(layer.output), None, []
    origin = strip_shape(layer.states)
    while strip_shape(value) is not origin:
        if value in layer.norms:
            if norm is not None:
                raise UntracedPartError("two norms follow each other in the residual stream")
            norm = layer.norms[value]
            value = layer.strip_to_module(norm.inputs[0])
            continue
        residual_sum = _split_sum(layer, value)
        residual_sum.norm, norm = norm, None
        sums.append(residual_sum)
        value = layer.strip_to_module(residual_sum.stream)
    if norm is not None:
        raise UntracedPartError(
            f"the residual stream begins behind {layer.path_of(norm)}, not with the layer's input"
        )
    return sums[::-1]


def _split_sum(layer: TracedLayer, value: TracedValue) -> ResidualSum:
    if value.index < layer.call.start:
        raise UntracedPartError("the residual stream does not begin with the layer's input")
    terms = _list_terms(layer, value, expand=False)
    stream = _find_stream(layer, terms)
    if stream is None:
        terms = _list_terms(layer, value, expand=True)
        stream = _find_stream(layer, terms)
    if stream is None:
        name = _maker_of(layer, value)
        raise UntracedPartError(f"the residual stream passes {name}, which is no sum and no norm")
    branches = [term for term in terms if term is not stream]
    if len(branches) == 1:
        inner = _list_terms(layer, branches[0], expand=True)
        if len(inner) > 1:
            branches = inner
    unscaled, scale = layer.strip_scale_to_module(stream)
    return ResidualSum(unscaled, value, tuple(branches), stream_scale=scale)


def _maker_of(layer: TracedLayer, value: TracedValue) -> str:
    inner = [call for call in layer.calls if value in call.outputs]
    return layer.path_of(inner[0]) if inner else f"torch's {value.operation}"


def _list_terms(layer: TracedLayer, value: TracedValue, *, expand: bool) -> list[TracedValue]:
    """The terms of a sum: two, or (`expand`) those of sums within it, too."""
    value = layer.strip_to_module(value)
    is_origin = strip_shape(value) is strip_shape(layer.states) or value.index < layer.call.start
    pair = (
        None
        if is_origin
        or value in layer.projections
        or value in layer.norms
        or value in layer.activations
        else addends(value)
    )
    if pair is None or value.sources[0].tensor.shape != value.sources[1].tensor.shape:
        return [value]
    sources = [layer.strip_to_module(source) for source in value.sources]
    if not expand:
        return sources
    return [term for source in sources for term in _list_terms(layer, source, expand=True)]


def _find_stream(layer: TracedLayer, terms: Sequence[TracedValue]) -> TracedValue | None:
    """The term from which all others were computed, perhaps before it was multiplied by a number."""
    if len(terms) < 2:
        return None
    for term in terms:
        others = [other for other in terms if other is not term]
        stream, _ = layer.strip_scale_to_module(term)
        if all(depends_on(other, stream) and not depends_on(term, other) for other in others):
            return term
    return None
