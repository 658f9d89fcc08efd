"""Attention norm (Kobayashi et al. 2020): how long the vector is that a source adds to a target.

    f^h(x_j) = v_j^h W_O^h        N_ij = || sum_h alpha^h_ij f^h(x_j) ||_2        N^h_ij = || alpha^h_ij f^h(x_j) ||_2

The [H, T, T, D] tensor of vectors is never built: with the Gram matrix G_j[h, g] = <f^h(x_j),
f^g(x_j)>, N_ij^2 = sum_hg alpha^h_ij alpha^g_ij G_j[h, g]. Value bias in, output bias out; "summed"
is the norm of the head sum.

Attention norms with residual stream and layer norms; GlobEnc; mixing ratio.

    r_ij = sum_h alpha^h_ij f^h(x_j) + [i = j] x_i                                          Kobayashi et al. 2021
    l_ij = gamma_1 * (r_ij - mean r_ij) / sqrt(var u_i + eps)       u_i what enters the norm behind attention
    g_ij = gamma_2 * (l_ij - mean l_ij) / sqrt(var w_i + eps)       w_i what enters the second norm (Modarressi et al. 2022)

Each score is the length of one of these vectors. At word level lengths are averaged over frame
pairs, as attention norms are; so the residual, which only pairs (i, i) hold, counts 1 / (frames of
the word) in a word's own score.

Vectors that each source adds to a target's state, through residual and layer norm.

    t_ij = s_i P( sum_h alpha^h_ij f^h(x_j) ) + [i = j] o_i        sum_j t_ij + (terms of biases) = y_i

f^h(x_j) is the projected value vector (see attention_norm.py), o_i the residual stream's own part.
Behind layer norms P is their linear part (centring, gain) and s_i one over the deviation of the
whole sum, so nothing of size [T, T, D] is built.

ALTI (Ferrando et al. 2022): how much closer each source brings the block's output.

    y_i = sum_j t_ij + (terms of biases)        c_ij = max( 0, ||y_i||_1 - ||y_i - t_ij||_1 )

y_i is the true output of the attention block with its residual (and, post-norm, its layer norm),
t_ij the source's part in it: transformed value vectors, with the residual stream in t_ii. A word's
vector is the sum of its frames' vectors, so a word is one part like any other. Over layers:
``map.normalized()`` per layer, then ``map.rollout()`` (plain product).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...adapters.binding.bound_layers import Norm
from ...errors import InputError
from ..maps.measure_registry import RATIO_MEASURES, measure_facts
from .measure import check_defined

if TYPE_CHECKING:
    from ...adapters.capture.layer_run import Block
    from .measure import Ranges, Units


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


def attention_norm_residual(block: Block, units: Units, *, batch_size: int = 2048) -> Tensor:
    """Return || r_ij ||_2, attention norms with the residual stream (Kobayashi et al. 2021).

    Returns
    -------
    Tensor [W_t, W_s]

    Raises
    ------
    InputError
        For cross-attention, where the residual stream is none of the sources.
    """
    return _vector_norms("attention_norm_residual", block, units, batch_size)


def attention_norm_residual_layernorm(
    block: Block, units: Units, *, batch_size: int = 2048
) -> Tensor:
    """Return || l_ij ||_2, attention norms with residual stream and layer norm (Kobayashi et al. 2021).

    The mean is removed from each vector, the deviation is that of the whole sum, the norm's bias is
    left out.

    Raises
    ------
    InputError
        As `attention_norm_residual`, and for pre-norm stacks.
    """
    return _vector_norms("attention_norm_residual_layernorm", block, units, batch_size)


def globenc(block: Block, units: Units, *, batch_size: int = 2048) -> Tensor:
    """Return || g_ij ||_2, the layer's map of GlobEnc: both layer norms, the feed-forward skipped (Modarressi et al. 2022).

    Over layers its authors multiply the raw maps, ``map.rollout(normalize=False)``; the tutorials
    normalise the rows of each layer first, ``map.rollout()``. The two differ.

    Raises
    ------
    InputError
        As `attention_norm_residual_layernorm`, and outside encoders: a decoder's layer has
        cross-attention between the norms.
    """
    return _vector_norms("globenc", block, units, batch_size)


def mixing_ratio(block: Block, units: Units, *, vectors: str = "attention_norm_residual") -> Tensor:
    """How much of each target comes from the other units: m / (m + p) (Kobayashi et al. 2021).

        m = || sum_{j outside I} t_ij ||_2        p = || sum_{j in I} t_ij ||_2        (I the target's own unit)

    m is the length of the sum, not the sum of lengths, and counts every position outside the unit.
    Pooled over the frames of the target.

    Parameters
    ----------
    vectors : {"attention_norm", "attention_norm_residual", "attention_norm_residual_layernorm", "globenc"}
        Which vectors t_ij, by the measure that gives their lengths.

    Returns
    -------
    Tensor [W_t, W_s]
        Each target's number in its own column, zeros elsewhere; `MixingMap.mixing_ratio` reads it
        off.

    Raises
    ------
    InputError
        As the measure that `vectors` names; and for targets that are not among the sources.
    """
    if vectors not in RATIO_MEASURES:
        raise InputError(f"vectors must be one of {RATIO_MEASURES}, found {vectors!r}")
    linearized_block = _decompose_for_measure(
        f"mixing_ratio_{vectors}",
        block,
        units.rows,
        residual=measure_facts(vectors).residual != "out",
    )
    alpha = block.attention(units.rows)
    full_vectors = (
        linearized_block.scale[:, None]
        * linearized_block.linear(attention_output_terms(block, alpha, block.values))
        + linearized_block.residual
    )
    ratios = torch.zeros(
        len(units.rows), len(units.sources), dtype=full_vectors.dtype, device=full_vectors.device
    )
    for column, position_indices in enumerate(units.source_position_indices):
        for own_rows in units.rows_in_ranges(units.sources[column]):
            context = attention_output_terms(
                block, alpha[:, own_rows][..., position_indices], block.values[:, position_indices]
            )
            own_vectors = (
                linearized_block.scale[own_rows, None] * linearized_block.linear(context)
                + linearized_block.residual[own_rows]
            )
            mixed, preserved = (
                (full_vectors[own_rows] - own_vectors).norm(dim=-1),
                own_vectors.norm(dim=-1),
            )
            ratios[own_rows, column] = mixed / (mixed + preserved).clamp_min(
                torch.finfo(full_vectors.dtype).tiny
            )
    if not set(units.targets) <= set(units.sources):
        raise InputError(
            "mixing_ratio tells a target's own unit from the others: every target must be a source "
            "too"
        )
    return units.pool_targets(ratios).masked_fill(~units.self_mask, 0)


def _vector_norms(measure: str, block: Block, units: Units, batch_size: int) -> Tensor:
    return pool_part_norms(
        block, units, _decompose_for_measure(measure, block, units.rows), batch_size=batch_size
    )


def _decompose_for_measure(
    measure: str, block: Block, rows: Tensor, *, residual: bool = True
) -> LinearizedBlock:
    """The vectors that a measure's scores are the lengths of, or why there are none."""
    facts = measure_facts(measure)
    check_defined(facts, block.stack)
    return decompose(block, rows, norms=facts.norms, add_residual=residual)


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
