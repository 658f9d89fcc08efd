"""One forward pass of an unmodified model, block by block. The only place with hooks.

In: a `Model`, its inputs, and a function that is given every attention block of interest *while the pass runs*, so that
no more than one layer's tensors are kept. Out of each block (`Block`): attention weights of chosen rows, values, the
layer's output states, and `replay`, which runs the rest of the layer on rows whose attention output was changed.

How it is caught: hooks mark which attention module runs, and a `TorchFunctionMode` reads queries, keys and values off
the call of torch's own attention functions (transformers models run under "sdpa" meanwhile; WavLM calls
`multi_head_attention_forward`). Nothing is patched globally, and everything is undone on leaving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ..errors import ModelError
from .blocks import Stack, submodule


@dataclass
class AttentionCall:
    """Queries, keys and values of one attention block, as they entered torch's attention function.

    Shapes: query [H, Q, d], key and value [H, K, d], mask broadcastable to [H, Q, K] (bool: True takes part; float:
    added), context [Q, H, d] (attention-weighted values, before the output projection) or None.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    scale: float
    causal: bool
    context: Tensor | None

    def weights(self, rows: Tensor | None = None) -> Tensor:
        """Softmax attention weights [H, R, K] of the chosen rows (all of them for None)."""
        query = self.query if rows is None else self.query[:, rows]
        scores = query @ self.key.transpose(1, 2) * self.scale
        if self.mask is not None:
            mask = self.mask if rows is None or self.mask.shape[-2] == 1 else self.mask[..., rows, :]
            scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        if self.causal:
            positions = torch.arange(self.query.shape[1], device=query.device) if rows is None else rows
            later = torch.arange(scores.shape[-1], device=query.device) > positions[:, None]
            scores = scores.masked_fill(later, -torch.inf)
        return scores.softmax(dim=-1)


@dataclass
class _Trace:
    """What has been seen of one layer so far in the pass."""

    hidden: Tensor
    args: tuple
    kwargs: dict
    calls: dict[int, AttentionCall] = field(default_factory=dict)
    outputs: dict[int, tuple] = field(default_factory=dict)
    projections: dict[nn.Module, Tensor] = field(default_factory=dict)


