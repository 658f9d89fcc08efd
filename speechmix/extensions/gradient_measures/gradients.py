"""Gradient times input, integrated gradients and DeepLift.

In: a `GradientPass` (the model as a differentiable function of the states x that enter a layer;
everything above the layer runs) and an objective f. Out: maps of a single row [L, 1, W_s]. At each
position n, with x0 the baseline:

    gradient_input         | sum_d x_nd df/dx_nd |
    integrated_gradients   | sum_d (x_nd - x0_nd) * integral over a in [0, 1] of df/dx_nd at x0 + a (x - x0) |
    deeplift               | sum_d (x_nd - x0_nd) m_nd |,  m the gradient with the rescale rule at activations

The sum over d comes first, then the absolute value, then pooling over the positions of a unit. The
states of "cross" are the encoder's output *as that layer alone reads it*: its share in f through
the layer's own cross-attention.

Hidden token attribution: Jacobian norms of states (Brunner et al. 2020).

    hta         C_ij = || d y_i / d x_j ||_F,    y the layer's output (the last: behind the final norm), x what enters it
    hta_input   C_ij = || d y_i / d x_j ||_F,    x what enters the stack's first layer

For cross-attention x_j are the encoder's states: those that this layer reads (hta), or that all
layers up to it read (hta_input). Norms of pairs of positions are pooled over the positions of both
units. Exact: every row and dimension of y is taken back by one vector-Jacobian product, in batches;
the norm of the whole Jacobian's block needs all of them.

DeepLift's rescale rule at the activations of an unmodified model, by captum.

In: a function of states that runs activations inside a module. Out: contributions to each of its
outputs. One pass forward for all numbers, and one back for each.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ...adapters.capture.layer_run import first_output, unpack_states
from ...errors import InputError, MissingExtraError
from ...mixing.measures.gradient_pass import (
    GradientPass,
    RetainedGraph,
    SharedPasses,
    activation_classes,
    replaced_states,
)
from ...mixing.measures.measure import check_choice

if TYPE_CHECKING:
    from ...adapters.binding.bound_layers import Stack
    from ...adapters.capture.layer_run import Block
    from ...adapters.model import Model
    from ...mixing.measures.measure import Units


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


# Share of the parts' length by which integrated gradients may miss completeness without a warning.
_COMPLETENESS_TOLERANCE = 0.01

# Completeness of the parts: numbers of each layer, by name.
Notes = dict[str, dict[str, list[float]]]

# Bytes that the states of one batch of steps of an integral may take, all layers together.
_BATCH_BYTES = 2**28


def gradient_input(run: GradientPass, stack: str, units: Units) -> tuple[Tensor, Notes]:
    """Gradient times input.

    Returns
    -------
    Tensor [L, 1, W_s], and a dict with nothing to note
    """
    attributions = [(x * gradient).sum(dim=-1) for x, gradient in run.states_and_gradients(stack)]
    return _pool_attributions(attributions, units), {}


def check_path_options(*, steps: int = 50, baseline: str = "mean") -> None:
    """Raise `InputError` for an option that a measure with a baseline cannot have."""
    check_choice("baseline", baseline, ("mean", "zero"))
    if steps < 1:
        raise InputError(f"steps should be a whole number of at least 1, found {steps}")


def integrated_gradients(
    run: GradientPass, stack: str, units: Units, *, steps: int = 50, baseline: str = "mean"
) -> tuple[Tensor, Notes]:
    """Integrated gradients along the straight path from a baseline of the states (Sundararajan et
    al. 2017).

    Parameters
    ----------
    steps : int
        Nodes of the Gauss-Legendre rule.
    baseline : {"mean", "zero"}
        Where the path starts: all positions at the mean of the states, or zeros. A layer norm gives
        states of any length the same length, so from zeros nearly all of the change lies where a x
        is no longer than sqrt(eps), below a thousandth (BERT: a millionth) of the path. Steps miss
        it, and a warning says by how much.

    Returns
    -------
    Tensor [L, 1, W_s], and a dict
        Its "completeness" has, by layer, the "change" f(x) - f(x0), the "error", by how much the
        sum of the parts of all positions differs from it, and "missed", the error as a share of the
        sum of the parts' absolute values.
    """
    nodes, weights = (
        torch.from_numpy(numbers) / 2 for numbers in np.polynomial.legendre.leggauss(steps)
    )

    def attribute(passes: SharedPasses, layer: int, x: Tensor, x0: Tensor) -> Tensor:
        path, share = (numbers[:, None, None].to(x) for numbers in (nodes + 0.5, weights))
        means = x.new_zeros(len(passes.objectives), *x.shape)
        for batch_nodes in torch.arange(steps, device=x.device).split(
            _count_batch_steps(passes.model.stacks[stack], x)
        ):
            states = (x0 + path[batch_nodes] * (x - x0)).requires_grad_(True)
            with torch.enable_grad():
                graph = RetainedGraph(passes.values(stack, layer, states), {"states": states})
            for objective_index, mean in enumerate(means):
                mean += (share[batch_nodes] * graph.gradients(objective_index)["states"]).sum(dim=0)
        return torch.stack([((x - x0) * mean).sum(dim=-1) for mean in means])

    scores, notes = _attribute_from_baseline(
        run, stack, units, baseline, attribute, f"integrated gradients, {steps} steps"
    )
    missed = max(notes["completeness"]["missed"])
    if missed > _COMPLETENESS_TOLERANCE:
        warnings.warn(
            f"integrated gradients of the {stack} from baseline={baseline!r}, {steps} steps: the "
            "parts miss f(x) - f(x0) by "
            f"up to {missed:.0%} of their length; give more "
            f"steps, as integrated_gradients:steps={4 * steps}"
            f"{', or leave baseline=zero out' if baseline == 'zero' else ''}",
            stacklevel=2,
        )
    return scores, notes


def deeplift(
    run: GradientPass, stack: str, units: Units, *, baseline: str = "mean"
) -> tuple[Tensor, Notes]:
    """DeepLift by captum, from the states that enter a layer (Shrikumar et al. 2017).

    The rescale rule (change of the output over change of the input, instead of the slope) is used
    at activations that are modules: captum's own (ReLU, tanh, ...) and all that transformers has
    (GELU, SiLU, ...), in layers and head. It does *not* cover attention (the softmax, its products
    with values), layer norms, the product of a gate, pooling, and activations called as functions:
    those pass the plain gradient at x. So the parts do not add up to f(x) - f(x0), and where no
    activation lies on the way it is gradient times (input - baseline).

    Returns
    -------
    Tensor [L, 1, W_s], and a dict
        As `integrated_gradients`.

    Raises
    ------
    MissingExtraError
        Without captum.
    """

    def attribute(passes: SharedPasses, layer: int, x: Tensor, x0: Tensor) -> Tensor:
        def values(states: Tensor) -> Tensor:
            return torch.stack(passes.values(stack, layer, states), dim=-1)

        return attribute_by_rescale_rule(values, passes.model.module, x[None], x0[None]).sum(dim=-1)

    return _attribute_from_baseline(run, stack, units, baseline, attribute, "deeplift")


def _attribute_from_baseline(
    run: GradientPass,
    stack: str,
    units: Units,
    baseline: str,
    attribute: Callable[[SharedPasses, int, Tensor, Tensor], Tensor],
    name: str,
) -> tuple[Tensor, Notes]:
    """Map and completeness of ``attribute(passes, layer, x, x0)``, signed parts [P, K] of all
    objectives."""

    def attribute_with_values(passes: SharedPasses, layer: int, x: Tensor) -> tuple[Tensor, Tensor]:
        x0 = torch.zeros_like(x) if baseline == "zero" else x.mean(dim=0).expand_as(x)
        attributions = attribute(passes, layer, x, x0)
        with torch.no_grad():
            return attributions, torch.stack(
                passes.values(stack, layer, torch.stack([x, x0]))
            ).double()

    attributions: list[Tensor] = []
    sums: list[
        Tensor
        # [4] each: the objective of the states and of the baseline, all parts together, their lengths
    ] = []
    for layer, x in zip(run.layers[stack], run.states(stack), strict=True):
        key = name, baseline, stack, layer
        all_attributions, values = run.shared_passes.compute_once(
            key, partial(attribute_with_values, layer=layer, x=x)
        )
        attributions.append(all_attributions[run.objective_index])
        lengths = (
            torch.stack([attributions[-1].sum(), attributions[-1].abs().sum()]).detach().double()
        )
        sums.append(torch.cat([values[run.objective_index], lengths]))
    run.check()
    completeness: dict[str, list[float]] = {"change": [], "error": [], "missed": []}
    for value, base, attribution_sum, length in torch.stack(sums).cpu().tolist():
        error = abs(attribution_sum - (value - base))
        for quantity, number in (
            ("change", value - base),
            ("error", error),
            ("missed", error / (length or 1.0)),
        ):
            completeness[quantity].append(number)
    return _pool_attributions(attributions, units), {"completeness": completeness}


def _pool_attributions(attributions: list[Tensor], units: Units) -> Tensor:
    """Absolute values of the layers' parts [K], pooled over units: [L, 1, W_s]."""
    return units.pool_sources(torch.stack(attributions).abs().detach())[:, None]


