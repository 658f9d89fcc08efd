"""Attention read off a running module: queries, keys and values as they enter torch's own attention
functions.

In: an attention module that runs (transformers models run under "sdpa" meanwhile; WavLM calls
`multi_head_attention_forward`). Attention by code of a module's own is read off its softmax, and
the product of that with values ("eager"). Out: an `AttentionCall` for each clip of the batch.
Attention within blocks of positions is joined to one call: those of one call of torch's
(Granite-speech), or of one after the other (`packed_length`).

Trace of one layer in a forward pass: input, attention calls, projection outputs.

In: values that forward_pass.py and attention_calls.py leave here, for all clips of a batch. Out: the same for
one of them (`LayerTrace.select_clip`), which a `Block` is made of; attention weights of chosen rows.

Find the product of attention weights and values among the calls of a module's own attention code.

In: calls of torch functions while an attention module runs. Out: which of them multiplies the
weights, read off a softmax, with the values; and how much goes to an attention sink.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, MutableMapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from transformers.cache_utils import Cache

from ...errors import ModelError
from ..binding.bound_layers import AttentionModules, projection_weight
from ..transformers_types import HookArguments, HookKeywords, ModelOutput, TorchFunction


def join_heads(values: Tensor, clip_count: int = 1) -> Tensor:
    """Values by head [C H, R, d] or [C H, S, R, d] with the heads of a row side by side, [C R, H d] or [S,
    C R, H d]."""
    by_clip: Tensor = values.unflatten(0, (clip_count, -1))
    if values.ndim == 3:
        return by_clip.transpose(1, 2).flatten(2).flatten(0, 1)
    return by_clip.permute(2, 0, 3, 1, 4).flatten(3).flatten(1, 2)


def split_heads(values: Tensor, head_count: int, clip_count: int = 1) -> Tensor:
    """Values [S, C R, H d] by head, [C H, S, R, d]."""
    by_head: Tensor = values.unflatten(-1, (head_count, -1)).unflatten(1, (clip_count, -1))
    return by_head.permute(1, 3, 0, 2, 4).flatten(0, 1)


@dataclass
class AttentionCall:
    """Queries, keys and values of one attention block, as they entered torch's attention function.

    Shapes: query [H, Q, d], key and value [H, K, d], mask broadcastable to [H, Q, K] (bool: True
    takes part; float: added), context [Q, H, d] (attention-weighted values, before the output
    projection) or None. Where the weights themselves were read, alpha [H, Q, K], queries and keys
    have a width of 0; sink [H, Q] is the share of the attention that goes to no position, where the
    model has attention sinks.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    scale: float
    causal: bool
    context: Tensor | None
    alpha: Tensor | None = None
    sink: Tensor | None = None

    def query_rows(self, rows: Tensor) -> Tensor:
        """Queries of the rows with their heads side by side, [R, H d]."""
        return join_heads(self.query[:, rows])

    def weights(self, rows: Tensor | None = None) -> Tensor:
        """Softmax attention weights [H, R, K] of the chosen rows (all of them for None)."""
        if self.alpha is not None:
            return self.alpha if rows is None else self.alpha[:, rows]
        query = self.query if rows is None else self.query[:, rows]
        scores = (query * self.scale) @ self.key.transpose(1, 2)
        if self.mask is not None:
            mask = (
                self.mask if rows is None or self.mask.shape[-2] == 1 else self.mask[..., rows, :]
            )
            scores = (
                scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
            )
        if self.causal:
            positions = (
                torch.arange(self.query.shape[1], device=query.device) if rows is None else rows
            )
            is_later = torch.arange(scores.shape[-1], device=query.device) > positions[:, None]
            scores = scores.masked_fill(is_later, -torch.inf)
        return scores.softmax(dim=-1)

    def select_heads(self, heads: slice) -> AttentionCall:
        """The same call of some heads."""
        mask = (
            self.mask[heads]
            if self.mask is not None and self.mask.ndim == 3 and len(self.mask) > 1
            else self.mask
        )
        context = None if self.context is None else self.context[:, heads]
        alpha = None if self.alpha is None else self.alpha[heads]
        sink = None if self.sink is None else self.sink[heads]
        query, key, value = self.query[heads], self.key[heads], self.value[heads]
        return replace(
            self,
            query=query,
            key=key,
            value=value,
            mask=mask,
            context=context,
            alpha=alpha,
            sink=sink,
        )

    def trim_heads(self, heads_width: int) -> None:
        """Cut heads to the width that makes `heads_width` numbers in all, where they were padded with
        zeros."""
        head_width = heads_width // len(self.value)
        if self.value.shape[-1] > head_width:
            self.query, self.key, self.value = (
                x[..., :head_width] for x in (self.query, self.key, self.value)
            )
            self.context = None if self.context is None else self.context[..., :head_width]


