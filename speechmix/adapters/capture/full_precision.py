"""Compute in the full precision of the numbers, whatever the caller allows and a device would do.

In: the device and the precision of a model. Out: a context. By default PyTorch convolves float32
numbers on a GPU with the ten bits of TF32, which moves scores by 1e-4 of the largest one; a caller
can allow the like for products. PyTorch's weight norm on a GPU takes a root in float32 whatever the
weights are, which moves the float64 scores of wav2vec 2.0 by 1e-8.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..delta_engine.matrix_products import float32_precision
from ..transformers_types import HookArguments, HookKeywords, TorchFunction


@contextmanager
def full_precision(device: torch.device, dtype: torch.dtype) -> Iterator[None]:
    """Compute in full precision while the block lasts.

    Examples
    --------
    >>> with full_precision(torch.device("cpu"), torch.float32):
    ...     torch.backends.cudnn.conv.fp32_precision
    'ieee'
    """
    backends: Any = torch.backends
    operations = (
        backends.cuda.matmul,
        backends.cudnn.conv,
        backends.cudnn.rnn,
        backends.mkldnn.matmul,
        backends.mkldnn.conv,
        backends.mkldnn.rnn,
    )
    with ExitStack() as exit_stack:
        for operation in operations:
            exit_stack.enter_context(float32_precision(operation, "ieee"))
        if device.type == "cuda" and dtype == torch.float64:
            exit_stack.enter_context(ExactWeightNorm())
        yield


class ExactWeightNorm(TorchFunctionMode):
    """Computes weight norm, g v / || v ||, in the precision of its numbers."""

    def __torch_function__(
        self,
        func: TorchFunction,
        types: tuple[type, ...],
        args: HookArguments = (),
        kwargs: HookKeywords | None = None,
    ) -> Any:
        if func is not torch._weight_norm:
            return func(*args, **(kwargs or {}))
        return normalize_weight(*args, **(kwargs or {}))


def normalize_weight(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """Return g v / || v ||, the norm over all axes but one."""
    return v * (g / torch.norm_except_dim(v, 2, dim))
