"""GradientPass: a model as a differentiable function of the states that enter its layers, for one
number or for several.

In: a `Model`, inputs of a batch of one, objectives. Out: states, gradients, and the objectives'
values for other states. What does not depend on the objective is computed once for all of them: one
pass forward, whose graph is kept until each has been taken back through it. A kept graph takes no
more memory than one that is used once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from ...adapters.capture.device_copy import to_host
from ...adapters.capture.features import wrap_encoder_states
from ...adapters.transformers_types import HookKeywords
from ...errors import InputError
from .state_replacement import replaced_states

if TYPE_CHECKING:
    from ...adapters.model import Model
    from ...adapters.transformers_types import ModelOutput
    from .token_objectives import Objective

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
        The layers asked for, by stack.
    objective : Objective, optional
        Not needed by measures of states (`hta_input`).

    Attributes
    ----------
    together : SharedPasses
        What it shares with the passes of other objectives (`of_each`).
    place : int
        Its own among them.
    """

    def __init__(
        self,
        model: Model,
        inputs: Mapping[str, Tensor],
        layers: Mapping[str, Sequence[int]],
        objective: Objective | None = None,
        *,
        together: SharedPasses | None = None,
        place: int = 0,
    ):
        if together is None:
            together = SharedPasses(model, inputs, layers, [] if objective is None else [objective])
        self.together, self.place = together, place
        self.model, self.layers, self.inputs = model, layers, together.inputs
        self._answers: dict[Callable[[GradientPass], object], Any] = {}

    @classmethod
    def of_each(
        cls,
        model: Model,
        inputs: Mapping[str, Tensor],
        layers: Mapping[str, Sequence[int]],
        objectives: Sequence[Objective],
    ) -> list[GradientPass]:
        """A pass for each of several objectives, which compute together what they share."""
        together = SharedPasses(model, inputs, layers, objectives)
        return [
            cls(model, inputs, layers, together=together, place=place)
            for place in range(len(objectives))
        ]

    def states(self, stack: str) -> list[Tensor]:
        """States [K, D] that enter each of the asked layers."""
        return [self.together.states[stack, layer][0] for layer in self.layers[stack]]

    def states_and_gradients(self, stack: str) -> list[tuple[Tensor, Tensor]]:
        """States [K, D] that enter each of the asked layers, and the objective's gradients with
        respect to them."""
        gradients = self._gradients
        return [
            (x, gradients[stack, layer])
            for layer, x in zip(self.layers[stack], self.states(stack), strict=True)
        ]

    def value(self, stack: str, layer: int, states: Tensor) -> Tensor:
        """Objective [n] with other states [n, K, D] entering a layer."""
        return self.together.values(stack, layer, states, [self._asked_place])[0]

    @property
    def objective(self) -> Objective:
        """What is differentiated."""
        return self.together.objectives[self._asked_place]

    @property
    def _asked_place(self) -> int:
        if not self.together.objectives:
            raise InputError("this pass has no objective to differentiate")
        return self.place

    def once(self, compute: Callable[[GradientPass], T]) -> T:
        """What a function makes of this pass, computed once for all stacks."""
        if compute not in self._answers:
            self._answers[compute] = compute(self)
        answer: T = self._answers[compute]
        return answer

    @cached_property
    def _gradients(self) -> States:
        """One pass forward for all objectives, and one back, for all stacks and layers."""
        gradients = self.together.graph.gradients(self._asked_place)
        self.check()
        return {key: gradient[0] for key, gradient in gradients.items()}

    def check(self) -> None:
        """Raise an `InputError` if the objective was not finite somewhere; asked once, when all has
        been computed."""
        if not self.together.objectives:
            return
        values = self.together.source_values(self.place)
        broken = next((array for array in to_host(values) if not np.isfinite(array).all()), None)
        if broken is not None:
            raise InputError(
                f"the objective {self.objective.details} is {broken.tolist()}; a CTC model needs a "
                "frame for every letter: "
                "is it the right text?"
            )


