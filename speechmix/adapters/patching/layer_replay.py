"""Let a stack end behind an earlier layer, for logit lenses: everything behind it runs as it is.

In: a model and inputs of one item. Out: `LayerReplay`, with what each layer returned in the intact
pass. While `ending_at` lasts, no layer computes anything: each returns what it returned, and the
last one the state of another. Final norm, head and decoder are the model's own code. So the last
layer gives the model's own output, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import cycle

from torch import Tensor, nn

from ...errors import InputError, ModelError
from ..binding.bound_layers import Stack
from ..capture.device_copy import inputs_to_device
from ..capture.forward_pass import arguments_by_name
from ..capture.hidden_states import INPUT, stacks_with_states
from ..capture.layer_run import first_output
from ..capture.replaced_context import stub_outputs
from ..model import Model
from ..transformers_types import HookArguments, HookKeywords, ModelOutput


@dataclass(frozen=True, eq=False)
class LayerReplay:
    """What the layers of a model returned in one pass.

    Parameters
    ----------
    model : Model
    stack : str
        The stack that can end earlier. Those before it are replayed as they were.
    states : list of Tensor [L + 1]
        What entered its first layer, and what each layer passed on.
    outputs : dict of str to list
        What each layer returned, by stack.
    """

    model: Model
    stack: str
    states: list[Tensor]
    outputs: Mapping[str, list[ModelOutput]]

    @classmethod
    def record(cls, model: Model, stack: str, inputs: Mapping[str, Tensor]) -> LayerReplay:
        """Run a model that is in use (`Model.in_use`) once, without gradients.

        Raises
        ------
        InputError
            If its head reads all layers.
        ModelError
            If the layers do not run once each, in their order.
        """
        if getattr(model.config, "use_weighted_layer_sum", False):
            raise InputError(f"the head of {model.name} reads a sum of all layers: no lens fits it")
        names, states = stacks_with_states(model), list[Tensor]()
        outputs = {name: list[ModelOutput]() for name in names[: names.index(stack) + 1]}

        def record_input(module: nn.Module, args: HookArguments, kwargs: HookKeywords) -> None:
            states.append(arguments_by_name(module, args, kwargs)[0])

        def make_hook(name: str) -> Callable[[nn.Module, HookArguments, ModelOutput], None]:
            return lambda module, args, output: outputs[name].append(output)

        with ExitStack() as hooks:
            first_layer = model.stacks[stack].layers[0].module
            handle = first_layer.register_forward_pre_hook(record_input, with_kwargs=True)
            hooks.callback(handle.remove)
            for name in outputs:
                for module in _layer_modules(model.stacks[name]):
                    hooks.callback(module.register_forward_hook(make_hook(name)).remove)
            model.run_with_head(inputs_to_device(inputs, model.device, model.state_dtype))
        for name, layer_outputs in outputs.items():
            if len(layer_outputs) != len(model.stacks[name]):
                raise ModelError(
                    f"{model.name}: expected {len(model.stacks[name])} layers of the {name} to run "
                    f"once each, found {len(layer_outputs)} runs"
                )
        return cls(model, stack, [states[0], *map(first_output, outputs[stack])], outputs)

    @contextmanager
    def ending_at(
        self, layer: int, transform: Callable[[Tensor], Tensor] | None = None
    ) -> Iterator[None]:
        """Let the last layer of the stack return the state of `layer`, as long as the block lasts.

        Parameters
        ----------
        layer : int
            From -1, the input of the first layer.
        transform : callable, optional
            Given this state, returns what is put in its place.
        """
        state = self.states[layer - INPUT].clone()  # what follows may write into it
        state = state if transform is None else transform(state)
        with ExitStack() as exit_stack:
            for name, outputs in self.outputs.items():
                if name == self.stack:
                    last = outputs[-1]
                    last = (state, *last[1:]) if isinstance(last, tuple) else state
                    outputs = [*outputs[:-1], last]
                returned = cycle(outputs)
                for module in _layer_modules(self.model.stacks[name]):
                    exit_stack.enter_context(stub_outputs(module, returned))
            yield


def _layer_modules(stack: Stack) -> list[nn.Module]:
    """Modules of the layers; one that several layers share is there once."""
    return list(dict.fromkeys(layer.module for layer in stack.layers))
