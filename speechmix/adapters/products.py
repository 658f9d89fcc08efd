"""Matrix products in a precision of their own, with what is made of a layer's weights for them.

In: weights and vectors of a captured layer. Out: products for the delta engine (`carrier.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from .blocks import weight_of

TF32 = "tf32"

# Bytes of weights multiplied with each other that are kept from one clip to the next: 24 layers of Whisper-medium.
_KEPT_BYTES = 2**29


class Kept:
    """Weights multiplied with each other, kept from one clip to the next as long as the weights stay as they are.

    What comes first stays, up to a limit in bytes: passes go round the layers, so whatever was used longest ago is
    needed next.
    """

    def __init__(self, limit: int = _KEPT_BYTES):
        self._made: dict[Hashable, Tensor] = {}
        self._left = limit

    def once(self, key: Hashable, make: Callable[[], Tensor]) -> Tensor:
        """Return what `make` gives, or gave before for this key."""
        if key in self._made:
            return self._made[key]
        made = make()
        if made.nbytes <= self._left:
            self._made[key] = made
            self._left -= made.nbytes
        return made


class Product:
    """Matrix products in one precision; what goes in and comes out has its own.

    What is made of a layer's weights (in that precision, or multiplied with each other) is kept while that layer is at
    hand: the clips of a batch, its stacks and chunks of rows share it.

    Parameters
    ----------
    dtype : torch.dtype or "tf32"
        "tf32" is float32 with a GPU's shortened multiplication.
    kept : Kept, optional
        Where products of weights are looked for, and left for the next clip.
    """

    def __init__(self, dtype: torch.dtype | str, kept: Kept | None = None):
        self.dtype, self._tf32 = (torch.float32, True) if dtype == TF32 else (dtype, False)
        self._kept = kept
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

    def fused(self, first: nn.Module, second: nn.Module, make: Callable[[], Tensor]) -> Tensor:
        """Return what `make` gives in this precision: two projections as one matrix, made once per layer or model."""
        if self._kept is None:
            return self.once((id(first), id(second)), make)
        states = weight_of(first).dtype
        return self._kept.once((first, second, states, self.dtype), lambda: make().to(self.dtype))

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


@contextmanager
def _shortened_multiplication() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
