"""Gradient measures: what each unit's state entering a layer counts for one number (long: the pass and all three).

In: a `GradientPass` (the model as a differentiable function of the states x that enter a layer; everything above the
layer runs) and an objective f. Out: maps of a single row [L, 1, W_s]. At each position n, with x0 the baseline:

    gradient_input         | sum_d x_nd df/dx_nd |
    integrated_gradients   | sum_d (x_nd - x0_nd) * integral over a in [0, 1] of df/dx_nd at x0 + a (x - x0) |
    deeplift               | sum_d (x_nd - x0_nd) m_nd |,  m the gradient with the rescale rule at activations

The sum over d comes first, then the absolute value, then pooling over the positions of a unit. The states of "cross" are
the encoder's output *as that layer alone reads it*: its share in f through the layer's own cross-attention.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from ..adapters.packed import packed_as, with_runs
from ..adapters.remembering import as_encoder_output
from ..adapters.transfers import to_host
from ..errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from ..adapters.layers import Stack
    from ..adapters.model import Model
    from .objectives import Objective
    from .units import Units

# Share of the parts' length by which integrated gradients may miss completeness without a warning.
_INCOMPLETE = 0.01

# Bytes that the states of one batch of steps of an integral may take, all layers together.
_BATCH_BYTES = 2**28


class GradientPass:
    """A model as a differentiable function of the states that enter its layers; the model stays as it is.

    Parameters
    ----------
    model : Model
    inputs : dict of str to Tensor
        Of a batch of one.
    layers : dict of str to sequence of int
        The layers asked for, by stack.
    objective : Objective, optional
        Not needed by measures of states (`hta_input`).
    """

    def __init__(self, model: Model, inputs: Mapping[str, Tensor], layers, objective: Objective | None = None):
        self.model, self.layers = model, layers
        self.inputs, self._objective = dict(inputs), objective
        self._values: list[Tensor] = []  # that the objective took since the last check
        self._answers: dict[Callable, Any] = {}

    def states_and_gradients(self, stack: str) -> list[tuple[Tensor, Tensor]]:
        """States [K, D] that enter each of the asked layers, and the objective's gradients with respect to them."""
        return [self._gradients[stack, layer] for layer in self.layers[stack]]

    def value(self, stack: str, layer: int, states: Tensor) -> Tensor:
        """Objective [n] with other states [n, K, D] entering a layer."""
        inputs: dict[str, Any] = dict(self.inputs)
        if stack != "encoder" and "cross" in self.model.stacks:  # then the encoder need not run again
            del inputs[next(iter(self.model.family.tiny_inputs(self.model.config)))]
            inputs["encoder_outputs"] = as_encoder_output(self._memory.expand(len(states), -1, -1))
        for name, value in inputs.items():
            if isinstance(value, Tensor):
                inputs[name] = torch.cat([value] * len(states))
        with entering(self.model, {stack: [layer]}, lambda *_: states):
            return self._value(inputs)

    @property
    def objective(self) -> Objective:
        """What is differentiated."""
        if self._objective is None:
            raise InputError("this pass has no objective to differentiate")
        return self._objective

    def value_of_inputs(self) -> Tensor:
        """Objective [1] of the inputs as they are."""
        return self._value(self.inputs)

    def once(self, compute: Callable[[GradientPass], Any]) -> Any:
        """What a function makes of this pass, computed once for all stacks."""
        if compute not in self._answers:
            self._answers[compute] = compute(self)
        return self._answers[compute]

    @cached_property
    def _gradients(self) -> dict[tuple[str, int], tuple[Tensor, Tensor]]:
        """One pass forward and back for all stacks and layers."""
        states: dict[tuple[str, int], Tensor] = {}

        def keep(stack: str, layer: int, x: Tensor) -> Tensor:
            # Each reader has a copy of its own: the gradient is that of what passes through this layer.
            states[stack, layer] = x.clone() if x.requires_grad else x.detach().requires_grad_(True)
            return states[stack, layer]

        with torch.enable_grad(), entering(self.model, self.layers, keep):
            value = self._value(self.inputs)
            if not value.requires_grad:
                raise InputError("the objective does not depend on the model's states")
            gradients = torch.autograd.grad(value.sum(), list(states.values()), allow_unused=True)
        self.check()
        return {
            key: (x[0].detach(), torch.zeros_like(x[0]) if gradient is None else gradient[0])
            for (key, x), gradient in zip(states.items(), gradients, strict=True)
        }

    @cached_property
    def _memory(self) -> Tensor:
        with torch.no_grad():
            return self.model.family.run(self.model.base, self.inputs, ("encoder",))[0]

    def _value(self, inputs: Mapping[str, Any]) -> Tensor:
        if "cross" in self.model.stacks and "decoder_input_ids" not in inputs:
            raise InputError(f"{self.model.name} predicts nothing without decoder_input_ids: give them with the inputs")
        options = {"use_cache": False} if "decoder" in self.model.stacks else {}
        value = self.objective.function(self.model.module(**inputs, **options, return_dict=True))
        self._values.append(value.detach())
        return value

    def check(self) -> None:
        """Raise an `InputError` if the objective was not finite somewhere; asked once, when all has been computed."""
        values, self._values = self._values, []
        broken = next((array for array in to_host(values) if not np.isfinite(array).all()), None)
        if broken is not None and self._objective is not None:
            raise InputError(
                f"the objective {self._objective.details} is {broken.tolist()}; a CTC model needs a frame for every letter: "
                "is it the right text?"
            )


