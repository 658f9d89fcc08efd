"""Run an unmodified model once and capture each attention block with hooks.

Hooks for measuring are here alone (adapters/patching has those that change something).

In: a `Model`'s stacks and a function that is given every attention block of interest (`Block`)
*while the pass runs*, so that no more than one layer's tensors are kept.

How it is caught: while an attention module runs, and only then, queries, keys and values are read
off its call of torch's attention functions (attention_calls.py). Nothing is patched globally, and
everything is undone on leaving.

Hidden states of one forward pass of an unmodified model: what enters a stack's first layer, and
what each layer gives.

In: a `Model` and prepared inputs. Out: for each stack L + 1 states: entry 0 is the input of the
first layer (behind embeddings, positional convolution and whatever norm comes before the layers),
entry l + 1 the output of layer l, layers counted from 0.

The last entry is the last layer's output *behind the stack's final norm*, where it has one: the
rule of every map here (`Block.states`), and of the published code. The `output_hidden_states` of
transformers keep no one rule: that of a wav2vec2 with stable layer norm ends with the raw output,
that of Whisper with the normed one. "cross" has no states of its own: its layers are the decoder's.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ...errors import InputError, ModelError
from ..binding.bound_layers import AttentionModules, Layer, Stack
from ..families.specs import AttentionSpec
from ..model import Model
from ..transformers_types import Config, HookArguments, HookKeywords, ModelOutput, TorchFunction
from .attention_calls import AttentionReader, LayerTrace
from .device_copy import inputs_to_device
from .layer_run import Block, first_output, pack_like, unpack_states


@dataclass
class Capture:
    """Hooks for one forward pass, as a context manager.

    `layers` None means all. `on_block` is called with each `Block` as soon as its layer has run. Where
    several clips share the pass, `on_blocks` is called instead, if it is given: with the blocks of all
    clips, the layer's trace and its output [C, Q, D].
    `max_positions` cuts the hidden states at the first layer (self-check of fixed-window encoders).
    """

    stacks: list[Stack]
    on_block: Callable[[Block], None]
    layers: Collection[int] | None = None
    max_positions: int | None = None
    on_blocks: Callable[[Sequence[Block], LayerTrace, Tensor], None] | None = None

    def __post_init__(self) -> None:
        self._open_readers = ExitStack()
        self._paused = False
        self._hooks = ExitStack()

    def __enter__(self) -> Capture:
        layers_by_module: dict[nn.Module, list[tuple[Stack, int]]] = {}
        for stack in self.stacks:
            for index, layer in enumerate(stack.layers):
                if self.layers is None or index in self.layers:
                    layers_by_module.setdefault(layer.module, []).append((stack, index))
            if self.max_positions and stack.name == "encoder":
                self._add_hook(
                    stack.layers[0].module.register_forward_pre_hook(
                        self._cut_positions, with_kwargs=True
                    )
                )
        for module, watched_layers in layers_by_module.items():
            self._hook_layer(module, watched_layers)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._open_readers.close()  # left open by an attention module that raised
        self._hooks.close()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Record nothing while the block lasts, in which modules are run again."""
        was_paused, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = was_paused

    def _add_hook(self, handle: RemovableHandle) -> None:
        self._hooks.callback(handle.remove)

    def _hook_layer(self, module: nn.Module, watched_layers: list[tuple[Stack, int]]) -> None:
        """Hook one layer: its input, each attention block in it, the projections replay keeps, its
        output."""
        traces: list[LayerTrace] = []

        def before_layer(module: nn.Module, args: HookArguments, kwargs: HookKeywords) -> None:
            if not self._paused:
                hidden, kwargs = arguments_by_name(module, args, kwargs)
                traces.append(LayerTrace(unpack_states(hidden), kwargs, packed=hidden.ndim == 2))

        def after_layer(
            module: nn.Module, args: HookArguments, kwargs: HookKeywords, output: ModelOutput
        ) -> None:
            if self._paused:
                return
            trace = traces.pop()
            for stack, index in watched_layers:
                if stack.spec.block_index not in trace.calls:
                    raise ModelError(
                        _explain_unread_attention(
                            stack.spec.blocks[stack.spec.block_index], f"{stack.name} layer {index}"
                        )
                    )
                states = unpack_states(first_output(output))
                blocks = (
                    Block(self, stack, index, trace.select_clip(clip), states[clip], clip)
                    for clip in range(len(states))
                )
                with self.paused():
                    if self.on_blocks is not None and len(states) > 1:
                        self.on_blocks(tuple(blocks), trace, states)
                        continue
                    for block in blocks:
                        self.on_block(block)

        self._add_hook(module.register_forward_pre_hook(before_layer, with_kwargs=True))
        self._add_hook(module.register_forward_hook(after_layer, with_kwargs=True))
        stack, index = watched_layers[0]
        self._hook_parts(stack.layers[index], stack.spec.norm_order == "pre", traces)

    def _hook_parts(self, layer: Layer, pre_norm: bool, traces: list[LayerTrace]) -> None:
        """Hook the parts of a layer; stacks that share its module share these hooks."""
        for attention_index, attention in enumerate(layer.attentions):
            self._hook_attention(attention, attention_index, traces)
            residual_module = attention.norm if pre_norm and attention.norm else attention.module
            self._record_residual(residual_module, attention_index, traces)
            self._record_outputs(
                (attention.output, *((attention.key, attention.value) if attention_index else ())),
                traces,
            )
        for feed_forward in layer.feed_forwards:
            self._record_outputs(
                (
                    feed_forward.up,
                    *((feed_forward.gate,) if feed_forward.gate else ()),
                    feed_forward.down,
                ),
                traces,
            )
        if layer.convolution is not None:
            convolution = layer.convolution
            self._record_outputs(
                (convolution.expand, convolution.depthwise, convolution.contract), traces
            )
            self._record_input(convolution.depthwise, traces)

    def _hook_attention(
        self, attention: AttentionModules, attention_index: int, traces: list[LayerTrace]
    ) -> None:
        module = attention.module

        def start_reading(module: nn.Module, args: HookArguments, kwargs: HookKeywords) -> None:
            if not self._paused:
                self._open_readers.enter_context(
                    AttentionReader(traces[-1], attention_index, attention)
                )

        def stop_reading(
            module: nn.Module, args: HookArguments, kwargs: HookKeywords, output: ModelOutput
        ) -> None:
            if not self._paused:
                self._open_readers.close()
                traces[-1].outputs[attention_index] = output

        # Before the hooks of a caller that masks the call: the reader then sees the masked one.
        self._add_hook(
            module.register_forward_pre_hook(start_reading, prepend=True, with_kwargs=True)
        )
        self._add_hook(module.register_forward_hook(stop_reading, with_kwargs=True))

    def _record_outputs(self, projections: Iterable[nn.Module], traces: list[LayerTrace]) -> None:
        """Record the outputs of projections, so that nobody computes them again."""

        def record_output(projection: nn.Module, args: HookArguments, output: ModelOutput) -> None:
            if not self._paused:
                traces[-1].projections[projection] = (
                    unpack_states(output) if traces[-1].packed else output
                )

        for projection in projections:
            self._add_hook(projection.register_forward_hook(record_output))

    def _record_input(self, convolution: nn.Module, traces: list[LayerTrace]) -> None:
        """Record a convolution's input, where rows of padding are zero."""

        def record_input(module: nn.Module, args: HookArguments) -> None:
            if not self._paused:
                traces[-1].inputs[convolution] = args[0]

        self._add_hook(convolution.register_forward_pre_hook(record_input))

    def _record_residual(
        self, module: nn.Module, attention_index: int, traces: list[LayerTrace]
    ) -> None:
        """Keep the state that a block's output is added to: what enters its norm (pre-norm) or the
        block (post-norm)."""

        def record_residual(module: nn.Module, args: HookArguments, kwargs: HookKeywords) -> None:
            if not self._paused:
                traces[-1].residuals[attention_index] = unpack_states(
                    _separate_states(args, kwargs)[0][0]
                )

        self._add_hook(module.register_forward_pre_hook(record_residual, with_kwargs=True))

    def _cut_positions(
        self, module: nn.Module, args: HookArguments, kwargs: HookKeywords
    ) -> tuple[HookArguments, HookKeywords]:
        args, kwargs = _separate_states(args, kwargs)
        if (
            args[0].ndim == 2
        ):  # packed: told beside them is where each sequence begins, and no window is fixed
            return args, kwargs
        return (args[0][:, : self.max_positions], *args[1:]), kwargs


