"""Replace what a module returns, or what attention's function returns while its module runs.

The second is for attention of which no more is known: a gate or a norm behind the function, and
whatever else the module does, are its own code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ..binding.layer_components import AttentionModules
from ..transformers_types import HookArguments, HookKeywords, ModelOutput, TorchFunction
from .weighted_sums import WeightedSumFinder


class _ReplacedContext(TorchFunctionMode):
    """Replaces what the first attention function returns, or the first product behind a softmax."""

    def __init__(self, contexts: Tensor, *, is_eager: bool):
        super().__init__()
        self._context: Tensor | None = contexts.transpose(1, 2)  # [N, H, Q, d]
        self._sum_finder = WeightedSumFinder() if is_eager else None

    def __torch_function__(
        self,
        func: TorchFunction,
        types: tuple[type, ...],
        args: HookArguments = (),
        kwargs: HookKeywords | None = None,
    ) -> Any:
        result, context = func(*args, **(kwargs or {})), self._context
        is_attention = (
            func is F.scaled_dot_product_attention
            if self._sum_finder is None
            else self._sum_finder.is_weighted_sum(func, args, result)
        )
        if context is None or not is_attention:
            return result
        self._context = None
        padding = result.shape[-1] - context.shape[-1]  # heads may be padded for speed
        return F.pad(context, (0, padding)).reshape(result.shape)


@contextmanager
def replaced_context(attention: AttentionModules, contexts: Tensor) -> Iterator[None]:
    """Let an attention module go on from N other contexts [N, Q, H, d] while the block lasts; it is
    called with N items."""
    forward = attention.module.forward

    def run_replaced(*args: ModelOutput, **kwargs: ModelOutput) -> ModelOutput:
        with _ReplacedContext(contexts, is_eager=attention.needs_eager):
            return forward(*args, **kwargs)

    with _replaced_forward(attention.module, run_replaced):
        yield


@contextmanager
def stub_outputs(module: nn.Module, outputs: Iterator[ModelOutput]) -> Iterator[None]:
    """Let a module return the next of some outputs at each call, without running."""
    with _replaced_forward(module, lambda *args, **kwargs: next(outputs)):
        yield


@contextmanager
def _replaced_forward(module: nn.Module, forward: Callable[..., ModelOutput]) -> Iterator[None]:
    instance_forward = module.__dict__.get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if instance_forward is None:
            del module.forward
        else:
            module.forward = instance_forward
