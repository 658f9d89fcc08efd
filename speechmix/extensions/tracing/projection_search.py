"""Find the projections that make what attention reads, and the one that takes its result.

In: arguments and result of a call of torch that computes attention, in a `TracedLayer`. Out: calls of
projections.
"""

from __future__ import annotations

import torch

from .attention_operations import iterate_operations
from .mixing_kinds import NOT_DEFINED
from .recording import ModuleCall, TracedValue
from .traced_layer import TracedLayer, UntracedPartError
from .value_graph import (
    MATRIX_PRODUCTS,
    collect_ancestors,
    depends_on,
    nearest_ancestors,
    strip_shape,
)


def find_value_projection(
    layer: TracedLayer, values: TracedValue, *, may_change: bool
) -> ModuleCall:
    """The projection whose output holds the very numbers of the values; or, if they may change on the
    way, each position by itself, the one that they are made by."""
    call = find_projection(layer, values, "value")
    numbers, output = values.tensor, call.outputs[0].tensor
    is_made_of_output = torch.isin(numbers[numbers != 0], output)
    if not bool(is_made_of_output.all()):
        steps = collect_ancestors((values,), oldest=call.outputs[0].index + 1)
        is_convolved = any(
            step.operation == "conv1d" and step.sources[1].tensor.shape[-1] > 1 for step in steps
        )
        if may_change and not is_convolved:
            return call
        raise UntracedPartError(
            f"values of attention are not the output of {layer.path_of(call)}: "
            + (
                f"a convolution mixes those of neighbouring positions ({NOT_DEFINED})"
                if is_convolved
                else "they are changed on the way"
            )
        )
    return call


def find_projection(
    layer: TracedLayer,
    argument: TracedValue | None,
    label: str,
    source: TracedValue | None = None,
) -> ModuleCall:
    """The one projection that an argument of attention was made by, from these states."""
    calls = [] if argument is None else nearest_projections(layer, argument)
    if source is not None:
        same = [call for call in calls if layer.strip_to_module(call.inputs[0]) is source]
        calls = same or [call for call in calls if depends_on(call.inputs[0], source)]
    paths = sorted({layer.path_of(call) for call in calls})
    if len(paths) != 1:
        raise UntracedPartError(
            f"the {label} of attention comes from {len(paths)} projections "
            f"({', '.join(paths) or 'none found'})"
        )
    return calls[0]


def nearest_projections(layer: TracedLayer, argument: TracedValue) -> list[ModuleCall]:
    input_values = nearest_ancestors(argument, layer.projections, oldest=layer.call.start)
    return [layer.projections[value] for value in input_values]


def find_score_projections(
    layer: TracedLayer, scores: TracedValue, source: TracedValue
) -> tuple[ModuleCall, ModuleCall]:
    """Query and key projection of scores that a layer computes by code of its own: the first matrix
    product of which one side was made from the states that make the values."""
    for product in _score_products(layer, scores):
        left, right = product.sources[-2:]
        try:
            query, key = (
                find_projection(layer, left, "query"),
                find_projection(layer, right, "key"),
            )
        except UntracedPartError:
            continue
        if layer.strip_to_module(key.inputs[0]) is source:
            return query, key
    raise UntracedPartError("no product of queries and keys was found before the softmax")


def find_score_query(layer: TracedLayer, scores: TracedValue) -> ModuleCall:
    """Query projection of scores whose keys come from an earlier layer."""
    for product in _score_products(layer, scores):
        calls = nearest_projections(layer, product.sources[-2])
        if len(calls) == 1:
            return calls[0]
    raise UntracedPartError("no product of queries was found before the softmax")


def _score_products(layer: TracedLayer, scores: TracedValue) -> list[TracedValue]:
    """Matrix products before the softmax that are no projections, in the order they run."""
    before = collect_ancestors((scores,), oldest=layer.call.start)
    return [
        value
        for value in sorted(before, key=lambda x: x.index)
        if value.operation in MATRIX_PRODUCTS
        and len(value.sources) >= 2
        and value not in layer.projections
    ]


def find_output(layer: TracedLayer, context: TracedValue) -> ModuleCall:
    """The first projection that reads the result of attention, in another shape at most."""
    results = {operation.value for operation in iterate_operations(layer)}
    for call in layer.calls:
        if (
            call.start <= context.index
            or not call.outputs
            or call.outputs[0] not in layer.projections
        ):
            continue
        pieces = _strip_joined(call.inputs[0])
        if context not in pieces:
            continue
        if not pieces <= results:
            raise UntracedPartError(
                f"{layer.path_of(call)} reads the result of attention joined with something else"
            )
        return call
    raise UntracedPartError(
        "no projection takes the result of attention as it is (it may be gated or normed first)"
    )


def find_first_reader(layer: TracedLayer, context: TracedValue) -> ModuleCall:
    """The first projection that reads something made of the result of attention."""
    for call in layer.calls:
        is_later = call.start > context.index and bool(call.outputs)
        if (
            is_later
            and call.outputs[0] in layer.projections
            and depends_on(call.inputs[0], context)
        ):
            return call
    raise UntracedPartError("no projection reads the result of attention")


def _strip_joined(value: TracedValue) -> set[TracedValue]:
    """What a value is made of by changes of shape and by joining pieces."""
    pieces, waiting = set(), [value]
    while waiting:
        current = strip_shape(waiting.pop())
        pieces.add(current)
        if current.operation in ("cat", "concat", "stack"):
            pieces.discard(current)
            waiting += current.sources
    return pieces
