"""How a change of one block's attention context travels through the rest of its layer: the delta form of Value Zeroing.

In: a captured block, target rows, changes of their attention context. Out: the change of the layer's output. Everything
behind attention is position-wise, so each row's own states are computed once and only the change is carried:

    da = W_O dctx     dn = LN(a + da) - LN(a)     dh = W_1 dn     dg = phi(h + dh) - phi(h)     dy = da + W_2 dg

(pre-norm; the like for post-norm, RMS norm, gated feed-forward, and for cross-attention behind a changed self-attention).
Differences of norms, weights and activations are written without cancellation, so that rounding is relative to the change
rather than the state, and the products with W_1 and W_2 may run in lower precision (`Product`).
Shapes: R rows, S changes (sources, or heads x sources), D width.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from transformers import activations

from .blocks import AttentionPlan, FeedForwardPlan, eps_of, gain_of, weight_of

if TYPE_CHECKING:
    from .captured import Block

TF32 = "tf32"

_LARGEST = 80.0

# Sums of up to so many vectors take little time in any precision.
_FEW = 64

# Changes of an activation's input up to here go by Taylor's series to the third order, which is then right to 3e-7 (GELU
# in float32) or 1e-13 (float64); the subtraction is as good for larger ones.
_SMALL = {torch.float32: 2**-6, torch.float64: 2**-13}
_GELU = (nn.GELU, activations.GELUActivation)
_SMOOTH = (
    *_GELU,
    activations.GELUTanh,
    activations.NewGELUActivation,
    activations.FastGELUActivation,
    activations.QuickGELUActivation,
    nn.SiLU,
    activations.SiLUActivation,
)


class Carrier:
    """The rest of one layer behind its studied attention block, for some target rows.

    Parameters
    ----------
    block : Block
        Of a stack whose plan describes its layers (`StackPlan.feed_forwards`).
    rows : Tensor [R]
        Target positions.
    product : Product, optional
        Does the matrix products; in the precision of the states if not given.

    Attributes
    ----------
    states : Tensor [R, D]
        The layer's output at the rows.
    """

    def __init__(self, block: Block, rows: Tensor, *, product: Product | None = None):
        plan, studied = block.stack.plan, block.stack.plan.block
        self._pre, self._part = plan.norm_order == "pre", block.part
        self._product = product or Product(block.values.dtype)
        self._product.enter(block.stack.layers[block.layer])
        self._out_module = block.part(plan.blocks[studied].output)
        self._whole = Product(block.values.dtype)  # W_O: what it rounds goes both on and around
        self._out = self._whole.of(self._out_module)
        self._steps: list = []
        self._norm: _Norm | None = None  # the norm made last
        self._own: dict[nn.Module, Tensor] = {}  # the rows' own states behind W_1, up to scale
        self._first: tuple[_Norm, _FeedForward, int] | None = None  # feed-forward right behind the block, steps with it
        state = self._post_norm(plan.blocks[studied].norm, block.residual(rows) + block.attention_output(rows))
        for index, later in enumerate(plan.blocks[studied + 1 :], start=studied + 1):
            state = self._sublayer(later, state, _Attend(block, index, rows))
        for number, plan_of_one in enumerate(plan.feed_forwards):
            feed_forward = _FeedForward(block, plan_of_one, rows, self._product)
            entered = self._norm
            state = self._sublayer(plan_of_one, state, feed_forward)
            if number == 0 and studied == len(plan.blocks) - 1:
                self._first = (self._entered, feed_forward, 1) if self._pre else (entered, feed_forward, 2)
        if block.final_norm is not None:
            norm = _Norm(block.final_norm, state)
            self._steps.append(norm.change)
            state = block.final_norm(state)
        self.states = state

    def __call__(self, context_change: Tensor) -> Tensor:
        """Change of the layer's output [S, R, D] for changes of the context [S, R, H d]."""
        change = self._out(context_change)
        for step in self._steps:
            change = step(change)
        return change

    def of_values(self, alpha: Tensor, values: Tensor, *, n_sources: int) -> Tensor:
        """Change of the layer's output [S, R, D] when sources' value vectors are taken away.

        All rows' changes are sums of the same few vectors, v_j^h for each head and position of a source. Up to each row's
        scale a norm is linear, so W_O and the first feed-forward matrix W_1 can be made one matrix that acts on those
        vectors: U_j^h = v_j^h F^h with F = W_O^T C gain W_1^T, and dh = sum_hj alpha^h_j U_j^h. Done where it saves work.

        Parameters
        ----------
        alpha : Tensor [H, R, S, J]
            Attention weights of the rows for J positions of each source.
        values : Tensor [H, S, J, d]
        n_sources : int
            How many sources there are in all, which share the cost of F.
        """
        if not self._few_pay(alpha.shape, values.shape[-1], n_sources):
            context = -(alpha.transpose(1, 2) @ values)  # [H, S, R, d]
            return self(context.permute(1, 2, 0, 3).flatten(2))
        norm, feed_forward, done = self._first
        weights = -alpha.permute(2, 1, 0, 3).flatten(2)  # [S, R, H J]
        product, few = self._product, values.flatten(1, 2)  # [H, S J, d]

        def combined(matrix: Tensor, product: Product) -> Tensor:
            """Sum_hj of weights times v_j^h M^h for a matrix [H d, out]: [S, R, out]."""
            by_head = matrix.unflatten(0, (len(few), -1))
            vectors = product.unconverted(few.to(product.dtype), by_head).unflatten(1, values.shape[1:3])
            vectors = vectors.transpose(0, 1).flatten(1, 2)  # [S, H J, out]
            return weights @ vectors.to(weights.dtype) if weights.shape[-1] <= _FEW else product(weights, vectors)

        out = weight_of(self._out_module).T  # [H d, D]
        change = combined(out, self._whole)
        inverse, shift = norm.scales(change)

        def enters(projection: nn.Module) -> Tensor:
            fused = product.once((id(projection), "fused"), lambda: product.of(projection)(norm.direction(out)))
            if projection not in self._own:
                self._own[projection] = (feed_forward.own(projection) - projection(norm.bias)) * norm.deviation
            return combined(fused, product).mul_(inverse).addcmul_(self._own[projection], shift)

        change = (change if self._pre else norm.change(change)) + feed_forward.change_by(enters)
        for step in self._steps[done:]:
            change = step(change)
        return change

    def _few_pay(self, shape: tuple[int, ...], width: int, n_sources: int) -> bool:
        """True if acting on the value vectors takes fewer multiplications than acting on the rows."""
        heads, rows, _, positions = shape
        if self._first is None or heads * positions > 2 * rows:  # the vectors would take the memory saved
            return False
        inner, out, up = heads * width, self.states.shape[-1], self._first[1].width
        on_rows = rows * (inner * out + out * up)
        on_values = positions * inner * (out + up) + rows * heads * positions * (out + up)
        return n_sources * (on_rows - on_values) > inner * out * up

    def _post_norm(self, path: str, state: Tensor) -> Tensor:
        """The norm that follows a residual sum, where the layer has one there."""
        if self._pre:
            return state
        norm = self._part(path)
        self._norm = _Norm(norm, state)
        self._steps.append(self._norm.change)
        return norm(state)

    def _sublayer(self, plan: AttentionPlan | FeedForwardPlan, state: Tensor, block: _Attend | _FeedForward) -> Tensor:
        """Add one residual block: state + block(norm(state)), or norm(state + block(state))."""
        norm = self._part(plan.norm)
        self._entered = _Norm(norm, state) if self._pre else None
        enter = self._entered.change if self._entered else _same
        output = block.start(norm(state) if self._pre else state)
        self._steps.append(lambda change: change + block.change(enter(change)))
        return self._post_norm(plan.norm, state + output)


