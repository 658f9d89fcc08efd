"""Record one forward pass as a graph of tensors: which function made each tensor, from which others.

In: a module and a function that runs it. Out: a `Recording` with a `TracedValue` for each tensor and a
`ModuleCall` for each call of a submodule. A tensor that is written in place gets a new value.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ...adapters.transformers_types import HookArguments, HookKeywords, ModelOutput, TorchFunction


@dataclass(eq=False, repr=False)  # it would repeat all that was computed before
class TracedValue:
    """One tensor of a forward pass.

    Parameters
    ----------
    tensor : Tensor
        A copy of its numbers when it was made.
    operation : str
        Name of torch's function that made it; "input" for inputs and weights, "module" where a
        module made it by functions that torch does not show.
    sources : tuple of TracedValue
        Tensors that the function read.
    index : int
        When it was made.
    arguments, keywords
        What the function was called with.
    """

    tensor: Tensor
    operation: str
    sources: tuple[TracedValue, ...]
    index: int
    arguments: HookArguments = ()
    keywords: HookKeywords = field(default_factory=dict)


@dataclass(eq=False, repr=False)  # it would repeat all that was computed before
class ModuleCall:
    """One call of a submodule.

    Parameters
    ----------
    path : str
    module : nn.Module
    inputs, outputs : tuple of TracedValue
        Tensors among its arguments (also in tuples), and among what it returned.
    start, stop : int
        Values with an index from `start` to before `stop` were made during the call.
    arguments, keywords
        What it was called with.
    """

    path: str
    module: nn.Module
    inputs: tuple[TracedValue, ...]
    start: int
    arguments: HookArguments
    keywords: HookKeywords
    outputs: tuple[TracedValue, ...] = ()
    stop: int = -1


@dataclass
class Recording:
    """All values and module calls of a forward pass, in the order they were made or ended."""

    values: list[TracedValue] = field(default_factory=list)
    calls: list[ModuleCall] = field(default_factory=list)

    def calls_of(self, module: nn.Module) -> list[ModuleCall]:
        """Return the calls of one module."""
        return [call for call in self.calls if call.module is module]

    def calls_within(self, outer: ModuleCall) -> list[ModuleCall]:
        """Return the calls of submodules during a call, in the order they ended."""
        prefix = f"{outer.path}." if outer.path else ""
        return [
            call
            for call in self.calls
            if call is not outer
            and call.path.startswith(prefix)
            and outer.start <= call.start
            and call.stop <= outer.stop
        ]

    def values_within(self, call: ModuleCall) -> list[TracedValue]:
        """Return the values made during a call."""
        return [value for value in self.values if call.start <= value.index < call.stop]


def record_forward_pass(root: nn.Module, run: Callable[[], ModelOutput]) -> Recording:
    """Run a function under hooks on all submodules of a module, and record what they compute.

    Parameters
    ----------
    root : nn.Module
        Paths are relative to it.
    run : callable
        Runs it once, without gradients.

    Examples
    --------
    >>> layer = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    >>> recording = record_forward_pass(layer, lambda: layer(torch.ones(1, 2)))
    >>> [call.path for call in recording.calls], [value.operation for value in recording.values][-2:]
    (['0', '1', ''], ['linear', 'relu'])
    """
    recorder = _Recorder()
    with ExitStack() as context, torch.no_grad():
        for path, module in root.named_modules():
            context.callback(_hook_start(recorder, path, module).remove)
            context.callback(_hook_stop(recorder, module).remove)
        context.enter_context(recorder)
        run()
    return recorder.recording


def _hook_start(
    recorder: _Recorder, path: str, module: nn.Module
) -> torch.utils.hooks.RemovableHandle:
    def start(module: nn.Module, args: HookArguments, kwargs: HookKeywords) -> None:
        recorder.start_call(path, module, args, kwargs)

    return module.register_forward_pre_hook(start, with_kwargs=True)


def _hook_stop(recorder: _Recorder, module: nn.Module) -> torch.utils.hooks.RemovableHandle:
    def stop(module: nn.Module, args: HookArguments, output: ModelOutput) -> None:
        recorder.stop_call(module, output)

    return module.register_forward_hook(stop)


class _Recorder(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.recording = Recording()
        self._by_id: dict[int, tuple[Tensor, TracedValue]] = {}
        self._by_memory: dict[tuple[Hashable, ...], TracedValue] = {}
        self._open_calls: list[ModuleCall] = []
        self._index = 0

    def __torch_function__(
        self,
        func: TorchFunction,
        types: tuple[type, ...],
        args: HookArguments = (),
        kwargs: HookKeywords | None = None,
    ) -> ModelOutput:
        kwargs = kwargs or {}
        sources = tuple(self._find_value(x) for x in iterate_tensors((args, kwargs)))
        result = func(*args, **kwargs)
        name = getattr(func, "__name__", str(func))
        outputs = list(iterate_tensors(result))
        if name == "__setitem__" and isinstance(args[0], Tensor):
            outputs = [args[0]]
        self._index += bool(outputs)
        for output in outputs:
            self._add_value(output, name, sources, args, kwargs)
        return result

    def start_call(
        self, path: str, module: nn.Module, args: HookArguments, kwargs: HookKeywords
    ) -> None:
        inputs = tuple(self._find_value(x) for x in iterate_tensors((args, kwargs)))
        self._index += 1
        self._open_calls.append(ModuleCall(path, module, inputs, self._index, args, dict(kwargs)))

    def stop_call(self, module: nn.Module, output: ModelOutput) -> None:
        while self._open_calls:
            call = self._open_calls.pop()
            if call.module is module:
                break
        self._index += 1
        call.outputs = tuple(self._find_value(x, call.inputs) for x in iterate_tensors(output))
        call.stop = self._index
        self.recording.calls.append(call)

    def _find_value(self, tensor: Tensor, sources: tuple[TracedValue, ...] = ()) -> TracedValue:
        entry = self._by_id.get(id(tensor))
        if entry is not None:
            return entry[1]
        same_memory = self._by_memory.get(_memory_key(tensor))
        if same_memory is not None:  # an autograd function returned another object of it
            return same_memory
        return self._add_value(tensor, "module" if sources else "input", sources, (), {})

    def _add_value(
        self,
        tensor: Tensor,
        name: str,
        sources: tuple[TracedValue, ...],
        args: HookArguments,
        kwargs: HookKeywords,
    ) -> TracedValue:
        with torch._C.DisableTorchFunction():
            copied = tensor if isinstance(tensor, nn.Parameter) else tensor.detach().clone()
        value = TracedValue(copied, name, sources, self._index, args, kwargs)
        self._by_id[id(tensor)] = tensor, value  # the tensor stays alive: its id stays its own
        self._by_memory[_memory_key(tensor)] = value
        self.recording.values.append(value)
        return value


def _memory_key(tensor: Tensor) -> tuple[Hashable, ...]:
    with torch._C.DisableTorchFunction():
        try:
            memory = tensor.data_ptr()
        except RuntimeError:  # within vmap
            memory = id(tensor)
        return memory, tensor.shape, tensor.stride(), tensor.dtype


def iterate_tensors(value: ModelOutput) -> Iterator[Tensor]:
    """Yield the tensors in a value, also in tuples, lists and mappings, in their order.

    Examples
    --------
    >>> [tensor.item() for tensor in iterate_tensors((torch.tensor(1), {"a": [torch.tensor(2)]}, "b"))]
    [1, 2]
    """
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from iterate_tensors(item)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from iterate_tensors(item)
