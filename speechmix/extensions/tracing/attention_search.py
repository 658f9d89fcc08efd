"""Find attention in a layer: which call of torch computes it, which projections make queries, keys
and values, and which takes its result.

In: a `TracedLayer`. Out: an `AttentionSpec` without its norms for each block, and the values between
which it runs. A projection is one whose output, in another shape, is the argument of the call.

Find the projections that make what attention reads, and the one that takes its result.

In: arguments and result of a call of torch that computes attention, in a `TracedLayer`. Out: calls of
projections.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import torch
from torch.nn import functional as F

from ...adapters.families.specs import AttentionSpec
from .layer_lists import NOT_DEFINED, AttentionOperation, iterate_operations
from .recording import ModuleCall, TracedValue
from .traced_layer import (
    MATRIX_PRODUCTS,
    TracedLayer,
    UntracedPartError,
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


@dataclass(eq=False)
class TracedAttention:
    """An attention block of a layer.

    Parameters
    ----------
    spec : AttentionSpec
        Without norms.
    result : TracedValue
        Output of its output projection.
    value_input, query_input : TracedValue
        What its value and query projections read.
    heads, key_heads : int
        The second counts heads of keys and values; 0 if that was not found.
    is_packed : bool
        True if one projection makes queries and values.
    """

    spec: AttentionSpec
    result: TracedValue
    value_input: TracedValue
    query_input: TracedValue
    heads: int
    key_heads: int
    is_packed: bool

    def reads_other_stack(self, layer: TracedLayer) -> bool:
        """Return True if keys and values come from outside the layer (cross-attention)."""
        return not depends_on(self.value_input, strip_shape(layer.states))


def find_attention_blocks(
    layer: TracedLayer, *, by_function: bool = False
) -> list[TracedAttention]:
    """Find all attention blocks of a layer, in the order they run.

    Parameters
    ----------
    by_function : bool
        True if values and result may be changed between attention's function and the projections
        (`AttentionSpec.is_rerun`).

    Raises
    ------
    UntracedPartError
        If the arguments of an attention call cannot be followed to projections.
    """
    blocks: dict[str, TracedAttention] = {}
    for operation in iterate_operations(layer):
        block = (
            _read_multi_head(layer, operation.value)
            if operation.value.operation == "multi_head_attention_forward"
            else _read_operation(layer, operation, by_function)
        )
        first_block = blocks.setdefault(block.spec.module, block)
        if first_block.spec != block.spec:
            raise UntracedPartError(
                f"{layer.call.path}.{block.spec.module} computes attention twice, with other projections"
            )
    return list(blocks.values())


def _read_operation(
    layer: TracedLayer, operation: AttentionOperation, by_function: bool
) -> TracedAttention:
    if operation.values is None:
        raise UntracedPartError("attention without values")
    if by_function and not nearest_projections(layer, operation.values):
        return _read_shared_values(layer, operation)
    value_call = find_value_projection(layer, operation.values, may_change=by_function)
    value_input = layer.strip_to_module(value_call.inputs[0])
    query_call, key_call = (
        find_score_projections(layer, operation.scores, value_input)
        if operation.scores is not None
        else (
            find_projection(layer, operation.query, "query"),
            find_projection(layer, operation.key, "key", value_input),
        )
    )
    if not depends_on(key_call.inputs[0], value_input):
        raise UntracedPartError(
            f"{layer.path_of(key_call)} and {layer.path_of(value_call)}, which make keys and values, "
            "read different states"
        )
    find_reader = find_first_reader if by_function else find_output
    output_call = find_reader(layer, operation.value)
    paths = {layer.path_of(call) for call in (value_call, key_call, query_call)}
    module = _find_module(layer, operation.value, paths)
    is_packed = query_call.path == value_call.path
    size = (operation.scores or operation.query or operation.value).tensor.shape
    value_size = operation.values.tensor.shape[-1]
    has_own_query = query_call.path not in (value_call.path, key_call.path)
    spec = AttentionSpec(
        module,
        value=layer.path_of(value_call),
        key=layer.path_of(key_call),
        output=layer.path_of(output_call),
        query=layer.path_of(query_call) if has_own_query else None,
        needs_eager=operation.scores is not None,
        is_rerun=by_function,
    )
    return TracedAttention(
        spec,
        output_call.outputs[0],
        value_input,
        layer.strip_to_module(query_call.inputs[0]),
        size[-3],
        0
        if is_packed or key_call is value_call
        else value_call.outputs[0].tensor.shape[-1] // value_size,
        is_packed,
    )


def _read_shared_values(layer: TracedLayer, operation: AttentionOperation) -> TracedAttention:
    """Attention to keys and values of an earlier layer."""
    if operation.scores is not None:
        query_call = find_score_query(layer, operation.scores)
    else:
        query_call = find_projection(layer, operation.query, "query")
    output_call, query = find_first_reader(layer, operation.value), layer.path_of(query_call)
    spec = AttentionSpec(
        _find_module(layer, operation.value, {query}),
        value="",
        key="",
        output=layer.path_of(output_call),
        query=query,
        needs_eager=operation.scores is not None,
        is_rerun=True,
    )
    states = layer.strip_to_module(query_call.inputs[0])
    heads = (operation.scores or operation.query or operation.value).tensor.shape[-3]
    return TracedAttention(spec, output_call.outputs[0], states, states, heads, 0, False)


def _find_module(layer: TracedLayer, operation: TracedValue, paths: set[str]) -> str:
    """The innermost module in which attention runs and that holds its projections."""
    around = [
        call
        for call in layer.calls
        if call.start <= operation.index < call.stop
        and all(path.startswith(f"{layer.path_of(call)}.") for path in paths)
    ]
    if not around:
        raise UntracedPartError("no module of the layer holds attention and its projections")
    return layer.path_of(max(around, key=lambda call: call.start))


def _read_multi_head(layer: TracedLayer, value: TracedValue) -> TracedAttention:
    """Attention by torch's function that projects, too: its projections are known by their
    weights."""
    bound = inspect.signature(F.multi_head_attention_forward).bind(
        *value.arguments, **value.keywords
    )
    paths = {
        id(weight): name.removesuffix(".weight")
        for name, weight in layer.call.module.named_parameters()
        if name.endswith(".weight")
    }
    names = ("q_proj_weight", "k_proj_weight", "v_proj_weight", "out_proj_weight")
    projection_paths = [paths.get(id(bound.arguments.get(name))) for name in names]
    query, key, value_path, output = projection_paths
    if query is None or key is None or value_path is None or output is None:
        raise UntracedPartError(
            "torch's multi_head_attention_forward runs with weights that belong to no projection"
        )
    states = value.sources
    return TracedAttention(
        AttentionSpec(
            _find_module(layer, value, {query, key, value_path}),
            value=value_path,
            key=key,
            output=output,
            query=query,
        ),
        value,
        layer.strip_to_module(states[2]),
        layer.strip_to_module(states[0]),
        heads=bound.arguments["num_heads"],
        key_heads=bound.arguments["num_heads"],
        is_packed=False,
    )
