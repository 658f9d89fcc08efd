"""Name the stacks that were found: which list of layers is the encoder, which the decoder.

In: lists of layers with their descriptions. Out: `StackSpec`s by name, and sentences about them.

What surrounds a list of layers: the norm behind it, whether later positions are masked, which
arguments of a layer have no axis of clips.

Masks are found by an experiment: the last position is changed where it enters the first layer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from ...adapters.capture.forward_pass import arguments_by_name
from ...adapters.families.specs import StackSpec
from ...adapters.transformers_types import HookArguments, HookKeywords, ModelOutput
from .attention_search import find_attention_blocks
from .layer_description import LayerDescription
from .layer_lists import LayerList, describe_masks
from .recording import ModuleCall, Recording, TracedValue, iterate_tensors, record_forward_pass
from .traced_layer import (
    TracedLayer,
    UntracedPartError,
    collect_ancestors,
    depends_on,
    is_norm_call,
    strip_shape,
)


@dataclass
class TracedStack:
    """A list of layers with the description that all of them share."""

    layer_list: LayerList
    description: LayerDescription
    spec: StackSpec

    def feeds(self, other: TracedStack) -> bool:
        """Return True if this stack's output enters another, through its states or its
        cross-attention."""
        output, layer = self.layer_list.layers[-1].output, other.layer_list.layers[0]
        readers = [
            layer.states,
            *(block.value_input for block in find_attention_blocks(layer, by_function=True)),
        ]
        return any(depends_on(value, output) for value in readers)


@dataclass
class StackNames:
    """Stacks by their names, their heads, and what is said of them.

    Encoders have no cross-attention and, if they are causal, read no tokens or are followed by a
    decoder.
    """

    stacks: dict[str, StackSpec] = field(default_factory=dict)
    heads: dict[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    unknowns: list[str] = field(default_factory=list)

    @classmethod
    def find(
        cls,
        traced_stacks: list[TracedStack],
        failed: list[LayerList],
        inputs: Mapping[str, Tensor],
        recording: Recording,
    ) -> StackNames:
        """Name stacks in the order they were traced.

        Parameters
        ----------
        failed : list of LayerList
            Lists with attention that were not understood: what reads their states is no encoder.
        """
        result, tokens = cls(), _find_tokens(inputs, recording)
        for index, stack in enumerate(traced_stacks):
            states = stack.layer_list.layers[0].states
            later = [x for x in traced_stacks[index + 1 :] if x.spec.causal and stack.feeds(x)]
            reads_tokens = not later and any(depends_on(states, value) for value in tokens)
            before = [x.path for x in failed if depends_on(states, x.layers[-1].output)]
            result._add(stack, reads_tokens=reads_tokens, unknown_source="".join(before[:1]))
        return result

    def _add(self, stack: TracedStack, *, reads_tokens: bool, unknown_source: str) -> None:
        spec, description = stack.spec, stack.description
        cross = description.cross_indices
        name = "decoder" if spec.causal and (cross or reads_tokens) else "encoder"
        problem = ""
        if cross and not spec.causal:
            problem = "cross-attention without a causal mask (a projector), no stack of the table"
        elif unknown_source and name == "encoder":
            problem = f"it reads the states of {unknown_source}, which was not understood"
        elif name in self.stacks:
            problem = f"a second {name}, after {self.stacks[name].layers}; a table has one"
        if problem:
            self.unknowns.append(f"{spec.layers}: {problem}")
            return
        self.stacks[name] = replace(spec, name=name)
        self.heads[name] = description.heads[0]
        if cross:
            self.stacks["cross"] = replace(spec, name="cross", block_index=cross[0], causal=False)
            self.heads["cross"] = description.heads[cross[0]]
        self.findings.append(_describe_stack(self.stacks[name], stack))

    def in_order(self) -> tuple[StackSpec, ...]:
        """Return the stacks in the order of tables."""
        return tuple(
            self.stacks[name] for name in ("encoder", "decoder", "cross") if name in self.stacks
        )


def _find_tokens(inputs: Mapping[str, Tensor], recording: Recording) -> list[TracedValue]:
    """The ids among the model's inputs."""
    ids = [x for name, x in inputs.items() if name.endswith("ids")]
    return [
        value
        for value in recording.values
        if value.operation == "input" and any(_is_equal(value.tensor, x) for x in ids)
    ]


