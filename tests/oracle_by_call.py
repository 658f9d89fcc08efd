"""The slow oracle for any architecture: values are zeroed in the call of torch that attends, states are
swapped by hooks, and the whole model runs.

In: a function that runs the model, and one of its layers. Reads no table of the package: its caller
says which modules are layers, and what the last norm is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


class Zeroed(TorchFunctionMode):
    """Within `layer`, zero rows of what attention to so many positions as `attends` allows reads as values."""

    def __init__(
        self, layer: torch.nn.Module, positions: list[int], attends: Callable[[int], bool]
    ):
        super().__init__()
        self.layer, self.positions, self.attends = layer, positions, attends
        self.inside, self.seen, self.softmax = False, 0, None

    def __enter__(self):
        self.hooks = [
            self.layer.register_forward_pre_hook(
                lambda *_: self.__dict__.update(inside=True, seen=0)
            ),
            self.layer.register_forward_hook(lambda *_: self.__dict__.update(inside=False)),
        ]
        return super().__enter__()

    def __exit__(self, *error):
        for hook in self.hooks:
            hook.remove()
        return super().__exit__(*error)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name, kwargs, args = getattr(func, "__name__", ""), dict(kwargs or {}), list(args)
        if self.inside and name == "scaled_dot_product_attention":
            values = kwargs.pop("value") if "value" in kwargs else args.pop(2)
            kwargs["value"] = self.zero(values)
        elif self.inside and name in ("matmul", "bmm", "__matmul__") and self.softmax is not None:
            if args[0].shape[-2:] == self.softmax:  # the weights
                self.softmax, args[1] = None, self.zero(args[1])
        elif self.inside and name == "multi_head_attention_forward":  # of WavLM
            kwargs = inspect.signature(func).bind(*args, **kwargs).arguments
            args, bias = [], kwargs["in_proj_bias"].chunk(3)[2]
            values = F.linear(kwargs["value"], kwargs["v_proj_weight"], bias).squeeze(1)
            values = values.unflatten(-1, (kwargs["num_heads"], -1)).transpose(0, 1)
            kwargs["static_v"] = self.zero(values)
        result = func(*args, **kwargs)
        if name == "softmax":
            self.softmax = result.shape[-2:]
        return result

    def zero(self, values: torch.Tensor) -> torch.Tensor:
        """Blocks of positions come in one call, before the axis of heads, or one call after another."""
        if not self.attends(values.shape[-2]):
            return values
        blocks = (values if values.ndim > 3 else values[None]).clone()
        flat, width = blocks.flatten(0, -4), values.shape[-2]
        for position in self.positions:
            block, row = divmod(position - self.seen, width)
            if 0 <= block < len(flat):
                flat[block, ..., row, :] = 0
        self.seen += len(flat) * width
        return flat.reshape(values.shape)


def layer_states(layer: torch.nn.Module, run: Callable[[], Any]) -> torch.Tensor:
    """What the layer gives in a run."""
    states: list[torch.Tensor] = []
    hook = layer.register_forward_hook(
        lambda module, args, output: states.append(
            (output[0] if isinstance(output, tuple) else output).detach().clone()
        )
    )
    try:
        run()
    finally:
        hook.remove()
    return states[0]


def with_swapped_states(
    layer: torch.nn.Module, rows: list[int], run: Callable[[], Any], run_other: Callable[[], Any]
) -> Any:
    """What a run gives with the states that enter a layer at some rows taken from another run."""
    seen: list[torch.Tensor] = []

    def enter(module: Any, args: Any, kwargs: Any) -> Any:
        states = args[0] if args else kwargs["hidden_states"]
        if not seen:
            seen.append(states.clone())
            return None
        states, width = states.clone(), states.shape[-1]
        states.view(-1, width)[rows] = seen[0].reshape(-1, width)[rows]
        if args:
            return (states, *args[1:]), kwargs
        return args, {**kwargs, "hidden_states": states}

    hook = layer.register_forward_pre_hook(enter, with_kwargs=True)
    try:
        run_other()
        return run()
    finally:
        hook.remove()
