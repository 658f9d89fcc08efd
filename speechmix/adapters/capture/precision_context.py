"""A module that is borrowed: it runs in evaluation mode, in a precision of our choice, and is given
back as it was.

In: any module, its owner's or our own. For a while every part is in evaluation mode, no parameter
asks for a gradient and numbers are raised to one precision. Nothing is converted back: what has to
be converted is *exchanged* for a stand-in and the very same object is put back, so values, storages
and gradients are those of before, bit for bit. Parameters that have the precision already are used
as they are; buffers, which are small, are copied, because some forward passes write to them (rotary
tables that grow with the text).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from threading import Condition, get_ident

import torch
from torch import Tensor, nn

from ...errors import InputError

_CHANGED = Condition()
_OWNERS: dict[int, int] = {}  # id of what is in use to its thread


@contextmanager
def exclusive_access(module: nn.Module) -> Iterator[None]:
    """Have a module for one thread: others that want it, or anything that it shares with it, wait.

    Hooks, parts, parameters and configs belong to the module and not to a thread. A model and its
    own base model share them.
    """
    me = get_ident()
    if _OWNERS.get(id(module)) == me:  # with all its parts
        yield
        return
    used = {id(held): held for held in _held(module)}  # alive, so that no other thing has its id
    with _CHANGED:
        _CHANGED.wait_for(lambda: all(_OWNERS.get(key, me) == me for key in used))
        taken = [key for key in used if key not in _OWNERS]
        _OWNERS.update(dict.fromkeys(taken, me))
    try:
        yield
    finally:
        with _CHANGED:
            for key in taken:
                del _OWNERS[key]
            _CHANGED.notify_all()


def _held(module: nn.Module) -> Iterator[object]:
    """Everything in a module that measuring it changes for a while: parts, their weights and
    configs."""
    for part in list_modules(module):
        yield part
        yield from (parameter for parameter in part._parameters.values() if parameter is not None)
        config = getattr(part, "config", None)
        if config is not None:
            yield config


@contextmanager
def precision_context(module: nn.Module, dtype: torch.dtype | None = None) -> Iterator[None]:
    """Have a module ready for measuring while the block lasts.

    Parameters
    ----------
    module : nn.Module
    dtype : torch.dtype, optional
        Precision that coarser parameters and buffers are raised to; by default each keeps its own.

    Examples
    --------
    >>> layer = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)).to(torch.bfloat16)
    >>> with precision_context(layer, torch.float32):
    ...     print(layer.training, layer[0].weight.dtype, layer[0].weight.requires_grad)
    False torch.float32 False
    >>> print(layer.training, layer[0].weight.dtype, layer[0].weight.requires_grad)
    True torch.bfloat16 True
    """
    weights: dict[
        int, nn.Parameter
    ] = {}  # stand-ins by what they stand for: tied weights stay tied
    buffers: dict[int, Tensor] = {}
    with ExitStack() as undo:
        for part in list_modules(module):
            _set(undo, part, "training", False)
            _set(
                undo, part, "chunk_size_feed_forward", 0
            )  # saves memory, refuses lengths it does not divide
            if part._parameters:
                _lend_parameters(undo, part, weights, dtype)
            if part._buffers:
                _exchange_buffers(undo, part, buffers, dtype)
        yield


def _set(undo: ExitStack, part: nn.Module, name: str, value: bool | int) -> None:
    """Set an attribute that is there and has another value."""
    before = part.__dict__.get(name)
    if before:
        part.__dict__[name] = value
        undo.callback(part.__dict__.__setitem__, name, before)


def has_adapters(module: nn.Module) -> bool:
    """True if some module of a model is PEFT's."""
    return any(type(part).__module__.startswith("peft.") for part in list_modules(module))


def list_modules(module: nn.Module) -> list[nn.Module]:
    """Return a module with all its parts, each once: its ``modules()``, several times as fast."""
    parts: dict[int, nn.Module] = {}
    waiting: list[nn.Module | None] = [module]
    while waiting:
        part = waiting.pop()
        if part is not None and id(part) not in parts:
            parts[id(part)] = part
            waiting.extend(reversed([*part._modules.values()]))
    return list(parts.values())


def _lend_parameters(
    undo: ExitStack, part: nn.Module, stand_ins: dict[int, nn.Parameter], dtype: torch.dtype | None
) -> None:
    trained = []
    for name, parameter in part._parameters.items():
        if parameter is None:
            continue
        if _converted_by(parameter, dtype):
            undo.callback(part._parameters.__setitem__, name, parameter)
            if id(parameter) not in stand_ins:
                stand_ins[id(parameter)] = nn.Parameter(
                    parameter.detach().to(dtype), requires_grad=False
                )
            part._parameters[name] = stand_ins[id(parameter)]
        elif parameter.requires_grad:
            parameter.requires_grad_(False)
            trained.append(parameter)
    if trained:
        undo.callback(lambda: [parameter.requires_grad_(True) for parameter in trained])


def _exchange_buffers(
    undo: ExitStack, part: nn.Module, stand_ins: dict[int, Tensor], dtype: torch.dtype | None
) -> None:
    owned, attributes = dict(part._buffers), dict(part.__dict__)
    not_stored = set(part._non_persistent_buffers_set)
    for name, buffer in owned.items():
        if buffer is not None:
            if id(buffer) not in stand_ins:
                stand_ins[id(buffer)] = buffer.detach().to(
                    dtype if _converted_by(buffer, dtype) else buffer.dtype, copy=True
                )
            part._buffers[name] = stand_ins[id(buffer)]
    used = {name: (buffer, _writes(buffer)) for name, buffer in part._buffers.items()}

    def give_back() -> None:
        now = {name: (buffer, _writes(buffer)) for name, buffer in part._buffers.items()}
        written = now.keys() != used.keys() or any(
            now[name][0] is not used[name][0] or now[name][1] != used[name][1] for name in used
        )
        part._buffers.clear()
        part._buffers.update(owned)
        part._non_persistent_buffers_set.clear()
        part._non_persistent_buffers_set.update(not_stored)
        if (
            written
        ):  # and with its tables what it notes about them, such as how long a text they reach
            for name in part.__dict__.keys() - attributes.keys():
                del part.__dict__[name]
            part.__dict__.update(attributes)

    undo.callback(give_back)


def _converted_by(tensor: Tensor, dtype: torch.dtype | None) -> bool:
    """True if a tensor holds coarser numbers; finer ones stay (rotary tables of half-precision
    models are float32)."""
    if dtype is None or tensor.dtype == dtype or not tensor.is_floating_point():
        return False
    return torch.finfo(tensor.dtype).eps > torch.finfo(dtype).eps


def _writes(tensor: Tensor | None) -> int | None:
    """How often a tensor has been written to."""
    return None if tensor is None or tensor.is_inference() else tensor._version


def dtype_named(dtype: str | torch.dtype) -> torch.dtype:
    """Return a floating-point type given by name or as it is."""
    kind = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        raise InputError(
            "dtype should be float32 or float64 (to hold weights also bfloat16 or float16), found "
            f"{dtype!r}"
        )
    return kind
