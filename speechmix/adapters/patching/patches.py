"""Patch: replacement states or values for one model run, from a given layer on.

In: an attention module that runs for several runs at once (a batch), and which of them have other
values where. Out: the same call of torch's attention function, or the product behind a softmax of
the module's own, on changed values. Where the batch grows is in patched_runs.py.

Silence heads of a decoder's self-attention: set their outputs to zero.

In: for each run of a batch the heads that are silent. Out: the model's hooks while the block lasts; what a head
computes is replaced before the output projection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ...errors import ModelError
from ..capture.attention_calls import WeightedSumFinder, read_multi_head
from ..transformers_types import HookArguments, HookKeywords, ModelOutput, TorchFunction

if TYPE_CHECKING:
    from ..model import Model


@dataclass(frozen=True, eq=False)
class Patch:
    """A change of value vectors or states in one run, from some layer on.

    Parameters
    ----------
    stack : str
    layers : range
        Where values are changed; the run leaves the clean one at the first of them.
    positions : sequence of int [P]
        Source positions: encoder frames (or tokens) for "encoder" and "cross", token positions for
        "decoder".
    values : dict of layer to Tensor [H, P, d], optional
        Value vectors to put in at these positions; zeros for none.
    states : Tensor [P, D], optional
        What to put in, instead of other values, into the hidden states that enter the first layer.
    heads : sequence of int, optional
        Heads of the layers that read the changed values; the others read the model's own. All by default.
    """

    stack: str
    layers: range
    positions: Sequence[int]
    values: Mapping[int, Tensor] | None = None
    states: Tensor | None = None
    heads: Sequence[int] | None = None

    def changes_values(self, stack: str, layer: int) -> bool:
        """Whether the values of this attention block are changed in this run."""
        return (
            self.states is None
            and self.stack == stack
            and layer in self.layers
            and len(self.positions) > 0
        )


class PatchedValues(TorchFunctionMode):
    """Changes values, in some rows of the batch, that enter the torch attention function an
    attention module calls.

    `changes` are pairs of a row and its patch. Where attention is within blocks (Granite-speech),
    each of the `run_count` rows has several in the function's batch; where a run's positions are
    packed (`packed_length` each), each block is a call of its own. `head_count`
    is set where attention is the module's own code: the values enter the product behind its
    softmax, which may hold all heads in a row.
    """

    def __init__(
        self,
        layer: int,
        changes: list[tuple[int, Patch]],
        run_count: int,
        head_count: int | None,
        *,
        packed_length: int = 0,
    ):
        super().__init__()
        self._layer, self._changes, self._run_count, self._head_count = (
            layer,
            changes,
            run_count,
            head_count,
        )
        self._packed_length = packed_length
        self._position_offset = 0  # positions of the calls before this one
        self._product = WeightedSumFinder() if head_count is not None else None

    def __torch_function__(
        self,
        func: TorchFunction,
        types: Sequence[type],
        args: HookArguments = (),
        kwargs: HookKeywords | None = None,
    ) -> ModelOutput:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            query, key, value, *other_args = args
            patched_values = (
                self._patch_block(value) if self._packed_length else self._patch_rows(value)
            )
            output = func(query, key, patched_values, *other_args, **kwargs)
            if self._selects_heads:
                self._restore_heads(output, func(query, key, value, *other_args, **kwargs))
            return output
        output = func(*args, **kwargs)
        if self._product is not None and self._product.is_weighted_sum(func, args, output):
            weights, value = args[:2]
            values_by_run = (
                value if value.ndim == 4 else torch.unflatten(value, 0, (-1, self._head_count or 1))
            )
            patched_output = func(weights, self._patch_rows(values_by_run).reshape(value.shape))
            if self._selects_heads:
                self._restore_heads(
                    patched_output.view(-1, self._head_count or 1, *patched_output.shape[-2:]),
                    output.view(-1, self._head_count or 1, *output.shape[-2:]),
                )
            return patched_output
        if func is F.multi_head_attention_forward:
            for row, patch in self._changes:
                output[0][:, row] = self._run_multi_head(row, patch, *args, **kwargs)
        return output

    @property
    def _selects_heads(self) -> bool:
        return any(patch.heads is not None for _, patch in self._changes)

    def _restore_heads(self, outputs: Tensor, intact: Tensor) -> None:
        """Give the heads that a patch leaves alone what they compute from the model's own values, [runs, H, T, d]."""
        if len(outputs) != self._run_count:
            raise ModelError(
                "attention within blocks: values cannot be changed for some heads alone"
            )
        for row, patch in self._changes:
            if patch.heads is not None:
                others = [head for head in range(outputs.shape[1]) if head not in patch.heads]
                outputs[row, others] = intact[row, others]

    def _patch_rows(self, values: Tensor) -> Tensor:
        """Values [runs, H, T, d] of all runs; [runs x blocks, H, T / blocks, d] where attention is
        within blocks."""
        if len(values) != self._run_count:
            blocks = len(values) // self._run_count
            joined_values = (
                torch.unflatten(values, 0, (self._run_count, blocks)).transpose(1, 2).flatten(2, 3)
            )
            patched_values = torch.unflatten(self._patch_rows(joined_values), 2, (blocks, -1))
            return patched_values.transpose(1, 2).flatten(0, 1)
        values = values.clone()
        for row, patch in self._changes:
            values[row] = self._patch_values(values[row], patch)
        return values

    def _patch_block(self, values: Tensor) -> Tensor:
        """Values [1, H, t, d] of the next block of packed states."""
        run, start = divmod(self._position_offset, self._packed_length)
        self._position_offset += values.shape[2]
        for row, patch in self._changes:
            values = self._patch_values(values[0], patch, start)[None] if row == run else values
        return values

    def _patch_values(self, values: Tensor, patch: Patch, start: int = 0) -> Tensor:
        """Values [H, t, d] of one run, from the position `start` on."""
        patched_values, stop = values.clone(), start + values.shape[1]
        patch_indices = [
            index for index, position in enumerate(patch.positions) if start <= position < stop
        ]
        positions = [patch.positions[index] - start for index in patch_indices]
        if patch.values is None:
            patched_values[:, positions] = 0
        else:
            new_values = patch.values[self._layer].to(values)[:, patch_indices]
            # Grouped-query attention holds fewer heads.
            patched_values[:, positions] = new_values[:: len(new_values) // len(values)]
        return patched_values

    def _run_multi_head(
        self,
        row: int,
        patch: Patch,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *args: Any,
        **kwargs: Any,
    ) -> Tensor:
        """Torch's function takes no projected values, so its sum is written out for one run: alpha
        V W_O + b_O, [T, D]."""
        inputs = [states[:, row : row + 1] for states in (query, key, value)]
        mask = kwargs.get("attn_mask")
        if mask is not None and mask.ndim == 3:
            kwargs["attn_mask"] = torch.unflatten(mask, 0, (query.shape[1], -1))[row]
        call = read_multi_head(inputs[0], inputs[1], inputs[2], *args, **kwargs)
        context = call.weights() @ self._patch_values(call.value, patch)  # [H, T, d]
        if patch.heads is not None:
            others = [head for head in range(len(context)) if head not in patch.heads]
            context[others] = (call.weights() @ call.value)[others]
        out_weight, out_bias = args[8], args[9]
        return F.linear(context.transpose(0, 1).flatten(1), out_weight, out_bias)


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