@contextmanager
def _shortened_multiplication() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def described(block: Block) -> bool:
    """True if the block's layer is described well enough to carry changes through it.

    Blocks whose own output is normed (Gemma 3) are replayed: where all of it is taken away, a change says nothing.
    """
    plan = block.stack.plan
    parts = (*plan.blocks[plan.block :], *plan.feed_forwards)
    behind = plan.blocks[plan.block + 1 :]
    complete = all(part.norm for part in parts) and all(attention.query for attention in behind)
    return bool(plan.feed_forwards) and complete and not any(part.branch_norm for part in parts)


class Product:
    """Matrix products in one precision; what goes in and comes out has its own.

    What is made of a layer's weights (in that precision, or multiplied with each other) is kept while that layer is at
    hand: the clips of a batch, its stacks and chunks of rows share it.

    Parameters
    ----------
    dtype : torch.dtype or "tf32"
        "tf32" is float32 with a GPU's shortened multiplication.
    """

    def __init__(self, dtype: torch.dtype | str):
        self.dtype, self._tf32 = (torch.float32, True) if dtype == TF32 else (dtype, False)
        self._layer: nn.Module | None = None
        self._made: dict[tuple, Tensor] = {}

    def enter(self, layer: nn.Module) -> None:
        """Begin with a layer: forget what was made for another."""
        if layer is not self._layer:
            self._layer, self._made = layer, {}

    def once(self, key: tuple, make) -> Tensor:
        """Return what `make` gives in this precision, made once per layer."""
        if key not in self._made:
            self._made[key] = make().to(self.dtype)
        return self._made[key]

    def weight(self, projection: nn.Module) -> Tensor:
        """Weight of a projection, [out, in], in this precision."""
        return self.once((id(projection),), lambda: weight_of(projection))

    def of(self, projection: nn.Module):
        """Return the projection without its bias (a change has none), as a function."""
        weight = self.weight(projection)
        return lambda x: self(x, weight.T)

    def __call__(self, x: Tensor, matrix: Tensor) -> Tensor:
        """x M, in the precision of x."""
        return self.unconverted(x.to(self.dtype), matrix.to(self.dtype)).to(x.dtype)

    def unconverted(self, x: Tensor, matrix: Tensor) -> Tensor:
        """x M of two that have the precision of products."""
        with _shortened_multiplication() if self._tf32 else nullcontext():
            return x @ matrix