class Block:
    """One attention block of one layer, captured: what a measure sees.

    Axis letters: H heads, Q target positions, K source positions, d width of a head, D width of the model.

    Attributes
    ----------
    stack : Stack
    layer : int
    """

    def __init__(self, capture: Capture, stack: Stack, layer: int, trace: _Trace, output: Tensor):
        self.stack, self.layer = stack, layer
        self._capture, self._trace, self._output = capture, trace, output
        self._call = trace.calls[stack.plan.block]

    @property
    def causal(self) -> bool:
        return self.stack.plan.causal

    @property
    def n_targets(self) -> int:
        return self._call.query.shape[1]

    @property
    def n_sources(self) -> int:
        return self._call.key.shape[1]

    @property
    def values(self) -> Tensor:
        """Value vectors, bias in, [H, K, d]."""
        return self._call.value

    def attention(self, rows: Tensor | None = None) -> Tensor:
        """Attention weights [H, R, K] of the chosen target positions."""
        return self._call.weights(rows)

    @cached_property
    def context(self) -> Tensor:
        """Attention-weighted values before the output projection, [Q, H, d]."""
        if self._call.context is not None:
            return self._call.context
        return (self.attention() @ self.values).transpose(0, 1)

    @property
    def output_weight(self) -> Tensor:
        """Output projection W_O split by head, [H, d, D]."""
        weight = submodule(self._layer, self._plan.output, what="output projection").weight  # [D, H d]
        return weight.T.reshape(self.values.shape[0], -1, weight.shape[0])

    def states(self, rows: Tensor) -> Tensor:
        """Layer output [R, D] at the chosen rows; behind the stack's final norm if this is its last layer."""
        return self._finish(self._output[rows])

    def replay(self, rows: Tensor, context: Tensor) -> Tensor:
        """Run the layer's own modules on chosen rows, with the attention context replaced.

        Parameters
        ----------
        rows : Tensor [P]
            Target positions, in any order and as often as wanted.
        context : Tensor [P, H, d]
            What attention gives each of them instead, before the output projection.

        Returns
        -------
        Tensor [P, D]
            Layer output, behind the final norm if this is the stack's last layer.
        """
        trace, studied = self._trace, self.stack.plan.block
        with ExitStack() as stubs:
            stubs.enter_context(self._capture.paused())
            for index, plan in enumerate(self.stack.plan.blocks):
                module = submodule(self._layer, plan.module, what="attention")
                if index > studied:  # runs for real on the changed rows; its keys and values are as before
                    for path in (plan.key, plan.value):
                        projection = submodule(self._layer, path, what="projection")
                        stubs.enter_context(_stubbed(projection, trace.projections[projection]))
                    continue
                first, *rest = trace.outputs[index]
                if index < studied:
                    first = first[:, rows]
                else:
                    output = submodule(self._layer, plan.output, what="output projection")
                    first = context.flatten(1)[None]
                    if plan.output.startswith(f"{plan.module}."):
                        first = output(first)
                stubs.enter_context(_stubbed(module, (first, *rest)))
            states = self._layer.forward(trace.hidden[:, rows], *trace.args, **trace.kwargs)
        return self._finish(_first(states)[0])

    @property
    def _layer(self) -> nn.Module:
        return self.stack.layers[self.layer]

    @property
    def _plan(self):
        return self.stack.plan.blocks[self.stack.plan.block]

    def _finish(self, states: Tensor) -> Tensor:
        last = self.layer == len(self.stack) - 1
        return self.stack.final_norm(states) if last and self.stack.final_norm is not None else states


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
    layers: list[int] | None = None
    max_positions: int | None = None

    def __post_init__(self):
        self._current: tuple[_Trace, int] | None = None
        self._paused = False
        self._exit = ExitStack()

    def __enter__(self) -> Capture:
        by_layer: dict[nn.Module, list[tuple[Stack, int]]] = {}
        for stack in self.stacks:
            for index, layer in enumerate(stack.layers):
                if self.layers is None or index in self.layers:
                    by_layer.setdefault(layer, []).append((stack, index))
            if self.max_positions and stack.name == "encoder":
                self._hook(stack.layers[0].register_forward_pre_hook(self._cut, with_kwargs=True))
        for layer, wanted in by_layer.items():
            self._watch(layer, wanted)
        self._exit.enter_context(_Interceptor(self))
        return self

    def __exit__(self, *exc_info) -> None:
        self._exit.close()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """See nothing for a while: the model's modules are run on the side."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    @property
    def open_call(self) -> tuple[_Trace, int] | None:
        """The attention block that is running now and has not been read yet."""
        if self._paused or self._current is None or self._current[1] in self._current[0].calls:
            return None
        return self._current

    def _hook(self, handle) -> None:
        self._exit.callback(handle.remove)

    def _watch(self, layer: nn.Module, wanted: list[tuple[Stack, int]]) -> None:
        """Hook one layer: its input, each attention block in it, the projections replay keeps, its output."""
        traces: list[_Trace] = []
        blocks = wanted[0][0].plan.blocks

        def before_layer(module, args, kwargs):
            if not self._paused:
                args, kwargs = _bare(args, kwargs)
                if args[0].shape[0] != 1:
                    raise ModelError(f"one clip at a time: expected a batch of 1, found {args[0].shape[0]}")
                traces.append(_Trace(args[0], args[1:], kwargs))

        def after_layer(module, args, kwargs, output):
            if self._paused:
                return
            trace = traces.pop()
            for stack, index in wanted:
                if stack.plan.block not in trace.calls:
                    raise ModelError(
                        f"{stack.name} layer {index}: {blocks[stack.plan.block].module!r} called neither "
                        "scaled_dot_product_attention nor multi_head_attention_forward, so its attention cannot be read. "
                        "Load the model with attn_implementation='sdpa'"
                    )
                block = Block(self, stack, index, trace, _first(output)[0])
                with self.paused():
                    self.on_block(block)

        self._hook(layer.register_forward_pre_hook(before_layer, with_kwargs=True))
        self._hook(layer.register_forward_hook(after_layer, with_kwargs=True))
        for number, plan in enumerate(blocks):
            self._watch_attention(layer, plan, number, traces)

    def _watch_attention(self, layer, plan, number: int, traces: list[_Trace]) -> None:
        def before(module, args, kwargs):
            if not self._paused:
                self._current = (traces[-1], number)

        def after(module, args, kwargs, output):
            if not self._paused:
                traces[-1].outputs[number] = output if isinstance(output, tuple) else (output,)
                self._current = None

        module = submodule(layer, plan.module, what="attention")
        self._hook(module.register_forward_pre_hook(before, with_kwargs=True))
        self._hook(module.register_forward_hook(after, with_kwargs=True))
        for path in (plan.key, plan.value) if number else ():

            def keep(projection, args, output):
                if not self._paused:
                    traces[-1].projections[projection] = output

            self._hook(submodule(layer, path, what="projection").register_forward_hook(keep))

    def _cut(self, module, args, kwargs):
        args, kwargs = _bare(args, kwargs)
        return (args[0][:, : self.max_positions], *args[1:]), kwargs


class _Interceptor(TorchFunctionMode):
    """Reads queries, keys and values off torch's attention functions while a watched attention module runs."""

    def __init__(self, capture: Capture):
        super().__init__()
        self._capture = capture

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        opened = self._capture.open_call
        if opened is not None:
            trace, number = opened
            if func is F.scaled_dot_product_attention:
                trace.calls[number] = _read_sdpa(result, *args, **kwargs)
            elif func is F.multi_head_attention_forward:
                trace.calls[number] = _read_multi_head(*args, **kwargs)
        return result


