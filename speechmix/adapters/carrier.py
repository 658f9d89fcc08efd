"""How a change of one block's attention context travels through the rest of its layer: the delta form of Value Zeroing.

In: a captured block, target rows, changes of their attention context. Out: the change of the layer's output. Everything
behind attention is position-wise, so each row's own states are computed once and only the change is carried:

    da = W_O dctx     dn = LN(a + da) - LN(a)     dh = W_1 dn     dg = phi(h + dh) - phi(h)     dy = da + W_2 dg

(pre-norm; the like for post-norm, RMS norm, gated feed-forward, and for cross-attention behind a changed self-attention).
Differences of norms and weights are written without cancellation (that of the activation is a plain subtraction), so that
rounding is relative to the change rather than the state, and matrix products may run in lower precision (`product_dtype`).
Shapes: R rows, S changes (sources, or heads x sources), D width.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from .blocks import AttentionPlan, FeedForwardPlan, weight_of

if TYPE_CHECKING:
    from .captured import AttentionCall, Block

TF32 = "tf32"

_LARGEST = 80.0


class Carrier:
    """The rest of one layer behind its studied attention block, for some target rows.

    Parameters
    ----------
    block : Block
        Of a stack whose plan describes its layers (`StackPlan.feed_forwards`).
    rows : Tensor [R]
        Target positions.
    product_dtype : torch.dtype or "tf32", optional
        Precision of the matrix products; that of the states if not given.

    Attributes
    ----------
    states : Tensor [R, D]
        The layer's output at the rows.
    """

    def __init__(self, block: Block, rows: Tensor, *, product_dtype: torch.dtype | str | None = None):
        plan, studied = block.stack.plan, block.stack.plan.block
        self._pre, self._part = plan.norm_order == "pre", block.part
        self._product = Product(product_dtype or block.values.dtype)
        self._out = self._product.of(block.part(plan.blocks[studied].output))
        self._steps: list = []
        self._norm: _Norm | None = None  # the norm made last
        self._first: tuple[_Norm, _FeedForward, int] | None = None  # feed-forward right behind the block, steps with it
        state = self._post_norm(plan.blocks[studied].norm, block.residual(rows) + block.attention_output(rows))
        for index, later in enumerate(plan.blocks[studied + 1 :], start=studied + 1):
            state = self._sublayer(later, state, _Attend(block.call(index), rows, block.part, later))
        for number, plan_of_one in enumerate(plan.feed_forwards):
            feed_forward = _FeedForward(block.part, plan_of_one, self._product)
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

    def of_few(self, weights: Tensor, vectors: Tensor) -> Tensor | None:
        """Change of the output [S, R, D] where all rows' context changes are sums of the same few vectors.

        Up to each row's scale a norm is linear, so W_O and the first feed-forward matrix are applied to K vectors instead of
        R rows: for single frames, whose H value vectors are all there is, half the work.

        Parameters
        ----------
        weights : Tensor [S, R, K]
        vectors : Tensor [S, K, H d]
            The context changes are ``weights @ vectors``.
        """
        if self._first is None or weights.shape[-1] >= weights.shape[-2]:
            return self(weights @ vectors)
        norm, feed_forward, done = self._first
        moved = self._out(vectors)  # [S, K, D]
        change = weights @ moved
        inverse, shift = norm.scales(change)

        def enters(project) -> Tensor:
            return (weights @ project(norm.direction(moved))) * inverse + project(norm.own_direction) * shift

        change = (change if self._pre else norm.change(change)) + feed_forward.change_by(enters)
        for step in self._steps[done:]:
            change = step(change)
        return change

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
    """Matrix products with weights in one precision; what goes in and comes out has its own.

    Parameters
    ----------
    dtype : torch.dtype or "tf32"
        "tf32" is float32 with a GPU's shortened multiplication.
    """

    def __init__(self, dtype: torch.dtype | str):
        self.dtype, self._tf32 = (torch.float32, True) if dtype == TF32 else (dtype, False)

    def of(self, projection: nn.Module):
        """Return the projection without its bias (a change has none), as a function."""
        return self.with_weight(weight_of(projection))

    def with_weight(self, weight: Tensor):
        """Return x -> x W^T for a weight [out, in]."""
        weight = weight.to(self.dtype)

        def product(x: Tensor) -> Tensor:
            with _shortened_multiplication() if self._tf32 else nullcontext():
                return (x.to(self.dtype) @ weight.T).to(x.dtype)

        return product


class _Norm:
    """Change of a layer norm or RMS norm for a change of its input.

    With c the centred input, s^2 its mean square and c', s' those of the changed input:
    N(x + dx) - N(x) = gain * ( dc / s' + c (1/s' - 1/s) ),    1/s' - 1/s = -(s'^2 - s^2) / (s s' (s + s')).
    """

    def __init__(self, norm: nn.Module, x: Tensor):
        self._centres = isinstance(norm, nn.LayerNorm)
        self._eps = eps = getattr(norm, "eps", None) or getattr(norm, "variance_epsilon", 0.0)
        self._gain = _gain(norm, x, eps, self._centres)
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
    def own_direction(self) -> Tensor:
        """gain * c of the input itself, [R, D]."""
        return self._c * self._gain

    def scales(self, dx: Tensor) -> tuple[Tensor, Tensor]:
        """1/s' and 1/s' - 1/s, each with a last axis of 1."""
        dc = self._centred(dx)
        more = ((2 * self._c + dc) * dc).mean(dim=-1, keepdim=True)  # s'^2 - s^2
        s = (self._square + more).clamp_min(self._eps).sqrt()
        return 1 / s, -more / (self._s * s * (self._s + s))

    def _centred(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=-1, keepdim=True) if self._centres else x


def _gain(norm: nn.Module, x: Tensor, eps: float, centres: bool) -> Tensor:
    """What a norm multiplies by; read off an RMS norm by running it, for Gemma keeps it as weight - 1."""
    if centres:
        return x.new_ones(x.shape[-1]) if norm.weight is None else norm.weight
    return norm(x.new_ones(x.shape[-1])) * (1 + eps) ** 0.5


class _FeedForward:
    """Change of a plain or gated feed-forward block."""

    def __init__(self, part, plan: FeedForwardPlan, product: Product):
        self._up_module, self._down_module = part(plan.up), part(plan.down)
        self._gate_module = part(plan.gate) if plan.gate else None
        self._activation = part(plan.activation)
        self._up, self._down = product.of(self._up_module), product.of(self._down_module)
        self._gate = product.of(self._gate_module) if plan.gate else None

    def start(self, x: Tensor) -> Tensor:
        """Run on the rows' own states and keep what the change needs."""
        self._h = self._up_module(x)
        self._g = self._h if self._gate_module is None else self._gate_module(x)
        self._active = self._activation(self._g)
        return self._down_module(self._active if self._gate_module is None else self._active * self._h)

    def change(self, dx: Tensor) -> Tensor:
        return self.change_by(lambda project: project(dx))

    def change_by(self, enters) -> Tensor:
        """The same, given how the change looks behind a projection: ``enters(project)`` is project(dx)."""
        dg = enters(self._up if self._gate is None else self._gate)
        active = self._activation(dg.add_(self._g)).sub_(self._active)
        if self._gate is not None:  # (f + df)(h + dh) - f h
            dh = enters(self._up)
            active = active * (self._h + dh) + self._active * dh
        return self._down(active)


