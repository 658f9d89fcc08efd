"""Attention with heads weighted by low entropy.

    e^h_i = - sum_j alpha^h_ij log alpha^h_ij / log n_i        n_i the sources that row i sees
    A_ij  = sum_h w^h_i alpha^h_ij                             w^h_i = (1 - e^h_i) / sum_h' (1 - e^h'_i)

Rolled out over layers, or composed over encoder, cross-attention and decoder, this is an
entropy-weighted attention rollout: the kind of baseline that LEAF-X (Ranjan et al. 2026) is for
speech recognition. Its abstract names the ingredients: heads weighted by entropy, and a rollout.
The weights above are this package's own choice, not that paper's formula, and its choice of heads
and layers and its ablations are left out. Where no head is surer than even (or a row sees one
source), all count alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from ...adapters.capture.layer_run import Block
    from .measure import Units

# Heads that are even but for rounding are even.
_EVEN = 1e-6


def entropy_attention(block: Block, units: Units) -> Tensor:
    """Attention weights from target units to source units, heads weighted by their entropy.

    Returns
    -------
    Tensor [W_t, W_s]
    """
    return units.pool_targets(
        units.pool_sources(combine_heads_by_entropy(block.attention(units.rows)))
    )


def combine_heads_by_entropy(weights: Tensor) -> Tensor:
    """Attention weights [H, R, K] of all heads as one, [R, K].

    Examples
    --------
    >>> sharp, even = [[1.0, 0.0]], [[0.5, 0.5]]
    >>> combine_heads_by_entropy(torch.tensor([sharp, even]))
    tensor([[1., 0.]])
    >>> combine_heads_by_entropy(torch.tensor([even, even]))
    tensor([[0.5000, 0.5000]])
    """
    seen = (weights > 0).sum(dim=-1).amax(dim=0).clamp_min(2).to(weights)  # [R]
    sureness = (1 - torch.special.entr(weights).sum(dim=-1) / seen.log()).clamp_min(0)  # [H, R]
    total_sureness = sureness.sum(dim=0)
    sure = total_sureness > _EVEN
    shares = torch.where(
        sure,
        sureness / total_sureness.where(sure, torch.ones_like(total_sureness)),
        1 / len(weights),
    )
    return (shares[..., None] * weights).sum(dim=0)
