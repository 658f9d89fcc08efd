"""Find a model's lists of layers: modules that run once each, in order, each on the output of the one
before.

In: the root module and a recording. Out: a `LayerList` for each, outermost lists first.

Find the calls of torch that compute attention in a layer, and their arguments.

Say what mixes positions in layers for which Value Zeroing is not defined.

Say which positions attention sees: all, those before, a window, chunks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor, nn

from .recording import ModuleCall, Recording, TracedValue
from .traced_layer import (
    MATRIX_PRODUCTS,
    TracedLayer,
    collect_ancestors,
    output_states,
    states_of,
    strip_shape,
)

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


@dataclass
class LayerList:
    """A list of modules that run one after the other.

    Parameters
    ----------
    path : str
    layers : tuple of TracedLayer
    attention_count : int
        How many of them run attention.
    between : str
        What mixes positions between them; empty if nothing does.
    changed_steps : list of int
        Layers whose output is changed before the next layer reads it.
    problems : list of str
        Why it is no stack of layers.
    """

    path: str
    layers: tuple[TracedLayer, ...]
    attention_count: int
    between: str = ""
    changed_steps: list[int] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def find_layer_lists(root: nn.Module, recording: Recording) -> list[LayerList]:
    """Find the lists of layers in a recorded forward pass, each outside all others.

    Examples
    --------
    >>> from speechmix.extensions.tracing.recording import record_forward_pass
    >>> import torch
    >>> class Chain(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))
    ...     def forward(self, x):
    ...         for layer in self.layers:
    ...             x = layer(x)
    ...         return x
    >>> chain = Chain()
    >>> recording = record_forward_pass(chain, lambda: chain(torch.ones(1, 2)))
    >>> [(each.path, len(each.layers)) for each in find_layer_lists(chain, recording)]
    [('layers', 3)]
    """
    layer_lists: list[LayerList] = []
    for path, module in root.named_modules():
        if any(path.startswith(f"{outer.path}.") for outer in layer_lists):
            continue
        if isinstance(module, nn.ModuleList | nn.Sequential) and len(module):
            layer_list = _read_list(path, module, recording)
            if layer_list is not None:
                layer_lists.append(layer_list)
    return layer_lists


def _read_list(
    path: str, modules: nn.ModuleList | nn.Sequential, recording: Recording
) -> LayerList | None:
    calls = [recording.calls_of(module) for module in modules]
    if any(len(calls_of_one) != 1 for calls_of_one in calls):
        return None
    layers = [_make_layer(recording, call) for (call,) in calls]
    complete_layers = tuple(layer for layer in layers if layer is not None)
    if len(complete_layers) < len(layers):
        return None
    starts = [layer.call.start for layer in complete_layers]
    if starts != sorted(starts):
        return None
    counts = sum(has_attention(layer) for layer in complete_layers)
    layer_list = LayerList(path, complete_layers, counts)
    for index, (layer, following) in enumerate(pairwise(complete_layers)):
        _check_step(layer_list, index, layer.output, following.states, recording)
    return layer_list


def _make_layer(recording: Recording, call: ModuleCall) -> TracedLayer | None:
    states, output = states_of(call), output_states(call)
    if states is None or output is None:
        return None
    return TracedLayer(recording, call, states, output)


def _check_step(
    layer_list: LayerList,
    index: int,
    output: TracedValue,
    states: TracedValue,
    recording: Recording,
) -> None:
    """Note what happens to states between a layer and the next."""
    if strip_shape(states) is strip_shape(output):
        return
    region = collect_ancestors((states,), oldest=output.index)
    if output not in region:
        layer_list.problems.append(f"layer {index + 1} does not read the output of layer {index}")
        return
    makers = [
        call
        for call in recording.calls
        if call.outputs and call.outputs[0] in region and call.start > output.index
    ]
    if any(isinstance(call.module, nn.Conv1d) for call in makers) and index == 0:
        layer_list.between = "a convolution behind its first layer"
    else:
        layer_list.changed_steps.append(index)


# In the reason of each refusal that no table can help.
NOT_DEFINED = "Value Zeroing is not defined there"

# Functions that a kind of layer calls and others do not; the first kind that fits is named.
_KINDS = (
    (
        ("fft_fft", "fft_fftn", "fft_rfft", "fftn", "fft"),
        "Fourier mixing: positions are mixed by a Fourier transform",
    ),
    (
        ("conv1d", "cumsum", "logcumsumexp", "segment_sum"),
        "a state-space or convolution layer: positions are mixed by a scan or a convolution",
    ),
    (
        ("argsort", "sort"),
        "hash attention: positions are sorted into buckets, and no attention call runs on all of them",
    ),
)


def explain_missing_attention(layer_list: LayerList) -> str:
    """Say why a list of layers has no table: no attention runs in (some of) its layers."""
    layers = [layer for layer in layer_list.layers if not has_attention(layer)]
    names = {value.operation for layer in layers for value in layer.values}
    for functions, reason in _KINDS:
        if names & set(functions):
            return f"{reason} ({NOT_DEFINED})"
    return "neither torch's function nor a product behind a softmax was found"


def describe_masks(layer_list: LayerList, *, is_causal: bool) -> str:
    """Describe the mask of a list's first attention blocks, as far as the traced length shows it."""
    kinds: dict[str, None] = {}
    for layer in layer_list.layers:
        operation = next(iterate_operations(layer))
        allowed = _allowed_positions(operation)
        if kind := _describe_mask(allowed, layer.states.tensor.shape[-2]):
            kinds[kind] = None
    default = "causal" if is_causal else "every position sees all"
    return " or ".join(kinds) or default


