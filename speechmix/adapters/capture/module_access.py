"""Hold a module exclusively, in evaluation mode and a chosen dtype, then restore it.

In: any module, its owner's or our own. For a while every part is in evaluation mode, no parameter
asks for a gradient and numbers are raised to one precision. Nothing is converted back: what has to
be converted is *exchanged* for a stand-in and the very same object is put back, so values, storages
and gradients are those of before, bit for bit. Weights are converted when they are read
(weight_conversion.py). Parameters that have the precision already are used as they are; buffers,
which are small, are copied, because some forward passes write to them (rotary tables that grow with
the text).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from threading import Condition, get_ident

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from ...errors import InputError
from .memory_check import free_bytes
from .weight_conversion import ConvertedParameters, WeightConverter, is_packed, needs_conversion

_OWNER_CHANGE = Condition()
_OWNERS: dict[int, int] = {}  # id of what is in use to its thread


@contextmanager
def exclusive_access(module: nn.Module) -> Iterator[None]:
    """Lock a module for one thread: others that need it, or anything that shares parts with it,
    wait.

    Hooks, parts, parameters and configs belong to the module and not to a thread. A model and its
    own base model share them.
    """
    thread_id = get_ident()
    if _OWNERS.get(id(module)) == thread_id:  # with all its parts
        yield
        return
    # The objects stay alive, so that no other one has the same id.
    objects_by_id = {
        id(shared_object): shared_object for shared_object in _list_shared_objects(module)
    }
    with _OWNER_CHANGE:
        _OWNER_CHANGE.wait_for(
            lambda: all(
                _OWNERS.get(object_id, thread_id) == thread_id for object_id in objects_by_id
            )
        )
        acquired_ids = [object_id for object_id in objects_by_id if object_id not in _OWNERS]
        _OWNERS.update(dict.fromkeys(acquired_ids, thread_id))
    try:
        yield
    finally:
        with _OWNER_CHANGE:
            for object_id in acquired_ids:
                del _OWNERS[object_id]
            _OWNER_CHANGE.notify_all()


def _list_shared_objects(module: nn.Module) -> Iterator[object]:
    """Everything in a module that measuring it changes for a while: parts, their weights and
    configs."""
    for submodule in list_modules(module):
        yield submodule
        yield from (
            parameter for parameter in submodule._parameters.values() if parameter is not None
        )
        config = getattr(submodule, "config", None)
        if config is not None:
            yield config


@contextmanager
def precision_context(module: nn.Module, dtype: torch.dtype | None = None) -> Iterator[None]:
    """Prepare a module for measuring while the block lasts: no dropout, no gradients of weights.

    Parameters and buffers coarser than `dtype` are raised to it; with None each keeps its own.
    """
    buffer_replacements: dict[int, Tensor] = {}  # by what they replace
    with ExitStack() as exit_stack:
        converter = None if dtype is None else _make_converter(exit_stack, module, dtype)
        for submodule in list_modules(module):
            _set_temporarily(exit_stack, submodule, "training", False)
            _set_temporarily(
                exit_stack, submodule, "chunk_size_feed_forward", 0
            )  # saves memory, refuses lengths it does not divide
            if submodule._parameters:
                _exchange_parameters(exit_stack, submodule, converter)
            if submodule._buffers:
                _exchange_buffers(exit_stack, submodule, buffer_replacements, dtype)
        yield


def _set_temporarily(
    exit_stack: ExitStack, submodule: nn.Module, name: str, value: bool | int | list[Tensor]
) -> None:
    """Set an attribute that is there and has another value."""
    old_value = submodule.__dict__.get(name)
    if old_value:
        submodule.__dict__[name] = value
        exit_stack.callback(submodule.__dict__.__setitem__, name, old_value)


def has_adapters(module: nn.Module) -> bool:
    """True if some module of a model is PEFT's."""
    return any(type(submodule).__module__.startswith("peft.") for submodule in list_modules(module))


def list_modules(module: nn.Module) -> list[nn.Module]:
    """Return a module with all its parts, each once: its ``modules()``, several times as fast."""
    modules_by_id: dict[int, nn.Module] = {}
    pending: list[nn.Module | None] = [module]
    while pending:
        submodule = pending.pop()
        if submodule is not None and id(submodule) not in modules_by_id:
            modules_by_id[id(submodule)] = submodule
            pending.extend(reversed([*submodule._modules.values()]))
    return list(modules_by_id.values())


