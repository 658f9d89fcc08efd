"""Propagate a change of one attention output through the rest of its layer.

In: a captured block, target rows, changes of their attention context. Out: the change of the
layer's output. Each row's own states are computed once and only the change is carried:

    da = W_O dctx     dn = LN(a + da) - LN(a)     dh = W_1 dn     dg = phi(h + dh) - phi(h)     dy = da + W_2 dg

(pre-norm; the like for post-norm, RMS norm, gated feed-forward, and for cross-attention behind a
changed self-attention). All of it is position-wise but a Conformer's convolution, which is given
the changes of all rows in the target rows' windows. Differences of norms, weights and activations
are written without cancellation, so that rounding is relative to the change rather than the state,
and the products with W_1 and W_2 may run in lower precision (`MatrixProduct`). Shapes: R rows, S changes
(sources, or heads x sources), D width.

Compute how a Conformer convolution's output changes with its input.

In: a captured block, target rows. Out: which rows' changes reach them (a window as wide as the
kernel), and from the changes of those rows [S, W, D] the change of what the convolution adds to the
target rows, [S, R, D], written so that nothing cancels. Shapes: R target rows, W rows of their
windows, S changes, D width, C channels.

Compute how feed-forward and later attention change with their input.

In: feed-forward blocks and later attention blocks of a captured layer, at its own states. Out:
differences of two outputs, written so that nothing cancels. `change_propagator.py` puts them together with
those of norms (../bound_layers.py). Shapes: R rows, S changes (sources, or heads x sources), D width, F
width of the feed-forward, K sources of a later block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ...errors import ModelError
from ..binding.bound_layers import (
    ConvolutionModules,
    FeedForwardModules,
    LaterAttention,
    Norm,
    projection_weight,
)
from ..capture.attention_calls import join_heads, split_heads
from ..capture.block_batch import BlockBatch
from ..capture.device_copy import to_device
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
        self,
        block: Block | BlockBatch,
        modules: FeedForwardModules,
        rows: Tensor,
        product: MatrixProduct,
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

    def __init__(self, block: Block | BlockBatch, modules: LaterAttention, rows: Tensor):
        self._call, self._rows, self._modules, self._recorded_output = (
            block.call(modules.attention_index),
            rows,
            modules,
            block.recorded_output,
        )
        self._clip_count = block.clip_count
        product = MatrixProduct(self._call.value.dtype)
        self._project_query, self._project_output = (
            product.without_bias(modules.query),
            product.without_bias(modules.output),
        )
        self._alpha = self._call.weights(rows)  # [H, R, K]
        self._context = self._alpha @ self._call.value  # [H, R, d]

    def record_output(self, x: Tensor) -> Tensor:
        # Some models scale queries themselves (Whisper), others leave it to the attention function.
        projected, input_projections = self._modules.query(x), self._call.query_rows(self._rows)
        self._scale = (
            self._call.scale * (projected * input_projections).sum() / projected.square().sum()
        )
        self._mean_key = (self._alpha @ self._call.key) * self._scale  # [H, R, d]
        context = join_heads(self._context, self._clip_count)
        return self._recorded_output(
            self._modules.output, self._rows, lambda: self._modules.output(context)
        )

    def change(self, dx: Tensor) -> Tensor:
        head_count = len(self._alpha) // self._clip_count
        dq = split_heads(self._project_query(dx), head_count, self._clip_count)  # [H, S, R, d]
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
        return self._project_output(join_heads(dcontext, self._clip_count))


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


# Sums of up to so many vectors take little time in any precision.
_MAX_SMALL_TERMS = 64


class ChangePropagator:
    """Carries changes of a layer's attention context to the layer's output, for R target rows.

    The layer must be described (`Layer.post_attention`), or a ModelError is raised. `product` does
    the matrix products, by default in the precision of the states; `positions` are the rows on the
    host, where they are known there. `states` [R, D] is the layer's output at the rows;
    `input_positions` [W] are those whose context changes are carried: the rows, or what reaches
    them through a convolution.
    """

    def __init__(
        self,
        block: Block | BlockBatch,
        rows: Tensor,
        *,
        product: MatrixProduct | None = None,
        positions: Sequence[int] | None = None,
    ):
        modules = block.modules.post_attention
        if modules is None:
            raise ModelError(f"the layers of the {block.stack.name} are not described: replay them")
        self._is_pre_norm, self._clip_count = (
            block.stack.spec.norm_order == "pre",
            block.clip_count,
        )
        self._product = product or MatrixProduct(block.values.dtype)
        self._product.begin_layer(block.modules.module)
        self._output_projection = block.modules.attention.output
        # W_O: what it rounds goes both on and around
        self._state_product = MatrixProduct(block.values.dtype)
        self._project_output = self._state_product.without_bias(self._output_projection)
        self._steps: list[Callable[[Tensor], Tensor]] = []
        # The rows' own states behind W_1, up to scale.
        self._row_projections: dict[nn.Module, Tensor] = {}
        convolution_change = None
        if modules.convolution is not None:
            assert not isinstance(block, BlockBatch)  # whose rows do not meet
            convolution_change = ConvolutionChange(
                block,
                modules.convolution,
                rows.tolist() if positions is None else positions,
                self._product,
            )
        self.input_positions = (
            rows if convolution_change is None else convolution_change.input_positions
        )
        post_norm = None
        if block.modules.parallel:
            state = block.output_rows(rows)  # nothing lies behind attention but what is added to it
        else:
            state = block.residual(self.input_positions) + block.attention_output(
                self.input_positions
            )
        if modules.norm is not None and not self._is_pre_norm:
            post_norm = Norm(modules.norm, state)
            self._steps.append(post_norm.change)
            state = modules.norm(state)
        for attention in modules.attentions:
            state, _ = self._add_sublayer(
                attention.norm, state, AttentionChange(block, attention, rows)
            )
        if convolution_change is not None and modules.convolution is not None:
            state = self._add_convolution(modules.convolution.norm, state, convolution_change)
        # The feed-forward right behind the studied block, the norm before it, and how many steps
        # lead through both.
        self._fused_feed_forward: tuple[Norm, FeedForwardChange, int] | None = None
        for index, feed_forward_modules in enumerate(modules.feed_forwards):
            feed_forward = FeedForwardChange(block, feed_forward_modules, rows, self._product)
            step_count = len(self._steps) + 1
            state, norm = self._add_sublayer(feed_forward_modules.norm, state, feed_forward)
            if index == 0 and not modules.attentions and convolution_change is None:
                self._fused_feed_forward = (post_norm or norm, feed_forward, step_count)
        for norm_module in (modules.closing_norm, block.final_norm):
            if norm_module is not None:
                self._steps.append(Norm(norm_module, state).change)
                state = norm_module(state)
        self.states = state

    def __call__(self, context_change: Tensor) -> Tensor:
        """Return the change of the layer's output [S, R, D] for changes of the context [S, W, H d]
        at the input positions."""
        change = self._project_output(context_change)
        for step in self._steps:
            change = step(change)
        return change

    def propagate_source_removals(
        self, alpha: Tensor, values: Tensor, *, source_count: int, batch_size: int
    ) -> Iterator[Tensor]:
        """Yield the changes of the layer's output [S', R, D] when sources' value vectors are
        removed, about `batch_size` sources at a time.

        `alpha` [H, W, S, J] are the attention weights of the input positions for J positions of
        each source, `values` [H, S, J, d]; `source_count` is the number of sources in all, which
        share the cost of F. All rows' changes are sums of the same few vectors, v_j^h for each head
        and position of a source. Up to each row's scale a norm is linear, so W_O and the first
        feed-forward matrix W_1 can be made one matrix that acts on those vectors: U_j^h = v_j^h F^h
        with F = W_O^T C gain W_1^T, and dh = sum_hj alpha^h_j U_j^h. Done where it saves work.
        """
        # Batches of equal size: each reads all the weights again.
        batch_count = max(1, round(values.shape[1] / batch_size))
        batch_size, clip_count = -(-values.shape[1] // batch_count), self._clip_count
        if self._fused_feed_forward is None or not self._is_cheaper_on_values(
            self._fused_feed_forward[1].projected_width, alpha.shape, values.shape[-1], source_count
        ):
            for weights, value_vectors in zip(
                alpha.split(batch_size, dim=2), values.split(batch_size, dim=1), strict=True
            ):
                context = -(weights.transpose(1, 2) @ value_vectors)  # [H, S', R, d]
                yield self(join_heads(context, clip_count))
            return
        norm, feed_forward, step_count = self._fused_feed_forward
        output_weight = projection_weight(self._output_projection).T  # [H d, D]
        by_clip_values = values.unflatten(0, (clip_count, -1))
        output_sums = _WeightedSums(by_clip_values, output_weight, self._state_product)
        sums_by_projection: dict[nn.Module, _WeightedSums] = {}
        for projection in feed_forward.input_projections:
            sums_by_projection[projection] = _WeightedSums(
                by_clip_values,
                self._fuse_with_output(projection, norm, output_weight),
                self._product,
            )
            if projection not in self._row_projections:
                self._row_projections[projection] = (
                    feed_forward.base_projection(projection) - projection(norm.bias)
                ) * norm.deviation
        for first_source in range(0, values.shape[1], batch_size):
            sources = slice(first_source, first_source + batch_size)
            by_clip = -alpha[:, :, sources].unflatten(0, (clip_count, -1))  # [C, H, R, S', J]
            weights = by_clip.permute(3, 0, 2, 1, 4).flatten(3)  # [S', C, R, H J]
            change = output_sums(weights, sources)
            inverse, shift = norm.scales(change)
            scaled_weights = weights * inverse.unflatten(1, (clip_count, -1))
            project_change = partial(
                self._project_values, sums_by_projection, scaled_weights, shift, sources
            )
            change = (
                change if self._is_pre_norm else norm.change(change)
            ) + feed_forward.change_from(project_change)
            for step in self._steps[step_count:]:
                change = step(change)
            yield change

    def _fuse_with_output(self, projection: nn.Module, norm: Norm, output_weight: Tensor) -> Tensor:
        """Multiply W_O, the linear part of a norm and a projection behind it to one matrix F [H d, out]."""
        return self._product.fused_weight(
            self._output_projection,
            projection,
            lambda: self._product.without_bias(projection)(norm.direction(output_weight)),
        )

    def _project_values(
        self,
        sums_by_projection: Mapping[nn.Module, _WeightedSums],
        weights: Tensor,
        shift: Tensor,
        sources: slice,
        projection: nn.Module,
    ) -> Tensor:
        """Return the change behind a projection into the first feed-forward, [S', R, F]."""
        return sums_by_projection[projection](weights, sources).addcmul_(
            self._row_projections[projection], shift
        )

    def _is_cheaper_on_values(
        self, projected_width: int, alpha_shape: tuple[int, ...], head_width: int, source_count: int
    ) -> bool:
        """True if acting on the value vectors takes fewer multiplications than acting on the
        rows."""
        heads, rows, _, positions = alpha_shape
        heads, source_count = heads // self._clip_count, source_count * self._clip_count
        if heads * positions > 2 * rows:  # the vectors would take the memory saved
            return False
        heads_width, model_width = heads * head_width, self.states.shape[-1]
        row_cost = rows * (heads_width * model_width + model_width * projected_width)
        value_cost = positions * heads_width * (
            model_width + projected_width
        ) + rows * heads * positions * (model_width + projected_width)
        return source_count * (row_cost - value_cost) > heads_width * model_width * projected_width

    def _add_convolution(
        self, module: nn.Module, state: Tensor, convolution_change: ConvolutionChange
    ) -> Tensor:
        """Add the convolution's residual block, and go on with the target rows alone."""
        norm, target_indices = Norm(module, state), convolution_change.target_indices
        self._steps.append(
            lambda change: (
                change[:, target_indices] + convolution_change.change(norm.change(change))
            )
        )
        return state[target_indices] + convolution_change.base_output

    def _add_sublayer(
        self, module: nn.Module, state: Tensor, sublayer_change: AttentionChange | FeedForwardChange
    ) -> tuple[Tensor, Norm]:
        """Add one residual block: state + sublayer_change(norm(state)), or norm(state + sublayer_change(state)); and
        the norm at its state."""
        if self._is_pre_norm:
            norm = Norm(module, state)
            self._steps.append(lambda change: change + sublayer_change.change(norm.change(change)))
            return state + sublayer_change.record_output(module(state)), norm
        state = state + sublayer_change.record_output(state)
        norm = Norm(module, state)
        self._steps += [lambda change: change + sublayer_change.change(change), norm.change]
        return module(state), norm


class _WeightedSums:
    """Sums over heads and positions of weights times v_j^h M^h, for a matrix M [H d, out] and
    values [C, H, S, J, d] of C clips."""

    def __init__(self, values: Tensor, matrix: Tensor, product: MatrixProduct):
        head_matrices = matrix.unflatten(0, (values.shape[1], -1))
        vectors = product.multiply(
            values.flatten(2, 3).to(product.dtype), head_matrices
        )  # [C, H, S J, out]
        # [S, C, H, J, out]
        self._vectors = vectors.unflatten(2, values.shape[2:4]).permute(2, 0, 1, 3, 4)
        self._product = product

    def __call__(self, weights: Tensor, sources: slice) -> Tensor:
        """The sums for some sources, [S', C R, out], with weights [S', C, R, H J]."""
        vectors = self._vectors[sources].flatten(2, 3)
        if weights.shape[-1] <= _MAX_SMALL_TERMS:
            result: Tensor = weights @ vectors.to(weights.dtype)
        else:
            result = self._product(weights, vectors)
        return result.flatten(1, 2)
