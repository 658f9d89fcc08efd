"""Trace of one layer in a forward pass: input, attention calls, projection outputs.

In: values that forward_pass.py and attention_calls.py leave here, for all clips of a batch. Out: the same for
one of them (`LayerTrace.select_clip`), which a `Block` is made of; attention weights of chosen rows.
"""

from __future__ import annotations

from collections import UserDict
from collections.abc import Callable, MutableMapping
from copy import copy
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache

from ..transformers_types import HookKeywords, ModelOutput


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