@dataclass
class LayerTrace:
    """What has been seen of one layer so far in the pass, for all clips of the batch or (`select_clip`) one
    of them."""

    hidden: Tensor
    kwargs: HookKeywords
    packed: bool = False  # whether the layer itself takes and gives states without an axis of clips
    calls: dict[int, list[AttentionCall]] = field(default_factory=dict)
    outputs: dict[int, ModelOutput] = field(default_factory=dict)
    residuals: dict[int, Tensor] = field(default_factory=dict)
    projections: dict[nn.Module, Tensor] = field(default_factory=dict)
    inputs: dict[nn.Module, Tensor] = field(default_factory=dict)

    def select_clip(self, clip: int) -> LayerTrace:
        """Return the trace of one clip of the batch (a batch of 1)."""
        if len(self.hidden) == 1:
            return self
        select = _clip_selector(clip, len(self.hidden))
        return LayerTrace(
            select(self.hidden),
            select(self.kwargs),
            self.packed,
            {attention_index: [calls[clip]] for attention_index, calls in self.calls.items()},
            select(self.outputs),
            select(self.residuals),
            select(self.projections),
            select(self.inputs),
        )


def own_caches(kwargs: HookKeywords) -> HookKeywords:
    """Return the arguments of another run of a layer: without the cache of the first, and with copies
    of mappings by which layers share keys and values, for it writes into them."""
    return {
        name: None if isinstance(x, Cache) else copy(x) if isinstance(x, MutableMapping) else x
        for name, x in kwargs.items()
    }


def _clip_selector(clip: int, clip_count: int) -> Callable[[ModelOutput], ModelOutput]:
    """Return a function that takes one clip out of whatever is batched: tensors of at least two
    axes, and what holds them."""

    def select(value: ModelOutput) -> ModelOutput:
        if isinstance(value, Tensor):
            return value[clip : clip + 1] if value.ndim > 1 and len(value) == clip_count else value
        if isinstance(value, dict | UserDict):
            return type(value)({name: select(element) for name, element in value.items()})
        if type(value) in (tuple, list):
            return type(value)(select(element) for element in value)
        return value

    return select


SOFTMAX_FUNCTIONS = (F.softmax, torch.softmax, Tensor.softmax)
_MULTIPLY_FUNCTIONS = (torch.mul, Tensor.mul, Tensor.__mul__)
_MATMUL_FUNCTIONS = (torch.matmul, torch.bmm, Tensor.matmul, Tensor.bmm, Tensor.__matmul__)


