"""How the parts of a layer behind its studied attention block answer to a change of what enters
them.

In: feed-forward blocks and later attention blocks of a captured layer, at its own states. Out:
differences of two outputs, written so that nothing cancels. `carrier.py` puts them together with
those of norms (../norms.py). Shapes: R rows, S changes (sources, or heads x sources), D width, F
width of the feed-forward, K sources of a later block.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..binding.layer_components import FeedForwardModules, LaterAttention, weight_of
from .products import Product

if TYPE_CHECKING:
    from ..capture.block import Block

_LARGEST = 80.0

# Changes of an activation's input up to here go by Taylor's series to the third order, which is
# then right to 3e-7 (GELU in float32) or 1e-13 (float64); the subtraction is as good for larger
# ones.
_SMALL = {torch.float32: 2**-6, torch.float64: 2**-13}


class Activation:
    """Change of an activation at states x [R, F]: by Taylor's series in rows with small changes,
    where a subtraction cancels.

    Parameters
    ----------
    function : callable
    at : Tensor [R, F]
    product : Product
        What changes come from: the series is right to the precision of float32 or float64.
    """

    def __init__(self, function: Callable[[Tensor], Tensor], at: Tensor, product: Product):
        self._function, self._at, self.active = function, at, function(at)
        self._terms: list[Tensor] | None = None
        self._smooth = isinstance(function, smooth_activations()) and {
            at.dtype,
            product.dtype,
        } <= set(_SMALL)

    def change(self, dx: Tensor) -> Tensor:
        """phi(x + dx) - phi(x), for changes [S, R, F], which are written to."""
        if not self._smooth:
            return self._subtracted(dx)
        small = torch.maximum(dx.amax(dim=-1), -dx.amin(dim=-1)) < _SMALL[dx.dtype]  # [S, R]
        if dx.device.type != "cpu":  # both, rather than wait to hear which rows
            series = self._series(dx, slice(None))
            return torch.where(small[..., None], series, self._subtracted(dx))
        if small.all():
            return self._series(dx, slice(None))
        which = small.nonzero(as_tuple=True)
        if not len(which[0]):
            return self._subtracted(dx)
        series = self._series(dx[which], which[1])
        changed = self._subtracted(dx)
        changed[which] = series
        return changed

    def _subtracted(self, dx: Tensor) -> Tensor:
        return self._function(dx.add_(self._at)).sub_(self.active)

    def _series(self, dx: Tensor, rows: Tensor | slice) -> Tensor:
        if self._terms is None:
            self._terms = taylor(self._function, self._at)
        first, second, third = (term[rows] for term in self._terms)
        return torch.addcmul(second, dx, third).mul_(dx).add_(first).mul_(dx)


class FeedForward:
    """Change of a plain or gated feed-forward block; `width` counts the numbers that enter it for
    each row."""

    def __init__(self, block: Block, modules: FeedForwardModules, rows: Tensor, product: Product):
        self._modules, self._seen, self._rows = modules, block.seen, rows
        self._product, self._down = product, product.of(modules.down)
        self.entered = [module for module in (modules.up, modules.gate) if module is not None]
        self.width = sum(weight_of(module).shape[0] for module in self.entered)

    def start(self, x: Tensor) -> Tensor:
        """Keep what the change needs of the rows' own states; return what the block gives them."""
        up, gate, down = self._modules.up, self._modules.gate, self._modules.down
        self._h = self._seen(up, self._rows, lambda: up(x))
        self._g = self._h if gate is None else self._seen(gate, self._rows, lambda: gate(x))
        self._activation = Activation(self._modules.activation, self._g, self._product)
        active = self._activation.active
        given = self._seen(
            down, self._rows, lambda: down(active if gate is None else active * self._h)
        )
        return given * self._modules.scale

    def own(self, projection: nn.Module) -> Tensor:
        """What the projection, up or gate, gives the rows' own states."""
        return self._g if projection is self._modules.gate else self._h

    def change(self, dx: Tensor) -> Tensor:
        return self.change_by(lambda projection: self._product.of(projection)(dx))

    def change_by(self, enters: Callable[[nn.Module], Tensor]) -> Tensor:
        """The same, given how the change looks behind a projection: ``enters(module)`` is its
        product with dx."""
        up, gate = self._modules.up, self._modules.gate
        active = self._activation.change(enters(up if gate is None else gate))
        if gate is not None:  # (f + df)(h + dh) - f h
            dh = enters(up)
            active = active * (self._h + dh) + self._activation.active * dh
        return self._down(active) * self._modules.scale


