"""Compute a language-model head at chosen positions alone, where the vocabulary is most of the cost.

In: for each run of a batch the positions that are read. Out: the model's hook while the block lasts; logits then have
these positions only.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..transformers_types import HookArguments

if TYPE_CHECKING:
    from ..model import Model


@contextmanager
def read_positions_only(model: Model, positions: Tensor) -> Iterator[None]:
    """Give the head the states of some positions.

    Parameters
    ----------
    model : Model
        With a language-model head.
    positions : int Tensor [R, P]
        Of each run of a batch.
    """
    rows = torch.arange(len(positions), device=positions.device)[:, None]

    def select(module: nn.Module, args: HookArguments) -> tuple[Any, ...]:
        states: Tensor = args[0]
        return (states[rows, positions], *args[1:])

    hook = model.module.get_output_embeddings().register_forward_pre_hook(select)
    try:
        yield
    finally:
        hook.remove()
