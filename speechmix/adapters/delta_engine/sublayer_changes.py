"""Compute how feed-forward and later attention change with their input.

In: feed-forward blocks and later attention blocks of a captured layer, at its own states. Out:
differences of two outputs, written so that nothing cancels. `change_propagator.py` puts them together with
those of norms (../layer_components.py). Shapes: R rows, S changes (sources, or heads x sources), D width, F
width of the feed-forward, K sources of a later block.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..binding.layer_components import FeedForwardModules, LaterAttention, projection_weight
from .matrix_products import MatrixProduct

if TYPE_CHECKING:
    from ..capture.layer_run import Block

_MAX_SCORE_CHANGE = 80.0

# Changes of an activation's input up to here go by Taylor's series to the third order, which is
# then right to 3e-7 (GELU in float32) or 1e-13 (float64); the subtraction is as good for larger
# ones.
_MAX_SERIES_CHANGE = {torch.float32: 2**-6, torch.float64: 2**-13}


class ActivationChange:
    """Change of an activation at states x [R, F]: by Taylor's series in rows with small changes,
    where a subtraction cancels.

    Changes come from `product`: the series is right to the precision of float32 or float64.
    """

    def __init__(
        self, function: Callable[[Tensor], Tensor], states: Tensor, product: MatrixProduct
    ):
        self._function, self._states, self.output = function, states, function(states)
        self._terms: list[Tensor] | None = None
        self._has_series = isinstance(function, smooth_activations()) and {
            states.dtype,
            product.dtype,
        } <= set(_MAX_SERIES_CHANGE)

    def change(self, dx: Tensor) -> Tensor:
        """Return phi(x + dx) - phi(x) for changes dx [S, R, F], whose memory is reused."""
        if not self._has_series:
            return self._subtract(dx)
        is_small = (
            torch.maximum(dx.amax(dim=-1), -dx.amin(dim=-1)) < _MAX_SERIES_CHANGE[dx.dtype]
        )  # [S, R]
        if dx.device.type != "cpu":  # both, rather than wait to hear which rows
            series = self._evaluate_series(dx, slice(None))
            return torch.where(is_small[..., None], series, self._subtract(dx))
        if is_small.all():
            return self._evaluate_series(dx, slice(None))
        small_indices = is_small.nonzero(as_tuple=True)
        if not len(small_indices[0]):
            return self._subtract(dx)
        series = self._evaluate_series(dx[small_indices], small_indices[1])
        changed = self._subtract(dx)
        changed[small_indices] = series
        return changed

    def _subtract(self, dx: Tensor) -> Tensor:
        return self._function(dx.add_(self._states)).sub_(self.output)

    def _evaluate_series(self, dx: Tensor, rows: Tensor | slice) -> Tensor:
        if self._terms is None:
            self._terms = taylor_coefficients(self._function, self._states)
        first, second, third = (term[rows] for term in self._terms)
        return torch.addcmul(second, dx, third).mul_(dx).add_(first).mul_(dx)


class FeedForwardChange:
    """Change of a feed-forward block, with or without a gate.

    `projected_width` counts the numbers behind its input projections, for each row.
    """

    def __init__(
        self, block: Block, modules: FeedForwardModules, rows: Tensor, product: MatrixProduct
    ):
        self._modules, self._recorded_output, self._rows = modules, block.recorded_output, rows
        self._product, self._project_down = product, product.without_bias(modules.down)
        self.input_projections = [
            module for module in (modules.up, modules.gate) if module is not None
        ]
        self.projected_width = sum(
            projection_weight(module).shape[0] for module in self.input_projections
        )

    def record_output(self, x: Tensor) -> Tensor:
        """Run the block on the rows' own states, keep what `change` needs, and return its output."""
        up, gate, down = self._modules.up, self._modules.gate, self._modules.down
        self._up_states = self._recorded_output(up, self._rows, lambda: up(x))
        self._gate_states = (
            self._up_states
            if gate is None
            else self._recorded_output(gate, self._rows, lambda: gate(x))
        )
        self._activation = ActivationChange(
            self._modules.activation, self._gate_states, self._product
        )
        output = self._activation.output
        block_output = self._recorded_output(
            down, self._rows, lambda: down(output if gate is None else output * self._up_states)
        )
        return block_output * self._modules.scale

    def base_projection(self, projection: nn.Module) -> Tensor:
        """Return the output of the up or gate projection for the rows' own states."""
        return self._gate_states if projection is self._modules.gate else self._up_states

    def change(self, dx: Tensor) -> Tensor:
        return self.change_from(lambda projection: self._product.without_bias(projection)(dx))

    def change_from(self, project_change: Callable[[nn.Module], Tensor]) -> Tensor:
        """Return the change, given a function that multiplies a projection's weight with dx."""
        up, gate = self._modules.up, self._modules.gate
        hidden = self._activation.change(project_change(up if gate is None else gate))
        if gate is not None:  # (f + df)(h + dh) - f h
            dh = project_change(up)
            hidden = hidden * (self._up_states + dh) + self._activation.output * dh
        return self._project_down(hidden) * self._modules.scale