def _count_batch_steps(stack: Stack, x: Tensor) -> int:
    """How many copies of the states' way through a stack fit the memory for a batch."""
    positions, width = x.shape
    row = 24 * width + 2 * stack.heads * positions  # numbers kept for each position and layer
    return max(1, _BATCH_BYTES // (len(stack) * positions * row * x.element_size()))


# Products of rows and width that take minutes on a large model: behind that, hours.
_MAX_PRODUCTS, _MAX_PRODUCTS_FROM_INPUT = 2**16, 2**14

# Bytes of the tensors of one batch of vector-Jacobian products.
_HTA_BATCH_BYTES = 2**27


def hta(block: Block, units: Units) -> Tensor:
    """Jacobian norms of a layer's output with respect to what enters the layer.

    Returns
    -------
    Tensor [W_t, W_s]

    Raises
    ------
    InputError
        For more rows than can be differentiated.
    """
    _check_product_count("hta", len(units.rows), block.stack, _MAX_PRODUCTS)
    x = block.inputs.detach().requires_grad_(True)
    with (
        torch.enable_grad(),
        sdpa_kernel(SDPBackend.MATH),
    ):  # the kernel whose gradient can be batched
        y = block.rerun(memory=x) if block.stack.name == "cross" else block.rerun(x)
        norms = jacobian_norms(
            y[units.rows], x, _count_batch_products(block.stack, len(y), len(x), x.element_size())
        )
    return units.pool_targets(units.pool_sources(norms))


def hta_input(run: GradientPass, stack: str, units: Units) -> tuple[Tensor, dict[str, object]]:
    """Jacobian norms of the layers' outputs with respect to what enters the stack.

    Returns
    -------
    Tensor [L, W_t, W_s], and a dict with nothing to note

    Raises
    ------
    InputError
        For more rows than can be differentiated.
    """
    run_stack = run.model.stacks[stack]
    _check_product_count("hta_input", len(units.rows), run_stack, _MAX_PRODUCTS_FROM_INPUT)
    maps = []
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH):
        x, outputs = _differentiate_stack(run.model, run.inputs, run_stack)
        for y in (outputs[layer] for layer in run.layers[stack]):
            norms = jacobian_norms(
                y[units.rows], x, _count_batch_products(run_stack, len(y), len(x), x.element_size())
            )
            maps.append(units.pool_targets(units.pool_sources(norms)))
    return torch.stack(maps), {}


