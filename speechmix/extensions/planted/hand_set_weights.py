"""Weight matrices of hand-set attention heads and neurons over named channels.

In: what a layer should do (`Head`, `Neuron`). Out: its matrices between channels, to be written
into a model by a basis [C, D] whose rows are orthonormal and orthogonal to the all-ones vector. A
layer norm takes off the mean, which such states do not have, and divides by their length, which the
constant channel holds near C: with every gain at sqrt((C^2 + 3) / D) it is the identity up to a
factor 1 + O(1 / C^2), in any such basis. So a model can be written down in channels and turned at
will.

Blueprint of a model with hand-set weights, written into its layers as matrices.

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

WIDTH, N_HEADS, N_NEURONS = 64, 4, 32
N_CHANNELS = WIDTH // 2
N_POSITIONS = 8

# What a channel holds. Content is +1 or -1; the answer decides what the model says.
_NAMES = ("constant", "content", "answer", "carried", "own", "large", "sum", "held", "switch")
CHANNELS = {name: index for index, name in enumerate(_NAMES)}
_FIRST_POSITION = 16

# Squared length of what an ordinary state holds beside the constant.
_SQUARED_STATE_NORM = 3.0


def position_channel(position: int) -> int:
    """Return the channel that holds 1 at one position and 0 elsewhere."""
    return _FIRST_POSITION + position


def channel_basis(rotation_seed: int | None) -> Tensor:
    """Return the directions [C, D] of the channels: orthonormal, and orthogonal to the all-ones
    vector.

    Parameters
    ----------
    rotation_seed : int or None
        None for pairs of neighbouring axes, (e_1 - e_2) / sqrt 2 and so on; a number for a random
        basis.

    Examples
    --------
    >>> basis = channel_basis(1)
    >>> bool((basis @ basis.T - torch.eye(N_CHANNELS)).abs().max() < 1e-12), bool(basis.sum(dim=1).abs().max() < 1e-12)
    (True, True)
    """
    if rotation_seed is None:
        pairs = torch.zeros(N_CHANNELS, WIDTH, dtype=torch.double)
        channels = torch.arange(N_CHANNELS)
        pairs[channels, 2 * channels], pairs[channels, 2 * channels + 1] = 0.5**0.5, -(0.5**0.5)
        return pairs
    generator = torch.Generator().manual_seed(rotation_seed)
    gaussian = torch.randn(WIDTH, N_CHANNELS, generator=generator, dtype=torch.double)
    directions: Tensor = torch.linalg.qr(gaussian - gaussian.mean(dim=0))[0]
    return directions.T


def neutral_norm_gain(constant: float) -> float:
    """Return the gain of every layer norm at which an ordinary state does not change."""
    return float(((constant**2 + _SQUARED_STATE_NORM) / WIDTH) ** 0.5)


@dataclass(frozen=True)
class Head:
    """A head that looks at fixed positions and copies a channel.

    Parameters
    ----------
    looks : mapping of int to tuple of int
        Target position to the source positions it looks at, in equal parts. Every other position
        looks at the empty first one.
    reads, writes : str
        Channels of the source and of the target.
    gain : float
    logit : float
        Of what is looked at; of everything else it is 0. At 4, one position of eight has 0.89 of
        the attention, and each of the others 0.016.
    glances : float
        Logits of everything else are drawn between minus this and this.
    """

    looks: Mapping[int, tuple[int, ...]]
    reads: str
    writes: str
    gain: float = 1.0
    logit: float = 4.0
    glances: float = 0.0


_IDLE = Head({}, "constant", "constant", gain=0)


@dataclass(frozen=True)
class Neuron:
    """A unit of the feed-forward, relu(sum of what it reads + bias), added to the channels it
    writes."""

    reads: Mapping[str, float]
    writes: Mapping[str, float]
    bias: float = 0.0


@dataclass(frozen=True)
class HandSetAttention:
    """Matrices of an attention block between channels: query, key, value [C, D], output [D, C]."""

    query: Tensor
    key: Tensor
    value: Tensor
    output: Tensor


@dataclass(frozen=True)
class HandSetFeedForward:
    """Matrices of a feed-forward between channels: up [C, F], bias [F], down [F, C]."""

    up: Tensor
    bias: Tensor
    down: Tensor


class Noise:
    """What is drawn: Gaussian noise on matrices between channels, and where heads look a little;
    the same for the same seed.

    What reads the constant channel is left alone: noise there would be one common vector, C times
    as large as all other.
    """

    def __init__(self, scale: float, seed: int):
        self._scale, self._generator = scale, torch.Generator().manual_seed(seed)

    def glances(self) -> Tensor:
        """Draw logits [N, N] between -1 and 1, for positions that a head does not look at."""
        return (
            2 * torch.rand(N_POSITIONS, N_POSITIONS, generator=self._generator, dtype=torch.double)
            - 1
        )

    def add_to(self, matrix: Tensor, *, has_channel_rows: bool) -> Tensor:
        """Return the matrix with noise; its rows are channels or not."""
        noise = torch.randn(matrix.shape, generator=self._generator, dtype=matrix.dtype)
        if has_channel_rows:
            noise[CHANNELS["constant"]] = 0
        return matrix + self._scale * noise


def build_attention(heads: Sequence[Head], noise: Noise) -> HandSetAttention:
    """Build the matrices of up to four heads; other heads attend to the empty first position and
    write nothing."""
    head_width = WIDTH // N_HEADS
    query, key, value, output = (
        torch.zeros(N_CHANNELS, WIDTH, dtype=torch.double) for _ in range(4)
    )
    for index in range(N_HEADS):
        first_dimension = index * head_width
        head = heads[index] if index < len(heads) else _IDLE
        logits = head.glances * noise.glances()
        for position in range(
            N_POSITIONS
        ):  # a key is its position; a query says how hard each position is looked at
            key[position_channel(position), first_dimension + position] = 1
            logits[position, list(head.looks.get(position, (0,)))] = head.logit
            query[position_channel(position), first_dimension : first_dimension + N_POSITIONS] = (
                logits[position] * head_width**0.5
            )
        value[CHANNELS[head.reads], first_dimension] = head.gain != 0
        output[CHANNELS[head.writes], first_dimension] = head.gain
    query, key, value = (
        noise.add_to(matrix, has_channel_rows=True) for matrix in (query, key, value)
    )
    return HandSetAttention(query, key, value, noise.add_to(output.T, has_channel_rows=False))


def build_feed_forward(neurons: Sequence[Neuron], noise: Noise) -> HandSetFeedForward:
    """Build the matrices of a feed-forward with these neurons; the others do nothing."""
    up, down = (torch.zeros(N_CHANNELS, N_NEURONS, dtype=torch.double) for _ in range(2))
    bias = torch.zeros(N_NEURONS, dtype=torch.double)
    for index, neuron in enumerate(neurons):
        bias[index] = neuron.bias
        for name, weight in neuron.reads.items():
            up[CHANNELS[name], index] = weight
        for name, weight in neuron.writes.items():
            down[CHANNELS[name], index] = weight
    return HandSetFeedForward(
        noise.add_to(up, has_channel_rows=True), bias, noise.add_to(down.T, has_channel_rows=False)
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