def _make_converter(
    exit_stack: ExitStack, module: nn.Module, dtype: torch.dtype
) -> WeightConverter | None:
    """Make a converter of a module's weights that may use the free memory; None if all weights have
    the precision already."""
    coarse_weights = [weight for weight in module.parameters() if needs_conversion(weight, dtype)]
    if not coarse_weights:
        return None
    converter = WeightConverter(dtype, free_bytes(coarse_weights[0].device))
    if not converter.can_hold(coarse_weights):
        exit_stack.enter_context(saved_tensors_hooks(converter.pack_saved, converter.unpack_saved))
    return converter


def _exchange_parameters(
    exit_stack: ExitStack, submodule: nn.Module, converter: WeightConverter | None
) -> None:
    parameters = submodule._parameters
    unconverted_parameters = dict(dict.items(parameters))  # also of one that is converted already
    if converter is not None and any(
        parameter is not None and needs_conversion(parameter, converter.dtype)
        for parameter in unconverted_parameters.values()
    ):
        exit_stack.callback(submodule.__dict__.__setitem__, "_parameters", parameters)
        submodule.__dict__["_parameters"] = ConvertedParameters(unconverted_parameters, converter)
        if isinstance(submodule, nn.Linear) and any(
            parameter is not None and is_packed(parameter)
            for parameter in unconverted_parameters.values()
        ):
            if (instance_forward := submodule.__dict__.get("forward")) is not None:
                exit_stack.callback(submodule.__dict__.__setitem__, "forward", instance_forward)
            exit_stack.callback(submodule.__dict__.pop, "forward")
            submodule.__dict__["forward"] = partial(  # its own reads packed numbers
                nn.Linear.forward, submodule
            )
        if isinstance(submodule, nn.RNNBase):  # which has them by number too
            names = submodule._flat_weights_names
            weights = [getattr(submodule, name) for name in names]
            _set_temporarily(exit_stack, submodule, "_flat_weights", weights)
    trainable_parameters = [
        parameter
        for parameter in submodule._parameters.values()
        if parameter is not None and parameter.requires_grad
    ]
    if trainable_parameters:
        for parameter in trainable_parameters:
            parameter.requires_grad_(False)
        exit_stack.callback(
            lambda: [parameter.requires_grad_(True) for parameter in trainable_parameters]
        )


def _exchange_buffers(
    exit_stack: ExitStack,
    submodule: nn.Module,
    replacements: dict[int, Tensor],
    dtype: torch.dtype | None,
) -> None:
    original_buffers, original_attributes = dict(submodule._buffers), dict(submodule.__dict__)
    non_persistent_names = set(submodule._non_persistent_buffers_set)
    for name, buffer in original_buffers.items():
        if buffer is not None:
            if id(buffer) not in replacements:
                replacements[id(buffer)] = buffer.detach().to(
                    dtype if needs_conversion(buffer, dtype) else buffer.dtype, copy=True
                )
            submodule._buffers[name] = replacements[id(buffer)]
    states_before = {
        name: (buffer, _write_count(buffer)) for name, buffer in submodule._buffers.items()
    }

    def restore_buffers() -> None:
        states_after = {
            name: (buffer, _write_count(buffer)) for name, buffer in submodule._buffers.items()
        }
        is_written = states_after.keys() != states_before.keys() or any(
            states_after[name][0] is not states_before[name][0]
            or states_after[name][1] != states_before[name][1]
            for name in states_before
        )
        submodule._buffers.clear()
        submodule._buffers.update(original_buffers)
        submodule._non_persistent_buffers_set.clear()
        submodule._non_persistent_buffers_set.update(non_persistent_names)
        if (
            is_written
        ):  # and with its tables what it notes about them, such as how long a text they reach
            for name in submodule.__dict__.keys() - original_attributes.keys():
                del submodule.__dict__[name]
            submodule.__dict__.update(original_attributes)

    exit_stack.callback(restore_buffers)


def _write_count(tensor: Tensor | None) -> int | None:
    """How often a tensor has been written to."""
    return None if tensor is None or tensor.is_inference() else tensor._version


def resolve_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """Return a floating-point type given by name or as it is."""
    resolved_dtype = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(resolved_dtype, torch.dtype) or not resolved_dtype.is_floating_point:
        raise InputError(
            "dtype should be float32 or float64 (to hold weights also bfloat16 or float16), found "
            f"{dtype!r}"
        )
    return resolved_dtype
