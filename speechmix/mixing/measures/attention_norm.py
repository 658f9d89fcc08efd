"""Attention norm (Kobayashi et al. 2020): how long the vector is that a source adds to a target.

    f^h(x_j) = v_j^h W_O^h        N_ij = || sum_h alpha^h_ij f^h(x_j) ||_2        N^h_ij = || alpha^h_ij f^h(x_j) ||_2

The [H, T, T, D] tensor of vectors is never built: with the Gram matrix G_j[h, g] = <f^h(x_j),
f^g(x_j)>, N_ij^2 = sum_hg alpha^h_ij alpha^g_ij G_j[h, g]. Value bias in, output bias out; "summed"
is the norm of the head sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .source_vectors import LinearizedBlock, projected_values

if TYPE_CHECKING:
    from ...adapters.capture.attention_block import Block
    from .unit_positions import Units


# Projected vectors held at once for each (target position, source) pair that Value Zeroing holds: a
# pair takes more than ten.
_VECTORS = 4


def attention_norm(
    block: Block, units: Units, *, heads: str = "mean", batch_size: int = 2048
) -> Tensor:
    """Norm of the attention-weighted, projected value vectors, pooled over frame pairs.

    Parameters
    ----------
    heads : {"mean", "each"}
        "mean" gives the norm of the sum over heads (the field's attention norm), "each" the norm
        per head.
    batch_size : int
        Bounds the memory: four times as many projected vectors (source position, head) are held at
        once.

    Returns
    -------
    Tensor [W_t, W_s], or [H, W_t, W_s] for heads="each"
    """
    return _pooled_norms(block, units, None, heads == "each", batch_size)


def pool_part_norms(
    block: Block, units: Units, linearized_block: LinearizedBlock, *, batch_size: int = 2048
) -> Tensor:
    """Return norms || t_ij || [W_t, W_s] of the vectors of a decomposition, pooled over frame
    pairs."""
    return _pooled_norms(block, units, linearized_block, False, batch_size)


def _pooled_norms(
    block: Block,
    units: Units,
    linearized_block: LinearizedBlock | None,
    each_head: bool,
    batch_size: int,
) -> Tensor:
    """Norms for pairs of positions, a batch of source positions at a time, then pooled over both
    sides."""
    alpha = block.attention(units.rows)  # [H, R, K]
    norms = torch.zeros_like(alpha if each_head else alpha[0])
    for columns in units.source_positions.split(max(1, _VECTORS * batch_size // len(alpha))):
        vectors = projected_values(block, columns)  # [K', H, D]
        vectors = vectors if linearized_block is None else linearized_block.linear(vectors)
        if each_head:
            norms[..., columns] = alpha[:, :, columns] * vectors.norm(dim=-1).T[:, None]
            continue
        weights = alpha[:, :, columns].permute(2, 1, 0).contiguous()  # [K', R, H]
        gram = vectors @ vectors.transpose(1, 2)  # [K', H, H]
        norms[:, columns] = ((weights @ gram) * weights).sum(dim=-1).clamp_min(0).sqrt().T
    if linearized_block is not None:
        norms = norms * linearized_block.scale[:, None]
        rows = torch.arange(len(units.rows), device=units.device)
        norms[rows, units.rows] = _diagonal(block, units.rows, alpha, linearized_block).norm(dim=-1)
    return units.pool_targets(units.pool_sources(norms))


def _diagonal(
    block: Block, target_positions: Tensor, alpha: Tensor, linearized_block: LinearizedBlock
) -> Tensor:
    """Contribution of each row to itself, with the residual stream's part: t_ii [R, D]."""
    weights = alpha.gather(2, target_positions.expand(len(alpha), -1)[..., None])  # [H, R, 1]
    context = (weights * block.values[:, target_positions]).transpose(0, 1)  # [R, H, d]
    vectors = context.flatten(1) @ block.output_weight.flatten(0, 1)
    return (
        linearized_block.scale[:, None] * linearized_block.linear(vectors)
        + linearized_block.residual
    )
