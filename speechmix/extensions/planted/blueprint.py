"""Blueprint of a model with hand-set weights, written into its layers as matrices.

In: the matrices of every layer between channels (`hand_set_weights`), and a basis. Each class of
models is configured, never changed: three layers, four heads, ReLU in the feed-forward, output
weights of its own. States enter as constant + content + position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from ...adapters.transformers_types import PretrainedModule
from .hand_set_weights import (
    CHANNELS,
    N_CHANNELS,
    N_POSITIONS,
    WIDTH,
    HandSetAttention,
    HandSetFeedForward,
    neutral_norm_gain,
    position_channel,
)

N_LAYERS = 3

# Tokens: the empty one (a CTC model's blank), contents, what is said, and a few more words with
# content.
EMPTY_TOKEN, TOKEN_BY_CONTENT, YES_TOKEN, NO_TOKEN, N_TOKENS = 0, {1: 1, -1: 2}, 3, 4, 8
_CONTENT_BY_TOKEN = {1: 1, 2: -1, 5: 1, 6: -1, 7: 1}
# What is said where nothing arrives: yes, with this part of the margin that an answer makes.
_DEFAULT_MARGIN_SHARE, SHARPNESS = 0.25, 4.0


@dataclass(frozen=True)
class HandSetLayer:
    """Matrices of one layer between channels; `cross` in a decoder behind an encoder."""

    attention: HandSetAttention
    feed_forward: HandSetFeedForward
    cross: HandSetAttention | None = None


@dataclass(frozen=True)
class Blueprint:
    """What a model is made of.

    Parameters
    ----------
    layers : mapping of str to sequence of HandSetLayer
        By stack; those of "decoder" hold cross-attention too.
    basis : Tensor [C, D]
    constant : float
    shift : int
        Of the positional convolution.
    """

    layers: Mapping[str, Sequence[HandSetLayer]]
    basis: Tensor
    constant: float
    shift: int = 0

    @property
    def readout_logits(self) -> Tensor:
        """Logits [C, V] of the tokens: the answer's sign, and a little for "yes"."""
        logits = torch.zeros(N_CHANNELS, N_TOKENS, dtype=torch.double)
        for token, sign in ((YES_TOKEN, 1), (NO_TOKEN, -1)):
            logits[CHANNELS["answer"], token] = sign * SHARPNESS
            logits[CHANNELS["constant"], token] = (
                sign * SHARPNESS * _DEFAULT_MARGIN_SHARE / self.constant
            )
        return logits

    @property
    def position_states(self) -> Tensor:
        """What a position adds to a state, [N, D]: the constant, and the position's own channel."""
        states = self.constant * self.basis[CHANNELS["constant"]].repeat(N_POSITIONS, 1)
        return states + self.basis[[position_channel(p) for p in range(N_POSITIONS)]]

    @property
    def token_states(self) -> Tensor:
        """What a token adds to a state, [V, D]: its content."""
        states = torch.zeros(N_TOKENS, WIDTH, dtype=torch.double)
        for token, content in _CONTENT_BY_TOKEN.items():
            states[token] = content * self.basis[CHANNELS["content"]]
        return states


class Affine(Protocol):
    """A linear layer, or a Conv1D of GPT-2."""

    @property
    def weight(self) -> Tensor: ...

    @property
    def bias(self) -> Tensor: ...


def zero_weights(module: PretrainedModule, constant: float) -> PretrainedModule:
    """Return the model in float64 with all weights at zero and layer norms that let states through."""
    module = module.double().eval().requires_grad_(False)
    for submodule in module.modules():
        for weights in submodule.parameters(recurse=False):
            weights.zero_()
        if isinstance(submodule, nn.LayerNorm):
            submodule.weight.fill_(neutral_norm_gain(constant))
    return module


def write_matrix(layer: Affine, matrix: Tensor, bias: Tensor | None = None) -> None:
    """Write a matrix [in, out] into a linear layer (whose weight is [out, in]) or a Conv1D of GPT-2
    ([in, out])."""
    layer.weight.copy_(matrix.T if isinstance(layer, nn.Linear) else matrix)
    if bias is not None:
        layer.bias.copy_(bias)


def write_attention(attention: HandSetAttention, basis: Tensor, **projections: Affine) -> None:
    """Write queries, keys, values and outputs of all heads."""
    for name in ("query", "key", "value"):
        write_matrix(projections[name], basis.T @ getattr(attention, name))
    write_matrix(projections["output"], attention.output @ basis)


def write_feed_forward(
    feed_forward: HandSetFeedForward, basis: Tensor, up: Affine, down: Affine
) -> None:
    """Write both layers of a feed-forward."""
    write_matrix(up, basis.T @ feed_forward.up, feed_forward.bias)
    write_matrix(down, feed_forward.down @ basis)


def token_ids(contents: Sequence[int]) -> Tensor:
    """Return token ids [1, N]: the empty one first."""
    return torch.tensor([[EMPTY_TOKEN, *(TOKEN_BY_CONTENT[content] for content in contents[1:])]])
