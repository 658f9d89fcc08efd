"""How a change of one block's attention context travels through the rest of its layer: the delta
form of Value Zeroing.

In: a captured block, target rows, changes of their attention context. Out: the change of the
layer's output. Each row's own states are computed once and only the change is carried:

    da = W_O dctx     dn = LN(a + da) - LN(a)     dh = W_1 dn     dg = phi(h + dh) - phi(h)     dy = da + W_2 dg

(pre-norm; the like for post-norm, RMS norm, gated feed-forward, and for cross-attention behind a
changed self-attention). All of it is position-wise but a Conformer's convolution, which is given
the changes of all rows in the target rows' windows. Differences of norms, weights and activations
are written without cancellation, so that rounding is relative to the change rather than the state,
and the products with W_1 and W_2 may run in lower precision (`Product`). Shapes: R rows, S changes
(sources, or heads x sources), D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor, nn

from ...errors import ModelError
from ..binding.layer_components import weight_of
from ..binding.norms import Norm
from .changes import Attend, FeedForward
from .convolve import Convolve
from .products import Product

if TYPE_CHECKING:
    from ..capture.block import Block

# Sums of up to so many vectors take little time in any precision.
_FEW = 64


class Carrier:
    """The rest of one layer behind its studied attention block, for some target rows.

    Parameters
    ----------
    block : Block
        Of a layer that is described (`Layer.rest`).
    rows : Tensor [R]
        Target positions.
    product : Product, optional
        Does the matrix products; in the precision of the states if not given.
    positions : sequence of int [R], optional
        The rows on the host, where they are known there.

    Attributes
    ----------
    states : Tensor [R, D]
        The layer's output at the rows.
    entering : Tensor [W]
        Positions whose context changes are carried: the target rows, or what reaches them through a
        convolution.

    Raises
    ------
    ModelError
        If the layer is not described.
    """

    def __init__(
        self,
        block: Block,
        rows: Tensor,
        *,
        product: Product | None = None,
        positions: Sequence[int] | None = None,
    ):
        rest = block.modules.rest
        if rest is None:
            raise ModelError(f"the layers of the {block.stack.name} are not described: replay them")
        self._pre = block.stack.spec.norm_order == "pre"
        self._product = product or Product(block.values.dtype)
        self._product.enter(block.modules.module)
        self._out_module = block.modules.attention.output
        self._whole = Product(block.values.dtype)  # W_O: what it rounds goes both on and around
        self._out = self._whole.of(self._out_module)
        self._steps: list[Callable[[Tensor], Tensor]] = []
        self._own: dict[nn.Module, Tensor] = {}  # the rows' own states behind W_1, up to scale
        convolve = None
        if rest.convolution is not None:
            convolve = Convolve(
                block,
                rest.convolution,
                rows.tolist() if positions is None else positions,
                self._product,
            )
        self.entering = rows if convolve is None else convolve.entering
        behind = None
        if block.modules.parallel:
            state = block.output[rows]  # nothing lies behind attention but what is added to it
        else:
            state = block.residual(self.entering) + block.attention_output(self.entering)
        if rest.norm is not None and not self._pre:
            behind = Norm(rest.norm, state)
            self._steps.append(behind.change)
            state = rest.norm(state)
        for attention in rest.attentions:
            state, _ = self._sublayer(attention.norm, state, Attend(block, attention, rows))
        if convolve is not None and rest.convolution is not None:
            state = self._convolved(rest.convolution.norm, state, convolve)
        # The feed-forward right behind the studied block, the norm before it, and how many steps
        # lead through both.
        self._first: tuple[Norm, FeedForward, int] | None = None
        for number, modules in enumerate(rest.feed_forwards):
            feed_forward, done = (
                FeedForward(block, modules, rows, self._product),
                len(self._steps) + 1,
            )
            state, norm = self._sublayer(modules.norm, state, feed_forward)
            if number == 0 and not rest.attentions and convolve is None:
                self._first = (behind or norm, feed_forward, done)
        for closing in (rest.closing_norm, block.final_norm):
            if closing is not None:
                self._steps.append(Norm(closing, state).change)
                state = closing(state)
        self.states = state

    def __call__(self, context_change: Tensor) -> Tensor:
        """Change of the layer's output [S, R, D] for changes of the context [S, W, H d] of the
        entering rows."""
        change = self._out(context_change)
        for step in self._steps:
            change = step(change)
        return change

    def of_values(
        self, alpha: Tensor, values: Tensor, *, n_sources: int, at_once: int
    ) -> Iterator[Tensor]:
        """Changes of the layer's output [S', R, D] when sources' value vectors are taken away,
        about so many at a time.

        All rows' changes are sums of the same few vectors, v_j^h for each head and position of a
        source. Up to each row's scale a norm is linear, so W_O and the first feed-forward matrix
        W_1 can be made one matrix that acts on those vectors: U_j^h = v_j^h F^h with F = W_O^T C
        gain W_1^T, and dh = sum_hj alpha^h_j U_j^h. Done where it saves work.

        Parameters
        ----------
        alpha : Tensor [H, W, S, J]
            Attention weights of the entering rows for J positions of each source.
        values : Tensor [H, S, J, d]
        n_sources : int
            How many sources there are in all, which share the cost of F.
        at_once : int
        """
        batches = max(
            1, round(values.shape[1] / at_once)
        )  # even ones: each reads all the weights again
        at_once = -(-values.shape[1] // batches)
        if self._first is None or not self._few_pay(
            self._first[1].width, alpha.shape, values.shape[-1], n_sources
        ):
            for weights, vectors in zip(
                alpha.split(at_once, dim=2), values.split(at_once, dim=1), strict=True
            ):
                context = -(weights.transpose(1, 2) @ vectors)  # [H, S', R, d]
                yield self(context.permute(1, 2, 0, 3).flatten(2))
            return
        norm, feed_forward, done = self._first
        out = weight_of(self._out_module).T  # [H d, D]
        changed = _Combined(values, out, self._whole)
        entered: dict[nn.Module, _Combined] = {}
        for projection in feed_forward.entered:
            entered[projection] = _Combined(
                values, self._together(projection, norm, out), self._product
            )
            if projection not in self._own:
                self._own[projection] = (
                    feed_forward.own(projection) - projection(norm.bias)
                ) * norm.deviation
        for start in range(0, values.shape[1], at_once):
            sources = slice(start, start + at_once)
            weights = -alpha[:, :, sources].permute(2, 1, 0, 3).flatten(2)  # [S', R, H J]
            change = changed(weights, sources)
            inverse, shift = norm.scales(change)
            enters = partial(self._entering, entered, weights * inverse, shift, sources)
            change = (change if self._pre else norm.change(change)) + feed_forward.change_by(enters)
            for step in self._steps[done:]:
                change = step(change)
            yield change

    def _together(self, projection: nn.Module, norm: Norm, out: Tensor) -> Tensor:
        """W_O, what is linear of a norm, and a projection behind it as one matrix F, [H d, out]."""
        return self._product.fused(
            self._out_module, projection, lambda: self._product.of(projection)(norm.direction(out))
        )

    def _entering(
        self,
        entered: Mapping[nn.Module, _Combined],
        weights: Tensor,
        shift: Tensor,
        sources: slice,
        projection: nn.Module,
    ) -> Tensor:
        """The change behind a projection that enters the first feed-forward, [S', R, F]."""
        return entered[projection](weights, sources).addcmul_(self._own[projection], shift)

    def _few_pay(self, up: int, shape: tuple[int, ...], width: int, n_sources: int) -> bool:
        """True if acting on the value vectors takes fewer multiplications than acting on the
        rows."""
        heads, rows, _, positions = shape
        if heads * positions > 2 * rows:  # the vectors would take the memory saved
            return False
        inner, out = heads * width, self.states.shape[-1]
        on_rows = rows * (inner * out + out * up)
        on_values = positions * inner * (out + up) + rows * heads * positions * (out + up)
        return n_sources * (on_rows - on_values) > inner * out * up

    def _convolved(self, module: nn.Module, state: Tensor, convolve: Convolve) -> Tensor:
        """Add the convolution's residual block, and go on with the target rows alone."""
        norm, kept = Norm(module, state), convolve.kept
        self._steps.append(lambda change: change[:, kept] + convolve.change(norm.change(change)))
        return state[kept] + convolve.given

    def _sublayer(
        self, module: nn.Module, state: Tensor, block: Attend | FeedForward
    ) -> tuple[Tensor, Norm]:
        """Add one residual block: state + block(norm(state)), or norm(state + block(state)); and
        the norm at its state."""
        if self._pre:
            norm = Norm(module, state)
            self._steps.append(lambda change: change + block.change(norm.change(change)))
            return state + block.start(module(state)), norm
        state = state + block.start(state)
        norm = Norm(module, state)
        self._steps += [lambda change: change + block.change(change), norm.change]
        return module(state), norm


class _Combined:
    """Sums over heads and positions of weights times v_j^h M^h, for a matrix M [H d, out].

    Parameters
    ----------
    values : Tensor [H, S, J, d]
    """

    def __init__(self, values: Tensor, matrix: Tensor, product: Product):
        by_head = matrix.unflatten(0, (len(values), -1))
        vectors = product.unconverted(
            values.flatten(1, 2).to(product.dtype), by_head
        )  # [H, S J, out]
        self._vectors = vectors.unflatten(1, values.shape[1:3]).transpose(0, 1)  # [S, H, J, out]
        self._product = product

    def __call__(self, weights: Tensor, sources: slice) -> Tensor:
        """The sums for some sources, [S', R, out], with weights [S', R, H J]."""
        vectors = self._vectors[sources].flatten(1, 2)
        if weights.shape[-1] <= _FEW:
            result: Tensor = weights @ vectors.to(weights.dtype)
            return result
        return self._product(weights, vectors)
