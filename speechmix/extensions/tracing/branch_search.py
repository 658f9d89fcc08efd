"""Describe what a layer adds to its residual stream: feed-forwards and convolutions over positions.

In: a branch of a `ResidualSum`. Out: a `FeedForwardSpec` or a `ConvolutionSpec`, each step of which
was found among the recorded values; else an error that names the step.

Follow the residual stream through a layer: what is added to it, and which norms it passes.

In: a `TracedLayer`. Out: its `ResidualSum`s in the order they run. In a sum of two tensors the
stream is the one from which the other was computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn

from ...adapters.families.specs import ConvolutionSpec, FeedForwardSpec
from .recording import ModuleCall, TracedValue
from .traced_layer import (
    TracedLayer,
    UntracedPartError,
    addends,
    collect_ancestors,
    depends_on,
    factors,
    is_positional_convolution,
    strip_shape,
)


@dataclass(eq=False)
class Branch:
    """A branch without what is done to its result before it is added.

    Parameters
    ----------
    core : TracedValue
        The result of its last part.
    scale : float
        What that is multiplied by.
    norm : ModuleCall, optional
        The norm that it passes.
    """

    core: TracedValue
    scale: float
    norm: ModuleCall | None


def open_branch(layer: TracedLayer, branch: TracedValue) -> Branch:
    """Go back over scaling and a norm of a branch's result."""
    value, scale = layer.strip_scale_to_module(branch)
    norm = layer.norms.get(value)
    if norm is None:
        return Branch(value, scale, None)
    core, inner_scale = layer.strip_scale_to_module(norm.inputs[0])
    if inner_scale != 1:
        raise UntracedPartError(f"{layer.path_of(norm)} reads a result that is scaled first")
    return Branch(core, scale, norm)


def find_input_norm(
    layer: TracedLayer, value: TracedValue, stream: TracedValue
) -> ModuleCall | None:
    """Return the norm between the residual stream and what a block reads; None if it reads the
    stream itself.

    Raises
    ------
    UntracedPartError
        If it reads something else.
    """
    value = layer.strip_to_module(value)
    if strip_shape(value) is strip_shape(stream):
        return None
    norm = layer.norms.get(value)
    if norm is None or strip_shape(norm.inputs[0]) is not strip_shape(stream):
        raise UntracedPartError("a block reads neither the residual stream nor a norm of it")
    return norm


def describe_feed_forward(
    layer: TracedLayer, branch: Branch, stream: TracedValue, post_norm: ModuleCall | None
) -> FeedForwardSpec:
    """Describe a branch as down(activation(up x)) or down(activation(gate x) * up x).

    Raises
    ------
    UntracedPartError
        If it is neither.
    """
    down = layer.projections.get(branch.core)
    if down is None:
        raise UntracedPartError(f"{_name_branch(layer, branch)} does not end with a projection")
    inner = layer.strip_to_module(down.inputs[0])
    product = None if inner in layer.activations or inner in layer.projections else factors(inner)
    if product is None:
        activation, up = _find_activation(layer, inner, down)
        gate = None
        reads = [up]
    else:
        sides = [layer.strip_to_module(source) for source in inner.sources]
        activated = [side for side in sides if side in layer.activations]
        if len(activated) != 1:
            raise UntracedPartError(
                f"of the product before {layer.path_of(down)} no single side is an activation"
            )
        activation, gate = _find_activation(layer, activated[0], down)
        other = inner.sources[1 - sides.index(activated[0])]
        up = _Half.find(layer, other, down)
        reads = [up, gate]
    norms = {find_input_norm(layer, part.call.inputs[0], stream) for part in reads}
    norm = norms.pop()
    if norms:
        raise UntracedPartError(f"{layer.path_of(down)}: gate and up-projection read other norms")
    own_norm = post_norm if norm is None else norm
    if own_norm is None or (norm is not None and post_norm is not None):
        both = "two norms" if norm else "no norm"
        raise UntracedPartError(
            f"the feed-forward that ends with {layer.path_of(down)} has {both}; a table has one of its "
            "input or of its sum"
        )
    return FeedForwardSpec(
        layer.path_of(own_norm),
        up=up.path(layer),
        down=layer.path_of(down),
        activation=layer.path_of(activation),
        gate=None if gate is None else gate.path(layer),
        branch_norm=layer.optional_path(branch.norm),
        scale=branch.scale,
    )


def _find_activation(
    layer: TracedLayer, value: TracedValue, down: ModuleCall
) -> tuple[ModuleCall, _Half]:
    activation = layer.activations.get(value)
    if activation is None:
        raise UntracedPartError(
            f"{layer.path_of(down)} reads no activation that is a module (found torch's {value.operation})"
        )
    return activation, _Half.find(layer, activation.inputs[0], down)


def _name_branch(layer: TracedLayer, branch: Branch) -> str:
    makers = [call for call in layer.calls if branch.core in call.outputs]
    return layer.path_of(makers[-1]) if makers else "a branch of the residual stream"