class _Attend:
    """Change of an attention block behind the studied one: its queries change, its keys and values do not.

    With ds the change of a row's scores and alpha its weights, the weights change by alpha * expm1(ds - c),
    c = log1p( sum_k alpha_k expm1(ds_k) ). Its products keep the states' precision: softmax magnifies their rounding.
    """

    def __init__(self, call: AttentionCall, rows: Tensor, part, plan: AttentionPlan):
        self._call, self._rows = call, rows
        product = Product(call.value.dtype)
        self._query, self._out = product.of(part(plan.query)), product.of(part(plan.output))
        self._query_module, self._out_module = part(plan.query), part(plan.output)
        self._alpha = call.weights(rows)  # [H, R, K]

    def start(self, x: Tensor) -> Tensor:
        # Some models scale queries themselves (Whisper), others leave it to the attention function.
        projected, entered = self._query_module(x), self._call.query[:, self._rows].transpose(0, 1).flatten(1)
        self._scale = self._call.scale * (projected * entered).sum() / projected.square().sum()
        context = (self._alpha @ self._call.value).transpose(0, 1).flatten(1)
        return self._out_module(context)

    def change(self, dx: Tensor) -> Tensor:
        heads = self._alpha.shape[0]
        dq = self._query(dx).unflatten(-1, (heads, -1)).transpose(1, 2)  # [S, H, R, d]
        ds = dq @ self._call.key.transpose(1, 2) * self._scale
        ds -= (self._alpha * ds).sum(dim=-1, keepdim=True)  # softmax does not see it, and now c >= 0: nothing cancels
        ds.clamp_(max=_LARGEST)  # finite in float32; a change of e^80 in a weight is as good as any other
        c = torch.log1p((self._alpha * ds.expm1()).sum(dim=-1, keepdim=True))
        dalpha = self._alpha * (ds - c).clamp_(max=_LARGEST).expm1_()
        return self._out((dalpha @ self._call.value).transpose(1, 2).flatten(2))


def _same(change: Tensor) -> Tensor:
    return change
