"""Random baseline: what a measure that knows nothing would say.

    S_ij ~ uniform(0, 2 / n_i)        n_i the number of sources that target i can see

Rows sum to one in expectation; a causal stack's later sources are zero. Nothing of the model enters
but its shape.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from ...adapters.capture.layer_run import Block
    from .measure import Units


def random_baseline(block: Block, units: Units, *, heads: str = "mean", seed: int = 0) -> Tensor:
    """Random scores that are the same whenever the same clip is scored.

    Each row is drawn by itself, from a seed made of `seed`, the stack, the layer, the target's
    positions, and the signs of some of the block's values: they stand for the clip, so that clips
    of one length have different scores and chosen targets have the rows of the whole map.

    Parameters
    ----------
    seed : int
        Another baseline for another seed.

    Returns
    -------
    Tensor [W_t, W_s], or [H, W_t, W_s] for heads="each"
    """
    signs = (block.values.flatten()[:: max(1, block.values.numel() // 512)] > 0).cpu().numpy()
    layer = zlib.crc32(
        f"{seed} {block.stack.name} {block.layer}".encode() + np.packbits(signs).tobytes()
    )
    n_heads = block.stack.heads if heads == "each" else 1
    rows = []
    for ranges in units.targets:
        seen = np.array(
            [not block.causal or source[0][0] < ranges[-1][1] for source in units.sources]
        )
        edges = [edge for start, stop in ranges for edge in (start, stop)]
        random_scores = np.random.default_rng([layer, *edges]).random((n_heads, len(units.sources)))
        rows.append(random_scores * seen * 2 / max(1, seen.sum()))
    scores = torch.as_tensor(
        np.stack(rows, axis=1), dtype=block.values.dtype, device=units.device
    )  # [H, W_t, W_s]
    return scores if heads == "each" else scores[0]