def _allowed_positions(operation: AttentionOperation) -> Tensor | None:
    """Which source each target may see [Q, K]; None where no call of torch's function says."""
    value = operation.value
    if operation.scores is not None:
        weights = value.sources[0].tensor
        return (weights > 0).flatten(0, -3).any(dim=0)
    if operation.query is None or operation.key is None:
        return None
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    arguments = {**dict(zip(names, value.arguments, strict=False)), **value.keywords}
    mask = arguments.get("attn_mask")
    shape = operation.query.tensor.shape[-2], operation.key.tensor.shape[-2]
    allowed = torch.ones(shape, dtype=torch.bool)
    if arguments.get("is_causal"):
        allowed = allowed.tril()
    if isinstance(mask, Tensor):
        is_seen = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
        allowed = allowed & is_seen.expand(*is_seen.shape[:-2], *shape).flatten(0, -3).any(dim=0)
    return allowed


def _describe_mask(allowed: Tensor | None, length: int) -> str:
    """Words for a mask; empty for all positions, or all before."""
    if allowed is None:
        return ""
    size = allowed.shape[0]
    if size != length:  # longer where one chunk is padded
        return f"chunks of {size}"
    if (
        size != allowed.shape[1]
        or allowed.all()
        or torch.equal(allowed, allowed.new_ones(size, size).tril())
    ):
        return ""
    distance = torch.arange(size)[:, None] - torch.arange(size)
    before, behind = int(distance[allowed].max()), int(-distance[allowed].min())
    if torch.equal(allowed, (distance <= before) & (-distance <= behind)):
        return f"a window of {before} positions before" + f" and {behind} behind" * bool(behind)
    last = torch.where(allowed, torch.arange(size), -1).max(dim=1).values
    chunk = int((last == last[0]).sum())
    ends = ((torch.arange(size) // chunk + 1) * chunk - 1).clamp(max=size - 1)
    if torch.equal(last, ends):
        first = torch.where(allowed, torch.arange(size), size).min(dim=1).values
        context = int((torch.arange(size) // chunk * chunk - first).max())
        return f"chunks of {chunk}" + f" with {context} positions before" * bool(context)
    return "a mask of another form"