class _Norm:
    """Change of a layer norm or RMS norm for a change of its input.

    With c the centred input, s^2 its mean square and c', s' those of the changed input:
    N(x + dx) - N(x) = gain * ( dc / s' + c (1/s' - 1/s) ),    1/s' - 1/s = -(s'^2 - s^2) / (s s' (s + s')).
    """

    def __init__(self, norm: nn.Module, x: Tensor):
        self._centres = isinstance(norm, nn.LayerNorm)
        self._eps = eps = eps_of(norm)
        self._gain = gain_of(norm, x)
        bias = getattr(norm, "bias", None)
        self.bias = torch.zeros_like(self._gain) if bias is None else bias
        self._c = self._centred(x)
        self._square = self._c.square().mean(dim=-1, keepdim=True) + eps
        self._s = self._square.sqrt()

    def change(self, dx: Tensor) -> Tensor:
        inverse, shift = self.scales(dx)
        return (self._centred(dx) * inverse + self._c * shift) * self._gain

    def direction(self, dx: Tensor) -> Tensor:
        """gain * dc: what a change adds, up to each row's scale."""
        return self._centred(dx) * self._gain

    @property
    def deviation(self) -> Tensor:
        """s of the input itself, [R, 1]."""
        return self._s

    def scales(self, dx: Tensor) -> tuple[Tensor, Tensor]:
        """1/s' and 1/s' - 1/s, each with a last axis of 1."""
        dc = self._centred(dx)
        more = ((2 * self._c + dc) * dc).mean(dim=-1, keepdim=True)  # s'^2 - s^2
        s = (self._square + more).clamp_min(self._eps).sqrt()
        return 1 / s, -more / (self._s * s * (self._s + s))

    def _centred(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=-1, keepdim=True) if self._centres else x


class _FeedForward:
    """Change of a plain or gated feed-forward block; `width` counts the numbers that enter it for each row."""

    def __init__(self, block: Block, plan: FeedForwardPlan, rows: Tensor, product: Product):
        self._plan, self._seen, self._rows = plan, block.seen, rows
        self._up_module, self._down_module = block.part(plan.up), block.part(plan.down)
        self._gate_module = block.part(plan.gate) if plan.gate else None
        self._activation, self._terms = block.part(plan.activation), None
        self._smooth = isinstance(self._activation, _SMOOTH)
        self._product, self._down = product, product.of(self._down_module)
        entered = (self._up_module, self._gate_module)
        self.width = sum(weight_of(module).shape[0] for module in entered if module is not None)

    def start(self, x: Tensor) -> Tensor:
        """Keep what the change needs of the rows' own states; return what the block gives them."""
        plan, rows = self._plan, self._rows
        self._h = self._seen(plan.up, rows, lambda up: up(x))
        self._g = self._h if plan.gate is None else self._seen(plan.gate, rows, lambda gate: gate(x))
        self._active = self._activation(self._g)
        return self._seen(
            plan.down, rows, lambda down: down(self._active if plan.gate is None else self._active * self._h)
        )

    def own(self, projection: nn.Module) -> Tensor:
        """What the projection, up or gate, gives the rows' own states."""
        return self._g if projection is self._gate_module else self._h

    def change(self, dx: Tensor) -> Tensor:
        return self.change_by(lambda projection: self._product.of(projection)(dx))

    def change_by(self, enters) -> Tensor:
        """The same, given how the change looks behind a projection: ``enters(module)`` is its product with dx."""
        active = self._activated(enters(self._gate_module or self._up_module))
        if self._gate_module is not None:  # (f + df)(h + dh) - f h
            dh = enters(self._up_module)
            active = active * (self._h + dh) + self._active * dh
        return self._down(active)

    def _activated(self, dg: Tensor) -> Tensor:
        """phi(g + dg) - phi(g), for [S, R, F]; by Taylor's series in rows with small changes, where the subtraction cancels."""
        if not (self._smooth and {dg.dtype, self._product.dtype} <= set(_SMALL)):
            return self._activation(dg.add_(self._g)).sub_(self._active)
        small = torch.maximum(dg.amax(dim=-1), -dg.amin(dim=-1)) < _SMALL[dg.dtype]  # [S, R]
        if dg.is_cuda:  # both, rather than wait to hear which rows
            series = self._series(dg, slice(None))
            return torch.where(small[..., None], series, self._activation(dg.add_(self._g)).sub_(self._active))
        if small.all():
            return self._series(dg, slice(None))
        which = small.nonzero(as_tuple=True)
        series = self._series(dg[which], which[1]) if len(which[0]) else None
        active = self._activation(dg.add_(self._g)).sub_(self._active)
        if series is not None:
            active[which] = series
        return active

    def _series(self, dg: Tensor, rows: Tensor | slice) -> Tensor:
        if self._terms is None:
            self._terms = _taylor(self._activation, self._g)
        first, second, third = (term[rows] for term in self._terms)
        return torch.addcmul(second, dg, third).mul_(dg).add_(first).mul_(dg)


