"""Silence heads of a decoder's self-attention: set their outputs to zero.

In: for each run of a batch the heads that are silent. Out: the model's hooks while the block lasts; what a head
computes is replaced before the output projection.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..transformers_types import HookArguments

if TYPE_CHECKING:
    from ..model import Model


@contextmanager
def silence_heads(
    model: Model, heads_by_run: Sequence[Sequence[tuple[int, int]]], stack: str = "decoder"
) -> Iterator[None]:
    """Run a model without the output of some heads.

    `heads_by_run` lists (layer, head) pairs for each run of a batch; a single entry is for all
    runs.
    """
    bound = model.stacks[stack]
    with ExitStack() as exit_stack:
        for index, layer in enumerate(bound.layers):
            keep = torch.ones(len(heads_by_run), 1, bound.heads, 1, device=model.device)
            for run, heads in enumerate(heads_by_run):
                for layer_index, head in heads:
                    if layer_index == index:
                        keep[run, :, head] = 0
            if not bool(keep.all()):
                hook = partial(_scale_heads, keep=keep)
                exit_stack.callback(layer.attention.output.register_forward_pre_hook(hook).remove)
        yield


def _scale_heads(module: nn.Module, args: HookArguments, *, keep: Tensor) -> tuple[Any, ...]:
    states = args[0]
    by_head = states.view(*states.shape[:-1], keep.shape[2], -1) * keep.to(states.dtype)
    return (by_head.view(states.shape), *args[1:])