def jacobian_norms(outputs: Tensor, inputs: Tensor, batch_size: int) -> Tensor:
    """Return Frobenius norms [R, K] of d outputs_i / d inputs_j, for outputs [R, E] that depend on
    inputs [K, D].

    `batch_size` vector-Jacobian products are computed at once.
    """
    n_rows, width = outputs.shape
    squares = inputs.new_zeros(n_rows, len(inputs))
    for output_indices in torch.arange(n_rows * width, device=inputs.device).split(batch_size):
        seeds = inputs.new_zeros(len(output_indices), n_rows * width)
        seeds[torch.arange(len(output_indices), device=output_indices.device), output_indices] = 1
        gradients = torch.autograd.grad(
            outputs,
            inputs,
            seeds.unflatten(1, (n_rows, width)),
            retain_graph=True,
            is_grads_batched=True,
        )[0]  # [N, K, D]
        squares.index_add_(0, output_indices // width, gradients.square().sum(dim=-1))
    return squares.sqrt()


def _differentiate_stack(
    model: Model, inputs: dict[str, Tensor], stack: Stack
) -> tuple[Tensor, list[Tensor]]:
    """States [K, D] that enter a stack, and the outputs [Q, D] of its layers as functions of
    them."""
    entering_states: list[Tensor] = []
    outputs: list[Tensor] = []

    def store_states(_: str, layer: int, x: Tensor) -> Tensor:
        if not entering_states:
            entering_states.append(x[0].detach().requires_grad_(True))
        return entering_states[0][None]  # in "cross", all layers read the same states

    with ExitStack() as hooks:
        for layer in stack.layers:
            hook_handle = layer.module.register_forward_hook(
                lambda _, args, y: outputs.append(unpack_states(first_output(y))[0])
            )
            hooks.callback(hook_handle.remove)
        hooks.enter_context(
            replaced_states(
                model,
                {stack.name: range(len(stack)) if stack.name == "cross" else [0]},
                store_states,
            )
        )
        model.family.run(model.base, inputs, (stack.name,))
    if stack.final_norm is not None:
        outputs[-1] = stack.final_norm(outputs[-1])
    return entering_states[0], outputs


def _check_product_count(measure: str, n_rows: int, stack: Stack, max_products: int) -> None:
    if n_rows * stack.width > max_products:
        raise InputError(
            f"{measure} of the {stack.name}: {n_rows} rows x {stack.width} dimensions are "
            f"{n_rows * stack.width} backward "
            f"passes a layer, more than {max_products}, which would take hours: ask for fewer rows with "
            "targets= (up to "
            f"{max_products // stack.width} positions), for instance targets='target'"
        )


def _count_batch_products(stack: Stack, n_targets: int, n_sources: int, itemsize: int) -> int:
    """Vector-Jacobian products that fit the memory for a batch: attention weights and inner states
    of one layer each."""
    numbers = 3 * stack.heads * n_targets * n_sources + 12 * max(n_targets, n_sources) * stack.width
    return max(1, _HTA_BATCH_BYTES // (numbers * itemsize))
