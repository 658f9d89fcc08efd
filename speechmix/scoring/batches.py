"""What goes together: clips that share a forward pass, pairs and rows that memory allows at once.

In: a model, its inputs for several clips, a captured block. Out: one padded batch; numbers of pairs and rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import torch

from ..errors import InputError

if TYPE_CHECKING:
    from ..adapters.block import Block
    from ..adapters.model import Model

# Bytes that one batch of (target position, source) pairs may take: on a CPU what stays near its caches, which is fastest,
# on a GPU a share of what is free.
_CPU_BATCH_BYTES = 2**25
_GPU_BATCH_BYTES = (2**27, 2**31)
_GPU_CLIPS = 8
_ATTENTION_FLOATS = 2**24  # of the attention weights [H, R, K] held at once: 64 MiB in float32


def clips_together(model: Model) -> int:
    """How many clips share a forward pass: several on a GPU, where padding changes nothing for this model; else one."""
    return _GPU_CLIPS if model.device.type == "cuda" and model.family.batches(model.config) else 1


def in_groups(clips: Iterable[Any], size: int) -> Iterator[list[Any]]:
    clips = iter(clips)
    while batch := list(islice(clips, size)):
        yield batch


def rows_of(inputs: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Prepared inputs of a batch, one clip each, with whatever padding they have."""
    tensors = {name: torch.as_tensor(value) for name, value in inputs.items()}
    sizes = {name: len(tensor) if tensor.ndim else 0 for name, tensor in tensors.items()}
    if len(set(sizes.values())) != 1 or 0 in sizes.values():
        raise InputError(f"prepared inputs should be tensors of one batch size; found {sizes or 'nothing'}")
    count = next(iter(sizes.values()))
    return [{name: tensor[row : row + 1] for name, tensor in tensors.items()} for row in range(count)]


def padded_together(model: Model, inputs: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """One batch of several clips' inputs, padded on the right; a mask keeps padding out where the encoder is padded."""
    if len(inputs) == 1:
        return inputs[0]
    if not model.family.batches(model.config):
        raise InputError(f"{model.name} gives other results when clips are padded: clips_at_once must be 1")
    names = list(inputs[0])
    padded = {}
    for name in names:
        rows = [tensors[name][0] for tensors in inputs]
        fill = getattr(model.config, "pad_token_id", None) or 0 if name.endswith("input_ids") else 0
        padded[name] = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=fill)
    main = names[0]
    lengths = torch.tensor([tensors[main].shape[1] for tensors in inputs])
    if "attention_mask" not in padded and padded[main].ndim == 2 and len(set(lengths.tolist())) > 1:
        padded["attention_mask"] = (torch.arange(padded[main].shape[1]) < lengths[:, None]).long()
    return padded


def pairs_at_once(block: Block) -> int:
    """(Target position, source) pairs to handle at once, from the memory there is."""
    allowed = _CPU_BATCH_BYTES
    if block.values.is_cuda:
        free, _ = torch.cuda.mem_get_info(block.values.device)
        allowed = min(max(free // 4, _GPU_BATCH_BYTES[0]), _GPU_BATCH_BYTES[1])
    return max(64, allowed // (block.floats_per_pair * block.values.dtype.itemsize))


def rows_at_once(block: Block) -> int:
    """Target positions whose attention weights are held at once."""
    return max(64, _ATTENTION_FLOATS // (block.stack.heads * block.n_sources))
