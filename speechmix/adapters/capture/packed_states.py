"""Split packed states [runs * T, D] into single runs, and pack them again.

The audio tower of Qwen2.5-Omni cuts sound into chunks and runs its layers on all chunks of all
clips in a row; attention, called once for each chunk, stays within it, and all else is
position-wise. In: states as such a layer takes or returns them, and how many runs of one length are
in them. Out: the same with an axis of runs, as everything here reads them; and back. States that
have the axis already are left alone.
"""

from __future__ import annotations

from torch import Tensor


def unpack_states(states: Tensor, run_count: int = 1) -> Tensor:
    """States [runs, T, D] of packed ones [runs T, D].

    Examples
    --------
    >>> import torch
    >>> unpack_states(torch.zeros(6, 4), run_count=2).shape, unpack_states(torch.zeros(5, 3, 4)).shape
    (torch.Size([2, 3, 4]), torch.Size([5, 3, 4]))
    """
    return states.unflatten(0, (run_count, -1)) if states.ndim == 2 else states


def pack_like(reference: Tensor, states: Tensor) -> Tensor:
    """States [R, T, D] in the form of `reference`, which the layer took: packed, if that is."""
    return states.flatten(0, 1) if reference.ndim == 2 else states