def _explain_unread_attention(spec: AttentionSpec, layer_label: str) -> str:
    """Say why a module's attention could not be read."""
    if spec.needs_eager:
        return (
            f"{layer_label}: in {spec.module!r} no product of a softmax and values was seen, though the "
            "model was run as "
            "attn_implementation='eager': either this is not the attention module, or it computes "
            "attention in a way that "
            "cannot be read"
        )
    return (
        f"{layer_label}: {spec.module!r} called neither scaled_dot_product_attention nor "
        "multi_head_attention_forward, though the "
        "model was run as attn_implementation='sdpa': either this is not the attention module, or "
        "the architecture computes "
        "attention by code of its own, which cannot be read there; AttentionSpec(needs_eager=True) "
        "reads it off its softmax"
    )


@contextmanager
def use_attention(
    module: nn.Module, implementation: str = "sdpa", *, exceptions: Collection[str] = ()
) -> Iterator[None]:
    """Run a transformers model under an attention implementation that can be read, whatever it was
    loaded with.

    Implementations in `exceptions` stay as they are.
    """
    # All are set, also those that stay: a config hands what it is given on to those inside it, which
    # come behind it.
    configs = list_attention_implementations(module)
    if all(name == implementation or name in exceptions for _, name in configs):
        configs = []
    for config, name in configs:
        config._attn_implementation = name if name in exceptions else implementation
    try:
        yield
    finally:
        for config, name in configs:
            config._attn_implementation = name


