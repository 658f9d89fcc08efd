"""One forward pass of an unmodified model, block by block. Hooks for measuring are here alone
(adapters/patching has those that change something).

In: a `Model`'s stacks and a function that is given every attention block of interest (`Block`)
*while the pass runs*, so that no more than one layer's tensors are kept.

How it is caught: while an attention module runs, and only then, queries, keys and values are read
off its call of torch's attention functions (attention_calls.py). Nothing is patched globally, and
everything is undone on leaving.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from torch import nn
from torch.utils.hooks import RemovableHandle

from ...errors import ModelError
from ..binding.bound_layers import Stack
from ..binding.layer_components import AttentionModules, Layer
from ..families.specs import AttentionSpec
from ..transformers_types import Config, HookArguments, HookKeywords, ModelOutput
from .attention_calls import AttentionReader
from .block import Block, first_output
from .packed_states import unpack_states
from .trace import Trace


@dataclass
class Capture:
    """Hooks for one forward pass, as a context manager.

    Parameters
    ----------
    stacks : list of Stack
        What to watch.
    layers : list of int, optional
        Which layers; all for None.
    on_block : callable
        Called with each `Block` as soon as its layer has run.
    max_positions : int, optional
        Cut the hidden states to so many positions at the first layer (self-check of fixed-window
        encoders).
    """

    stacks: list[Stack]
    on_block: Callable[[Block], None]
    layers: Collection[int] | None = None
    max_positions: int | None = None

    def __post_init__(self) -> None:
        self._reading = ExitStack()
        self._paused = False
        self._exit = ExitStack()

    def __enter__(self) -> Capture:
        by_module: dict[nn.Module, list[tuple[Stack, int]]] = {}
        for stack in self.stacks:
            for index, layer in enumerate(stack.layers):
                if self.layers is None or index in self.layers:
                    by_module.setdefault(layer.module, []).append((stack, index))
            if self.max_positions and stack.name == "encoder":
                self._hook(
                    stack.layers[0].module.register_forward_pre_hook(self._cut, with_kwargs=True)
                )
        for module, asked in by_module.items():
            self._watch(module, asked)
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._reading.close()  # left open by an attention module that raised
        self._exit.close()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """See nothing for a while: the model's modules are run on the side."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def _hook(self, handle: RemovableHandle) -> None:
        self._exit.callback(handle.remove)

    def _watch(self, module: nn.Module, asked: list[tuple[Stack, int]]) -> None:
        """Hook one layer: its input, each attention block in it, the projections replay keeps, its
        output."""
        traces: list[Trace] = []

        def before_layer(module: nn.Module, args: HookArguments, kwargs: HookKeywords) -> None:
            if not self._paused:
                hidden, kwargs = arguments_by_name(module, args, kwargs)
                traces.append(Trace(unpack_states(hidden), kwargs, packed=hidden.ndim == 2))

        def after_layer(
            module: nn.Module, args: HookArguments, kwargs: HookKeywords, output: ModelOutput
        ) -> None:
            if self._paused:
                return
            trace = traces.pop()
            for stack, index in asked:
                if stack.spec.block_index not in trace.calls:
                    raise ModelError(
                        _unread(
                            stack.spec.blocks[stack.spec.block_index], f"{stack.name} layer {index}"
                        )
                    )
                states = unpack_states(first_output(output))
                for clip in range(len(states)):
                    block = Block(self, stack, index, trace.of(clip), states[clip], clip)
                    with self.paused():
                        self.on_block(block)

        self._hook(module.register_forward_pre_hook(before_layer, with_kwargs=True))
        self._hook(module.register_forward_hook(after_layer, with_kwargs=True))
        stack, index = asked[0]
        self._watch_parts(stack.layers[index], stack.spec.norm_order == "pre", traces)

    def _watch_parts(self, layer: Layer, pre_norm: bool, traces: list[Trace]) -> None:
        """Hook what is in a layer; stacks that share its module share these."""
        for number, attention in enumerate(layer.attentions):
            self._watch_attention(attention, number, traces)
            before_residual = attention.norm if pre_norm and attention.norm else attention.module
            self._watch_residual(before_residual, number, traces)
            self._keep(
                (attention.output, *((attention.key, attention.value) if number else ())), traces
            )
        for part in layer.feed_forwards:
            self._keep((part.up, *((part.gate,) if part.gate else ()), part.down), traces)
        if layer.convolution is not None:
            of_convolution = layer.convolution
            self._keep(
                (of_convolution.expand, of_convolution.depthwise, of_convolution.contract), traces
            )
            self._keep_entering(of_convolution.depthwise, traces)

    def _watch_attention(
        self, attention: AttentionModules, number: int, traces: list[Trace]
    ) -> None:
        module = attention.module

        def before(module: nn.Module, args: HookArguments, kwargs: HookKeywords) -> None:
            if not self._paused:
                self._reading.enter_context(AttentionReader(traces[-1], number, attention))

        def after(
            module: nn.Module, args: HookArguments, kwargs: HookKeywords, output: ModelOutput
        ) -> None:
            if not self._paused:
                self._reading.close()
                traces[-1].outputs[number] = output

        self._hook(module.register_forward_pre_hook(before, with_kwargs=True))
        self._hook(module.register_forward_hook(after, with_kwargs=True))

    def _keep(self, projections: Iterable[nn.Module], traces: list[Trace]) -> None:
        """Keep what projections give, which nobody need compute again."""

        def keep(projection: nn.Module, args: HookArguments, output: ModelOutput) -> None:
            if not self._paused:
                traces[-1].projections[projection] = (
                    unpack_states(output) if traces[-1].packed else output
                )

        for projection in projections:
            self._hook(projection.register_forward_hook(keep))

    def _keep_entering(self, convolution: nn.Module, traces: list[Trace]) -> None:
        """Keep what enters a convolution: rows that padding sets to zero are zero there."""

        def before(module: nn.Module, args: HookArguments) -> None:
            if not self._paused:
                traces[-1].entered[convolution] = args[0]

        self._hook(convolution.register_forward_pre_hook(before))

    def _watch_residual(self, module: nn.Module, number: int, traces: list[Trace]) -> None:
        """Keep the state that a block's output is added to: what enters its norm (pre-norm) or the
        block (post-norm)."""

        def before(module: nn.Module, args: HookArguments, kwargs: HookKeywords) -> None:
            if not self._paused:
                traces[-1].residuals[number] = unpack_states(_bare(args, kwargs)[0][0])

        self._hook(module.register_forward_pre_hook(before, with_kwargs=True))

    def _cut(
        self, module: nn.Module, args: HookArguments, kwargs: HookKeywords
    ) -> tuple[HookArguments, HookKeywords]:
        args, kwargs = _bare(args, kwargs)
        if (
            args[0].ndim == 2
        ):  # packed: told beside them is where each sequence begins, and no window is fixed
            return args, kwargs
        return (args[0][:, : self.max_positions], *args[1:]), kwargs


