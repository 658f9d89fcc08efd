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


class EncoderMixture:
    """Two encoder outputs, and which frames of each run come from the second.

    Parameters
    ----------
    states, silent : Tensor [1, S, D]

    Attributes
    ----------
    is_silent : bool Tensor [R, S]
        To be set before each run of the model.
    """

    def __init__(self, states: Tensor, silent: Tensor):
        self._pair = torch.cat([states, silent])
        self._projected: dict[nn.Module, Tensor] = {}
        self.is_silent = torch.zeros(1, states.shape[1], dtype=torch.bool, device=states.device)

    def put_pair(self, module: nn.Module, args: HookArguments) -> tuple[Any, ...]:
        """Give a projection both outputs; once they are projected, next to nothing."""
        states = self._pair[:, :1] if module in self._projected else self._pair
        return (states, *args[1:])

    def mix_pair(self, module: nn.Module, args: HookArguments, output: Tensor) -> Tensor:
        """Return each run's own mixture [R, S, D] of the projected outputs."""
        intact, silent = self._projected.setdefault(module, output)
        return torch.where(self.is_silent[..., None], silent, intact)


@contextmanager
def mix_encoder_states(model: Model, states: Tensor, silent: Tensor) -> Iterator[EncoderMixture]:
    """Let each run attend to its own mixture of two encoder outputs.

    Parameters
    ----------
    model : Model
    states, silent : Tensor [1, S, D]
    """
    mixture = EncoderMixture(states, silent)
    with ExitStack() as exit_stack:
        for layer in model.stacks["cross"].layers:
            for projection in (layer.attention.key, layer.attention.value):
                exit_stack.callback(projection.register_forward_pre_hook(mixture.put_pair).remove)
                exit_stack.callback(projection.register_forward_hook(mixture.mix_pair).remove)
        yield mixture
