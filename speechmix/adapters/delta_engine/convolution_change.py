"""Compute how a Conformer convolution's output changes with its input.

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
from .matrix_products import MatrixProduct
from .sublayer_changes import ActivationChange

if TYPE_CHECKING:
    from ..capture.attention_block import Block


class ConvolutionChange:
    """Change of a convolution block, from the rows of all windows to the target rows `positions`
    [R], each once.

    `input_positions` [W] are those whose changes reach the target rows, ascending; `target_indices`
    [R] say where the target rows are among them.
    """

    def __init__(
        self,
        block: Block,
        modules: ConvolutionModules,
        positions: Sequence[int],
        product: MatrixProduct,
    ):
        self._modules, self._product = modules, product
        self._project_input, self._project_output = (
            product.without_bias(modules.expand),
            product.without_bias(modules.contract),
        )
        is_in_window, target_positions = (
            np.zeros(block.n_targets, dtype=bool),
            np.asarray(positions),
        )
        for offset in range(-modules.left, modules.right + 1):
            window_positions = target_positions + offset
            is_in_window[
                window_positions[(window_positions >= 0) & (window_positions < len(is_in_window))]
            ] = True
        input_indices, device = is_in_window.nonzero()[0], block.values.device
        rows = to_device(torch.as_tensor(target_positions), device)
        self.input_positions = to_device(torch.as_tensor(input_indices), device)
        self.target_indices = to_device(
            torch.as_tensor(np.searchsorted(input_indices, target_positions)), device
        )
        # Neighbours among the entering rows that are none in time (a gap between windows) do not
        # meet in any row that is kept.
        self._linear_states, self._gate_states = block.channels(
            modules.expand, self.input_positions
        ).chunk(2, dim=-1)  # [W, C] each
        # Rows that a padding mask sets to zero before the convolution stay zero whatever changes.
        self._is_unpadded = block.input_channels(
            modules.depthwise, self.input_positions, modules.left
        ).any(dim=-1, keepdim=True)
        self._norm = _create_norm(modules.depthwise_norm, block.channels(modules.depthwise, rows))
        self._activation = ActivationChange(modules.activation, self._norm.normed_states, product)
        self.base_output = block.channels(modules.contract, rows)  # [R, D]

    def change(self, dx: Tensor) -> Tensor:
        """Return the change of the block's output [S, R, D] for changes of its input [S, W, D]."""
        linear_delta, gate_delta = self._project_input(dx).chunk(2, dim=-1)
        sigmoid_delta = sigmoid_change(
            self._gate_states, gate_delta
        )  # (a + da) sigmoid(b + db) - a sigmoid(b)
        gated_delta = (
            linear_delta * (self._gate_states + gate_delta).sigmoid()
            + self._linear_states * sigmoid_delta
        )
        gated_delta = (gated_delta * self._is_unpadded).transpose(1, 2)  # [S, C, W]
        padded_delta = F.pad(gated_delta, (self._modules.left, self._modules.right))
        depthwise = self._modules.depthwise
        mixed_delta = F.conv1d(
            padded_delta, depthwise.weight, dilation=depthwise.dilation, groups=depthwise.groups
        )
        mixed_delta = (
            mixed_delta[..., self.target_indices].transpose(1, 2).contiguous()
        )  # [S, R, C]
        return self._project_output(self._activation.change(self._norm.change(mixed_delta)))


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
        self.normed_states = module(states)

    def change(self, dx: Tensor) -> Tensor:
        return dx * self._scale


class _LayerNorm(Norm):
    def __init__(self, module: nn.Module, states: Tensor):
        super().__init__(module, states)
        self.normed_states = module(states)


def _create_norm(module: nn.Module, states: Tensor) -> _BatchNorm | _LayerNorm:
    return (
        _BatchNorm(module, states)
        if isinstance(module, nn.BatchNorm1d)
        else _LayerNorm(module, states)
    )


def sigmoid_change(x: Tensor, dx: Tensor) -> Tensor:
    """Return sigmoid(x + dx) - sigmoid(x) without cancellation.

    With a the smaller and b the larger of both arguments it is, but for its sign, sigmoid(b)
    sigmoid(-a) (1 - e^(a - b)).
    """
    changed_x = x + dx
    size = torch.maximum(x, changed_x).sigmoid() * (-torch.minimum(x, changed_x)).sigmoid()
    return -size * dx.sign() * (-dx.abs()).expm1()
