"""Backward pass with relevance rules (LRP) on an unmodified model.

In: a `Model`. While `RelevanceRules` is entered, hooks exchange modules' outputs for tensors of the
same values with other ways back: linear maps, norms, activations, factors of gated feed-forwards;
torch's attention function is exchanged where it is called. Units count what biases and softmaxes
keep, by stack, layer and kind. Undone on leaving.

Layer-wise relevance propagation with rules for attention, norms and activations, as gradient
times input.

The relevance of a state x for a number f is R = x * g, with g a gradient whose way back is changed
so that nothing is lost:

    linear map    z = W x + b           g_x = W' g_z                      the epsilon rule with epsilon = 0; b g_z is the bias's
    norm          y = gain c / s + b    s held as it is, b g_y is the bias's      (for an RMS norm the identity rule)
    activation    y = f(x)              g_x = g_y f(x) / x                        the identity rule
    product       y = a b               half of the gradient to each              the uniform rule: A V, q k', gate * up
    softmax       a = softmax(s)        its true gradient; (a - J s) g_a is the softmax's own        (Taylor, at s)

Achtibat et al. 2024 (AttnLRP); norms as in Ali et al. 2022; the form with gradients is that of
Arras et al. 2025. What is a bias's, or a softmax's own, is read off a *unit*: a number that is one
and that the bias is multiplied by. So relevance is counted on both ways, and f is the sum of what
reaches the states and the units. In: tensors of a forward pass. Out: tensors of the same values,
with other ways back.

Decompose a logit by layer-wise relevance propagation.

In: a view, and which logits. One pass forward by the rules of `measures.lrp`, and one back for each
logit. Out: values of `LogitContributions`: what reaches the states that enter the first layers,
what biases and softmaxes keep on the way, and the sums that enter each layer, which show that
nothing else was lost.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint
from torch.utils.hooks import RemovableHandle

from ...adapters.binding.bound_layers import ProjectionHalf, module_bias, norm_gain
from ...adapters.capture.attention_calls import read_multi_head
from ...adapters.capture.device_copy import to_host
from ...adapters.capture.forward_pass import Capture
from ...adapters.capture.layer_run import Block
from ...adapters.model import Model
from ...adapters.transformers_types import HookArguments, HookKeywords, TorchFunction
from ...errors import InputError
from ...mixing.maps.logit_contributions import LogitTerms
from ...mixing.measures.gradient_pass import activation_classes, replaced_states
from ...mixing.measures.token_objectives import Objective
from ...mixing.passes.item_view import View
from .logit_decomposition import source_membership
from .sums_of_logits import logit_weights


def replace_gradient(value: Tensor, gradient_source: Tensor) -> Tensor:
    """The values of one tensor with the gradient of another."""
    return value.detach() + (gradient_source - gradient_source.detach())


def relevance_through_product(factor: Tensor, share: float | Tensor = 0.5) -> Tensor:
    """A factor of a product, which takes its share of the product's relevance.

    Examples
    --------
    >>> a, b = torch.tensor(3.0, requires_grad=True), torch.tensor(2.0, requires_grad=True)
    >>> (relevance_through_product(a) * relevance_through_product(b)).backward()
    >>> (a * a.grad).item(), (b * b.grad).item()
    (3.0, 3.0)
    """
    return replace_gradient(factor, factor * share)


def relevance_through_activation(argument: Tensor, result: Tensor) -> Tensor:
    """Output of a function of single units: its relevance goes to its argument as it is.

    Examples
    --------
    >>> x = torch.tensor([-1.0, 2.0], requires_grad=True)
    >>> relevance_through_activation(x, x.square()).sum().backward()
    >>> x.grad
    tensor([-1.,  2.])
    """
    slopes = result / argument.where(argument != 0, torch.ones_like(argument))
    return replace_gradient(result, argument * slopes.detach())


def relevance_through_bias(after: Tensor, bias: Tensor | None, unit: Tensor) -> Tensor:
    """Output of a linear map: its bias is one times a unit."""
    return after if bias is None else after + (unit - 1) * bias


def relevance_through_norm(
    module: nn.Module, before: Tensor, after: Tensor, unit: Tensor
) -> Tensor:
    """Output of a layer norm or RMS norm, its deviation held as it is.

    Examples
    --------
    >>> x, unit, norm = torch.tensor([[1.0, 2.0, 6.0]], requires_grad=True), torch.ones((), requires_grad=True), nn.LayerNorm(3)
    >>> nn.init.constant_(norm.bias, 0.5).shape
    torch.Size([3])
    >>> relevance_through_norm(norm, x, norm(x), unit)[0, 2].backward()
    >>> torch.allclose((x * x.grad).sum() + unit.grad, norm(x)[0, 2])
    True
    """
    if not isinstance(module, nn.LayerNorm):
        return relevance_through_activation(before, after)
    centred = before - before.mean(dim=-1, keepdim=True)
    deviation = (centred.square().mean(dim=-1, keepdim=True) + module.eps).sqrt().detach()
    linear = norm_gain(module, before) * centred / deviation
    return relevance_through_bias(replace_gradient(after, linear), module_bias(module), unit)


def relevance_through_attention(
    context: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None,
    scale: float,
    causal: bool,
    unit: Tensor,
) -> Tensor:
    """Output of attention: weights and values share its relevance; of the weights', queries and
    keys.

    Parameters
    ----------
    context : Tensor [B, H, Q, d]
        As it was computed.
    query, key, value : Tensor [B, H, Q or K, d]
    mask : Tensor, optional
        Broadcast to [B, H, Q, K]: bool, True takes part, or added to the scores. Relevance of what
        is added is the unit's.
    scale : float
    causal : bool
    unit : Tensor
        Of what is the softmax's own.

    Returns
    -------
    Tensor [B, H, Q, d]
    """
    products = (
        scale * relevance_through_product(query) @ relevance_through_product(key).transpose(-1, -2)
    )
    weights = _softmax(products, mask, causal=causal)
    products = products.detach()
    slope = weights.detach() * (products - (weights.detach() * products).sum(dim=-1, keepdim=True))
    weights = weights + (unit - 1) * (weights.detach() - slope)
    return replace_gradient(
        context, relevance_through_product(weights) @ relevance_through_product(value)
    )


def _softmax(products: Tensor, mask: Tensor | None, *, causal: bool) -> Tensor:
    """Softmax of masked scores; rows that see nothing are zeros."""
    scores = products
    if mask is not None:
        mask = mask.detach()
        scores = (
            scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        )
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    blind = (scores == -torch.inf).all(dim=-1, keepdim=True)
    return scores.masked_fill(blind, 0).softmax(dim=-1).masked_fill(blind, 0)


Hook = Callable[..., "Tensor | None"]  # of a module, before or after it runs

# Elementwise functions that heads call without a module.
_ELEMENTWISE = (F.gelu, F.relu, F.silu, torch.relu, torch.tanh, Tensor.relu, Tensor.tanh)

_MULTI_HEAD = inspect.signature(F.multi_head_attention_forward)

# Kinds of what keeps relevance; the last is of norms behind the layers of the stack that writes.
BIAS, SOFTMAX, NORM_BIAS = "bias", "softmax", "norm_bias"


class RelevanceLocation(NamedTuple):
    """Where relevance is kept: the stack and layer (None behind the layers), and by what."""

    stack: str | None
    layer: int | None
    kind: str


def check_lrp_covers(model: Model) -> None:
    """Raise `InputError` if the rules do not cover a model."""
    reason = None
    layers = [stack.layers[0] for stack in model.stacks.values()]
    if any(stack.spec.convolution for stack in model.stacks.values()):
        reason = "has Conformer layers, for whose convolution there is no rule"
    elif any(layer.attention.is_rerun for layer in layers):
        reason = "has attention of which only the function is known"
    elif any(attention.needs_eager for layer in layers for attention in layer.attentions):
        reason = "computes attention by code of its own, whose softmax is not reached"
    elif model.capabilities.has_audio_tokens:
        reason = (
            "reads sound among its decoder's tokens, and relevance would be counted on both sides"
        )
    if reason is not None:
        raise InputError(
            f"lrp: {model.name} {reason}. Use speechmix.knock_out, or mix(measures='gradient_input')"
        )


class RelevanceRules(TorchFunctionMode):
    """The rules above at a model's modules, as a context manager.

    Parameters
    ----------
    model : Model

    Attributes
    ----------
    units : dict of RelevanceLocation to Tensor
        Numbers that are one; their gradients are the relevance that each location keeps.
    """

    def __init__(self, model: Model):
        super().__init__()
        self._model = model
        self._reference_parameter = next(
            tensor for tensor in model.module.parameters() if tensor.is_floating_point()
        )
        self._location: tuple[str | None, int | None] = (None, None)
        self._hooks = ExitStack()
        self.units: dict[RelevanceLocation, Tensor] = {}

    def __enter__(self) -> RelevanceRules:
        with ExitStack() as hook_cleanup:
            hook_cleanup.callback(self._hooks.close)
            self._set_hooks()
            super().__enter__()  # type: ignore[no-untyped-call]
            hook_cleanup.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        super().__exit__(*exc_info)  # type: ignore[no-untyped-call]
        self._hooks.close()

    def _set_hooks(self) -> None:
        module_locations = dict(_modules_with_layers(self._model))
        for module, (stack, layer) in module_locations.items():
            if layer is not None and module is self._model.stacks[str(stack)].layers[layer].module:
                self._hook(module.register_forward_pre_hook, self._make_entry_hook(stack, layer))
        for module in self._model.module.modules():
            location = module_locations.get(module, (None, None))
            rule = self._find_rule(module, location)
            if rule is not None:
                self._hook(module.register_forward_hook, rule)
        self._halve_gates()

    def __torch_function__(
        self,
        func: TorchFunction,
        types: Sequence[type],
        args: HookArguments = (),
        kwargs: HookKeywords | None = None,
    ) -> object:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if func is F.scaled_dot_product_attention:
            return self._attention_rule(result, *args, **kwargs)
        if func is F.multi_head_attention_forward:
            return self._multi_head_rule(result, args, kwargs)
        if func in _ELEMENTWISE:
            activation_input = args[0] if args else kwargs["input"]
            return (
                relevance_through_activation(activation_input, result)
                if activation_input.requires_grad
                else result
            )
        return result

    def unit(self, kind: str, location: tuple[str | None, int | None]) -> Tensor:
        """Return the unit of a location; make it at the first call."""
        key = RelevanceLocation(*location, kind)
        if key not in self.units:
            self.units[key] = self._reference_parameter.new_ones(()).requires_grad_(True)
        return self.units[key]

    def _hook(self, register: Callable[[Hook], RemovableHandle], hook: Hook) -> None:
        self._hooks.callback(register(hook).remove)

    def _make_entry_hook(self, stack: str | None, layer: int | None) -> Hook:
        def hook(module: nn.Module, args: object) -> None:
            self._location = (stack, layer)

        return hook

    def _find_rule(self, module: nn.Module, location: tuple[str | None, int | None]) -> Hook | None:
        """What a module's output is exchanged for, by its kind."""
        if isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D":
            return lambda module, args, output: relevance_through_bias(
                output, module_bias(module), self.unit(BIAS, location)
            )
        if isinstance(module, nn.LayerNorm) or type(module).__name__.endswith(
            ("RMSNorm", "T5LayerNorm")
        ):
            kind = NORM_BIAS if location[0] is None else BIAS
            return lambda module, args, output: relevance_through_norm(
                module, args[0], output, self.unit(kind, location)
            )
        if isinstance(module, (*activation_classes(), nn.ReLU, nn.GELU, nn.SiLU, nn.Tanh)):
            return lambda module, args, output: relevance_through_activation(args[0], output)
        return None

    def _halve_gates(self) -> None:
        """Both factors of gated feed-forwards: behind their own rules, so that biases get half
        too."""
        for stack in self._model.stacks.values():
            if stack.name == "cross":
                continue
            for feed_forward in (
                feed_forward
                for layer in stack.layers
                for feed_forward in layer.feed_forwards
                if feed_forward.gate is not None
            ):
                if not isinstance(feed_forward.activation, nn.Module):
                    raise InputError(
                        f"lrp: the gate of {self._model.name} is a function that no rule reaches"
                    )
                self._hook(feed_forward.activation.register_forward_hook, _make_halving_hook(None))
                up = feed_forward.up
                projection, half = up.projection if isinstance(up, ProjectionHalf) else (up, None)
                self._hook(projection.register_forward_hook, _make_halving_hook(half))

    def _attention_rule(
        self,
        context: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        groups = query.shape[1] // key.shape[1]
        if groups > 1:
            key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        options = {
            "mask": attn_mask,
            "scale": scale,
            "causal": is_causal,
            "unit": self.unit(SOFTMAX, self._location),
        }
        return _checkpoint_attention(context, query, key, value, **options)

    def _multi_head_rule(
        self, result: HookArguments, args: HookArguments, kwargs: HookKeywords
    ) -> HookArguments:
        """Output of torch's function that projects, attends and projects again (WavLM)."""
        call = read_multi_head(*args, **kwargs)
        arguments = _MULTI_HEAD.bind(*args, **kwargs).arguments
        unit, n_heads = self.unit(BIAS, self._location), arguments["num_heads"]
        if arguments.get("use_separate_proj_weight"):
            weights = [arguments[f"{name}_proj_weight"] for name in "qkv"]
        else:
            weights = arguments["in_proj_weight"].chunk(3)
        bias = arguments["in_proj_bias"]
        biases = [None] * 3 if bias is None else bias.chunk(3)
        query, key, value = (
            relevance_through_bias(F.linear(arguments[name][:, 0], weight, bias), bias, unit)
            .unflatten(-1, (n_heads, -1))
            .transpose(0, 1)
            for name, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True)
        )  # [T, 1, D] -> [H, T, d]
        options = {
            "mask": call.mask,
            "scale": call.scale,
            "causal": False,
            "unit": self.unit(SOFTMAX, self._location),
        }
        context = (
            _checkpoint_attention(call.weights() @ call.value, query, key, value, **options)
            .transpose(0, 1)
            .flatten(1)
        )
        projected = F.linear(context, arguments["out_proj_weight"], arguments["out_proj_bias"])
        return (
            replace_gradient(
                result[0],
                relevance_through_bias(projected, arguments["out_proj_bias"], unit)[:, None],
            ),
            *result[1:],
        )


