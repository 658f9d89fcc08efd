"""Vectors that each source adds to a target's state, through residual and layer norm.

    t_ij = s_i P( sum_h alpha^h_ij f^h(x_j) ) + [i = j] o_i        sum_j t_ij + (terms of biases) = y_i

f^h(x_j) is the projected value vector (see attention_norm.py), o_i the residual stream's own part.
Behind layer norms P is their linear part (centring, gain) and s_i one over the deviation of the
whole sum, so nothing of size [T, T, D] is built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...adapters.binding.norms import Norm
from ...errors import InputError

if TYPE_CHECKING:
    from ...adapters.capture.attention_block import Block


@dataclass(frozen=True)
class LinearizedBlock:
    """The vectors t_ij of some target rows, in terms: what to do with an attended vector, and the
    residual's share.

    `linear` is P, on vectors [..., D]; `scale` [R] is s_i; `residual` [R, D] is o_i, zeros if the
    residual stream is left out; `output` [R, D] is y_i, the true state that all terms and biases
    sum to.
    """

    linear: Callable[[Tensor], Tensor]
    scale: Tensor
    residual: Tensor
    output: Tensor


def decompose(
    block: Block, rows: Tensor, *, norms: int = 0, add_residual: bool = True
) -> LinearizedBlock:
    """Decompose the state behind an attention block at target positions `rows` [R].

    `norms` counts the norms of a post-norm layer that the vectors pass: none (attention +
    residual), the attention block's, and the feed-forward's too (GlobEnc), skipping the
    feed-forward itself but with the deviation of the true sum. Without `add_residual` the terms are
    those of attention alone. Where the attention output has a norm of its own before the residual
    sum (Gemma 3), attended vectors pass that one.
    """
    layer, branch = block.modules, block.attention_output(rows)
    if not add_residual:
        return LinearizedBlock(
            lambda vectors: vectors, torch.ones_like(branch[:, 0]), torch.zeros_like(branch), branch
        )
    residual = block.residual(rows)
    layer_norms = [
        norm
        for norm in (
            layer.attention.norm,
            *(feed_forward.norm for feed_forward in layer.feed_forwards),
        )
        if norm is not None
    ]
    if len(layer_norms) < norms:
        raise InputError(
            f"this measure passes {norms} layer norms, but the table of the {block.stack.name} "
            f"describes {len(layer_norms)}: name "
            "the feed-forward's in its feed_forwards"
        )
    passed: list[Norm] = []
    scale = torch.ones_like(residual[:, 0])
    if layer.attention.branch_norm is not None:
        passed.append(Norm(layer.attention.branch_norm, branch))
        scale, branch = passed[-1].scale, layer.attention.branch_norm(branch)
    states = residual + branch
    for number, module in enumerate(layer_norms[:norms]):
        if number:
            states = states + layer.feed_forwards[number - 1](states)
        norm = Norm(module, states)
        passed.append(norm)
        scale = scale * norm.scale
        residual = norm.scale[:, None] * norm.direction(residual)
        states = module(states)

    def linear(vectors: Tensor) -> Tensor:
        for norm in passed:
            vectors = norm.direction(vectors)
        return vectors

    return LinearizedBlock(linear, scale, residual, states)


def projected_values(block: Block, positions: Tensor | slice) -> Tensor:
    """Projected values f^h(x_j) of some source positions, [K', H, D]."""
    return torch.einsum("hkd,hdm->khm", block.values[:, positions], block.output_weight)


def attention_output_terms(block: Block, weights: Tensor, values: Tensor) -> Tensor:
    """Sum over heads and sources of weights [H, R, K'] times projected values, [R, D]."""
    context = (weights @ values).transpose(0, 1)  # [R, H, d]
    return context.flatten(1) @ block.output_weight.flatten(0, 1)
