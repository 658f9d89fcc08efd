"""Attention norms with residual stream and layer norms; GlobEnc; mixing ratio.

    r_ij = sum_h alpha^h_ij f^h(x_j) + [i = j] x_i                                          Kobayashi et al. 2021
    l_ij = gamma_1 * (r_ij - mean r_ij) / sqrt(var u_i + eps)       u_i what enters the norm behind attention
    g_ij = gamma_2 * (l_ij - mean l_ij) / sqrt(var w_i + eps)       w_i what enters the second norm (Modarressi et al. 2022)

Each score is the length of one of these vectors. At word level lengths are averaged over frame
pairs, as attention norms are; so the residual, which only pairs (i, i) hold, counts 1 / (frames of
the word) in a word's own score.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...errors import InputError
from ..maps.measure_registry import RATIO_MEASURES, measure_facts
from .attention_norm import pool_part_norms
from .availability import check_defined
from .source_vectors import LinearizedBlock, attention_output_terms, decompose

if TYPE_CHECKING:
    from ...adapters.capture.attention_block import Block
    from .unit_positions import Units


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