def _checkpoint_attention(*states: Tensor, **options: Any) -> Tensor:
    """`relevance_through_attention`; its weights [H, Q, K] are computed again on the way back."""
    context: Tensor = checkpoint(
        partial(relevance_through_attention, **options),
        *states,
        use_reentrant=False,
        preserve_rng_state=False,
    )
    return context


def _modules_with_layers(model: Model) -> Iterator[tuple[nn.Module, tuple[str | None, int | None]]]:
    """Modules of layers, and final norms in front of the head, with where they are."""
    for stack in model.stacks.values():
        if stack.name == "cross":
            continue  # its layers are the decoder's
        for index, layer in enumerate(stack.layers):
            for module in layer.module.modules():
                yield module, (stack.name, index)
        if stack.name != model.capabilities.output_stack and stack.final_norm is not None:
            yield stack.final_norm, (stack.name, None)


def _make_halving_hook(half: int | None) -> Hook:
    """Make a hook that halves the relevance of a module's output, or of one half of it."""

    def hook(module: nn.Module, args: object, output: Tensor) -> Tensor:
        if half is None:
            return relevance_through_product(output)
        shares = torch.ones_like(output)
        shares.chunk(2, dim=-1)[half].fill_(0.5)
        return relevance_through_product(output, shares)

    return hook


