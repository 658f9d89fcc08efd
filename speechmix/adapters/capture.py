"""One forward pass of an unmodified model, block by block. Hooks for measuring are here alone
(intervene.py has those that change something).

In: a `Model`'s stacks and a function that is given every attention block of interest (`Block`) *while the pass runs*, so
that no more than one layer's tensors are kept.

How it is caught: while an attention module runs, and only then, a `TorchFunctionMode` reads queries, keys and values off
the call of torch's own attention functions (transformers models run under "sdpa" meanwhile; WavLM calls
`multi_head_attention_forward`). Nothing is patched globally, and everything is undone on leaving.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ..errors import ModelError
from .block import AttentionCall, Block, Trace, first_output
from .layers import Layer, Stack


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
        Cut the hidden states to so many positions at the first layer (self-check of fixed-window encoders).
    """

    stacks: list[Stack]
    on_block: Callable[[Block], None]
    layers: Collection[int] | None = None
    max_positions: int | None = None

    def __post_init__(self):
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
                self._hook(stack.layers[0].module.register_forward_pre_hook(self._cut, with_kwargs=True))
        for module, asked in by_module.items():
            self._watch(module, asked)
        return self

    def __exit__(self, *exc_info) -> None:
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

    def _hook(self, handle) -> None:
        self._exit.callback(handle.remove)

    def _watch(self, module: nn.Module, asked: list[tuple[Stack, int]]) -> None:
        """Hook one layer: its input, each attention block in it, the projections replay keeps, its output."""
        traces: list[Trace] = []

        def before_layer(module, args, kwargs):
            if not self._paused:
                hidden, kwargs = arguments_by_name(module, args, kwargs)
                traces.append(Trace(hidden, kwargs))

        def after_layer(module, args, kwargs, output):
            if self._paused:
                return
            trace = traces.pop()
            for stack, index in asked:
                if stack.plan.block not in trace.calls:
                    raise ModelError(
                        f"{stack.name} layer {index}: {stack.plan.blocks[stack.plan.block].module!r} called neither "
                        "scaled_dot_product_attention nor multi_head_attention_forward, though the model was run as "
                        "attn_implementation='sdpa': either this is not the attention module, or the architecture computes "
                        "attention by code of its own, which cannot be read"
                    )
                states = first_output(output)
                for clip in range(len(states)):
                    block = Block(self, stack, index, trace.of(clip), states[clip], clip)
                    with self.paused():
                        self.on_block(block)

        self._hook(module.register_forward_pre_hook(before_layer, with_kwargs=True))
        self._hook(module.register_forward_hook(after_layer, with_kwargs=True))
        stack, index = asked[0]
        self._watch_parts(stack.layers[index], stack.plan.norm_order == "pre", traces)

    def _watch_parts(self, layer: Layer, pre_norm: bool, traces: list[Trace]) -> None:
        """Hook what is in a layer; stacks that share its module share these."""
        for number, attention in enumerate(layer.attentions):
            self._watch_attention(attention.module, number, traces)
            before_residual = attention.norm if pre_norm and attention.norm else attention.module
            self._watch_residual(before_residual, number, traces)
            self._keep((attention.output, *((attention.key, attention.value) if number else ())), traces)
        for part in layer.feed_forwards:
            self._keep((part.up, *((part.gate,) if part.gate else ()), part.down), traces)

    def _watch_attention(self, module: nn.Module, number: int, traces: list[Trace]) -> None:
        def before(module, args, kwargs):
            if not self._paused:
                self._reading.enter_context(_Reader(traces[-1], number))

        def after(module, args, kwargs, output):
            if not self._paused:
                self._reading.close()
                traces[-1].outputs[number] = output if isinstance(output, tuple) else (output,)

        self._hook(module.register_forward_pre_hook(before, with_kwargs=True))
        self._hook(module.register_forward_hook(after, with_kwargs=True))

    def _keep(self, projections: Iterable[nn.Module], traces: list[Trace]) -> None:
        """Keep what projections give, which nobody need compute again."""

        def keep(projection, args, output):
            if not self._paused:
                traces[-1].projections[projection] = output

        for projection in projections:
            self._hook(projection.register_forward_hook(keep))

    def _watch_residual(self, module: nn.Module, number: int, traces: list[Trace]) -> None:
        """Keep the state that a block's output is added to: what enters its norm (pre-norm) or the block (post-norm)."""

        def before(module, args, kwargs):
            if not self._paused:
                traces[-1].residuals[number] = _bare(args, kwargs)[0][0]

        self._hook(module.register_forward_pre_hook(before, with_kwargs=True))

    def _cut(self, module, args, kwargs):
        args, kwargs = _bare(args, kwargs)
        return (args[0][:, : self.max_positions], *args[1:]), kwargs


