"""A device that is none: tensors that say they lie elsewhere, compute on the CPU, and count what
the host waits for.

On a GPU the host goes on while the device is at work, until it asks for a number, a mask's indices
or a result. `FakeDevice` sees those questions, and each thing that is sent there, without a GPU:
its tensors say that they are on "meta", and every operation of torch on them passes through
`_Everything`, which does it on the CPU.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

HERE, THERE = torch.device("cpu"), torch.device("meta")

# What cannot be answered before the device has done all it was given.
_ASKS = (
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "equal",
    "is_nonzero",
    "_unique2",
    "unique_dim",
)


class _There(Tensor):
    """A tensor that says it is on the device; its numbers are in `held`."""

    held: Tensor

    @staticmethod
    def __new__(cls, held: Tensor) -> _There:
        return Tensor._make_wrapper_subclass(
            cls, held.shape, held.stride(), held.storage_offset(), dtype=held.dtype, device=THERE
        )

    def __init__(self, held: Tensor):
        self.held = held

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError(f"{func} ran outside the fake device")


class FakeDevice(TorchDispatchMode):
    """While it lasts, tensors can be there; `asked` and `sent` count what the host waited for and
    what it sent.

    Examples
    --------
    >>> with FakeDevice() as device:
    ...     x = torch.ones(3).to("meta")
    ...     y = (x + 1).sum().item()
    >>> y, sum(device.asked.values()), sum(device.sent.values())
    (6.0, 1, 1)
    """

    def __init__(self):
        super().__init__()
        self.asked: Counter[str] = Counter()
        self.sent: Counter[str] = Counter()
        self.operations = self.launches = 0  # without views, which start nothing on a device

    def put(self, module: nn.Module) -> None:
        """Move a module's parameters and buffers there."""
        there: dict[int, Tensor] = {}
        for part in module.modules():
            for name, tensor in part._parameters.items():
                if tensor is not None:
                    moved = there.setdefault(
                        id(tensor), nn.Parameter(_There(tensor.detach()), requires_grad=False)
                    )
                    part._parameters[name] = moved
            for name, tensor in part._buffers.items():
                if tensor is not None:
                    part._buffers[name] = there.setdefault(id(tensor), _There(tensor))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, Tensor)]
        from_there = any(isinstance(x, _There) for x in tensors)
        target = kwargs.get("device")
        goes_there = from_there if target is None else torch.device(target) == THERE
        if target is not None:
            kwargs["device"] = HERE
        self._count(func, args, from_there, goes_there)
        self.operations += from_there
        self.launches += from_there and not _is_view(func)
        result = func(*tree_map(_held, args), **tree_map(_held, kwargs))
        if func._schema.is_mutable:
            written = _written_to(func, args, kwargs)
            if written is not None:
                return written
        return tree_map(lambda x: _There(x) if isinstance(x, Tensor) and goes_there else x, result)

    def _count(self, func, args: tuple, from_there: bool, goes_there: bool) -> None:
        name = func._schema.name.removeprefix("aten::")
        if from_there and (name in _ASKS or (name == "_to_copy" and not goes_there)):
            self.asked[name] += 1
        elif name == "_to_copy" and goes_there and not from_there:
            self.sent[name] += 1
        elif (
            name == "copy_"
            and isinstance(args[0], _There) != isinstance(args[1], _There)
            and args[1].ndim
        ):
            (self.sent if isinstance(args[0], _There) else self.asked)[name] += 1
        elif name in ("index", "index_put", "index_put_", "_index_put_impl_") and from_there:
            for index in args[1]:
                if index is not None and index.dtype in (torch.bool, torch.uint8):
                    self.asked[f"{name} by a mask"] += 1
                elif index is not None and not isinstance(index, _There):
                    self.sent[f"{name} by numbers of the host"] += 1


def _held(x: Any) -> Any:
    return x.held if isinstance(x, _There) else x


def _is_view(func) -> bool:
    """Whether an operation returns its argument's memory, and writes nothing."""
    aliases = [value.alias_info for value in func._schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


def _written_to(func, args: tuple, kwargs: dict) -> Any:
    """The very argument that an operation in place has written to."""
    places = [place for place, argument in enumerate(func._schema.arguments) if argument.is_write]
    if len(places) != 1 or len(func._schema.returns) != 1:
        return None
    name = func._schema.arguments[places[0]].name
    return kwargs[name] if name in kwargs else args[places[0]]