def _taylor(activation: nn.Module, x: Tensor) -> list[Tensor]:
    """First three derivatives of an activation at x, over 1, 2 and 6."""
    if isinstance(activation, _GELU) and getattr(activation, "approximate", "none") == "none":
        density = (-0.5 * x.square()).exp() / math.sqrt(2 * math.pi)
        first = torch.special.ndtr(x).addcmul_(x, density)
        return [first, density * (1 - x.square() / 2), density * x * (x.square() - 4) / 6]
    found = []
    with torch.enable_grad():
        at = x.detach().requires_grad_()
        value = activation(at)
        for order in (1, 2, 3):
            (value,) = torch.autograd.grad(value.sum(), at, create_graph=True)
            found.append(value.detach() / math.factorial(order))
    return found


class _Attend:
    """Change of an attention block behind the studied one: its queries change, its keys and values do not.

    With ds the change of a row's scores and alpha its weights, the weights change by alpha * expm1(ds - c),
    c = log1p( sum_k alpha_k expm1(ds_k) ). Its products keep the states' precision: softmax magnifies their rounding.
    """

    def __init__(self, block: Block, index: int, rows: Tensor):
        self._call, self._rows, self._plan, self._seen = (
            block.call(index),
            rows,
            block.stack.plan.blocks[index],
            block.seen,
        )
        product = Product(self._call.value.dtype)
        self._query_module = block.part(self._plan.query)
        self._query, self._out = product.of(self._query_module), product.of(block.part(self._plan.output))
        self._alpha = self._call.weights(rows)  # [H, R, K]

    def start(self, x: Tensor) -> Tensor:
        # Some models scale queries themselves (Whisper), others leave it to the attention function.
        projected, entered = self._query_module(x), self._call.query[:, self._rows].transpose(0, 1).flatten(1)
        self._scale = self._call.scale * (projected * entered).sum() / projected.square().sum()
        return self._seen(self._plan.output, self._rows, lambda output: output(self._context().flatten(1)))

    def _context(self) -> Tensor:
        return (self._alpha @ self._call.value).transpose(0, 1)

    def change(self, dx: Tensor) -> Tensor:
        heads, alpha = self._alpha.shape[0], self._alpha[:, None]  # [H, 1, R, K]
        dq = self._query(dx).unflatten(-1, (heads, -1)).permute(2, 0, 1, 3)  # [H, S, R, d]
        sources = dq.shape[1:3]
        ds = ((dq.flatten(1, 2) * self._scale) @ self._call.key.transpose(1, 2)).unflatten(1, sources)  # [H, S, R, K]
        ds -= (alpha * ds).sum(dim=-1, keepdim=True)  # softmax does not see it, and now c >= 0: nothing cancels
        ds.clamp_(max=_LARGEST)  # finite in float32; a change of e^80 in a weight is as good as any other
        c = torch.log1p((alpha * ds.expm1()).sum(dim=-1, keepdim=True))
        dalpha = alpha * (ds - c).clamp_(max=_LARGEST).expm1_()
        dcontext = (dalpha.flatten(1, 2) @ self._call.value).unflatten(1, sources)  # [H, S, R, d]
        return self._out(dcontext.permute(1, 2, 0, 3).flatten(2))


def _same(change: Tensor) -> Tensor:
    return change
