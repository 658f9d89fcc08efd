"""What a module of a layer computes, tested on the numbers that it was given: a linear projection, a
norm of rows, an activation of single numbers, a convolution over positions.

In: a recorded call. Out: yes or no. Names of classes decide nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...adapters.binding.layer_components import module_bias, projection_weight
from .recording import ModuleCall

_LARGE = 1e3  # beside it the epsilon of a norm is nothing
_TOLERANCE = 1e-3


def is_projection_call(call: ModuleCall) -> bool:
    """Return True if a call multiplied its input by the module's weight and added its bias.

    Examples
    --------
    >>> from speechmix.extensions.tracing.recording import record_forward_pass
    >>> layer = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
    >>> calls = record_forward_pass(layer, lambda: layer(torch.randn(4, 2))).calls
    >>> [is_projection_call(call) for call in calls[:2]]
    [True, False]
    """
    states = _single_input(call)
    weight = getattr(call.module, "weight", None)
    if states is None or not isinstance(weight, Tensor) or weight.ndim not in (2, 3):
        return False
    if weight.ndim == 3 and not (
        isinstance(call.module, nn.Conv1d)
        and call.module.kernel_size == (1,)
        and call.module.groups == 1
        and call.module.stride == (1,)
    ):
        return False
    output = call.outputs[0].tensor
    if isinstance(call.module, nn.Conv1d):
        states, output = states.transpose(-1, -2), output.transpose(-1, -2)
    matrix = projection_weight(call.module)
    if matrix.shape != (output.shape[-1], states.shape[-1]):
        return False
    expected = nn.functional.linear(
        states.to(matrix.dtype), matrix.detach(), module_bias(call.module)
    )
    return expected.shape == output.shape and _is_close(expected, output)


def is_norm_call(call: ModuleCall) -> bool:
    """Return True if a call normed each row: the same for rows of any size, odd but for a bias, and
    a number depends on its row.

    Examples
    --------
    >>> from speechmix.extensions.tracing.recording import record_forward_pass
    >>> layer = nn.Sequential(nn.LayerNorm(3), nn.Tanh(), nn.RMSNorm(3))
    >>> calls = record_forward_pass(layer, lambda: layer(torch.randn(4, 3))).calls
    >>> [is_norm_call(call) for call in calls[:3]]
    [True, False, True]
    """
    states = _single_input(call, is_leaf=any(x.ndim != 1 for x in call.module.parameters()))
    if states is None or states.shape[-1] < 2 or states.shape != call.outputs[0].tensor.shape:
        return False
    rows = states.reshape(-1, states.shape[-1])
    noise = torch.randn(6, rows.shape[-1], generator=torch.Generator().manual_seed(0))
    noise = _LARGE * noise.to(rows)
    normed, doubled, opposite = (
        _try_module(call.module, x[None]) for x in (noise, 2 * noise, -noise)
    )
    if normed is None or doubled is None or opposite is None or normed.shape[1:] != noise.shape:
        return False
    center = normed + opposite
    changed = noise.clone()
    changed[:, 0] += 3 * _LARGE
    other = _try_module(call.module, changed[None])
    return (
        other is not None
        and _is_close(normed, doubled)
        and _is_close(center, center[:, :1].expand_as(center), normed)
        and not _is_close(other[..., 1:], normed[..., 1:])
    )


def is_activation_call(call: ModuleCall) -> bool:
    """Return True if a call changed each number by itself, and is no identity."""
    states = _single_input(call)
    if states is None or next(iter(call.module.parameters()), None) is not None:
        return False
    output = call.outputs[0].tensor
    if output.shape != states.shape or torch.equal(output, states):
        return False
    reversed_output = _try_module(call.module, states.flip(-1))
    return reversed_output is not None and _is_close(reversed_output.flip(-1), output)


def is_positional_convolution(call: ModuleCall) -> bool:
    """Return True for a convolution with a window of several positions."""
    module = call.module
    return isinstance(module, nn.Conv1d) and module.kernel_size[0] > 1


def _single_input(call: ModuleCall, *, is_leaf: bool = True) -> Tensor | None:
    """The input of a call of a module (without parts, if `is_leaf`) that takes one tensor and
    returns one."""
    has_parts = next(iter(call.module.children()), None) is not None
    if (is_leaf and has_parts) or len(call.inputs) != 1 or len(call.outputs) != 1:
        return None
    states = call.inputs[0].tensor
    return states if states.is_floating_point() and states.ndim >= 2 else None


def _try_module(module: nn.Module, states: Tensor) -> Tensor | None:
    try:
        with torch.no_grad():
            output = module(states.clone())
    except Exception:  # it takes other shapes
        return None
    return output if isinstance(output, Tensor) and output.shape == states.shape else None


def _is_close(actual: Tensor, expected: Tensor, size: Tensor | None = None) -> bool:
    size = expected if size is None else size
    scale = size.abs().max().clamp_min(torch.finfo(size.dtype).tiny)
    return bool((actual - expected).abs().max() <= _TOLERANCE * scale)
