"""Backward pass with relevance rules (LRP) on an unmodified model.

In: a `Model`. While `RelevanceRules` is entered, hooks exchange modules' outputs for tensors of the
same values with other ways back: linear maps, norms, activations, factors of gated feed-forwards;
torch's attention function is exchanged where it is called. Units count what biases and softmaxes
keep, by stack, layer and kind. Undone on leaving.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint
from torch.utils.hooks import RemovableHandle

from ...adapters.binding.layer_components import ProjectionHalf, module_bias
from ...adapters.capture.attention_calls import read_multi_head
from ...adapters.transformers_types import HookArguments, HookKeywords, TorchFunction
from ...errors import InputError
from .lrp import (
    relevance_through_activation,
    relevance_through_attention,
    relevance_through_bias,
    relevance_through_norm,
    relevance_through_product,
    replace_gradient,
)
from .rescale_rule import activation_classes

if TYPE_CHECKING:
    from ...adapters.model import Model

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
    """The rules of `lrp` at a model's modules, as a context manager.

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