class RetainedGraph(Generic[Key]):
    """Numbers of one pass forward, whose graph is kept until each of them has been taken back
    through it.

    Parameters
    ----------
    values : sequence of Tensor [n]
        One for each objective; of several runs the sum is differentiated.
    ends : dict of key to Tensor
        What they are differentiated by.

    Raises
    ------
    InputError
        If a number depends on no state.
    """

    def __init__(self, values: Sequence[Tensor], ends: Mapping[Key, Tensor]):
        if not all(value.requires_grad for value in values):
            raise InputError("the objective does not depend on the model's states")
        self._values: dict[int, Tensor] = dict(enumerate(values))
        self._ends = dict(ends)

    def gradients(self, place: int) -> dict[Key, Tensor]:
        """Gradients of one objective by each end, zeros where it does not depend on it; asked
        once."""
        value, ends = self._values.pop(place), list(self._ends.values())
        found = torch.autograd.grad(
            value, ends, torch.ones_like(value), retain_graph=bool(self._values), allow_unused=True
        )
        return {
            key: torch.zeros_like(end) if gradient is None else gradient
            for (key, end), gradient in zip(self._ends.items(), found, strict=True)
        }


class SharedPasses:
    """What passes of the same inputs for several objectives share.

    Parameters
    ----------
    model : Model
    inputs : dict of str to Tensor
    layers : dict of str to sequence of int
    objectives : sequence of Objective [P]
    """

    def __init__(
        self,
        model: Model,
        inputs: Mapping[str, Tensor],
        layers: Mapping[str, Sequence[int]],
        objectives: Sequence[Objective],
    ):
        self.model, self.layers, self.objectives = model, layers, objectives
        self.inputs = dict(inputs)
        self._taken: list[list[Tensor]] = [[] for _ in objectives]  # values since the last check
        self._answers: dict[Hashable, Any] = {}

    def once(self, key: Hashable, compute: Callable[[SharedPasses], T]) -> T:
        """What a function makes for all objectives together, computed once."""
        if key not in self._answers:
            self._answers[key] = compute(self)
        answer: T = self._answers[key]
        return answer

    @cached_property
    def graph(self) -> RetainedGraph[tuple[str, int]]:
        """Objectives as functions of the states that enter the asked layers, in one pass
        forward."""
        ends: States = {}

        def keep(stack: str, layer: int, x: Tensor) -> Tensor:
            # Each reader has a copy of its own: the gradient is that of what passes through this
            # layer.
            ends[stack, layer] = x.clone() if x.requires_grad else x.detach().requires_grad_(True)
            return ends[stack, layer]

        with torch.enable_grad(), replaced_states(self.model, self.layers, keep):
            values = self.values_of_inputs()
        self.__dict__["states"] = {key: x.detach() for key, x in ends.items()}
        return RetainedGraph(values, ends)

    @cached_property
    def states(self) -> States:
        """States [1, K, D] that enter the asked layers."""
        states: States = {}

        def keep(stack: str, layer: int, x: Tensor) -> Tensor:
            states[stack, layer] = x.detach()
            return x

        with torch.no_grad(), replaced_states(self.model, self.layers, keep):
            self._run(self.inputs)
        return states

    def values_of_inputs(self) -> list[Tensor]:
        """Each objective [1] of the inputs as they are."""
        return self._values(self.inputs, range(len(self.objectives)))

    def values(
        self, stack: str, layer: int, states: Tensor, places: Sequence[int] | None = None
    ) -> list[Tensor]:
        """Objectives [n] each, all or those at some places, with other states [n, K, D] entering a
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
            return self._values(inputs, range(len(self.objectives)) if places is None else places)

    def source_values(self, place: int) -> list[Tensor]:
        """What an objective was, each time since this was last asked."""
        values, self._taken[place] = self._taken[place], []
        return values

    @cached_property
    def _memory(self) -> Tensor:
        with torch.no_grad():
            memory: Tensor = self.model.family.run(self.model.base, self.inputs, ("encoder",))[0]
            return memory

    def _values(self, inputs: Mapping[str, Tensor], places: Sequence[int]) -> list[Tensor]:
        output = self._run(inputs)
        values = [self.objectives[place].function(output) for place in places]
        for place, value in zip(places, values, strict=True):
            self._taken[place].append(value.detach())
        return values

    def _run(self, inputs: Mapping[str, Tensor]) -> ModelOutput:
        return self.model.run_with_head(inputs)
