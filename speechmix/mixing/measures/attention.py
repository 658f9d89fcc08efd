"""Raw attention: the weights of the softmax, pooled over the frames of words.

    A^h_ij = mean (or max) over n in I, m in J of alpha^h_nm

Pooled per head; heads="mean" then averages over heads. The published order normalises each head's
rows first (`MixingMap.normalized` on heads="each", then the mean over heads); the two give
different numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from ...adapters.capture.layer_run import Block
    from .measure import Units


def attention(block: Block, units: Units, *, heads: str = "mean") -> Tensor:
    """Attention weights from target units to source units.

    Returns
    -------
    Tensor [W_t, W_s], or [H, W_t, W_s] for heads="each"
    """
    per_head = units.pool_targets(units.pool_sources(block.attention(units.rows)))
    return per_head if heads == "each" else per_head.mean(dim=0)
