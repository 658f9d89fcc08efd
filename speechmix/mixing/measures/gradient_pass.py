"""Gradients of a model's output with respect to the states that enter its layers.

In: a `Model`, inputs of a batch of one, objectives. Out: states, gradients, and the objectives'
values for other states. What does not depend on the objective is computed once for all of them: one
pass forward, whose graph is kept until each has been taken back through it. A kept graph takes no
more memory than one that is used once.

Put other states in place of those that enter layers, while a model runs.

In: a model, layers by stack, and a function of a layer's states. Out: a context in which the layers
read what the function returns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from ...adapters.capture.device_copy import to_host
from ...adapters.capture.layer_run import pack_like, unpack_states
from ...adapters.capture.model_use import wrap_encoder_states
from ...adapters.transformers_types import HookArguments, HookKeywords
from ...errors import InputError

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...adapters.transformers_types import ModelOutput
    from .token_objectives import Objective


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


# States that enter layers, by stack and layer.
States = dict[tuple[str, int], Tensor]
T = TypeVar("T")
Key = TypeVar("Key")


class GradientPass:
    """A model as a differentiable function of the states that enter its layers; the model stays as
    it is.

    Parameters
    ----------
    model : Model
    inputs : dict of str to Tensor
        Of a batch of one.
    layers : dict of str to sequence of int
        The requested layers, by stack.
    objective : Objective, optional
        Not needed by measures of states (`hta_input`).

    Attributes
    ----------
    shared_passes : SharedPasses
        What it shares with the passes of other objectives (`make_passes`).
    objective_index : int
        Index of its objective in `shared_passes`.
    """

    def __init__(
        self,
        model: Model,
        inputs: Mapping[str, Tensor],
        layers: Mapping[str, Sequence[int]],
        objective: Objective | None = None,
        *,
        shared_passes: SharedPasses | None = None,
        objective_index: int = 0,
    ):
        if shared_passes is None:
            shared_passes = SharedPasses(
                model, inputs, layers, [] if objective is None else [objective]
            )
        self.shared_passes, self.objective_index = shared_passes, objective_index
        self.model, self.layers, self.inputs = model, layers, shared_passes.inputs
        self._cache: dict[Callable[[GradientPass], object], Any] = {}

    @classmethod
    def make_passes(
        cls,
        model: Model,
        inputs: Mapping[str, Tensor],
        layers: Mapping[str, Sequence[int]],
        objectives: Sequence[Objective],
    ) -> list[GradientPass]:
        """A pass for each of several objectives, which compute together what they share."""
        shared_passes = SharedPasses(model, inputs, layers, objectives)
        return [
            cls(model, inputs, layers, shared_passes=shared_passes, objective_index=objective_index)
            for objective_index in range(len(objectives))
        ]

    def states(self, stack: str) -> list[Tensor]:
        """States [K, D] that enter each of the requested layers."""
        return [self.shared_passes.states[stack, layer][0] for layer in self.layers[stack]]

    def states_and_gradients(self, stack: str) -> list[tuple[Tensor, Tensor]]:
        """States [K, D] that enter each of the requested layers, and the objective's gradients with
        respect to them."""
        gradients = self._gradients
        return [
            (x, gradients[stack, layer])
            for layer, x in zip(self.layers[stack], self.states(stack), strict=True)
        ]

    def value(self, stack: str, layer: int, states: Tensor) -> Tensor:
        """Objective [n] with other states [n, K, D] entering a layer."""
        return self.shared_passes.values(stack, layer, states, [self._required_objective_index])[0]

    @property
    def objective(self) -> Objective:
        """What is differentiated."""
        return self.shared_passes.objectives[self._required_objective_index]

    @property
    def _required_objective_index(self) -> int:
        if not self.shared_passes.objectives:
            raise InputError("this pass has no objective to differentiate")
        return self.objective_index

    def compute_once(self, compute: Callable[[GradientPass], T]) -> T:
        """Return ``compute(self)``, computed once for all stacks."""
        if compute not in self._cache:
            self._cache[compute] = compute(self)
        result: T = self._cache[compute]
        return result

    @cached_property
    def _gradients(self) -> States:
        """One pass forward for all objectives, and one back, for all stacks and layers."""
        gradients = self.shared_passes.graph.gradients(self._required_objective_index)
        self.check()
        return {key: gradient[0] for key, gradient in gradients.items()}

    def check(self) -> None:
        """Raise an `InputError` if the objective was not finite somewhere; called once, when all
        has been computed."""
        if not self.shared_passes.objectives:
            return
        values = self.shared_passes.take_evaluated_values(self.objective_index)
        broken = next((array for array in to_host(values) if not np.isfinite(array).all()), None)
        if broken is not None:
            raise InputError(
                f"the objective {self.objective.details} is {broken.tolist()}; a CTC model needs a "
                "frame for every letter: "
                "is it the right text?"
            )


class RetainedGraph(Generic[Key]):
    """Values of one forward pass, whose graph is retained until each has been differentiated.

    Each of `values` [n] belongs to one objective; the n runs are summed. `ends` holds what they are
    differentiated by. A value that depends on no state is an InputError.
    """

    def __init__(self, values: Sequence[Tensor], ends: Mapping[Key, Tensor]):
        if not all(value.requires_grad for value in values):
            raise InputError("the objective does not depend on the model's states")
        self._values: dict[int, Tensor] = dict(enumerate(values))
        self._ends = dict(ends)

    def gradients(self, objective_index: int) -> dict[Key, Tensor]:
        """Gradients of one objective by each end, zeros where it does not depend on it; called
        once."""
        value, ends = self._values.pop(objective_index), list(self._ends.values())
        optional_gradients = torch.autograd.grad(
            value, ends, torch.ones_like(value), retain_graph=bool(self._values), allow_unused=True
        )
        return {
            key: torch.zeros_like(end) if gradient is None else gradient
            for (key, end), gradient in zip(self._ends.items(), optional_gradients, strict=True)
        }


class SharedPasses:
    """What passes of the same inputs for P objectives share."""

    def __init__(
        self,
        model: Model,
        inputs: Mapping[str, Tensor],
        layers: Mapping[str, Sequence[int]],
        objectives: Sequence[Objective],
    ):
        self.model, self.layers, self.objectives = model, layers, objectives
        self.inputs = dict(inputs)
        self._evaluated_values: list[list[Tensor]] = [
            [] for _ in objectives
        ]  # values since the last check
        self._cache: dict[Hashable, Any] = {}

    def compute_once(self, key: Hashable, compute: Callable[[SharedPasses], T]) -> T:
        """Return ``compute(self)``, computed once for all objectives and stored under `key`."""
        if key not in self._cache:
            self._cache[key] = compute(self)
        result: T = self._cache[key]
        return result

    @cached_property
    def graph(self) -> RetainedGraph[tuple[str, int]]:
        """Objectives as functions of the states that enter the requested layers, in one pass
        forward."""
        ends: States = {}

        def store_states(stack: str, layer: int, x: Tensor) -> Tensor:
            # Each reader has a copy of its own: the gradient is that of what passes through this
            # layer.
            ends[stack, layer] = x.clone() if x.requires_grad else x.detach().requires_grad_(True)
            return ends[stack, layer]

        with torch.enable_grad(), replaced_states(self.model, self.layers, store_states):
            values = self.evaluate_inputs()
        self.__dict__["states"] = {key: x.detach() for key, x in ends.items()}
        return RetainedGraph(values, ends)

    @cached_property
    def states(self) -> States:
        """States [1, K, D] that enter the requested layers."""
        states: States = {}

        def store_states(stack: str, layer: int, x: Tensor) -> Tensor:
            states[stack, layer] = x.detach()
            return x

        with torch.no_grad(), replaced_states(self.model, self.layers, store_states):
            self._run(self.inputs)
        return states

    def evaluate_inputs(self) -> list[Tensor]:
        """Each objective [1] of the inputs as they are."""
        return self._values(self.inputs, range(len(self.objectives)))

    def values(
        self, stack: str, layer: int, states: Tensor, objective_indices: Sequence[int] | None = None
    ) -> list[Tensor]:
        """Objectives [n] each, all or those at some indices, with other states [n, K, D] entering a
        layer."""
        inputs: HookKeywords = dict(self.inputs)
        if stack in self.model.capabilities.decoder_stacks:  # the encoder need not run again
            del inputs[next(iter(self.model.family.tiny_inputs(self.model.config)))]
            inputs["encoder_outputs"] = wrap_encoder_states(
                self._memory.expand(len(states), -1, -1)
            )
        for name, value in inputs.items():
            if isinstance(value, Tensor):
                inputs[name] = torch.cat([value] * len(states))
        with replaced_states(self.model, {stack: [layer]}, lambda *_: states):
            return self._values(
                inputs,
                range(len(self.objectives)) if objective_indices is None else objective_indices,
            )

    def take_evaluated_values(self, objective_index: int) -> list[Tensor]:
        """Return the values of an objective since the last call, and forget them."""
        values, self._evaluated_values[objective_index] = (
            self._evaluated_values[objective_index],
            [],
        )
        return values

    @cached_property
    def _memory(self) -> Tensor:
        with torch.no_grad():
            memory: Tensor = self.model.family.run(self.model.base, self.inputs, ("encoder",))[0]
            return memory

    def _values(
        self, inputs: Mapping[str, Tensor], objective_indices: Sequence[int]
    ) -> list[Tensor]:
        output = self._run(inputs)
        values = [
            self.objectives[objective_index].function(output)
            for objective_index in objective_indices
        ]
        for objective_index, value in zip(objective_indices, values, strict=True):
            self._evaluated_values[objective_index].append(value.detach())
        return values

    def _run(self, inputs: Mapping[str, Tensor]) -> ModelOutput:
        return self.model.run_with_head(inputs)


def activation_classes() -> tuple[type[nn.Module], ...]:
    """Classes of the elementwise activations that transformers makes modules of.

    They are imported when used: with them torch sets up its compiler, which sets an environment
    variable and makes a folder.
    """
    from transformers.activations import ACT2CLS

    entries: Iterable[Any] = ACT2CLS.values()  # classes, or pairs of a class and its arguments
    return tuple({entry[0] if isinstance(entry, tuple) else entry for entry in entries})
