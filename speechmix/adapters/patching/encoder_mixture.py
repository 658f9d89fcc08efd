"""Run a decoder behind mixtures of two encoder outputs, frame by frame.

In: the states of two encodings of equal length, and for each run the frames that come from the second. Out: the
model's hooks while the block lasts. Keys and values of both are projected once a layer, not once a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..transformers_types import HookArguments

if TYPE_CHECKING:
    from ..model import Model


@contextmanager
def mix_encoder_states(
    model: Model, states: Tensor, silent: Tensor, is_silent: Tensor
) -> Iterator[None]:
    """Let each run attend to its own mixture of two encoder outputs.

    Parameters
    ----------
    model : Model
    states, silent : Tensor [1, S, D]
    is_silent : bool Tensor [R, S]
        Which frames of each run are those of the silent window.
    """
    pair = torch.cat([states, silent])

    def put_pair(module: nn.Module, args: HookArguments) -> tuple[Any, ...]:
        return (pair, *args[1:])

    def mix_pair(module: nn.Module, args: HookArguments, output: Tensor) -> Tensor:
        return torch.where(is_silent[..., None], output[1], output[0])

    with ExitStack() as exit_stack:
        for layer in model.stacks["cross"].layers:
            for projection in (layer.attention.key, layer.attention.value):
                exit_stack.callback(projection.register_forward_pre_hook(put_pair).remove)
                exit_stack.callback(projection.register_forward_hook(mix_pair).remove)
        yield