@contextmanager
def entering(model: Model, layers: Mapping[str, Sequence[int]], change: Callable) -> Iterator[None]:
    """Put ``change(stack, layer, states)`` in place of the states [1, K, D] that enter layers; undone on leaving.

    The states of "cross" are those of the encoder.
    """
    with ExitStack() as hooks:
        for stack, indices in layers.items():
            for index in indices:
                hook = _replacing(stack, index, change)
                layer = model.stacks[stack].layers[index].module
                hooks.callback(layer.register_forward_pre_hook(hook, with_kwargs=True).remove)
        yield


def _replacing(stack: str, index: int, change: Callable) -> Callable:
    def hook(layer: nn.Module, args: tuple, kwargs: dict):
        names = list(inspect.signature(layer.forward).parameters)
        name = "encoder_hidden_states" if stack == "cross" else names[0]
        before = kwargs[name] if name in kwargs else args[names.index(name)]
        changed = packed_as(before, change(stack, index, with_runs(before)))
        if name in kwargs:
            return args, {**kwargs, name: changed}
        place = names.index(name)
        return (*args[:place], changed, *args[place + 1 :]), kwargs

    return hook


def gradient_input(run: GradientPass, stack: str, units: Units) -> tuple[Tensor, dict]:
    """Gradient times input.

    Returns
    -------
    Tensor [L, 1, W_s], and a dict with nothing to note
    """
    parts = [(x * gradient).sum(dim=-1) for x, gradient in run.states_and_gradients(stack)]
    return _pooled(parts, units), {}


def integrated_gradients(
    run: GradientPass, stack: str, units: Units, *, steps: int = 50, baseline: str = "mean"
) -> tuple[Tensor, dict]:
    """Integrated gradients along the straight path from a baseline of the states (Sundararajan et al. 2017).

    Parameters
    ----------
    steps : int
        Nodes of the Gauss-Legendre rule.
    baseline : {"mean", "zero"}
        Where the path starts: all positions at the mean of the states, or zeros. A layer norm gives states of any length
        the same length, so from zeros nearly all of the change lies where a x is no longer than sqrt(eps), below a thousandth
        (BERT: a millionth) of the path. Steps miss it, and a warning says by how much.

    Returns
    -------
    Tensor [L, 1, W_s], and a dict
        Its "completeness" has, by layer, the "change" f(x) - f(x0), the "error", by how much the sum of the parts of all
        positions differs from it, and "missed", the error as a share of the sum of the parts' absolute values.
    """
    nodes, weights = (torch.from_numpy(numbers) / 2 for numbers in np.polynomial.legendre.leggauss(steps))

    def attribute(layer: int, x: Tensor, x0: Tensor) -> Tensor:
        path, share = (numbers[:, None, None].to(x) for numbers in (nodes + 0.5, weights))
        mean = torch.zeros_like(x)
        for nodes_here in torch.arange(steps, device=x.device).split(_at_once(run.model.stacks[stack], x)):
            states = (x0 + path[nodes_here] * (x - x0)).requires_grad_(True)
            with torch.enable_grad():
                mean += (share[nodes_here] * torch.autograd.grad(run.value(stack, layer, states).sum(), states)[0]).sum(
                    dim=0
                )
        return (x - x0) * mean

    scores, notes = _from_baseline(run, stack, units, baseline, attribute)
    missed = max(notes["completeness"]["missed"])
    if missed > _INCOMPLETE:
        warnings.warn(
            f"integrated gradients of the {stack} from baseline={baseline!r}, {steps} steps: the parts miss f(x) - f(x0) by "
            f"up to {missed:.0%} of their length; give more steps={', or baseline=mean' if baseline == 'zero' else ''}",
            stacklevel=2,
        )
    return scores, notes


def deeplift(run: GradientPass, stack: str, units: Units, *, baseline: str = "mean") -> tuple[Tensor, dict]:
    """DeepLift by captum, from the states that enter a layer (Shrikumar et al. 2017).

    The rescale rule (change of the output over change of the input, instead of the slope) is used at activations that are
    modules: captum's own (ReLU, tanh, ...) and all that transformers has (GELU, SiLU, ...), in layers and head. It does
    *not* cover attention (the softmax, its products with values), layer norms, the product of a gate, pooling, and
    activations called as functions: those pass the plain gradient at x. So the parts do not add up to f(x) - f(x0), and
    where no activation lies on the way it is gradient times (input - baseline).

    Returns
    -------
    Tensor [L, 1, W_s], and a dict
        As `integrated_gradients`.

    Raises
    ------
    MissingExtraError
        Without captum.
    """

    def attribute(layer: int, x: Tensor, x0: Tensor) -> Tensor:
        return _rescaled(lambda states: run.value(stack, layer, states), run.model.module, x[None], x0[None])[0]

    return _from_baseline(run, stack, units, baseline, attribute)


