"""Find a model's lists of layers: modules that run once each, in order, each on the output of the one
before.

In: the root module and a recording. Out: a `LayerList` for each, outermost lists first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from torch import nn

from .attention_operations import has_attention
from .recording import ModuleCall, Recording, TracedValue
from .traced_layer import TracedLayer, output_states, states_of
from .value_graph import collect_ancestors, strip_shape


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
