"""Record the states that layers and stacks pass on, for the self-check.

Record what each part of the running layer reads and returns, for the self-check.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import cast

import torch
import transformers
from torch import Tensor, nn

from ..capture.layer_run import first_output
from ..capture.module_access import list_modules
from ..model import Model
from ..transformers_types import HookArguments, HookKeywords, ModelOutput
from .bound_layers import Layer, ProjectionHalf

ROUNDING_TOLERANCE = 100
_VARIATION = 0.1

# The check runs in float32 or better. Two ways to the same states agree to rounding, a few units of
# the last place of the largest; beyond that a difference counts by its share of what attention
# changes.
_EFFECT_TOLERANCE = 1e-3


@contextmanager
def varied_gains(model: Model) -> Iterator[None]:
    """Vary the gains of norms that have one number throughout while the block lasts.

    The norms of a fresh model are alike, so that a table that mixes them up would fit. The model's
    own parameters are put back as they are.
    """
    generator = torch.Generator().manual_seed(0)
    roots = [layer.module for stack in model.stacks.values() for layer in stack.layers]
    roots += [stack.final_norm for stack in model.stacks.values() if stack.final_norm is not None]
    norms = dict.fromkeys(filter(is_norm, (part for root in roots for part in list_modules(root))))
    with ExitStack() as exit_stack:
        for norm in norms:
            own_gain = dict.get(norm._parameters, "weight")
            gain = cast("Tensor", norm.weight)  # torch says Tensor | Module of every attribute
            if own_gain is not None and torch.equal(gain, gain[:1].expand_as(gain)):
                noise = torch.randn(gain.shape, generator=generator).to(gain)
                exit_stack.callback(dict.__setitem__, norm._parameters, "weight", own_gain)
                varied = nn.Parameter(gain.detach() + _VARIATION * noise, requires_grad=False)
                dict.__setitem__(norm._parameters, "weight", varied)
        yield


def is_norm(module: nn.Module) -> bool:
    """Return True for a module whose weight is a gain for each number of a state."""
    weight = getattr(module, "weight", None)
    return isinstance(weight, Tensor) and weight.ndim == 1


def list_output_states(output: ModelOutput) -> list[Tensor]:
    """List the tensors that may be a module's states: its first output, or all named ones."""
    if isinstance(output, (tuple, list, transformers.utils.generic.ModelOutput)):
        candidates = [output[0]]
    elif isinstance(output, Tensor):
        candidates = [output]
    else:
        candidates = [
            *(output if isinstance(output, Mapping) else getattr(output, "__dict__", {})).values()
        ]
    return [states for states in candidates if isinstance(states, Tensor)]


def states_agree(
    x: Tensor, y: Tensor, *, effect: Tensor | float = 1.0, size: Tensor | None = None
) -> bool:
    """Return True if x is y up to rounding and a small share of an effect."""
    if x.shape != y.shape:
        return False
    size = y.abs().max() if size is None else size
    return bool(
        (x - y).abs().max()
        <= _EFFECT_TOLERANCE * effect + ROUNDING_TOLERANCE * torch.finfo(y.dtype).eps * size
    )


@dataclass(eq=False)
class PartCall:
    """One call of a part of a layer, with its arguments.

    `order` counts the parts of the layer that began to run before. `states` and `output` are copies
    of the first argument and the first result, None where that is no tensor of at least two axes.
    """

    order: int
    arguments: HookArguments
    keywords: HookKeywords
    states: Tensor | None
    output: Tensor | None = None


class PartRecorder:
    """Calls of the parts that the table names in the layer that is running, in the order they began.

    Recording ends with `stop` and begins again with the next layer, so that parts can be run again
    in between.
    """

    def __init__(self) -> None:
        self.calls: dict[nn.Module, list[PartCall]] = {}
        self._order, self._is_recording = 0, False

    def stop(self) -> None:
        """Record nothing until the next layer begins."""
        self._is_recording = False

    @contextmanager
    def watch(self, model: Model) -> Iterator[PartRecorder]:
        """Record while the block lasts."""
        layers = {layer.module: layer for stack in model.stacks.values() for layer in stack.layers}
        with ExitStack() as hooks:
            for module, layer in layers.items():
                hooks.callback(module.register_forward_pre_hook(self._begin_layer).remove)
                for part in dict.fromkeys(_iterate_parts(layer)):
                    begin = part.register_forward_pre_hook(self._record_input, with_kwargs=True)
                    hooks.callback(begin.remove)
                    hooks.callback(part.register_forward_hook(self._record_output).remove)
            yield self

    def _begin_layer(self, *_: object) -> None:
        self.calls.clear()
        self._order, self._is_recording = 0, True

    def _record_input(self, part: nn.Module, args: HookArguments, kwargs: HookKeywords) -> None:
        if self._is_recording:
            states = _copy_states(args[0] if args else next(iter(kwargs.values()), None))
            self.calls.setdefault(part, []).append(PartCall(self._order, args, kwargs, states))
            self._order += 1

    def _record_output(self, part: nn.Module, args: HookArguments, output: ModelOutput) -> None:
        if self._is_recording and part in self.calls:
            self.calls[part][-1].output = _copy_states(first_output(output))


def _iterate_parts(layer: Layer) -> Iterator[nn.Module]:
    """Yield the parts that the table names and all norms; all parts of a layer that is not described."""
    parts = layer.module.modules()
    yield from (
        part
        for part in parts
        if part is not layer.module and (not layer.feed_forwards or is_norm(part))
    )
    for group in (*layer.attentions, *layer.feed_forwards, layer.convolution):
        for part in vars(group).values() if group is not None else ():
            if isinstance(part, nn.Module):
                yield part.projection[0] if isinstance(part, ProjectionHalf) else part
    if layer.closing_norm is not None:
        yield layer.closing_norm


def _copy_states(value: ModelOutput) -> Tensor | None:
    """A copy, for what is added in place (Falcon) changes the tensor."""
    return value.detach().clone() if isinstance(value, Tensor) and value.ndim >= 2 else None