def _from_baseline(
    run: GradientPass, stack: str, units: Units, baseline: str, attribute: Callable
) -> tuple[Tensor, dict]:
    """Map and completeness of ``attribute(layer, x, x0)``, signed parts [K, D]."""
    parts: list[Tensor] = []
    sums: list[
        Tensor
    ] = []  # [4] each: the objective of the states and of the baseline, all parts together, their lengths
    for layer, (x, _) in zip(run.layers[stack], run.states_and_gradients(stack), strict=True):
        x0 = torch.zeros_like(x) if baseline == "zero" else x.mean(dim=0).expand_as(x)
        parts.append(attribute(layer, x, x0).sum(dim=-1))
        with torch.no_grad():
            values = run.value(stack, layer, torch.stack([x, x0])).double()
        sums.append(torch.cat([values, torch.stack([parts[-1].sum(), parts[-1].abs().sum()]).detach().double()]))
    run.check()
    completeness: dict[str, list[float]] = {"change": [], "error": [], "missed": []}
    for value, base, whole, length in torch.stack(sums).cpu().tolist():
        error = abs(whole - (value - base))
        for name, number in (("change", value - base), ("error", error), ("missed", error / (length or 1.0))):
            completeness[name].append(number)
    return _pooled(parts, units), {"completeness": completeness}


def _pooled(parts: list[Tensor], units: Units) -> Tensor:
    """Absolute values of the layers' parts [K], pooled over units: [L, 1, W_s]."""
    return units.pool_sources(torch.stack(parts).abs().detach())[:, None]


def _at_once(stack: Stack, x: Tensor) -> int:
    """How many copies of the states' way through a stack fit the memory for a batch."""
    positions, width = x.shape
    row = 24 * width + 2 * stack.heads * positions  # numbers kept for each position and layer
    return max(1, _BATCH_BYTES // (len(stack) * positions * row * x.element_size()))


def _rescaled(function: Callable, module: nn.Module, x: Tensor, x0: Tensor) -> Tensor:
    """DeepLift's parts [1, K, D] of ``function(states [n, K, D]) -> [n]``, which runs activations inside a module."""
    try:
        from captum.attr import DeepLift
        from captum.attr._core.deep_lift import SUPPORTED_NON_LINEAR, nonlinear
    except ImportError as error:
        raise MissingExtraError("captum", "gradients", "the measure 'deeplift'") from error
    # Elementwise activations that transformers makes modules of: the rescale rule holds for each of them. Imported when
    # used: with it torch sets up its compiler, which sets an environment variable and makes a folder.
    from transformers.activations import ACT2CLS

    entries: list[Any] = list(ACT2CLS.values())  # classes, or pairs of a class and its arguments
    elementwise = tuple({entry[0] if isinstance(entry, tuple) else entry for entry in entries})

    class Rescale(DeepLift):
        """With captum's own elementwise rule for transformers' activations too."""

        def _is_non_linear(self, part):
            return isinstance(part, (*elementwise, *SUPPORTED_NON_LINEAR))

        def _backward_hook(self, part, grad_input, grad_output):
            if type(part) in SUPPORTED_NON_LINEAR:
                return super()._backward_hook(part, grad_input, grad_output)
            return nonlinear(part, part.input, part.output, grad_input, grad_output, eps=self.eps)

    class Rest(nn.Module):
        """What lies above a layer, to captum: the function, and the activations that it runs."""

        def __init__(self):
            super().__init__()
            self.activations = nn.ModuleList(_depending(function, module, x, Rescale(module)._is_non_linear))

        def forward(self, states: Tensor) -> Tensor:
            return function(states)

    rest = Rest()
    try:
        with warnings.catch_warnings(), torch.enable_grad():
            warnings.simplefilter("ignore")  # captum says that it sets hooks and removes them
            return Rescale(rest).attribute(x.requires_grad_(True), baselines=x0).detach()
    finally:
        for part in rest.activations:
            for left in ("input", "output"):
                part.__dict__.pop(left, None)


def _depending(function: Callable, module: nn.Module, x: Tensor, is_wanted: Callable) -> list[nn.Module]:
    """Wanted parts of a module whose input depends on the states x."""
    depending: list[nn.Module] = []
    with ExitStack() as hooks, torch.enable_grad():
        for part in filter(is_wanted, module.modules()):
            handle = part.register_forward_pre_hook(
                lambda p, args: depending.append(p) if args[0].requires_grad else None
            )
            hooks.callback(handle.remove)
        function(x.clone().requires_grad_(True))
    return depending
