"""ALTI-Logit (Ferrando et al. 2023): contribution of each source to a logit, by layer.

    logit = < r, x^0_p > + sum_l [ sum_j d^l_j + < r, b^l > + < r, f^l_p > ] + (biases of final norm and head)
    d^l_j = < r, sum_h alpha^h_pj f^h(x^l_j) >        c^l_k = sum_j d^l_j M^l_jk        M^0 = 1,  M^{l+1} = A^l M^l

p is the position that is read, r the token's row of the head (less the foil's), read through the
final norm with the scale of the true state; x^0 what enters the first layer, f^h(x_j) projected
values (attention_norm.py), b the output projection's bias, f the feed-forwards; A^l is ALTI's map
(attention_norm.py) with rows that sum to one: so c^l adds up to d^l, whatever A is. Behind an encoder with
map E, cross-attention has a d of its own, and M says of which tokens and of which of the encoder's
units a state is made (Ferrando et al. 2022b). With G^l cross-attention's map, g^l_i = sum_k G^l_ik:

    M^{l+1} = (1 - g^l) A^l M^l + G^l E
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...adapters.binding.layer_components import Norm

if TYPE_CHECKING:
    from ...adapters.capture.layer_run import Block

# What `torch.nn.functional.pairwise_distance`, and with it the published code, adds to every
# coordinate of a difference.
PUBLISHED_EPS = 1e-6


def read_attention(block: Block, rows: Tensor, logit_directions: Tensor) -> tuple[Tensor, Tensor]:
    """What one attention block adds to numbers that are read off the residual stream: d_j of each
    source, < r, b >.

    Parameters
    ----------
    block : Block
        Of a pre-norm stack. Where its output is normed before the residual sum (Gemma 3), that norm
        is passed at the scale of the true output.
    rows : Tensor [P]
        Positions that are read.
    readers : Tensor [P, D]
        r of each.

    Returns
    -------
    Tensor [P, K], by source position, and Tensor [P], of biases
    """
    norm_terms = torch.zeros_like(logit_directions[:, 0])
    if block.modules.attention.branch_norm is not None:
        norm = Norm(block.modules.attention.branch_norm, block.attention_output(rows))
        norm_terms, logit_directions = (
            (logit_directions * norm.bias).sum(dim=-1),
            norm.pull_back(logit_directions),
        )
    head_directions = torch.einsum("hcd,pd->hpc", block.output_weight, logit_directions)
    source_terms = (block.attention(rows) * (head_directions @ block.values.transpose(1, 2))).sum(
        dim=0
    )
    return source_terms, norm_terms + logit_directions @ block.output_bias


class InputShares:
    """Of which inputs the states that enter the next layer are made: M, carried from layer to
    layer.

    Attributes
    ----------
    encoder : Tensor [W, W] or None
        E: rows and columns are the encoder's units. None before its first layer.
    decoder : Tensor [N, N + W] or None
        M of a decoder's first N positions: columns are those positions, then the encoder's units.

    Examples
    --------
    >>> shares = InputShares()
    >>> shares.pass_decoder(torch.tensor([[2.0, 0.0], [1.0, 3.0]]))
    >>> shares.decoder
    tensor([[1.0000, 0.0000],
            [0.2500, 0.7500]])
    """

    def __init__(self) -> None:
        self.encoder: Tensor | None = None
        self.decoder: Tensor | None = None

    def pass_encoder(self, scores: Tensor) -> None:
        """Go through an encoder's layer, by ALTI's raw map [W, W]."""
        rows = _normalize_rows(scores)
        self.encoder = rows if self.encoder is None else rows @ self.encoder

    def start_decoder(self, positions: int, template: Tensor) -> Tensor:
        """M of so many positions; before the first layer each is made of its own token."""
        if self.decoder is None:
            units = 0 if self.encoder is None else len(self.encoder)
            self.decoder = torch.eye(
                positions, positions + units, dtype=template.dtype, device=template.device
            )
        return self.decoder

    def pass_decoder(self, scores: Tensor, cross: Tensor | None = None) -> None:
        """Go through a decoder's layer, by ALTI's raw map [N, N] of its tokens and its shares [N,
        W] of cross-attention."""
        shares = _normalize_rows(scores) @ self.start_decoder(len(scores), scores)
        if cross is not None and self.encoder is not None:
            shares = (1 - cross.sum(dim=-1, keepdim=True)) * shares
            shares[:, len(scores) :] += cross @ self.encoder
        self.decoder = shares


def _normalize_rows(scores: Tensor) -> Tensor:
    """Rows that sum to one; a unit that nothing brings nearer to its own output is left as it
    is."""
    sums = scores.sum(dim=-1, keepdim=True)
    identity = torch.eye(len(scores), dtype=scores.dtype, device=scores.device)
    return torch.where(sums > 0, scores / sums.where(sums > 0, torch.ones_like(sums)), identity)