@cache
def smooth_activations() -> tuple[type[nn.Module], ...]:
    """Activations that Taylor's series may stand in for."""
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


def taylor(activation: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    """First three derivatives of an activation at x, over 1, 2 and 6."""
    if isinstance(activation, _gelus()) and getattr(activation, "approximate", "none") == "none":
        density = (-0.5 * x.square()).exp() / math.sqrt(2 * math.pi)
        first = torch.special.ndtr(x).addcmul_(x, density)
        return [first, density * (1 - x.square() / 2), density * x * (x.square() - 4) / 6]
    terms = []
    with torch.enable_grad():
        at = x.detach().requires_grad_()
        value = activation(at)
        for order in (1, 2, 3):
            (value,) = torch.autograd.grad(value.sum(), at, create_graph=True)
            terms.append(value.detach() / math.factorial(order))
    return terms


class Attend:
    """Change of an attention block behind the studied one: its queries change, its keys and values
    do not.

    With ds the change of a row's scores and alpha its weights, z_k = alpha_k expm1(ds_k) and s =
    sum_k z_k, the weights change by (z - s alpha) / (1 + s) and the context by (sum_k z_k v_k - s
    context) / (1 + s). Softmax does not see what all ds_k have in common: less their mean under
    alpha, s is of second order and at least 0, so nothing cancels. The products keep the states'
    precision: softmax magnifies their rounding.
    """

    def __init__(self, block: Block, modules: LaterAttention, rows: Tensor):
        self._call, self._rows, self._modules, self._seen = (
            block.call(modules.number),
            rows,
            modules,
            block.seen,
        )
        product = Product(self._call.value.dtype)
        self._query, self._out = product.of(modules.query), product.of(modules.output)
        self._alpha = self._call.weights(rows)  # [H, R, K]
        self._context = self._alpha @ self._call.value  # [H, R, d]

    def start(self, x: Tensor) -> Tensor:
        # Some models scale queries themselves (Whisper), others leave it to the attention function.
        projected, entered = (
            self._modules.query(x),
            self._call.query[:, self._rows].transpose(0, 1).flatten(1),
        )
        self._scale = self._call.scale * (projected * entered).sum() / projected.square().sum()
        self._mean_key = (self._alpha @ self._call.key) * self._scale  # [H, R, d]
        context = self._context.transpose(0, 1).flatten(1)
        return self._seen(self._modules.output, self._rows, lambda: self._modules.output(context))

    def change(self, dx: Tensor) -> Tensor:
        heads = len(self._alpha)
        dq = self._query(dx).unflatten(-1, (heads, -1)).permute(2, 0, 1, 3)  # [H, S, R, d]
        sources = dq.shape[1:3]
        mean = (dq * self._mean_key[:, None]).sum(dim=-1).flatten(1)  # [H, S R]
        z = torch.baddbmm(
            -mean[..., None], dq.flatten(1, 2) * self._scale, self._call.key.transpose(1, 2)
        )  # ds
        z = (
            z.clamp_(max=_LARGEST).expm1_().unflatten(1, sources)
        )  # finite in float32; e^80 is as good as any more
        z *= self._alpha[:, None]  # [H, S, R, K]
        s = z.sum(dim=-1, keepdim=True)
        dcontext = (z.flatten(1, 2) @ self._call.value).unflatten(1, sources)  # [H, S, R, d]
        dcontext = (dcontext - s * self._context[:, None]) / (1 + s)
        return self._out(dcontext.permute(1, 2, 0, 3).flatten(2))
