"""Propagate relevance through the layers of a model by Chefer's rules (equations in `chefer`).

In: weighted attention of every layer, and the position that is read. Out: the row of that position
in the relevances of what enters some layers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ...adapters.model import Model

# A_bar [Q, K] by stack and layer.
Weighted = Mapping[tuple[str, int], Tensor]


def propagate_relevance(
    model: Model,
    weighted: Weighted,
    position: int,
    stack: str,
    layers: Sequence[int],
) -> list[Tensor]:
    """Return row `position` of the relevances of what enters some layers of a stack, [K] each.

    `weighted` holds A_bar [Q, K] by stack and layer. `position` counts in the stack that reads: the
    decoder's where there is one. `stack` says whose rows are returned: "encoder", "decoder" or
    "cross".
    """
    output_stack = model.capabilities.output_stack
    self_attention = [
        weighted[output_stack, layer] for layer in range(len(model.stacks[output_stack]))
    ]
    start = torch.zeros_like(self_attention[0][0])
    start[position] = 1
    relevance_rows = [
        start
    ]  # row p of the product of (I + A_bar) of all layers behind, from the last layer down
    for layer in reversed(self_attention):
        relevance_rows.insert(0, relevance_rows[0] + relevance_rows[0] @ layer)
    if stack == output_stack:
        return [relevance_rows[layer] - start for layer in layers]
    encoder_rows = [
        row @ cross
        for row, cross in zip(
            _cross_attention_weights(self_attention, relevance_rows),
            _select_stack(weighted, "cross"),
            strict=True,
        )
    ]
    if stack == "cross":
        return [encoder_rows[layer] for layer in layers]
    return _propagate_through_encoder(
        torch.stack(encoder_rows).sum(dim=0), _select_stack(weighted, "encoder"), layers
    )


def _cross_attention_weights(
    self_attention: list[Tensor], relevance_rows: list[Tensor]
) -> list[Tensor]:
    """What weighs the rows of each layer's cross-attention, [U] each: row p of what lies behind it,
    times R_n^tt transposed."""
    identity = torch.eye(
        len(self_attention[0]), dtype=self_attention[0].dtype, device=self_attention[0].device
    )
    relevances, rows = identity, []
    for layer, row in zip(self_attention, relevance_rows[1:], strict=True):
        relevances = relevances + layer @ relevances
        relevance_change = relevances - identity
        rows.append(
            row
            @ (
                _divide_by_sums(relevance_change, relevance_change.sum(dim=-1, keepdim=True))
                + identity
            ).T
        )
    return rows


def _propagate_through_encoder(
    encoder_relevance: Tensor, weighted: list[Tensor], layers: Sequence[int]
) -> list[Tensor]:
    """Multiply the relevance [K] of the encoder's output by R_n^ee that starts at some of its
    layers, [K] each."""
    rows = []
    for first_layer in layers:
        sums = torch.ones_like(encoder_relevance)
        for layer in weighted[first_layer:]:
            sums = sums + layer @ sums
        shares = _divide_by_sums(encoder_relevance, sums - 1)
        row = shares
        for layer in reversed(weighted[first_layer:]):
            row = row + row @ layer
        rows.append(encoder_relevance + row - shares)
    return rows


def _divide_by_sums(values: Tensor, sums: Tensor) -> Tensor:
    """Values over sums; zero where a sum is: a row to which nothing was added stays the
    identity."""
    return torch.where(
        sums > 0, values / sums.where(sums > 0, torch.ones_like(sums)), torch.zeros_like(values)
    )


def _select_stack(weighted: Weighted, stack: str) -> list[Tensor]:
    return [values for (name, _), values in weighted.items() if name == stack]
