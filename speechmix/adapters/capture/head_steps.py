"""Record the linear maps and norms that a model runs after its last layer.

In: a stack, and one run of the model. Out: `HeadStep`s. Between two of them lie functions of single
units alone (an activation, dropout that does nothing) and the choice of a position: whoever uses
them checks the result, for nothing here is looked up by name.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor, nn

from ..transformers_types import HookArguments

if TYPE_CHECKING:
    from ..binding.bound_layers import Stack
    from ..model import Model


class HeadStep(NamedTuple):
    """A linear map or a norm, with what entered and left it: [1, T, D], or [1, D] where one
    position was chosen."""

    module: nn.Module
    step_input: Tensor
    step_output: Tensor

    def select_position(self, position: int | None) -> tuple[Tensor, Tensor]:
        """Input and output [1, D] at one position; [T, D] at all for None, [1, D] behind a mean."""
        step_input, step_output = (
            x if x.ndim == 2 else x[0] if position is None else x[:, position]
            for x in (self.step_input, self.step_output)
        )
        return step_input, step_output


@contextmanager
def record_head_steps(model: Model, stack: Stack) -> Iterator[list[HeadStep]]:
    """Record the steps behind a stack's last layer, while the model runs with its head."""
    steps: list[HeadStep] = []
    layer_parts = {submodule for layer in stack.layers for submodule in layer.module.modules()}

    def forget_steps(*_: object) -> None:
        steps.clear()

    def record_step(module: nn.Module, args: HookArguments, output: Tensor) -> None:
        steps.append(HeadStep(module, args[0], output))

    with ExitStack() as hooks:
        hooks.callback(stack.layers[-1].module.register_forward_hook(forget_steps).remove)
        for submodule in model.module.modules():
            is_step = (
                isinstance(submodule, nn.Linear | nn.LayerNorm) or submodule is stack.final_norm
            )
            if is_step and submodule not in layer_parts:
                hooks.callback(submodule.register_forward_hook(record_step).remove)
        yield steps
