"""Matrix products in a precision of their own, with what is made of a layer's weights for them.

In: weights and vectors of a captured layer. Out: products for the delta engine (`carrier.py`).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache

import torch
from torch import Tensor, nn

from ..binding.layer_components import weight_of

TF32 = "tf32"

_EMULATED = (
    2.0  # times as slow as float32: native types are faster, emulated ones tens of times slower
)
_TIMED_WIDTH = 512

# Bytes of what is made of weights that are kept from one clip to the next: 24 fused layers of
# Whisper-medium take 400 MB.
STORED_BYTES = 2**29


class WeightProducts:
    """What was made of a model's weights, kept from one clip to the next as long as the weights
    stay as they are.

    What comes first stays, up to a limit in bytes: passes go round the layers, so whatever was used
    longest ago is needed next.
    """

    def __init__(self, limit: int = STORED_BYTES):
        self._made: dict[Hashable, Tensor] = {}
        self._left = limit

    def get(self, key: Hashable) -> Tensor | None:
        """What was kept under the key."""
        return self._made.get(key)

    def offer(self, key: Hashable, made: Tensor) -> None:
        """Keep it, if there is room."""
        if made.nbytes <= self._left:
            self._made[key] = made
            self._left -= made.nbytes


class Product:
    """Matrix products in one precision; what goes in and comes out has its own.

    What is made of a layer's weights (in that precision, or multiplied with each other) is kept
    while that layer is at hand: the clips of a batch, its stacks and chunks of rows share it.

    Parameters
    ----------
    dtype : torch.dtype or "tf32"
        "tf32" is float32 with a GPU's shortened multiplication.
    store : WeightProducts, optional
        Where it is looked for, and left for the next clip.
    """

    def __init__(self, dtype: torch.dtype | str, store: WeightProducts | None = None):
        self.dtype, self._tf32 = (torch.float32, True) if dtype == TF32 else (dtype, False)
        self._store = store
        self._layer: nn.Module | None = None
        self._made: dict[tuple[object, ...], Tensor] = {}

    def enter(self, layer: nn.Module) -> None:
        """Begin with a layer: forget what was made for another."""
        if layer is not self._layer:
            self._layer, self._made = layer, {}

    def weight(self, projection: nn.Module) -> Tensor:
        """Weight of a projection, [out, in], in this precision."""
        own = weight_of(projection)
        return own if own.dtype == self.dtype else self._once((projection,), lambda: own)

    def fused(self, first: nn.Module, second: nn.Module, make: Callable[[], Tensor]) -> Tensor:
        """Return what `make` gives in this precision: two projections as one matrix."""
        return self._once((first, second), make)

    def _once(self, projections: tuple[nn.Module, ...], make: Callable[[], Tensor]) -> Tensor:
        key = (*projections, weight_of(projections[0]).dtype, self.dtype)
        if key not in self._made:
            made = self._store.get(key) if self._store else None
            if made is None:
                made = make().to(self.dtype)
                if self._store:
                    self._store.offer(key, made)
            self._made[key] = made
        return self._made[key]

    def of(self, projection: nn.Module) -> Callable[[Tensor], Tensor]:
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


def usable_products(dtype: torch.dtype, device: torch.device) -> torch.dtype:
    """The precision to multiply in: the one wanted, or float32 where the processor only emulates
    the wanted one.

    A processor without instructions for a type is tens of times slower in it. One small product is
    timed once per process; a warning, once, says when float32 is used instead.
    """
    if device.type != "cpu" or dtype.itemsize >= 4 or not is_emulated(dtype):
        return dtype
    return torch.float32


@cache
def is_emulated(dtype: torch.dtype) -> bool:
    """Whether this processor takes more than twice as long for a product of matrices in a type as
    in float32; warns if so."""
    slower = _seconds(dtype) / _seconds(torch.float32)
    if slower > _EMULATED:
        name = str(dtype).removeprefix("torch.")
        warnings.warn(
            f"product_dtype={name!r}: this processor multiplies {slower:.0f} times as slowly in "
            f"{name} as in float32, so "
            "float32 is used",
            stacklevel=2,
        )
    return slower > _EMULATED


def _seconds(dtype: torch.dtype) -> float:
    """The shortest of a few products of matrices, which other work on the machine disturbs
    least."""
    matrix = torch.linspace(-1, 1, _TIMED_WIDTH**2).view(_TIMED_WIDTH, -1).to(dtype)
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        matrix @ matrix
        seconds.append(time.perf_counter() - start)
    return min(seconds)


@contextmanager
def _shortened_multiplication() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