@cache
def smooth_activations() -> tuple[type[nn.Module], ...]:
    """Return the activations whose change a Taylor series approximates."""
    # Imported when used: with it torch sets up its compiler, which sets an environment variable and
    # makes a folder.
    from transformers import activations

    names = (
        "GELUTanh",
        "NewGELUActivation",
        "FastGELUActivation",
        "QuickGELUActivation",
        "SiLUActivation",
    )
    return (*_gelus(), nn.SiLU, *(getattr(activations, name) for name in names))


@cache
def _gelus() -> tuple[type[nn.Module], ...]:
    from transformers.activations import GELUActivation

    return (nn.GELU, GELUActivation)


def taylor_coefficients(activation: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    """Return the first three derivatives of an activation at x, over 1, 2 and 6."""
    if isinstance(activation, _gelus()) and getattr(activation, "approximate", "none") == "none":
        density = (-0.5 * x.square()).exp() / math.sqrt(2 * math.pi)
        first = torch.special.ndtr(x).addcmul_(x, density)
        return [first, density * (1 - x.square() / 2), density * x * (x.square() - 4) / 6]
    coefficients = []
    with torch.enable_grad():
        states = x.detach().requires_grad_()
        value = activation(states)
        for order in (1, 2, 3):
            (value,) = torch.autograd.grad(value.sum(), states, create_graph=True)
            coefficients.append(value.detach() / math.factorial(order))
    return coefficients


class AttentionChange:
    """Change of an attention block behind the studied one: its queries change, its keys and values
    do not.

    With ds the change of a row's scores and alpha its weights, z_k = alpha_k expm1(ds_k) and s =
    sum_k z_k, the weights change by (z - s alpha) / (1 + s) and the context by (sum_k z_k v_k - s
    context) / (1 + s). Softmax does not see what all ds_k have in common: less their mean under
    alpha, s is of second order and at least 0, so nothing cancels. The products keep the states'
    precision: softmax magnifies their rounding.
    """

    def __init__(self, block: Block, modules: LaterAttention, rows: Tensor):
        self._call, self._rows, self._modules, self._recorded_output = (
            block.call(modules.attention_index),
            rows,
            modules,
            block.recorded_output,
        )
        product = MatrixProduct(self._call.value.dtype)
        self._project_query, self._project_output = (
            product.without_bias(modules.query),
            product.without_bias(modules.output),
        )
        self._alpha = self._call.weights(rows)  # [H, R, K]
        self._context = self._alpha @ self._call.value  # [H, R, d]

    def record_output(self, x: Tensor) -> Tensor:
        # Some models scale queries themselves (Whisper), others leave it to the attention function.
        projected, input_projections = (
            self._modules.query(x),
            self._call.query[:, self._rows].transpose(0, 1).flatten(1),
        )
        self._scale = (
            self._call.scale * (projected * input_projections).sum() / projected.square().sum()
        )
        self._mean_key = (self._alpha @ self._call.key) * self._scale  # [H, R, d]
        context = self._context.transpose(0, 1).flatten(1)
        return self._recorded_output(
            self._modules.output, self._rows, lambda: self._modules.output(context)
        )

    def change(self, dx: Tensor) -> Tensor:
        head_count = len(self._alpha)
        dq = (
            self._project_query(dx).unflatten(-1, (head_count, -1)).permute(2, 0, 1, 3)
        )  # [H, S, R, d]
        change_shape = dq.shape[1:3]
        mean_score = (dq * self._mean_key[:, None]).sum(dim=-1).flatten(1)  # [H, S R]
        z = torch.baddbmm(
            -mean_score[..., None], dq.flatten(1, 2) * self._scale, self._call.key.transpose(1, 2)
        )  # ds
        z = (
            z.clamp_(max=_MAX_SCORE_CHANGE).expm1_().unflatten(1, change_shape)
        )  # finite in float32; e^80 is as good as any more
        z *= self._alpha[:, None]  # [H, S, R, K]
        s = z.sum(dim=-1, keepdim=True)
        dcontext = (z.flatten(1, 2) @ self._call.value).unflatten(1, change_shape)  # [H, S, R, d]
        dcontext = (dcontext - s * self._context[:, None]) / (1 + s)
        return self._project_output(dcontext.permute(1, 2, 0, 3).flatten(2))
