"""Say which positions attention sees: all, those before, a window, chunks."""

from __future__ import annotations

import torch
from torch import Tensor

from .attention_operations import AttentionOperation, iterate_operations
from .layer_lists import LayerList


def describe_masks(layer_list: LayerList, *, is_causal: bool) -> str:
    """Describe the mask of a list's first attention blocks, as far as the traced length shows it."""
    kinds: dict[str, None] = {}
    for layer in layer_list.layers:
        operation = next(iterate_operations(layer))
        allowed = _allowed_positions(operation)
        if kind := _describe_mask(allowed, layer.states.tensor.shape[-2]):
            kinds[kind] = None
    default = "causal" if is_causal else "every position sees all"
    return " or ".join(kinds) or default


def _allowed_positions(operation: AttentionOperation) -> Tensor | None:
    """Which source each target may see [Q, K]; None where no call of torch's function says."""
    value = operation.value
    if operation.scores is not None:
        weights = value.sources[0].tensor
        return (weights > 0).flatten(0, -3).any(dim=0)
    if operation.query is None or operation.key is None:
        return None
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    arguments = {**dict(zip(names, value.arguments, strict=False)), **value.keywords}
    mask = arguments.get("attn_mask")
    shape = operation.query.tensor.shape[-2], operation.key.tensor.shape[-2]
    allowed = torch.ones(shape, dtype=torch.bool)
    if arguments.get("is_causal"):
        allowed = allowed.tril()
    if isinstance(mask, Tensor):
        is_seen = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
        allowed = allowed & is_seen.expand(*is_seen.shape[:-2], *shape).flatten(0, -3).any(dim=0)
    return allowed


def _describe_mask(allowed: Tensor | None, length: int) -> str:
    """Words for a mask; empty for all positions, or all before."""
    if allowed is None:
        return ""
    size = allowed.shape[0]
    if size != length:  # longer where one chunk is padded
        return f"chunks of {size}"
    if (
        size != allowed.shape[1]
        or allowed.all()
        or torch.equal(allowed, allowed.new_ones(size, size).tril())
    ):
        return ""
    distance = torch.arange(size)[:, None] - torch.arange(size)
    before, behind = int(distance[allowed].max()), int(-distance[allowed].min())
    if torch.equal(allowed, (distance <= before) & (-distance <= behind)):
        return f"a window of {before} positions before" + f" and {behind} behind" * bool(behind)
    last = torch.where(allowed, torch.arange(size), -1).max(dim=1).values
    chunk = int((last == last[0]).sum())
    ends = ((torch.arange(size) // chunk + 1) * chunk - 1).clamp(max=size - 1)
    if torch.equal(last, ends):
        first = torch.where(allowed, torch.arange(size), size).min(dim=1).values
        context = int((torch.arange(size) // chunk * chunk - first).max())
        return f"chunks of {chunk}" + f" with {context} positions before" * bool(context)
    return "a mask of another form"
