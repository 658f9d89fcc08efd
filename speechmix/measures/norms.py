"""What each source adds to a target's state: the vectors behind attention norms with residual and layer norm, and ALTI.

    t_ij = s_i P( sum_h alpha^h_ij f^h(x_j) ) + [i = j] o_i        sum_j t_ij + (terms of biases) = y_i

f^h(x_j) is the projected value vector (see attention_norm.py), o_i the residual stream's own part. Behind layer norms P is
their linear part (centring, gain) and s_i one over the deviation of the whole sum, so nothing of size [T, T, D] is built.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..adapters.plans import gain_of
from ..errors import InputError, ModelError

if TYPE_CHECKING:
    from ..adapters.block import Block
    from ..adapters.plans import FeedForwardPlan


@dataclass(frozen=True)
class LinearNorm:
    """A norm at given states, without its bias: N(v) at row i = scale_i * direction(v), linear in v.

    Parameters
    ----------
    gain : Tensor [D]
    centred : bool
        True for a layer norm, False for an RMS norm.
    scale : Tensor [R]
        One over the deviation (root mean square) of each state.
    """

    gain: Tensor
    centred: bool
    scale: Tensor

    @classmethod
    def at(cls, norm: nn.Module, states: Tensor) -> LinearNorm:
        """Take a norm apart at states [R, D].

        Raises
        ------
        ModelError
            If it is neither a layer norm nor an RMS norm.
        """
        gain = gain_of(norm, states)
        if isinstance(norm, nn.LayerNorm):
            return cls(gain, True, (states.var(dim=-1, correction=0) + norm.eps).rsqrt())
        plain, normed = states * gain, norm(states)
        scale = (normed * plain).sum(-1) / plain.square().sum(-1).clamp_min(torch.finfo(states.dtype).tiny)
        if not torch.allclose(normed, scale[:, None] * plain, rtol=1e-3, atol=1e-4):
            raise ModelError(
                f"{type(norm).__name__} is neither a layer norm nor an RMS norm: no decomposition behind it"
            )
        return cls(gain, False, scale)

    def direction(self, vectors: Tensor) -> Tensor:
        """Apply the part that is the same for every row, to vectors [..., D]."""
        centred = vectors - vectors.mean(dim=-1, keepdim=True) if self.centred else vectors
        return centred * self.gain


@dataclass(frozen=True)
class Parts:
    """The vectors t_ij of some target rows, in pieces: what to do with an attended vector, and the residual's part.

    Parameters
    ----------
    linear : callable
        P, on vectors [..., D].
    scale : Tensor [R]
        s_i.
    own : Tensor [R, D]
        o_i, the residual stream's part; zeros if it is left out.
    output : Tensor [R, D]
        y_i: the true state that all parts and biases sum to.
    """

    linear: Callable[[Tensor], Tensor]
    scale: Tensor
    own: Tensor
    output: Tensor


def decompose(block: Block, rows: Tensor, *, norms: int = 0, residual: bool = True) -> Parts:
    """Take the state behind an attention block apart.

    Parameters
    ----------
    rows : Tensor [R]
        Target positions.
    norms : {0, 1, 2}
        How many norms of a post-norm layer the vectors pass: none (attention + residual), the attention block's, and the
        feed-forward's too, skipping the feed-forward itself but with the deviation of the true sum (GlobEnc).
    residual : bool
        Without it the parts are those of attention alone.

    Notes
    -----
    Where the attention output has a norm of its own before the residual sum (Gemma 3), attended vectors pass that one.
    """
    plan = block.stack.plan
    attention = plan.blocks[plan.block]
    branch = block.attention_output(rows)
    if not residual:
        return Parts(lambda vectors: vectors, torch.ones_like(branch[:, 0]), torch.zeros_like(branch), branch)
    own = block.residual(rows)
    paths = (attention.norm, *(plan.norm for plan in plan.feed_forwards))[:norms]
    if len(paths) < norms:
        raise InputError(
            f"this measure passes {norms} layer norms, but the table of the {block.stack.name} describes {len(paths)}: name "
            "the feed-forward's in its feed_forwards"
        )
    passed: list[LinearNorm] = []
    scale = torch.ones_like(own[:, 0])
    if attention.branch_norm is not None:
        branch_norm = block.part(attention.branch_norm)
        passed.append(LinearNorm.at(branch_norm, branch))
        scale, branch = passed[-1].scale, branch_norm(branch)
    states = own + branch
    for number, path in enumerate(paths):
        if number:
            states = states + feed_forward(block, plan.feed_forwards[number - 1], states)
        norm = block.part(path)
        passed.append(LinearNorm.at(norm, states))
        scale = scale * passed[-1].scale
        own = passed[-1].scale[:, None] * passed[-1].direction(own)
        states = norm(states)

    def linear(vectors: Tensor) -> Tensor:
        for norm in passed:
            vectors = norm.direction(vectors)
        return vectors

    return Parts(linear, scale, own, states)


def feed_forward(block: Block, plan: FeedForwardPlan, states: Tensor) -> Tensor:
    """Run a layer's feed-forward block on states [R, D], without its norm and residual."""
    up, activation = block.part(plan.up)(states), block.part(plan.activation)
    inner = activation(up) if plan.gate is None else activation(block.part(plan.gate)(states)) * up
    return block.part(plan.down)(inner)


def projected_values(block: Block, positions: Tensor | slice) -> Tensor:
    """Projected values f^h(x_j) of some source positions, [K', H, D]."""
    return torch.einsum("hkd,hdm->khm", block.values[:, positions], block.output_weight)


def attended(block: Block, weights: Tensor, values: Tensor) -> Tensor:
    """Sum over heads and sources of weights [H, R, K'] times projected values, [R, D]."""
    context = (weights @ values).transpose(0, 1)  # [R, H, d]
    return context.flatten(1) @ block.output_weight.flatten(0, 1)
