"""Isolate the random numbers that a model draws from those of its caller.

Some transformers versions draw numbers for layer drop even in evaluation. torch's generator belongs
to the process: to save it before a pass and to put it back behind it (`torch.random.fork_rng`)
repeats what other threads have drawn in between. So while a model is measured, functions that draw
are given a generator of the pass. In: nothing. Out: a context, of one thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..transformers_types import HookArguments, HookKeywords, TorchFunction

_CREATION_FUNCTIONS = (torch.rand, torch.randn, torch.randint, torch.randperm)
_LIKE_FUNCTIONS = {torch.rand_like: torch.rand, torch.randn_like: torch.randn}
_SAMPLING_FUNCTIONS = (
    torch.bernoulli,
    torch.multinomial,
    torch.normal,
    Tensor.bernoulli,
    Tensor.multinomial,
)
_FILL_FUNCTIONS = (
    *(Tensor.uniform_, Tensor.normal_, Tensor.random_, Tensor.bernoulli_, Tensor.exponential_),
    *(Tensor.geometric_, Tensor.cauchy_, Tensor.log_normal_),
)
_CONTEXT = threading.local()


@contextmanager
def isolated_random_numbers() -> Iterator[None]:
    """Draw random numbers from a generator of the context, with a fixed seed, in this thread;
    contexts may be nested.

    Examples
    --------
    >>> before = torch.get_rng_state()
    >>> with isolated_random_numbers():
    ...     drawn = torch.rand(3)
    >>> torch.equal(before, torch.get_rng_state())
    True
    """
    if getattr(_CONTEXT, "depth", 0):
        yield
        return
    _CONTEXT.depth = 1
    try:
        with _GeneratorMode():
            yield
    finally:
        _CONTEXT.depth = 0


class _GeneratorMode(TorchFunctionMode):
    """Hands a generator to functions that draw and were given none."""

    def __init__(self) -> None:
        super().__init__()
        self._generators: dict[torch.device, torch.Generator] = {}

    def __torch_function__(
        self,
        func: TorchFunction,
        types: tuple[type, ...],
        args: HookArguments = (),
        kwargs: HookKeywords | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in _LIKE_FUNCTIONS and "generator" not in kwargs:  # they take none in all versions
            like, args = args[0] if args else kwargs["input"], ()
            kwargs = {"dtype": like.dtype, "device": like.device, **kwargs, "size": like.shape}
            kwargs.pop("input", None)
            func = _LIKE_FUNCTIONS[func]
        if func in _RANDOM_FUNCTIONS and kwargs.get("generator") is None:
            kwargs = {**kwargs, "generator": self._generator(_output_device(func, args, kwargs))}
        return func(*args, **kwargs)

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(0)
        return self._generators[device]


_RANDOM_FUNCTIONS = frozenset((*_CREATION_FUNCTIONS, *_SAMPLING_FUNCTIONS, *_FILL_FUNCTIONS))


def _output_device(func: TorchFunction, args: HookArguments, kwargs: HookKeywords) -> torch.device:
    """Where a function draws."""
    tensor = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
    if tensor is not None and func not in _CREATION_FUNCTIONS:
        return tensor.device
    return torch.device(kwargs.get("device") or torch.get_default_device())
