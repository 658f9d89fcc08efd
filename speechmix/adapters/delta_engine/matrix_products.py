"""Multiply matrices in a precision of choice, with weights prepared once per layer.

In: weights and vectors of a captured layer. Out: products for the delta engine (`change_propagator.py`).
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import InputError
from ..binding.bound_layers import projection_weight
from ..capture.module_access import resolve_dtype

TF32 = "tf32"

# Of a type against float32: native types are faster, emulated ones tens of times slower.
_MAX_SLOWDOWN = 2.0
_TIMING_WIDTH = 512

# Bytes of what is made of weights that are kept from one clip to the next: 24 fused layers of
# Whisper-medium take 400 MB.
MAX_STORED_BYTES = 2**29


class WeightProducts:
    """A store of matrices computed from a model's weights, shared by the clips of a run.

    What comes first stays, up to a limit in bytes: passes go round the layers, so whatever was used
    longest ago is needed next.
    """

    def __init__(self, max_bytes: int = MAX_STORED_BYTES):
        self._matrices: dict[Hashable, Tensor] = {}
        self._free_bytes = max_bytes

    def get(self, key: Hashable) -> Tensor | None:
        """Return the matrix stored under the key, or None."""
        return self._matrices.get(key)

    def store(self, key: Hashable, matrix: Tensor) -> None:
        """Store a matrix, if there is room."""
        if matrix.nbytes <= self._free_bytes:
            self._matrices[key] = matrix
            self._free_bytes -= matrix.nbytes


class MatrixProduct:
    """Matrix products in one precision; what goes in and comes out has its own. "tf32" is float32
    with a GPU's shortened multiplication.

    What is computed from a layer's weights (in that precision, or multiplied with each other) is
    kept in `store` while that layer is in use: the clips of a batch, its stacks and chunks of rows
    share it.
    """

    def __init__(self, dtype: torch.dtype | str, store: WeightProducts | None = None):
        self.dtype, self._tf32 = (torch.float32, True) if dtype == TF32 else (dtype, False)
        self._store = store
        self._layer: nn.Module | None = None
        self._matrices: dict[tuple[object, ...], Tensor] = {}
        self._in_other_dtypes: dict[torch.dtype | str, MatrixProduct] = {}

    def in_dtype(self, dtype: torch.dtype | str) -> MatrixProduct:
        """Return the products in another precision, with the same store."""
        if dtype not in self._in_other_dtypes:
            self._in_other_dtypes[dtype] = MatrixProduct(dtype, self._store)
        return self._in_other_dtypes[dtype]

    def begin_layer(self, layer: nn.Module) -> None:
        """Begin with a layer: forget the matrices of another."""
        if layer is not self._layer:
            self._layer, self._matrices = layer, {}

    def weight(self, projection: nn.Module) -> Tensor:
        """Return a projection's weight [out, in] in this precision."""
        stored_weight = projection_weight(projection)
        return (
            stored_weight
            if stored_weight.dtype == self.dtype
            else self._get_or_compute((projection,), lambda: stored_weight)
        )

    def fused_weight(
        self, first: nn.Module, second: nn.Module, compute_matrix: Callable[[], Tensor]
    ) -> Tensor:
        """Return two projections as one matrix in this precision, computed once for a layer."""
        return self._get_or_compute((first, second), compute_matrix)

    def _get_or_compute(
        self, projections: tuple[nn.Module, ...], compute_matrix: Callable[[], Tensor]
    ) -> Tensor:
        key = (*projections, projection_weight(projections[0]).dtype, self.dtype)
        if key not in self._matrices:
            matrix = self._store.get(key) if self._store else None
            if matrix is None:
                matrix = compute_matrix().to(self.dtype)
                if self._store:
                    self._store.store(key, matrix)
            self._matrices[key] = matrix
        return self._matrices[key]

    def without_bias(self, projection: nn.Module) -> Callable[[Tensor], Tensor]:
        """Return the projection without its bias (a change has none), as a function."""
        weight = self.weight(projection)
        return lambda x: self(x, weight.T)

    def __call__(self, x: Tensor, matrix: Tensor) -> Tensor:
        """Return x M, in the precision of x."""
        return self.multiply(x.to(self.dtype), matrix.to(self.dtype)).to(x.dtype)

    def multiply(self, x: Tensor, matrix: Tensor) -> Tensor:
        """Return x M of operands that have the precision of products."""
        if not self._tf32:
            return x @ matrix
        with float32_precision(torch.backends.cuda.matmul, TF32):
            return x @ matrix


def resolve_product_dtype(name: str, device: torch.device) -> torch.dtype | str:
    """Return the precision of products of this name; float32 where the processor only emulates it.

    A processor without instructions for a type is tens of times slower in it. One small product is
    timed once per process; a warning, once, says when float32 is used instead. InputError for
    "tf32" on a device that has no such products.
    """
    if name == TF32:
        if device.type != "cuda":
            raise InputError(f"product_dtype=tf32 is for CUDA devices; the model is on {device}")
        return TF32
    dtype = resolve_dtype(name)
    if device.type != "cpu" or dtype.itemsize >= 4 or not is_emulated(dtype):
        return dtype
    return torch.float32


@cache
def is_emulated(dtype: torch.dtype) -> bool:
    """Whether this processor takes more than twice as long for a product of matrices in a type as
    in float32; warns if so."""
    slowdown = _time_product(dtype) / _time_product(torch.float32)
    if slowdown > _MAX_SLOWDOWN:
        name = str(dtype).removeprefix("torch.")
        warnings.warn(
            f"product_dtype={name!r}: this processor multiplies {slowdown:.0f} times as slowly in "
            f"{name} as in float32, so "
            "float32 is used",
            stacklevel=2,
        )
    return slowdown > _MAX_SLOWDOWN


def _time_product(dtype: torch.dtype) -> float:
    """The shortest of a few products of matrices, which other work on the machine disturbs
    least."""
    matrix = torch.linspace(-1, 1, _TIMING_WIDTH**2).view(_TIMING_WIDTH, -1).to(dtype)
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        matrix @ matrix
        seconds.append(time.perf_counter() - start)
    return min(seconds)


@contextmanager
def float32_precision(operation: Any, precision: str) -> Iterator[None]:
    """Have an operation of one of torch's backends compute float32 in "ieee" or "tf32"."""
    previous = operation.fp32_precision
    operation.fp32_precision = precision
    try:
        yield
    finally:
        operation.fp32_precision = previous
