"""Find the product of attention weights and values among the calls of a module's own attention code.

In: calls of torch functions while an attention module runs. Out: which of them multiplies the
weights, read off a softmax, with the values; and how much goes to an attention sink.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from ..transformers_types import HookArguments, TorchFunction

SOFTMAX_FUNCTIONS = (F.softmax, torch.softmax, Tensor.softmax)
_MULTIPLY_FUNCTIONS = (torch.mul, Tensor.mul, Tensor.__mul__)
_MATMUL_FUNCTIONS = (torch.matmul, torch.bmm, Tensor.matmul, Tensor.bmm, Tensor.__matmul__)


class WeightedSumFinder:
    """Finds the product of attention weights and values: the first whose left side has the shape of
    the softmax before it.

    Attention sinks take a share of each row: as one more column of the softmax, which is cut off
    before the product (GPT-OSS, MiMo), or as a factor of the product (Granite with sliding
    windows). `sink` is the cut column's share of the softmax, None without one.
    """

    def __init__(self) -> None:
        self._softmax: Tensor | None = None
        # weights, values, their product
        self._weighted_sum: tuple[Tensor, Tensor, Tensor] | None = None
        self.sink: Tensor | None = None

    def is_weighted_sum(self, func: TorchFunction, args: HookArguments, result: Tensor) -> bool:
        """Return True if this call multiplies attention weights with values."""
        if func in SOFTMAX_FUNCTIONS and self._softmax is None:
            self._softmax = result
        if func not in _MATMUL_FUNCTIONS or self._softmax is None:
            return False
        weights, softmax = args[0], self._softmax
        has_sink = (
            weights.shape[-1] == softmax.shape[-1] - 1 and weights.shape[:-1] == softmax.shape[:-1]
        )
        has_same_shape = (
            weights.shape[-2:] == softmax.shape[-2:] and weights.numel() == softmax.numel()
        )
        if has_sink:
            self.sink = softmax[..., -1:]
        if has_sink or has_same_shape:
            self._weighted_sum = weights, args[1], result
        is_product: bool = has_sink or has_same_shape
        return is_product

    def is_rescaling(self, func: TorchFunction, args: HookArguments) -> bool:
        """Return True if this call multiplies each row of that product by a number of its own."""
        if (
            func not in _MULTIPLY_FUNCTIONS
            or self._weighted_sum is None
            or args[0] is not self._weighted_sum[2]
        ):
            return False
        factor = args[1]
        return isinstance(factor, Tensor) and factor.ndim == args[0].ndim and factor.shape[-1] == 1

    def read_rescaled(self, args: HookArguments) -> tuple[Tensor, Tensor, Tensor]:
        """Return weights multiplied by the factor, values, and the share that the factor removes."""
        weights, values, _ = self._weighted_sum  # type: ignore[misc]
        return weights * args[1], values, 1 - args[1].expand(*weights.shape[:-1], 1)