def list_attention_implementations(module: nn.Module) -> list[tuple[Config, str]]:
    """Each config inside a model, once, with the attention implementation that it names."""
    configs: dict[int, tuple[Config, str]] = {}
    for submodule in module.modules():
        config = getattr(submodule, "config", None)
        if config is not None and getattr(config, "_attn_implementation", None) is not None:
            configs[id(config)] = (config, config._attn_implementation)
    return list(configs.values())


def arguments_by_name(
    layer: nn.Module, args: HookArguments, kwargs: HookKeywords
) -> tuple[ModelOutput, HookKeywords]:
    """Return a layer's hidden states, and its other arguments by name."""
    args, kwargs = _separate_states(args, kwargs)
    names = list(inspect.signature(layer.forward).parameters)
    return args[0], {**dict(zip(names[1:], args[1:], strict=False)), **kwargs}


def _separate_states(
    args: HookArguments, kwargs: HookKeywords
) -> tuple[HookArguments, HookKeywords]:
    """Return the arguments with the hidden states first, wherever they were passed."""
    kwargs = dict(kwargs)
    if not args:
        args = (kwargs.pop("hidden_states"),)
    return args, kwargs


Reading = TypeVar("Reading")
INPUT = -1  # where layers are counted from 0: what enters the first of them


def stacks_with_states(model: Model) -> tuple[str, ...]:
    """Stacks that have states of their own, in the model's order."""
    return tuple(name for name in model.stacks if name != "cross")


