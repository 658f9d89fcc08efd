"""Attention read off a running module: queries, keys and values as they enter torch's own attention
functions.

In: an attention module that runs (transformers models run under "sdpa" meanwhile; WavLM calls
`multi_head_attention_forward`). Attention by code of a module's own is read off its softmax, and
the product of that with values ("eager"). Out: an `AttentionCall` for each clip of the batch.
Attention within blocks of positions is joined to one call: those of one call of torch's
(Granite-speech), or of one after the other (packed_states.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ...errors import ModelError
from ..binding.layer_components import AttentionModules, projection_weight
from ..transformers_types import HookArguments, HookKeywords, TorchFunction
from .layer_trace import AttentionCall, LayerTrace
from .weighted_sums import WeightedSumFinder


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