def _is_equal(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


def _describe_stack(spec: StackSpec, stack: TracedStack) -> str:
    description = stack.description
    heads, key_heads = description.heads[0], description.key_heads[0]
    words = [
        f"{spec.name}: {len(stack.layer_list.layers)} layers in {spec.layers}",
        f"{spec.norm_order}-norm",
        f"final norm {spec.final_norm or 'none'}",
        describe_masks(stack.layer_list, is_causal=spec.causal),
    ]
    if key_heads and key_heads != heads:
        words.append(f"{heads} heads share {key_heads} heads of keys and values")
    if description.cross_indices:
        words.append(f"cross-attention in block {description.cross_indices[0]}")
    if spec.parallel:
        words.append("attention and feed-forward in parallel")
    if spec.convolution:
        words.append(f"convolution {spec.convolution.depthwise}")
    return ", ".join(words)


_POOLING = frozenset(("avg_pool1d",))
_TOLERANCE = 1e-5


def find_final_norm(
    root: nn.Module, recording: Recording, layer_list: LayerList
) -> tuple[str | None, bool]:
    """Return the path of the norm that reads the last layer's output, and whether positions are
    averaged in front of it."""
    last, holder = layer_list.layers[-1], layer_list.path.rpartition(".")[0]
    for call in recording.calls:
        parent = call.path.rpartition(".")[0]
        is_outside = parent == holder or f"{holder}.".startswith(f"{parent}.") or not parent
        if call.start <= last.call.stop or not is_outside or not is_norm_call(call):
            continue
        states = strip_shape(call.inputs[0])
        if states is strip_shape(last.output):
            return call.path, False
        if _strip_pooling(states) is strip_shape(last.output):
            return call.path, True
    return None, False


def _strip_pooling(value: TracedValue) -> TracedValue:
    while value.operation in _POOLING:
        value = strip_shape(value.sources[0])
    return value


def is_causal_list(layer_list: LayerList, run: Callable[[], ModelOutput]) -> bool:
    """Return True if no position of the last layer's output depends on a later one of the first
    layer's input.

    Raises
    ------
    UntracedPartError
        If there are too few positions to see that.
    """
    first, last = layer_list.layers[0], layer_list.layers[-1]
    if first.states.tensor.shape[-2] < 3:
        raise UntracedPartError(f"{layer_list.path}: fewer than 3 positions ran through it")
    length = first.states.tensor.shape[-2]
    reaches_earlier = reaches_itself = False
    # the last may be padding, which others do not see; one of two is not the first of a chunk
    for position in (length // 2, length // 2 + 1, length - 1):
        changed = _run_changed(layer_list, run, position)
        change, size = (changed - last.output.tensor).abs(), last.output.tensor.abs().max()
        reaches_earlier |= bool(change[..., :position, :].max() > _TOLERANCE * size)
        reaches_itself |= bool(change[..., position, :].max() > _TOLERANCE * size)
    if not reaches_itself:
        raise UntracedPartError(
            f"{layer_list.path}: a change of a position's states changes nothing"
        )
    return not reaches_earlier


def is_positionwise_step(layer_list: LayerList, index: int, run: Callable[[], ModelOutput]) -> bool:
    """Return True if what changes states between a layer and the next takes each position by itself."""
    layer, following = layer_list.layers[index], layer_list.layers[index + 1]
    position = following.states.tensor.shape[-2] // 2
    reached: list[Tensor] = []

    def change_output(module: nn.Module, args: HookArguments, output: ModelOutput) -> ModelOutput:
        states = next(iterate_tensors(output))
        if isinstance(output, Tensor):
            return _change_position(states, position)
        return (_change_position(states, position), *output[1:])

    def keep_input(module: nn.Module, args: HookArguments, kwargs: HookKeywords) -> None:
        reached.append(next(iterate_tensors((args, kwargs))).clone())

    hooks = [
        layer.call.module.register_forward_hook(change_output),
        following.call.module.register_forward_pre_hook(keep_input, with_kwargs=True),
    ]
    _run_with_hooks(hooks, run)
    change = (reached[0] - following.states.tensor).abs()
    change[..., position, :] = 0
    return bool(change.max() <= _TOLERANCE * following.states.tensor.abs().max())


def _run_changed(layer_list: LayerList, run: Callable[[], ModelOutput], position: int) -> Tensor:
    """The last layer's output where one position is changed in the first layer's input."""
    outputs: list[Tensor] = []

    def change_input(
        module: nn.Module, args: HookArguments, kwargs: HookKeywords
    ) -> tuple[HookArguments, HookKeywords]:
        if args:
            return (_change_position(args[0], position), *args[1:]), kwargs
        name = next(iter(kwargs))
        return args, {**kwargs, name: _change_position(kwargs[name], position)}

    def keep_output(module: nn.Module, args: HookArguments, output: ModelOutput) -> None:
        outputs.append(next(iterate_tensors(output)).clone())

    first, last = layer_list.layers[0].call.module, layer_list.layers[-1].call.module
    hooks = [
        first.register_forward_pre_hook(change_input, with_kwargs=True),
        last.register_forward_hook(keep_output),
    ]
    _run_with_hooks(hooks, run)
    return outputs[0]


def _change_position(states: Tensor, position: int) -> Tensor:
    """Add noise to the states of one position."""
    changed = states.clone()
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(changed[..., position, :].shape, generator=generator).to(changed)
    changed[..., position, :] += 3 * states.abs().mean() * noise
    return changed


def _run_with_hooks(
    hooks: Sequence[torch.utils.hooks.RemovableHandle], run: Callable[[], ModelOutput]
) -> None:
    try:
        with torch.no_grad():
            run()
    finally:
        for hook in hooks:
            hook.remove()


def find_shared_arguments(
    layer_list: LayerList, root: nn.Module, run_twice: Callable[[], ModelOutput]
) -> tuple[str, ...]:
    """Find the tensors among a layer's arguments that have no axis of clips.

    They have the same shape for two clips as for one, and the layer either cannot take one for each
    clip, or they begin with an axis of something else.

    Parameters
    ----------
    run_twice : callable
        Runs the model on two clips.
    """
    first = layer_list.layers[0]
    calls = record_forward_pass(root, run_twice).calls_of(first.call.module)
    if len(calls) != 1:
        return ()
    single, double = (
        arguments_by_name(call.module, call.arguments, call.keywords)[1]
        for call in (first.call, calls[0])
    )
    read = {id(x) for value in first.values for x in iterate_tensors(value.arguments)}
    read |= {id(x) for value in first.values for x in iterate_tensors(value.keywords)}
    return tuple(
        name
        for name, x in single.items()
        if isinstance(x, Tensor)
        and x.ndim >= 2
        and id(x) in read
        and isinstance(double.get(name), Tensor)
        and double[name].shape == x.shape
        and (len(x) != 1 or not _can_repeat(calls[0], name))
    )


def _can_repeat(call: ModuleCall, name: str) -> bool:
    """Whether a layer that ran on two clips takes an argument once for each."""
    states, arguments = arguments_by_name(call.module, call.arguments, call.keywords)
    repeated = arguments[name].expand(len(states), *arguments[name].shape[1:])
    try:
        with torch.no_grad():
            output = next(iterate_tensors(call.module(states, **{**arguments, name: repeated})))
    except Exception:  # it takes one for all clips
        return False
    expected = call.outputs[0].tensor
    return output.shape == expected.shape and bool(
        (output - expected).abs().max() <= _TOLERANCE * expected.abs().max()
    )


def find_capped_scores(layer: TracedLayer) -> list[str]:
    """List what scores pass through before the softmax that torch's own attention function cannot
    compute.

    In: a layer recorded under "eager".
    """
    operations = []
    for value in layer.values:
        if value.operation != "softmax" or value.tensor.ndim < 3:
            continue
        operations += [
            ancestor.operation
            for ancestor in collect_ancestors((value.sources[0],), oldest=layer.call.start)
            if ancestor.operation == "tanh"
        ]
    return sorted(set(operations))
