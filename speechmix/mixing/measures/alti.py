"""ALTI (Ferrando et al. 2022): how much closer each source brings the block's output.

    y_i = sum_j t_ij + (terms of biases)        c_ij = max( 0, ||y_i||_1 - ||y_i - t_ij||_1 )

y_i is the true output of the attention block with its residual (and, post-norm, its layer norm),
t_ij the source's part in it: transformed value vectors, with the residual stream in t_ii. A word's
vector is the sum of its frames' vectors, so a word is one part like any other. Over layers:
``map.normalized()`` per layer, then ``map.rollout()`` (plain product).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .source_vectors import LinearizedBlock, decompose, projected_values

if TYPE_CHECKING:
    from ...adapters.capture.attention_block import Block
    from .unit_positions import Ranges, Units


def alti(
    block: Block,
    units: Units,
    *,
    batch_size: int = 2048,
    order: int = 1,
    coordinate_offset: float = 0.0,
) -> Tensor:
    """Contribution of each source's part to each target, pooled over the frames of the target.

    For cross-attention (Ferrando et al. 2022b) the residual stream, which holds the decoder's own
    tokens, is one more part that is no source: there scores are shares c_ij / (sum_j c_ij +
    c_i,residual), and what a row lacks to one is the residual's. Elsewhere scores are raw lengths.

    Parameters
    ----------
    batch_size : int
        (target position, source) pairs held at once; bounds the memory.
    order : {1, 2}
        L1 (the paper's) or L2 length.
    coordinate_offset : float
        What is added to every coordinate of t_ij - y_i: 1e-6 in the published code, whose
        `pairwise_distance` does so.

    Returns
    -------
    Tensor [W_t, W_s]
    """
    linearized_block = linearize_attention_block(block, units.rows)
    scores = linearized_block.residual.new_zeros(len(units.rows), len(units.sources))
    for source, rows, vectors in source_vectors(block, units, linearized_block, batch_size):
        scores[rows, source] = _distance_reduction(
            linearized_block.output[rows], vectors, order, coordinate_offset
        )
    if block.stack.name == "cross":
        residual = _distance_reduction(
            linearized_block.output, linearized_block.residual, order, coordinate_offset
        )
        row_sums = scores.sum(dim=-1) + residual
        scores = scores / row_sums.where(row_sums > 0, torch.ones_like(row_sums))[:, None]
    return units.pool_targets(scores)


def linearize_attention_block(block: Block, rows: Tensor) -> LinearizedBlock:
    """Parts of the attention block's output: behind its layer norm in a post-norm stack."""
    return decompose(block, rows, norms=1 if block.stack.spec.norm_order == "post" else 0)


def source_vectors(
    block: Block, units: Units, linearized_block: LinearizedBlock, batch_size: int
) -> Iterator[tuple[int, Tensor, Tensor]]:
    """Vectors of the parts, in batches: (source index, row indices [P], vectors [P, D])."""
    alpha = block.attention(units.rows)  # [H, R, K]
    all_rows = torch.arange(len(units.rows), device=units.device)
    for source, position_indices in enumerate(units.source_position_indices):
        source_weights = alpha[:, :, position_indices].permute(1, 2, 0).flatten(1)  # [R, K' H]
        projected = projected_values(block, position_indices).flatten(0, 1)  # [K' H, D]
        for rows in all_rows.split(batch_size):
            vectors = linearized_block.scale[rows, None] * linearized_block.linear(
                source_weights[rows] @ projected
            )
            if block.stack.name != "cross":
                vectors = (
                    vectors
                    + linearized_block.residual[rows]
                    * _range_mask(units.rows[rows], units.sources[source])[:, None]
                )
            yield source, rows, vectors


def _range_mask(positions: Tensor, ranges: Ranges) -> Tensor:
    """Which positions lie in one of the ranges."""
    (start, stop), *further = ranges
    mask = (positions >= start) & (positions < stop)
    for start, stop in further:
        mask |= (positions >= start) & (positions < stop)
    return mask


def _distance_reduction(
    output: Tensor, vector: Tensor, order: int, coordinate_offset: float
) -> Tensor:
    """max(0, ||y|| - ||y - t||) over the last axis, without cancellation: exactly zero for a part of zeros."""
    vector = vector + coordinate_offset if coordinate_offset else vector
    output_without_vector = output - vector
    if order == 1:
        return (output.abs() - output_without_vector.abs()).sum(dim=-1).clamp_min(0)
    lengths = output.norm(dim=-1) + output_without_vector.norm(dim=-1)
    contribution: Tensor = ((output + output_without_vector) * vector).sum(dim=-1).clamp_min(
        0
    ) / lengths.clamp_min(torch.finfo(output.dtype).tiny)
    return contribution
