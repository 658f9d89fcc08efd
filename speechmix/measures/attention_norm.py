"""Attention norm (Kobayashi et al. 2020): how long the vector is that a source adds to a target.

    f^h(x_j) = v_j^h W_O^h        N_ij = || sum_h alpha^h_ij f^h(x_j) ||_2        N^h_ij = || alpha^h_ij f^h(x_j) ||_2

The [H, T, T, D] tensor of vectors is never built: with the Gram matrix G_j[h, g] = <f^h(x_j), f^g(x_j)>,
N_ij^2 = sum_hg alpha^h_ij alpha^g_ij G_j[h, g]. Value bias in, output bias out; "summed" is the norm of the head sum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ..adapters.captured import Block
    from .units import Units


def attention_norm(block: Block, units: Units, *, heads: str = "mean", **_) -> Tensor:
    """Norm of the attention-weighted, projected value vectors, pooled over frame pairs.

    Parameters
    ----------
    heads : {"mean", "each"}
        "mean" gives the norm of the sum over heads (the field's attention norm), "each" the norm per head.

    Returns
    -------
    Tensor [W_t, W_s], or [H, W_t, W_s] for heads="each"
    """
    used = sorted({position for start, stop in units.sources for position in range(start, stop)})
    columns = torch.tensor(used, dtype=torch.long, device=units.device)
    alpha = block.attention(units.rows)[:, :, columns]  # [H, R, K']
    gram = head_gram(block.values[:, columns], block.output_weight)  # [K', H, H]
    if heads == "each":
        lengths = gram.diagonal(dim1=1, dim2=2).clamp_min(0).sqrt()  # [K', H]
        norms = alpha * lengths.T[:, None]
    else:
        weights = alpha.permute(2, 1, 0)  # [K', R, H]
        norms = ((weights @ gram) * weights).sum(dim=-1).clamp_min(0).sqrt().T  # [R, K']
    full = norms.new_zeros(*norms.shape[:-1], block.n_sources)
    full[..., columns] = norms
    return units.pool_targets(units.pool_sources(full))


def head_gram(values: Tensor, output_weight: Tensor) -> Tensor:
    """Gram matrices of the projected values of all heads.

    Parameters
    ----------
    values : Tensor [H, K, d]
    output_weight : Tensor [H, d, D]

    Returns
    -------
    Tensor [K, H, H]
    """
    projected = torch.einsum("hkd,hdm->khm", values, output_weight)
    return projected @ projected.transpose(1, 2)
