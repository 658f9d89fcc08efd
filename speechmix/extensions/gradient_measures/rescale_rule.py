"""DeepLift's rescale rule at the activations of an unmodified model, by captum.

In: a function of states that runs activations inside a module. Out: contributions to each of its
outputs. One pass forward for all numbers, and one back for each.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ExitStack

import torch
from torch import Tensor, nn

from ...errors import MissingExtraError
from ...mixing.measures.gradient_pass import activation_classes


def attribute_by_rescale_rule(
    function: Callable[[Tensor], Tensor], module: nn.Module, x: Tensor, x0: Tensor
) -> Tensor:
    """Return DeepLift's contributions [P, K, D] for ``function(states [n, K, D]) -> [n, P]``, which
    runs activations inside a module.

    `x` and `x0` [1, K, D] are the states and those of the baseline. Without captum a
    MissingExtraError is raised.
    """
    try:
        from captum.attr import DeepLift
        from captum.attr._core.deep_lift import SUPPORTED_NON_LINEAR, nonlinear
    except ImportError as error:
        raise MissingExtraError("captum", "gradients", "the measure 'deeplift'") from error
    elementwise = activation_classes()

    class Rescale(DeepLift):  # type: ignore[misc]  # captum has no types
        """With captum's own elementwise rule for transformers' activations too, and several numbers
        from one pass."""

        def __init__(self, module: nn.Module):
            super().__init__(module)
            self.gradient_func = self._compute_gradients
            self._passed_activations: list[tuple[nn.Module, object, object]] = []

        def _compute_gradients(
            self, forward: Callable[[], Tensor], inputs: tuple[Tensor]
        ) -> tuple[Tensor]:
            values = forward()  # [2, P]: of the states and of the baseline
            gradients: list[Tensor] = []
            for number in range(values.shape[1]):
                has_further = number < values.shape[1] - 1
                gradients += torch.autograd.grad(
                    values[:, number].sum(), inputs, retain_graph=has_further
                )
                self._restore_activations()
            return (torch.cat(gradients),)

        def _is_non_linear(self, activation: nn.Module) -> bool:
            return isinstance(activation, (*elementwise, *SUPPORTED_NON_LINEAR))

        def _backward_hook(
            self, activation: nn.Module, grad_input: Tensor, grad_output: Tensor
        ) -> object:
            if type(activation) in SUPPORTED_NON_LINEAR:
                self._passed_activations.append(
                    (
                        activation,
                        getattr(activation, "input", None),
                        getattr(activation, "output", None),
                    )
                )
                return super()._backward_hook(activation, grad_input, grad_output)
            return nonlinear(
                activation,
                activation.input,
                activation.output,
                grad_input,
                grad_output,
                eps=self.eps,
            )

        def _restore_activations(self) -> None:
            """What captum takes from a part once it has been passed, so that a part that is used
            twice is an error."""
            for activation, input_state, output_state in self._passed_activations:
                activation.__dict__ |= {"input": input_state, "output": output_state}
            self._passed_activations.clear()

    class LayersAbove(nn.Module):
        """What lies above a layer, to captum: the function, and the activations that it runs."""

        def __init__(self) -> None:
            super().__init__()
            self.activations = nn.ModuleList(
                _find_dependent_activations(function, module, x, Rescale(module)._is_non_linear)
            )

        def forward(self, states: Tensor) -> Tensor:
            return function(states)

    layers_above = LayersAbove()
    try:
        with warnings.catch_warnings(), torch.enable_grad():
            warnings.simplefilter("ignore")  # captum says that it sets hooks and removes them
            attribution: Tensor = (
                Rescale(layers_above).attribute(x.requires_grad_(True), baselines=x0).detach()
            )
            return attribution
    finally:
        for activation in layers_above.activations:
            for attribute in ("input", "output"):
                activation.__dict__.pop(attribute, None)


def _find_dependent_activations(
    function: Callable[[Tensor], Tensor],
    module: nn.Module,
    x: Tensor,
    is_nonlinear: Callable[[nn.Module], bool],
) -> list[nn.Module]:
    """Wanted parts of a module whose input depends on the states x."""
    dependent_activations: list[nn.Module] = []
    with ExitStack() as hooks, torch.enable_grad():
        for activation in filter(is_nonlinear, module.modules()):
            handle = activation.register_forward_pre_hook(
                lambda p, args: dependent_activations.append(p) if args[0].requires_grad else None
            )
            hooks.callback(handle.remove)
        function(x.clone().requires_grad_(True))
    return dependent_activations