class WeightedSumFinder:
    """Finds the product of attention weights and values: the first whose left side has the shape of
    the softmax before it.

    Attention sinks take a share of each row: as one more column of the softmax, which is cut off
    before the product (GPT-OSS, MiMo), or as a factor of the product (Granite with sliding
    windows). `sink` is the cut column's share of the softmax, None without one.
    """

    def __init__(self) -> None:
        self._softmax: Tensor | None = None
        # weights, values, their product
        self._weighted_sum: tuple[Tensor, Tensor, Tensor] | None = None
        self.sink: Tensor | None = None

    def is_weighted_sum(self, func: TorchFunction, args: HookArguments, result: Tensor) -> bool:
        """Return True if this call multiplies attention weights with values."""
        if func in SOFTMAX_FUNCTIONS and self._softmax is None:
            self._softmax = result
        if func not in _MATMUL_FUNCTIONS or self._softmax is None:
            return False
        weights, softmax = args[0], self._softmax
        has_sink = (
            weights.shape[-1] == softmax.shape[-1] - 1 and weights.shape[:-1] == softmax.shape[:-1]
        )
        has_same_shape = (
            weights.shape[-2:] == softmax.shape[-2:] and weights.numel() == softmax.numel()
        )
        if has_sink:
            self.sink = softmax[..., -1:]
        if has_sink or has_same_shape:
            self._weighted_sum = weights, args[1], result
        is_product: bool = has_sink or has_same_shape
        return is_product

    def is_rescaling(self, func: TorchFunction, args: HookArguments) -> bool:
        """Return True if this call multiplies each row of that product by a number of its own."""
        if (
            func not in _MULTIPLY_FUNCTIONS
            or self._weighted_sum is None
            or args[0] is not self._weighted_sum[2]
        ):
            return False
        factor = args[1]
        return isinstance(factor, Tensor) and factor.ndim == args[0].ndim and factor.shape[-1] == 1

    def read_rescaled(self, args: HookArguments) -> tuple[Tensor, Tensor, Tensor]:
        """Return weights multiplied by the factor, values, and the share that the factor removes."""
        weights, values, _ = self._weighted_sum  # type: ignore[misc]
        return weights * args[1], values, 1 - args[1].expand(*weights.shape[:-1], 1)


class AttentionReader(TorchFunctionMode):
    """Reads attention from the first of torch's attention functions that an attention module calls,
    or from its softmax, into a trace.

    Heads that are padded for speed (Moonshine) are cut to what the output projection takes.
    """

    def __init__(self, trace: LayerTrace, attention_index: int, attention: AttentionModules):
        super().__init__()
        self._trace, self._attention_index = trace, attention_index
        self._heads_width = projection_weight(attention.output).shape[1]
        self._sum_finder = WeightedSumFinder() if attention.needs_eager else None
        self._blocks: list[AttentionCall] = []  # calls of packed states, one for each block

    def __torch_function__(
        self,
        func: TorchFunction,
        types: tuple[type, ...],
        args: HookArguments = (),
        kwargs: HookKeywords | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        clip_count, position_count = self._trace.hidden.shape[:2]
        if self._sum_finder is not None and self._sum_finder.is_rescaling(func, args):
            weights, values, sink = self._sum_finder.read_rescaled(args)
            self._trace.calls[self._attention_index] = _read_weights(
                clip_count, weights, values, result, sink
            )
        if self._attention_index in self._trace.calls:
            return result
        if self._sum_finder is not None:
            if self._sum_finder.is_weighted_sum(func, args, result):
                self._trace.calls[self._attention_index] = _read_weights(
                    clip_count, args[0], args[1], result, self._sum_finder.sink
                )
        elif func is F.scaled_dot_product_attention:
            calls = _read_sdpa(result, *args, **kwargs)
            for call in calls:
                call.trim_heads(self._heads_width)
            if self._trace.packed:
                self._blocks += calls
                calls = self._blocks
            if sum(call.query.shape[1] for call in calls) >= position_count:
                self._trace.calls[self._attention_index] = _join_calls(
                    calls, clip_count, position_count
                )
        elif func is F.multi_head_attention_forward:
            self._trace.calls[self._attention_index] = [read_multi_head(*args, **kwargs)]
        return result


def _read_weights(
    clip_count: int, weights: Tensor, values: Tensor, context: Tensor, sink: Tensor | None
) -> list[AttentionCall]:
    """The call of each clip of the batch, from weights [B, H, Q, K] or [B H, Q, K] and the like."""
    if values.ndim == 4 and weights.ndim == 4:  # heads may share values
        values = values.expand(*weights.shape[:2], *values.shape[-2:])
    weights, values, context = (
        x.reshape(clip_count, -1, *x.shape[-2:]) for x in (weights, values, context)
    )
    sinks = [None] * clip_count if sink is None else sink.reshape(*weights.shape[:-1])
    return [
        AttentionCall(
            x[..., :0], value[..., :0], value, None, 1.0, False, y.transpose(0, 1), alpha=x, sink=z
        )
        for x, value, y, z in zip(weights, values, context, sinks, strict=True)
    ]


def _read_sdpa(
    context: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> list[AttentionCall]:
    """The call of each clip of the batch."""
    # Grouped-query attention has fewer key and value heads.
    heads_per_key = query.shape[1] // key.shape[1]
    if heads_per_key > 1:
        key, value = (x.repeat_interleave(heads_per_key, dim=1) for x in (key, value))
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
            clip_context.transpose(0, 1),
        )
        for clip, clip_context in enumerate(context)
    ]


