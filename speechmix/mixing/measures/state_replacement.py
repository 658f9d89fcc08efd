"""Put other states in place of those that enter layers, while a model runs.

In: a model, layers by stack, and a function of a layer's states. Out: a context in which the layers
read what the function returns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from torch import Tensor, nn

from ...adapters.capture.packed_states import pack_like, unpack_states
from ...adapters.transformers_types import HookArguments, HookKeywords

if TYPE_CHECKING:
    from ...adapters.model import Model

# Of stack, layer and the states that enter it: the states that it reads instead.
StateChange = Callable[[str, int, Tensor], Tensor]


@contextmanager
def replaced_states(
    model: Model, layers: Mapping[str, Sequence[int]], change: StateChange
) -> Iterator[None]:
    """Put ``change(stack, layer, states)`` in place of the states [1, K, D] that enter layers;
    undone on leaving.

    The states of "cross" are those of the encoder.
    """
    with ExitStack() as hooks:
        for stack, indices in layers.items():
            for index in indices:
                hook = _make_state_hook(stack, index, change)
                layer = model.stacks[stack].layers[index].module
                hooks.callback(layer.register_forward_pre_hook(hook, with_kwargs=True).remove)
        yield


def _make_state_hook(
    stack: str, index: int, change: StateChange
) -> Callable[..., tuple[HookArguments, HookKeywords]]:
    def hook(
        layer: nn.Module, args: HookArguments, kwargs: HookKeywords
    ) -> tuple[HookArguments, HookKeywords]:
        names = list(inspect.signature(layer.forward).parameters)
        name = "encoder_hidden_states" if stack == "cross" else names[0]
        states = kwargs[name] if name in kwargs else args[names.index(name)]
        changed_states = pack_like(states, change(stack, index, unpack_states(states)))
        if name in kwargs:
            return args, {**kwargs, name: changed_states}
        argument_index = names.index(name)
        return (*args[:argument_index], changed_states, *args[argument_index + 1 :]), kwargs

    return hook
