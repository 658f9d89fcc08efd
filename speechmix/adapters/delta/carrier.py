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

from collections.abc import Iterator
from typing import TYPE_CHECKING

from torch import Tensor, nn

from ..plans import AttentionPlan, FeedForwardPlan, weight_of
from .changes import Attend, FeedForward, Norm
from .products import Product

if TYPE_CHECKING:
    from ..block import Block

# Sums of up to so many vectors take little time in any precision.
_FEW = 64


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
        self._norm: Norm | None = None  # the norm made last
        self._own: dict[nn.Module, Tensor] = {}  # the rows' own states behind W_1, up to scale
        self._first: tuple[Norm, FeedForward, int] | None = None  # feed-forward right behind the block, steps with it
        state = self._post_norm(plan.blocks[studied].norm, block.residual(rows) + block.attention_output(rows))
        for index, later in enumerate(plan.blocks[studied + 1 :], start=studied + 1):
            state = self._sublayer(later, state, Attend(block, index, rows))
        for number, plan_of_one in enumerate(plan.feed_forwards):
            feed_forward = FeedForward(block, plan_of_one, rows, self._product)
            entered = self._norm
            state = self._sublayer(plan_of_one, state, feed_forward)
            if number == 0 and studied == len(plan.blocks) - 1:
                self._first = (self._entered, feed_forward, 1) if self._pre else (entered, feed_forward, 2)
        if block.final_norm is not None:
            norm = Norm(block.final_norm, state)
            self._steps.append(norm.change)
            state = block.final_norm(state)
        self.states = state

    def __call__(self, context_change: Tensor) -> Tensor:
        """Change of the layer's output [S, R, D] for changes of the context [S, R, H d]."""
        change = self._out(context_change)
        for step in self._steps:
            change = step(change)
        return change

    def of_values(self, alpha: Tensor, values: Tensor, *, n_sources: int, at_once: int) -> Iterator[Tensor]:
        """Changes of the layer's output [S', R, D] when sources' value vectors are taken away, about so many at a time.

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
        at_once : int
        """
        batches = max(1, round(values.shape[1] / at_once))  # even ones: each reads all the weights again
        at_once = -(-values.shape[1] // batches)
        if not self._few_pay(alpha.shape, values.shape[-1], n_sources):
            for weights, vectors in zip(alpha.split(at_once, dim=2), values.split(at_once, dim=1), strict=True):
                context = -(weights.transpose(1, 2) @ vectors)  # [H, S', R, d]
                yield self(context.permute(1, 2, 0, 3).flatten(2))
            return
        norm, feed_forward, done = self._first
        out = weight_of(self._out_module).T  # [H d, D]
        changed = _Combined(values, out, self._whole)
        entered: dict[nn.Module, _Combined] = {}
        for projection in feed_forward.entered:
            fused = self._product.fused(
                self._out_module, projection, lambda up=projection: self._product.of(up)(norm.direction(out))
            )
            entered[projection] = _Combined(values, fused, self._product)
            if projection not in self._own:
                self._own[projection] = (feed_forward.own(projection) - projection(norm.bias)) * norm.deviation
        for first in range(0, values.shape[1], at_once):
            sources = slice(first, first + at_once)
            weights = -alpha[:, :, sources].permute(2, 1, 0, 3).flatten(2)  # [S', R, H J]
            change = changed(weights, sources)
            inverse, shift = norm.scales(change)
            scaled = weights * inverse
            change = (change if self._pre else norm.change(change)) + feed_forward.change_by(
                lambda up, scaled=scaled, shift=shift, sources=sources: entered[up](scaled, sources).addcmul_(
                    self._own[up], shift
                )
            )
            for step in self._steps[done:]:
                change = step(change)
            yield change

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
        self._norm = Norm(norm, state)
        self._steps.append(self._norm.change)
        return norm(state)

    def _sublayer(self, plan: AttentionPlan | FeedForwardPlan, state: Tensor, block: Attend | FeedForward) -> Tensor:
        """Add one residual block: state + block(norm(state)), or norm(state + block(state))."""
        norm = self._part(plan.norm)
        self._entered = Norm(norm, state) if self._pre else None
        enter = self._entered.change if self._entered else _same
        output = block.start(norm(state) if self._pre else state)
        self._steps.append(lambda change: change + block.change(enter(change)))
        return self._post_norm(plan.norm, state + output)


class _Combined:
    """Sums over heads and positions of weights times v_j^h M^h, for a matrix M [H d, out].

    Parameters
    ----------
    values : Tensor [H, S, J, d]
    """

    def __init__(self, values: Tensor, matrix: Tensor, product: Product):
        by_head = matrix.unflatten(0, (len(values), -1))
        vectors = product.unconverted(values.flatten(1, 2).to(product.dtype), by_head)  # [H, S J, out]
        self._vectors = vectors.unflatten(1, values.shape[1:3]).transpose(0, 1)  # [S, H, J, out]
        self._product = product

    def __call__(self, weights: Tensor, sources: slice) -> Tensor:
        """The sums for some sources, [S', R, out], with weights [S', R, H J]."""
        vectors = self._vectors[sources].flatten(1, 2)
        if weights.shape[-1] <= _FEW:
            return weights @ vectors.to(weights.dtype)
        return self._product(weights, vectors)


def described(block: Block) -> bool:
    """True if the block's layer is described well enough to carry changes through it.

    Blocks whose own output is normed (Gemma 3) are replayed: where all of it is taken away, a change says nothing.
    """
    plan = block.stack.plan
    parts = (*plan.blocks[plan.block :], *plan.feed_forwards)
    behind = plan.blocks[plan.block + 1 :]
    complete = all(part.norm for part in parts) and all(attention.query for attention in behind)
    return bool(plan.feed_forwards) and complete and not any(part.branch_norm for part in parts)


def _same(change: Tensor) -> Tensor:
    return change
