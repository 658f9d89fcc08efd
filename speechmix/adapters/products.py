"""Matrix products in a precision of their own, with what is made of a layer's weights for them.

In: weights and vectors of a captured layer. Out: products for the delta engine (`carrier.py`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from .blocks import weight_of

TF32 = "tf32"


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


@contextmanager
def _shortened_multiplication() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