def _read_sdpa(
    context, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False
) -> AttentionCall:
    groups = query.shape[1] // key.shape[1]  # grouped-query attention: fewer key and value heads
    key, value = (x[0].repeat_interleave(groups, dim=0) if groups > 1 else x[0] for x in (key, value))
    mask = None if attn_mask is None else attn_mask.expand(1, *attn_mask.shape[-3:])[0]
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    return AttentionCall(query[0], key, value, mask, scale, is_causal, context[0].transpose(0, 1))


def _read_multi_head(
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
    if bias_k is not None or bias_v is not None or add_zero_attn:
        raise ModelError("attention with bias_k, bias_v or add_zero_attn has sources that are no frames: not supported")
    if not use_separate_proj_weight:
        q_proj_weight, k_proj_weight, v_proj_weight = in_proj_weight.chunk(3)
    biases = in_proj_bias.chunk(3) if in_proj_bias is not None else (None,) * 3
    heads = [
        F.linear(x[:, 0], weight, bias).unflatten(-1, (num_heads, -1)).transpose(0, 1)  # [T, 1, D] -> [H, T, d]
        for x, weight, bias in zip(
            (query, key, value), (q_proj_weight, k_proj_weight, v_proj_weight), biases, strict=True
        )
    ]
    mask = attn_mask
    if mask is not None and mask.dtype == torch.bool:  # here True means "left out"
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(mask, -torch.inf)
    if key_padding_mask is not None:
        padding = key_padding_mask[0]
        if padding.dtype == torch.bool:
            padding = torch.zeros_like(padding, dtype=query.dtype).masked_fill(padding, -torch.inf)
        mask = padding[None, None] if mask is None else mask + padding
    return AttentionCall(*heads, mask, (embed_dim // num_heads) ** -0.5, False, None)


@contextmanager
def attention_readable(module: nn.Module) -> Iterator[None]:
    """Let a transformers model run under torch's "sdpa" attention, whatever it was loaded with."""
    configs: dict[int, tuple[Any, str]] = {}
    for part in module.modules():
        config = getattr(part, "config", None)
        if getattr(config, "_attn_implementation", None) not in (None, "sdpa"):
            configs[id(config)] = (config, config._attn_implementation)
    for config, _ in configs.values():
        config._attn_implementation = "sdpa"
    try:
        yield
    finally:
        for config, before in configs.values():
            config._attn_implementation = before


@contextmanager
def _stubbed(module: nn.Module, result: Any) -> Iterator[None]:
    """Let a module return something given, without running."""
    before = module.__dict__.get("forward")
    module.forward = lambda *args, **kwargs: result
    try:
        yield
    finally:
        if before is None:
            del module.forward
        else:
            module.forward = before


def _bare(args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Hidden states first, wherever they were passed; no cache (replay must not write to it)."""
    kwargs = dict(kwargs)
    if not args:
        args = (kwargs.pop("hidden_states"),)
    return args, kwargs


def _first(output: Any) -> Any:
    return output[0] if isinstance(output, tuple) else output
