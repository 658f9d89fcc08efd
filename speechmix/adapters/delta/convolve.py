"""How a Conformer's convolution answers to a change of the states around it: the one part of a
layer that mixes positions.

In: a captured block, target rows. Out: which rows' changes reach them (a window as wide as the
kernel), and from the changes of those rows [S, W, D] the change of what the convolution adds to the
target rows, [S, R, D], written so that nothing cancels. Shapes: R target rows, W rows of their
windows, S changes, D width, C channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import ModelError
from ..binding.layer_components import ConvolutionModules
from ..binding.norms import Norm
from ..capture.device_copy import to_device
from .changes import Activation
from .products import Product

if TYPE_CHECKING:
    from ..capture.block import Block


class Convolve:
    """Change of a convolution block, from the rows of all windows to the target rows.

    Parameters
    ----------
    block : Block
    modules : ConvolutionModules
    positions : sequence of int [R]
        Target positions, each once.
    product : Product

    Attributes
    ----------
    entering : Tensor [W]
        Positions whose changes reach the target rows, in ascending order.
    kept : Tensor [R]
        Where the target rows are among them.
    """

    def __init__(
        self, block: Block, modules: ConvolutionModules, positions: Sequence[int], product: Product
    ):
        self._modules, self._product = modules, product
        self._expand, self._contract = product.of(modules.expand), product.of(modules.contract)
        reaching, targets = np.zeros(block.n_targets, dtype=bool), np.asarray(positions)
        for offset in range(-modules.left, modules.right + 1):
            around = targets + offset
            reaching[around[(around >= 0) & (around < len(reaching))]] = True
        windows, device = reaching.nonzero()[0], block.values.device
        rows = to_device(torch.as_tensor(targets), device)
        self.entering = to_device(torch.as_tensor(windows), device)
        self.kept = to_device(torch.as_tensor(np.searchsorted(windows, targets)), device)
        # Neighbours among the entering rows that are none in time (a gap between windows) do not
        # meet in any row that is kept.
        self._first, self._second = block.channels(modules.expand, self.entering).chunk(
            2, dim=-1
        )  # [W, C] each
        # Rows that a padding mask sets to zero before the convolution stay zero whatever changes.
        self._open = block.entering_channels(modules.depthwise, self.entering, modules.left).any(
            dim=-1, keepdim=True
        )
        self._norm = _norm_of(modules.depthwise_norm, block.channels(modules.depthwise, rows))
        self._activation = Activation(modules.activation, self._norm.normed, product)
        self.given = block.channels(modules.contract, rows)  # [R, D]

    def change(self, dx: Tensor) -> Tensor:
        """Change [S, R, D] of what the block gives the target rows, for changes [S, W, D] of what
        enters it."""
        first, second = self._expand(dx).chunk(2, dim=-1)
        opened = sigmoid_change(self._second, second)  # (a + da) sigmoid(b + db) - a sigmoid(b)
        gated = first * (self._second + second).sigmoid() + self._first * opened
        gated = (gated * self._open).transpose(1, 2)  # [S, C, W]
        padded = F.pad(gated, (self._modules.left, self._modules.right))
        depthwise = self._modules.depthwise
        mixed = F.conv1d(
            padded, depthwise.weight, dilation=depthwise.dilation, groups=depthwise.groups
        )
        mixed = mixed[..., self.kept].transpose(1, 2).contiguous()  # [S, R, C]
        return self._contract(self._activation.change(self._norm.change(mixed)))


class _BatchNorm:
    """A batch norm in evaluation: a scale for each channel."""

    def __init__(self, module: nn.BatchNorm1d, states: Tensor):
        if module.running_var is None:
            raise ModelError(
                "a convolution's batch norm keeps no running statistics, so what it does depends "
                "on the whole batch"
            )
        scale = (module.running_var + module.eps).rsqrt()
        self._scale = scale if module.weight is None else scale * module.weight
        self.normed = module(states)

    def change(self, dx: Tensor) -> Tensor:
        return dx * self._scale


class _LayerNorm(Norm):
    def __init__(self, module: nn.Module, states: Tensor):
        super().__init__(module, states)
        self.normed = module(states)


def _norm_of(module: nn.Module, states: Tensor) -> _BatchNorm | _LayerNorm:
    return (
        _BatchNorm(module, states)
        if isinstance(module, nn.BatchNorm1d)
        else _LayerNorm(module, states)
    )


def sigmoid_change(x: Tensor, dx: Tensor) -> Tensor:
    """Return sigmoid(x + dx) - sigmoid(x) without cancellation.

    With a the smaller and b the larger of both arguments it is, but for its sign, sigmoid(b)
    sigmoid(-a) (1 - e^(a - b)).

    Examples
    --------
    >>> sigmoid_change(torch.zeros(1), torch.tensor([1e-10])) / 1e-10
    tensor([0.2500])
    """
    changed = x + dx
    size = torch.maximum(x, changed).sigmoid() * (-torch.minimum(x, changed)).sigmoid()
    return -size * dx.sign() * (-dx.abs()).expm1()
