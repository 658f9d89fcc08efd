"""Copy tensors between the host and the model's device.

In: tensors made on the host, or results on the device. Out: the same on the other side. A GPU works
on what it was given while the host goes on; each result that is asked for one by one makes the host
wait until all is done. So nothing is read back in between, and what leaves the device leaves it in
one piece (`to_host`). What goes there starts from pinned memory, from where it is copied while the
host goes on (`to_device`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

# Bytes that are put together for one copy to the host; what is larger by itself goes by itself.
_MAX_COPY_BYTES = 2**26


def to_device(
    tensor: Tensor, device: torch.device | str, dtype: torch.dtype | None = None
) -> Tensor:
    """Return a tensor on a device; floating-point numbers in `dtype`, if there is one.

    On a GPU it is copied from pinned memory and may still be on its way: whatever the GPU does with
    it comes after.

    Examples
    --------
    >>> to_device(torch.ones(2), "cpu", torch.float64).dtype, to_device(torch.arange(2), "cpu", torch.float64).dtype
    (torch.float64, torch.int64)
    """
    if dtype is not None and tensor.is_floating_point():
        tensor = tensor.to(
            dtype
        )  # before it is pinned: a conversion on the way would go through other memory
    if tensor.device.type == "cpu" and torch.device(device).type == "cuda":
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def inputs_to_device(
    inputs: Mapping[str, Tensor], device: torch.device | str, dtype: torch.dtype | None = None
) -> dict[str, Tensor]:
    """Return a model's inputs on a device, as `to_device` does; of those made in inference mode
    copies, which are plain."""
    tensors = {
        name: tensor.clone() if tensor.is_inference() else tensor for name, tensor in inputs.items()
    }
    return {name: to_device(tensor, device, dtype) for name, tensor in tensors.items()}


def to_host(tensors: Sequence[Tensor]) -> list[np.ndarray]:
    """Return tensors of one device as arrays on the host, all in one copy: small ones of one type
    travel together.

    Half precision becomes float32. No array is a view of a larger one; that of a tensor which lies
    on the host already may share its memory.
    """
    tensors = [
        tensor.float() if tensor.is_floating_point() and tensor.itemsize < 4 else tensor
        for tensor in tensors
    ]
    arrays: dict[int, np.ndarray] = {}
    for tensor_indices in _group_for_copying(tensors):
        if len(tensor_indices) == 1:
            arrays[tensor_indices[0]] = tensors[tensor_indices[0]].detach().cpu().numpy()
            continue
        joined_array = (
            torch.cat([tensors[index].detach().reshape(-1) for index in tensor_indices])
            .cpu()
            .numpy()
        )
        offsets = np.cumsum([0, *(tensors[index].numel() for index in tensor_indices)])
        for index, (start, stop) in zip(tensor_indices, pairwise(offsets), strict=True):
            arrays[index] = joined_array[start:stop].reshape(tuple(tensors[index].shape)).copy()
    return [arrays[index] for index in range(len(tensors))]


def _group_for_copying(tensors: Sequence[Tensor]) -> Iterator[list[int]]:
    """Indices of what travels together: of one type, and no more bytes than a parcel has."""
    indices_by_dtype: dict[torch.dtype, list[int]] = {}
    for index, tensor in enumerate(tensors):
        indices_by_dtype.setdefault(tensor.dtype, []).append(index)
    for indices in indices_by_dtype.values():
        tensor_indices, byte_count = [indices[0]], tensors[indices[0]].nbytes
        for index in indices[1:]:
            if byte_count + tensors[index].nbytes > _MAX_COPY_BYTES:
                yield tensor_indices
                tensor_indices, byte_count = [], 0
            tensor_indices.append(index)
            byte_count += tensors[index].nbytes
        yield tensor_indices