def hidden_states(
    model: Model,
    inputs: Mapping[str, Tensor],
    read_states: Callable[[str, Tensor], Reading],
    *,
    stacks: Sequence[str] | None = None,
    final_norm: bool = True,
    transform_input: Callable[[Tensor], Tensor] | None = None,
) -> dict[str, list[Reading]]:
    """Read the states of every layer while one forward pass runs.

    Parameters
    ----------
    model : Model
    inputs : mapping of str to Tensor
        Prepared inputs; moved to the model's device and the precision that it computes in.
    read_states : callable
        ``read_states(stack, states)`` is given each state [B, T, D] as soon as it is there, and returns
        what is kept of it: a mean over some positions is small, the states of a long clip in all
        layers are not.
    stacks : sequence of str, optional
        "encoder", "decoder"; all by default.
    final_norm : bool
        False for the last entry as it leaves the last layer, before the stack's final norm.
    transform_input : callable, optional
        Given what enters the first layer of a stack [B, T, D], returns what enters it instead.

    Returns
    -------
    dict of str to list
        What `read_states` returned, L + 1 entries for each stack.

    Raises
    ------
    InputError
        If a stack has no states of its own, or the inputs do not reach it; of several clips, if
        their states are packed.

    Examples
    --------
    >>> planted = speechmix.planted.plant("copy", family="gpt2")
    >>> states = hidden_states(planted.model, planted.item, lambda stack, states: states[0])
    >>> {stack: (len(entries), entries[0].shape[0]) for stack, entries in states.items()}
    {'decoder': (4, 8)}
    """
    names = stacks_with_states(model) if stacks is None else tuple(stacks)
    for name in names:
        if name not in stacks_with_states(model):
            available_stacks = list(stacks_with_states(model))
            raise InputError(
                f"{model.name} has states of its own in {available_stacks}; asked for {name!r}"
            )
    entries: dict[str, list[Reading]] = {name: [] for name in names}
    with model.in_use(model.state_dtype), torch.no_grad(), ExitStack() as hooks:
        clip_count = len(next(iter(inputs.values())))
        for name in names:
            _hook_stack(
                model.stacks[name],
                entries[name],
                read_states,
                final_norm,
                transform_input,
                hooks,
                clip_count,
            )
        model.family.run(
            model.base, inputs_to_device(inputs, model.device, model.state_dtype), names
        )
    return entries


def _hook_stack(
    stack: Stack,
    readings: list[Reading],
    read_states: Callable[[str, Tensor], Reading],
    final_norm: bool,
    transform_input: Callable[[Tensor], Tensor] | None,
    hooks: ExitStack,
    clip_count: int,
) -> None:
    """Hook the input of a stack's first layer and the output of each."""
    last_index = len(stack) - 1

    def read_input(
        module: nn.Module, args: HookArguments, kwargs: HookKeywords
    ) -> tuple[HookArguments, HookKeywords] | None:
        layer_input, keyword_arguments = arguments_by_name(module, args, kwargs)
        if layer_input.ndim == 2 and clip_count > 1:
            raise InputError(
                f"the {stack.name} runs {clip_count} clips in one row of states, which do not say where "
                "one ends: give one at a time"
            )
        states = (
            unpack_states(layer_input)
            if transform_input is None
            else transform_input(unpack_states(layer_input))
        )
        readings.append(read_states(stack.name, states))
        return (
            None
            if transform_input is None
            else ((pack_like(layer_input, states),), keyword_arguments)
        )

    def make_output_hook(index: int) -> TorchFunction:
        def hook(module: nn.Module, args: HookArguments, output: ModelOutput) -> None:
            states = unpack_states(first_output(output))
            if final_norm and index == last_index and stack.final_norm is not None:
                states = stack.final_norm(states)
            readings.append(read_states(stack.name, states))

        return hook

    input_hook = stack.layers[0].module.register_forward_pre_hook(read_input, with_kwargs=True)
    hooks.callback(input_hook.remove)
    for index, layer in enumerate(stack.layers):
        hooks.callback(layer.module.register_forward_hook(make_output_hook(index)).remove)