@dataclass(eq=False)
class _Half:
    """A projection, or one half of its output."""

    call: ModuleCall
    half: int | None

    @classmethod
    def find(cls, layer: TracedLayer, value: TracedValue, down: ModuleCall) -> _Half:
        source = layer.strip_to_module(value)
        call = layer.projections.get(source)
        if call is None:
            raise UntracedPartError(
                f"what leads to {layer.path_of(down)} is no projection (found torch's {source.operation})"
            )
        numbers, output = value.tensor, source.tensor
        if numbers.shape == output.shape:
            return cls(call, None)
        width = output.shape[-1] // 2
        for half in (0, 1):
            if torch.equal(numbers, output[..., half * width : (half + 1) * width]):
                return cls(call, half)
        raise UntracedPartError(f"{layer.path_of(call)} makes something else than two halves")

    def path(self, layer: TracedLayer) -> str:
        path = layer.path_of(self.call)
        return path if self.half is None else f"{path}:{self.half}"


def has_convolution(layer: TracedLayer, branch: Branch, stream: TracedValue) -> bool:
    """Return True if a convolution with a window of several positions runs in a branch."""
    region = collect_ancestors((branch.core,), oldest=stream.index + 1)
    return any(
        is_positional_convolution(call) and call.outputs[0] in region for call in layer.calls
    )


def describe_convolution(
    layer: TracedLayer, branch: Branch, stream: TracedValue
) -> tuple[ConvolutionSpec, str]:
    """Describe a branch as contract(activation(norm(depthwise(glu(expand(norm x)))))).

    Returns
    -------
    tuple of ConvolutionSpec and str
        The second says what of it a table cannot say (the layer can still be replayed), or is empty.

    Raises
    ------
    UntracedPartError
        If it is something else, or is normed before it is added.
    """
    contract = layer.projections.get(branch.core)
    if contract is None or branch.norm is not None:
        raise UntracedPartError(f"{_name_branch(layer, branch)}: a convolution of another form")
    makers = {call.outputs[0]: call for call in layer.calls[::-1] if len(call.outputs) == 1}
    value = layer.strip_to_module(contract.inputs[0])
    activation = layer.activations.get(value)
    if activation is None:
        raise UntracedPartError(f"{layer.path_of(contract)} reads no activation")
    depthwise_norm = _leaf_maker(layer, makers, activation.inputs[0])
    depthwise = _leaf_maker(layer, makers, depthwise_norm.inputs[0])
    if not is_positional_convolution(depthwise):
        raise UntracedPartError(f"{layer.path_of(depthwise_norm)} does not follow a convolution")
    glu = _strip_padding(depthwise.inputs[0])
    if glu.operation != "glu":
        raise UntracedPartError(f"{layer.path_of(depthwise)} does not read a gated linear unit")
    expand = layer.projections.get(layer.strip_to_module(glu.sources[0]))
    if expand is None:
        raise UntracedPartError("the gated linear unit of a convolution reads no projection")
    norm = find_input_norm(layer, expand.inputs[0], stream)
    if norm is None:
        raise UntracedPartError(f"{layer.path_of(expand)} reads no norm of the residual stream")
    problem = f"what a convolution gives is multiplied by {branch.scale:g}"
    if branch.scale == 1:
        problem = ""
    try:
        causal = _is_causal_window(layer, depthwise, glu)
    except UntracedPartError as error:
        causal, problem = False, str(error)
    spec = ConvolutionSpec(
        layer.path_of(norm),
        expand=layer.path_of(expand),
        depthwise=layer.path_of(depthwise),
        depthwise_norm=layer.path_of(depthwise_norm),
        activation=layer.path_of(activation),
        contract=layer.path_of(contract),
        causal=causal,
    )
    return spec, problem


def _leaf_maker(
    layer: TracedLayer, makers: dict[TracedValue, ModuleCall], value: TracedValue
) -> ModuleCall:
    while value not in makers:
        stripped = value.sources[0] if strip_shape(value) is not value else None
        if stripped is None:
            raise UntracedPartError(f"a convolution passes torch's {value.operation}")
        value = stripped
    return makers[value]


def _strip_padding(value: TracedValue) -> TracedValue:
    while value.operation in ("masked_fill", "masked_fill_"):
        value = value.sources[0]
    return strip_shape(value)


def _is_causal_window(layer: TracedLayer, depthwise: ModuleCall, glu: TracedValue) -> bool:
    """Whether a position's window ends with itself, or lies around it; found by changing one
    position of what the convolution reads."""
    module, states = depthwise.module, depthwise.inputs[0].tensor
    channels = glu.tensor
    if channels.shape[-2] != states.shape[-2]:
        channels = channels.transpose(-1, -2)
    length = channels.shape[-1]
    starts = [
        start
        for start in range(states.shape[-1] - length + 1)
        if torch.equal(states[..., start : start + length], channels)
    ]
    if len(starts) != 1 or not isinstance(module, nn.Conv1d):
        raise UntracedPartError(f"{layer.path_of(depthwise)}: its padding was not understood")
    reach = module.dilation[0] * (module.kernel_size[0] - 1)
    zeros = states.new_zeros(*states.shape[:-1], states.shape[-1] + 2 * reach)
    impulse = zeros.clone()
    source = starts[0] + reach
    impulse[..., source] = 1
    with torch.no_grad():
        change = module(impulse) - module(zeros)
    reached = [index - reach for index in change.nonzero()[:, -1].tolist()]
    window = min(reached, default=1), max(reached, default=1)
    if window == (0, reach):
        return True
    right = reach - reach // 2 if module.padding == "same" else reach // 2
    if window == (-right, reach - right):
        return False
    raise UntracedPartError(
        f"{layer.path_of(depthwise)}: its window of {reach + 1} positions is neither causal nor centred"
    )


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
