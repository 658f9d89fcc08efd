"""Run a model with some sources' value vectors set to zero, in all layers of chosen stacks at once.

Unlike Value Zeroing, which asks about one layer at a time on the original input, the change is carried on: the model
runs as if those frames (or tokens) gave nothing to anybody. Queries, keys and attention weights of each layer follow from
the changed states, as they would. For ablation; nothing is patched, and the model is as before on leaving.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from .capture import attention_readable, read_multi_head
from .model import Model


@contextmanager
def zeroed_values(model: Model, positions: Mapping[str, Sequence[int]]) -> Iterator[None]:
    """Set value vectors to zero while the block lasts.

    Parameters
    ----------
    model : Model
    positions : dict of stack name to source positions
        Encoder frames for "encoder" and "cross", token positions for "decoder".
    """
    model.rebind()
    with ExitStack() as undo:
        undo.enter_context(attention_readable(model.module))
        zeroing = undo.enter_context(_ZeroValues())
        for name, sources in positions.items():
            stack = model.stacks[name]
            for layer in stack.layers:
                for handle in zeroing.watch(layer.attention.module, torch.tensor(list(sources), dtype=torch.long)):
                    undo.callback(handle.remove)
        yield


class _ZeroValues(TorchFunctionMode):
    """Zeroes rows of the values that enter torch's attention functions while a watched module runs."""

    def __init__(self):
        super().__init__()
        self._rows: torch.Tensor | None = None

    def watch(self, module: nn.Module, rows: torch.Tensor) -> list:
        def before(*_):
            self._rows = rows

        def after(*_):
            self._rows = None

        return [module.register_forward_pre_hook(before), module.register_forward_hook(after)]

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if self._rows is None or not len(self._rows):
            return func(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            query, key, value, *rest = args
            return func(query, key, value.index_fill(2, self._rows.to(value.device), 0), *rest, **kwargs)
        if func is F.multi_head_attention_forward:
            return self._multi_head(self._rows, *args, **kwargs)
        return func(*args, **kwargs)

    def _multi_head(self, rows: torch.Tensor, *args, **kwargs):
        """Torch's function takes no projected values, so its sum is written out: alpha V W_O + b_O, one clip."""
        call = read_multi_head(*args, **kwargs)
        weights = call.weights()
        context = weights @ call.value.index_fill(1, rows.to(call.value.device), 0)  # [H, T, d]
        out_weight, out_bias = args[11], args[12]
        output = F.linear(context.transpose(0, 1).flatten(1), out_weight, out_bias)
        return output[:, None], weights.mean(dim=0, keepdim=True)