def _unread(spec: AttentionSpec, where: str) -> str:
    """Why a module's attention was not seen."""
    if spec.needs_eager:
        return (
            f"{where}: in {spec.module!r} no product of a softmax and values was seen, though the "
            "model was run as "
            "attn_implementation='eager': either this is not the attention module, or it computes "
            "attention in a way that "
            "cannot be read"
        )
    return (
        f"{where}: {spec.module!r} called neither scaled_dot_product_attention nor "
        "multi_head_attention_forward, though the "
        "model was run as attn_implementation='sdpa': either this is not the attention module, or "
        "the architecture computes "
        "attention by code of its own, which cannot be read there; AttentionSpec(needs_eager=True) "
        "reads it off its softmax"
    )


@contextmanager
def use_attention(
    module: nn.Module, implementation: str = "sdpa", *, unless: Collection[str] = ()
) -> Iterator[None]:
    """Let a transformers model run under an attention implementation that can be read, whatever it
    was loaded with.

    Parameters
    ----------
    module : nn.Module
    implementation : str
    unless : collection of str
        Implementations that stay as they are.
    """
    configs = [
        (config, before)
        for config, before in implementations_of(module)
        if before != implementation and before not in unless
    ]
    for config, _ in configs:
        config._attn_implementation = implementation
    try:
        yield
    finally:
        for config, before in configs:
            config._attn_implementation = before


def implementations_of(module: nn.Module) -> list[tuple[Config, str]]:
    """Each config inside a model, once, with the attention implementation that it names."""
    configs: dict[int, tuple[Config, str]] = {}
    for part in module.modules():
        config = getattr(part, "config", None)
        if config is not None and getattr(config, "_attn_implementation", None) is not None:
            configs[id(config)] = (config, config._attn_implementation)
    return list(configs.values())


def arguments_by_name(
    layer: nn.Module, args: HookArguments, kwargs: HookKeywords
) -> tuple[ModelOutput, HookKeywords]:
    """Hidden states, and all that a layer was given beside them by name."""
    args, kwargs = _bare(args, kwargs)
    names = list(inspect.signature(layer.forward).parameters)
    return args[0], {**dict(zip(names[1:], args[1:], strict=False)), **kwargs}


def _bare(args: HookArguments, kwargs: HookKeywords) -> tuple[HookArguments, HookKeywords]:
    """Hidden states first, wherever they were passed; no cache (replay must not write to it)."""
    kwargs = dict(kwargs)
    if not args:
        args = (kwargs.pop("hidden_states"),)
    return args, kwargs
