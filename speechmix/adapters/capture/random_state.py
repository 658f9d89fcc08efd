"""Isolate the random numbers that a model draws from those of its caller.

Some transformers versions draw numbers for layer drop even in evaluation. torch's generator belongs
to the process: to save it before a pass and to put it back behind it (`torch.random.fork_rng`)
repeats what other threads have drawn in between. So while a model is measured, functions that draw
are given a generator of the context. Some models add noise to their sound (VibeVoice): each of their
runs begins with the same numbers, and so does each row of a batch, or differences between runs would
be differences of noise. In: modules. Out: a context, of one thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..transformers_types import HookArguments, HookKeywords, TorchFunction

_NOISE_FUNCTIONS = (torch.rand, torch.randn)
_CREATION_FUNCTIONS = (*_NOISE_FUNCTIONS, torch.randint, torch.randperm)
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
def isolated_random_numbers(*modules: nn.Module) -> Iterator[None]:
    """Draw random numbers from a generator of the context, with a fixed seed, in this thread;
    contexts may be nested.

    Each run of one of the modules begins with the same numbers, and the rows of its batch share
    normal and uniform noise.
    """
    outer_mode: _GeneratorMode | None = getattr(_CONTEXT, "mode", None)
    mode = _GeneratorMode() if outer_mode is None else outer_mode
    with ExitStack() as exit_stack:
        if outer_mode is None:
            _CONTEXT.mode = exit_stack.enter_context(mode)
            exit_stack.callback(setattr, _CONTEXT, "mode", None)
        for module in modules:
            hook = module.register_forward_pre_hook(mode.start_run, with_kwargs=True)
            exit_stack.callback(hook.remove)
        yield


class _GeneratorMode(TorchFunctionMode):
    """Passes a generator to functions that draw random numbers without one."""

    def __init__(self) -> None:
        super().__init__()
        self._generators: dict[torch.device, torch.Generator] = {}
        self._row_count = 1

    def start_run(self, module: nn.Module, args: HookArguments, kwargs: HookKeywords) -> None:
        """Begin with the first number again, for as many rows as the module's batch has."""
        self._generators.clear()
        tensors = (x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.ndim)
        self._row_count = len(next(tensors, [0]))

    def __torch_function__(
        self,
        func: TorchFunction,
        types: tuple[type, ...],
        args: HookArguments = (),
        kwargs: HookKeywords | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func not in _RANDOM_FUNCTIONS or kwargs.get("generator") is not None:
            return func(*args, **kwargs)
        kwargs = dict(kwargs)
        if func in _LIKE_FUNCTIONS:  # they take no generator in all versions
            like = args[0] if args else kwargs.pop("input")
            kwargs, args = {"dtype": like.dtype, "device": like.device, **kwargs}, (like.shape,)
            func = _LIKE_FUNCTIONS[func]
        kwargs["generator"] = self._generator(_output_device(func, args, kwargs))
        if func not in _NOISE_FUNCTIONS or self._row_count == 1:
            return func(*args, **kwargs)
        size = kwargs.pop("size") if "size" in kwargs else args
        size = size[0] if size and isinstance(size[0], Sequence) else size
        if not size or size[0] != self._row_count:
            return func(*size, **kwargs)
        return func(1, *size[1:], **kwargs).repeat(self._row_count, *[1] * (len(size) - 1))

    def _generator(self, device: torch.device) -> torch.Generator:
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(0)
        return self._generators[device]


_RANDOM_FUNCTIONS = frozenset(
    (*_CREATION_FUNCTIONS, *_LIKE_FUNCTIONS, *_SAMPLING_FUNCTIONS, *_FILL_FUNCTIONS)
)


def _output_device(func: TorchFunction, args: HookArguments, kwargs: HookKeywords) -> torch.device:
    """Where a function draws."""
    tensor = next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
    if tensor is not None and func not in _CREATION_FUNCTIONS:
        return tensor.device
    return torch.device(kwargs.get("device") or torch.get_default_device())
