"""Record the states that layers and stacks pass on, for the self-check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import cast

import torch
import transformers
from torch import Tensor, nn

from ..capture.module_access import list_modules
from ..model import Model
from ..transformers_types import ModelOutput

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