States = dict[tuple[str, int], Tensor]


def decompose_by_lrp(
    model: Model, view: View, inputs: Mapping[str, Tensor], objectives: Sequence[Objective]
) -> list[LogitTerms]:
    """Values of `LogitContributions` for each objective."""
    states, units, logits = _run_with_rules(model, view, inputs, objectives)
    graph_inputs, terms = [*states.values(), *units.values()], []
    for index, objective in enumerate(objectives):
        retain_graph = index < len(objectives) - 1
        gradients = torch.autograd.grad(
            logits[index], graph_inputs, retain_graph=retain_graph, allow_unused=True
        )
        relevance_tensors = [
            torch.zeros_like(x) if g is None else x * g
            for x, g in zip(graph_inputs, gradients, strict=True)
        ]
        by_position = [
            layer_relevance[0].sum(dim=-1) for layer_relevance in relevance_tensors[: len(states)]
        ]  # [K] each
        unit_values = torch.stack([*relevance_tensors[len(states) :], logits[index]])
        *relevances, numbers = to_host([x.detach() for x in (*by_position, unit_values)])
        *unit_relevance, logit = numbers.tolist()
        state_relevance = {
            key: relevance.astype(float) for key, relevance in zip(states, relevances, strict=True)
        }
        terms.append(
            _collect_terms(
                model,
                view,
                state_relevance,
                dict(zip(units, unit_relevance, strict=True)),
                objective,
                logit,
            )
        )
    return terms