class _Reader(TorchFunctionMode):
    """Reads queries, keys and values off the first of torch's attention functions that an attention module calls."""

    def __init__(self, trace: Trace, number: int):
        super().__init__()
        self._trace, self._number = trace, number

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self._number not in self._trace.calls:
            if func is F.scaled_dot_product_attention:
                self._trace.calls[self._number] = _read_sdpa(result, *args, **kwargs)
            elif func is F.multi_head_attention_forward:
                self._trace.calls[self._number] = [read_multi_head(*args, **kwargs)]
        return result


def _read_sdpa(
    context, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
) -> list[AttentionCall]:
    """The call of each clip of the batch."""
    groups = query.shape[1] // key.shape[1]  # grouped-query attention: fewer key and value heads
    if groups > 1:
        key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    mask = None if attn_mask is None else attn_mask.expand(len(query), *attn_mask.shape[-3:])
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    return [
        AttentionCall(
            query[clip],
            key[clip],
            value[clip],
            None if mask is None else mask[clip],
            scale,
            is_causal,
            seen.transpose(0, 1),
        )
        for clip, seen in enumerate(context)
    ]


def read_multi_head(
    query,
    key,
    value,
    embed_dim,
    num_heads,
    in_proj_weight,
    in_proj_bias,
    bias_k,
    bias_v,
    add_zero_attn,
    dropout_p,
    out_proj_weight,
    out_proj_bias,
    training=True,
    key_padding_mask=None,
    need_weights=True,
    attn_mask=None,
    use_separate_proj_weight=False,
    q_proj_weight=None,
    k_proj_weight=None,
    v_proj_weight=None,
    **_,
) -> AttentionCall:
    """Project as torch does. The weights it returns are averaged over heads (WavLM hands those on), so they are not used."""
    if query.shape[1] != 1:
        raise ModelError(f"this model's attention is read for one clip at a time, found a batch of {query.shape[1]}")
    if bias_k is not None or bias_v is not None or add_zero_attn:
        raise ModelError("attention with bias_k, bias_v or add_zero_attn has sources that are no frames: not supported")
    if not use_separate_proj_weight:
        q_proj_weight, k_proj_weight, v_proj_weight = in_proj_weight.chunk(3)
    biases = in_proj_bias.chunk(3) if in_proj_bias is not None else (None,) * 3
    query, key, value = (
        F.linear(x[:, 0], weight, bias).unflatten(-1, (num_heads, -1)).transpose(0, 1)  # [T, 1, D] -> [H, T, d]
        for x, weight, bias in zip(
            (query, key, value), (q_proj_weight, k_proj_weight, v_proj_weight), biases, strict=True
        )
    )
    mask = attn_mask
    if mask is not None and mask.dtype == torch.bool:  # here True means "left out"
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(mask, -torch.inf)
    if key_padding_mask is not None:
        padding = key_padding_mask[0]
        if padding.dtype == torch.bool:
            padding = torch.zeros_like(padding, dtype=query.dtype).masked_fill(padding, -torch.inf)
        mask = padding[None, None] if mask is None else mask + padding
    return AttentionCall(query, key, value, mask, (embed_dim // num_heads) ** -0.5, False, None)


@contextmanager
def attention_readable(module: nn.Module) -> Iterator[None]:
    """Let a transformers model run under torch's "sdpa" attention, whatever it was loaded with."""
    configs: dict[int, tuple[Any, str]] = {}
    for part in module.modules():
        config = getattr(part, "config", None)
        if config is not None and getattr(config, "_attn_implementation", None) not in (None, "sdpa"):
            configs[id(config)] = (config, config._attn_implementation)
    for config, _ in configs.values():
        config._attn_implementation = "sdpa"
    try:
        yield
    finally:
        for config, before in configs.values():
            config._attn_implementation = before


def arguments_by_name(layer: nn.Module, args: tuple, kwargs: dict) -> tuple[Any, dict]:
    """Hidden states, and all that a layer was given beside them by name."""
    args, kwargs = _bare(args, kwargs)
    names = list(inspect.signature(layer.forward).parameters)
    return args[0], {**dict(zip(names[1:], args[1:], strict=False)), **kwargs}


def _bare(args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Hidden states first, wherever they were passed; no cache (replay must not write to it)."""
    kwargs = dict(kwargs)
    if not args:
        args = (kwargs.pop("hidden_states"),)
    return args, kwargs
