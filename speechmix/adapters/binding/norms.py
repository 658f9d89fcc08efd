"""Split a layer norm or RMS norm into its linear part and its scale per row.

With c the centred input (an RMS norm centres nothing) and s^2 its mean square:    N(x) = gain * c / s + bias.
Decompositions use it as it is, linear in what is added to a state whose s is known. The delta engine uses its exact change:
N(x + dx) - N(x) = gain * ( dc / s' + c (1/s' - 1/s) ), with s' of the changed input and no cancellation in the difference.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor, nn

from ...errors import ModelError
from .layer_components import module_bias


class Norm:
    """A layer norm or RMS norm at states x [R, D].

    `bias` [D] is zero where the norm has none; `deviation` [R, 1] is s, the root of each state's
    (centred) mean square.
    """

    def __init__(self, module: nn.Module, states: Tensor):
        self._module, self._states = module, states
        self._is_layer_norm = isinstance(module, nn.LayerNorm)
        self._eps = norm_epsilon(module)
        self._gain = norm_gain(module, states)
        bias = module_bias(module)
        self.bias = torch.zeros_like(self._gain) if bias is None else bias
        self._centred = self._centre(states)
        self._square = self._centred.square().mean(dim=-1, keepdim=True) + self._eps
        self.deviation = self._square.sqrt()

    @cached_property
    def scale(self) -> Tensor:
        """1/s of each state, [R]; measured by running an RMS norm, whatever it adds to the mean
        square.

        Any other kind of norm is a ModelError.
        """
        if self._is_layer_norm:
            return 1 / self.deviation[:, 0]
        unscaled, normed = self.direction(self._states), self._module(self._states)
        scale = (normed * unscaled).sum(-1) / unscaled.square().sum(-1).clamp_min(
            torch.finfo(unscaled.dtype).tiny
        )
        if not torch.allclose(normed, scale[:, None] * unscaled, rtol=1e-3, atol=1e-4):
            raise ModelError(
                f"{type(self._module).__name__} is neither a layer norm nor an RMS norm: no "
                "decomposition behind it"
            )
        result: Tensor = scale
        return result

    def direction(self, vectors: Tensor) -> Tensor:
        """gain * dc: what vectors [..., D] add to a state becomes, up to each row's scale."""
        return self._centre(vectors) * self._gain

    def pull_back(self, readout_vectors: Tensor) -> Tensor:
        """Turn vectors [R, D] that read the norm's output into vectors that read its input:
        <pull_back(r), dx> = <r, scale * direction(dx)>.

        An RMS norm may round inside (transformers computes it in single precision): each
        coordinate's own factor N(x) / x is taken then, so that what is read of x is what is read of
        N(x) to the last digit.
        """
        weighted = readout_vectors * (self.scale[:, None] * self._gain)
        if self._is_layer_norm:
            return self._centre(weighted)
        nonzero = self._states != 0
        factors = self._module(self._states) / self._states.where(
            nonzero, torch.ones_like(self._states)
        )
        return torch.where(nonzero, readout_vectors * factors, weighted)

    def change(self, dx: Tensor) -> Tensor:
        """Return N(x + dx) - N(x) for changes dx [..., R, D]."""
        inverse, shift = self.scales(dx)
        return (self._centre(dx) * inverse + self._centred * shift) * self._gain

    def scales(self, dx: Tensor) -> tuple[Tensor, Tensor]:
        """1/s' and 1/s' - 1/s = -(s'^2 - s^2) / (s s' (s + s')), each with a last axis of 1."""
        dc = self._centre(dx)
        square_change = ((2 * self._centred + dc) * dc).mean(dim=-1, keepdim=True)  # s'^2 - s^2
        s = (self._square + square_change).clamp_min(self._eps).sqrt()
        return 1 / s, -square_change / (self.deviation * s * (self.deviation + s))

    def _centre(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=-1, keepdim=True) if self._is_layer_norm else x


def norm_gain(norm: nn.Module, reference: Tensor) -> Tensor:
    """Return what a layer norm or RMS norm multiplies by, [D], in the precision and on the device
    of `reference` [..., D].

    An RMS norm is run to read it, because Gemma stores weight - 1.
    """
    if isinstance(norm, nn.LayerNorm):
        return reference.new_ones(reference.shape[-1]) if norm.weight is None else norm.weight
    result: Tensor = norm(reference.new_ones(reference.shape[-1])) * (1 + norm_epsilon(norm)) ** 0.5
    return result


def norm_epsilon(norm: nn.Module) -> float:
    """Return what a norm adds to the mean square."""
    eps: float | None = getattr(norm, "eps", None)
    variance_epsilon: float = getattr(norm, "variance_epsilon", 0.0)
    return eps or variance_epsilon