def _join_calls(
    calls: list[AttentionCall], clip_count: int, position_count: int
) -> list[AttentionCall]:
    """One call for each clip, where a module cuts each into blocks of positions that attend within
    themselves."""
    if len(calls) == clip_count and calls[0].query.shape[1] == position_count:
        return calls
    n_blocks = len(calls) // clip_count
    return [
        _join_blocks(calls[clip * n_blocks : (clip + 1) * n_blocks], position_count)
        for clip in range(clip_count)
    ]


def _join_blocks(blocks: list[AttentionCall], position_count: int) -> AttentionCall:
    """The blocks of a clip as one call: a position sees none of another block. Positions padded at
    the end are cut off."""
    query, key, value = (
        torch.cat([getattr(block, name) for block in blocks], dim=1)[:, :position_count]
        for name in ("query", "key", "value")
    )
    mask = _combine_block_masks(blocks, query)
    context = torch.cat([block.context for block in blocks if block.context is not None])[
        :position_count
    ]
    return AttentionCall(
        query,
        key,
        value,
        mask[:, :position_count, :position_count],
        blocks[0].scale,
        blocks[0].causal,
        context,
    )


def _combine_block_masks(blocks: list[AttentionCall], reference: Tensor) -> Tensor:
    """Mask [H, T, T] of the blocks together, [1, T, T] where they have none of their own."""
    block_lengths = [block.query.shape[1] for block in blocks]
    if all(block.mask is None for block in blocks):
        block_diagonal: Tensor = torch.block_diag(
            *(
                torch.ones(size, size, dtype=torch.bool, device=reference.device)
                for size in block_lengths
            )
        )[None]
        return block_diagonal
    block_ends = list(accumulate(block_lengths))
    mask = reference.new_full((len(reference), block_ends[-1], block_ends[-1]), -torch.inf)
    for start, stop, block in zip([0, *block_ends], block_ends, blocks, strict=False):
        block_mask = reference.new_zeros(()) if block.mask is None else block.mask
        if block_mask.dtype == torch.bool:
            block_mask = reference.new_zeros(()).masked_fill(~block_mask, -torch.inf)
        mask[:, start:stop, start:stop] = block_mask
    return mask


def read_multi_head(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_heads: int,
    in_proj_weight: Tensor,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    **_: object,
) -> AttentionCall:
    """Project as torch does. The weights it returns are averaged over heads (WavLM hands those on),
    so they are not used."""
    if query.shape[1] != 1:
        raise ModelError(
            "this model's attention is read for one clip at a time, found a batch of "
            f"{query.shape[1]}"
        )
    if bias_k is not None or bias_v is not None or add_zero_attn:
        raise ModelError(
            "attention with bias_k, bias_v or add_zero_attn has sources that are no frames: not "
            "supported"
        )
    separate_weights = (q_proj_weight, k_proj_weight, v_proj_weight)
    weights: Sequence[Any] = (
        separate_weights if use_separate_proj_weight else in_proj_weight.chunk(3)
    )
    biases = in_proj_bias.chunk(3) if in_proj_bias is not None else (None,) * 3
    query, key, value = (
        F.linear(x[:, 0], weight, bias)
        .unflatten(-1, (num_heads, -1))
        .transpose(0, 1)  # [T, 1, D] -> [H, T, d]
        for x, weight, bias in zip((query, key, value), weights, biases, strict=True)
    )
    mask = attn_mask
    if mask is not None and mask.dtype == torch.bool:  # here True means "left out"
        mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill(mask, -torch.inf)
    if key_padding_mask is not None:
        padding_mask = key_padding_mask[0]
        if padding_mask.dtype == torch.bool:
            padding_mask = torch.zeros_like(padding_mask, dtype=query.dtype).masked_fill(
                padding_mask, -torch.inf
            )
        mask = padding_mask[None, None] if mask is None else mask + padding_mask
    return AttentionCall(query, key, value, mask, (embed_dim // num_heads) ** -0.5, False, None)
