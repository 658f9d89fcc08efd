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
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from .gradient_pass import GradientPass, RetainedGraph, SharedPasses
from .rescale_rule import attribute_by_rescale_rule

if TYPE_CHECKING:
    from ...adapters.binding.bound_layers import Stack
    from .unit_positions import Units

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
            f"steps={', or baseline=mean' if baseline == 'zero' else ''}",
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