def _run_with_rules(
    model: Model, view: View, inputs: Mapping[str, Tensor], objectives: Sequence[Objective]
) -> tuple[States, dict[RelevanceLocation, Tensor], list[Tensor]]:
    """One pass by the rules: states that enter each layer (for "cross": what it reads), units, and
    each logit."""
    states: States = {}

    def store_state(stack: str, layer: int, x: Tensor) -> Tensor:
        is_input = (
            layer == 0 and stack != "cross"
        )  # what lies in front of the first layer is not taken apart
        states[stack, layer] = x.detach().requires_grad_(True) if is_input else x.clone()
        return states[stack, layer]

    def on_block(block: Block) -> None:
        view.units(block)  # which frames of prepared audio are sources is known now

    layers = {name: range(len(stack)) for name, stack in model.stacks.items()}
    captured_stacks = [stack for name, stack in model.stacks.items() if name != "cross"]
    with (
        torch.enable_grad(),
        replaced_states(model, layers, store_state),
        Capture(captured_stacks, on_block, layers={0}),
        RelevanceRules(model) as rules,
    ):
        output = model.run_with_head(inputs)
        logits = [
            objective.function(output)[0] for objective in objectives
        ]  # refuses positions that are not there
    return states, rules.units, logits


def _collect_terms(
    model: Model,
    view: View,
    state_relevance: Mapping[tuple[str, int], np.ndarray],
    unit_relevance: Mapping[RelevanceLocation, float],
    objective: Objective,
    logit: float,
) -> LogitTerms:
    stack_names = [name for name in model.stacks if name != "cross"]
    scores, outside = {}, 0.0
    for stack_name in stack_names:
        relevance = state_relevance[stack_name, 0]
        members = source_membership(view.sources(stack_name), len(relevance)).numpy().astype(float)
        scores[stack_name] = (relevance @ members)[None]
        outside += float(relevance @ (1 - members.sum(axis=-1)))
    layer_parts = {"outside": np.array([outside])}
    for stack_name in stack_names:
        for kind in (BIAS, SOFTMAX):
            by_layer = [
                unit_relevance.get(RelevanceLocation(stack_name, layer, kind), 0.0)
                for layer in range(len(model.stacks[stack_name]))
            ]
            layer_parts[f"{stack_name}_{kind}"] = np.array(by_layer)
    single_terms = {
        "final_norm_bias": unit_relevance.get(RelevanceLocation(None, None, NORM_BIAS), 0.0),
        "head_bias": unit_relevance.get(RelevanceLocation(None, None, BIAS), 0.0)
        + _logit_buffer_bias(model, objective),
    }
    for stack_name in set(stack_names) - {model.capabilities.output_stack}:
        single_terms[f"{stack_name}_norm_bias"] = unit_relevance.get(
            RelevanceLocation(stack_name, None, BIAS), 0.0
        )
    layer_sums = {
        name: np.array([state_relevance[name, layer].sum() for layer in range(len(stack))])
        for name, stack in model.stacks.items()
    }
    return {
        "scores": scores,
        "direct": {},
        "layer_parts": layer_parts,
        "single_parts": single_terms,
        "logit": logit,
        "passed": layer_sums,
    }


def _logit_buffer_bias(model: Model, objective: Objective) -> float:
    """What a buffer of BART and its kin adds to a logit, or to the difference of two."""
    bias = getattr(model.module, "final_logits_bias", None)
    if not isinstance(bias, Tensor):
        return 0.0
    tokens, weights = logit_weights(objective.details)
    return float(bias[0, tokens] @ bias.new_tensor(weights))
