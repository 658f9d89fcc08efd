"""A run of an unmodified model whose gradients are relevances: the rules of `lrp` at its modules
while it runs.

In: a `Model`. While `RelevanceRules` is entered, hooks exchange what modules give for tensors of
the same values with other ways back: linear maps, norms, activations, factors of gated
feed-forwards; torch's attention function is exchanged where it is called. Units count what biases
and softmaxes keep, by stack, layer and kind. Undone on leaving.
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
    with_way_back,
)
from .rescale_rule import activation_classes

if TYPE_CHECKING:
    from ...adapters.model import Model

Hook = Callable[..., "Tensor | None"]  # of a module, before or after it runs

# Elementwise functions that heads call without a module.
_ELEMENTWISE = (F.gelu, F.relu, F.silu, torch.relu, torch.tanh, Tensor.relu, Tensor.tanh)

_MULTI_HEAD = inspect.signature(F.multi_head_attention_forward)

# Kinds of what keeps relevance: biases, softmaxes, biases of norms behind the layers of the stack
# that writes.
BIAS, SOFTMAX, NORM_BIAS = "bias", "softmax", "norm_bias"


class RelevanceLocation(NamedTuple):
    """Where relevance is kept: the stack and layer (None behind the layers), and by what."""

    stack: str | None
    layer: int | None
    kind: str


def check_lrp_covers(model: Model) -> None:
    """Raise `InputError` if the rules do not cover a model."""
    what = None
    layers = [stack.layers[0] for stack in model.stacks.values()]
    if any(stack.spec.convolution for stack in model.stacks.values()):
        what = "has Conformer layers, for whose convolution there is no rule"
    elif any(attention.needs_eager for layer in layers for attention in layer.attentions):
        what = "computes attention by code of its own, whose softmax is not reached"
    elif model.capabilities.has_audio_tokens:
        what = (
            "reads sound among its decoder's tokens, and relevance would be counted on both sides"
        )
    if what is not None:
        raise InputError(
            f"lrp: {model.name} {what}. Use speechmix.knock_out, or mix(measures='gradient_input')"
        )


class RelevanceRules(TorchFunctionMode):
    """The rules of `lrp` at a model's modules, as a context manager.

    Parameters
    ----------
    model : Model

    Attributes
    ----------
    units : dict of RelevanceLocation to Tensor
        Numbers that are one; their gradients are what is kept in each place.
    """

    def __init__(self, model: Model):
        super().__init__()
        self._model = model
        self._like = next(
            tensor for tensor in model.module.parameters() if tensor.is_floating_point()
        )
        self._place: tuple[str | None, int | None] = (None, None)
        self._hooks = ExitStack()
        self.units: dict[RelevanceLocation, Tensor] = {}

    def __enter__(self) -> RelevanceRules:
        with ExitStack() as set_so_far:
            set_so_far.callback(self._hooks.close)
            self._set_hooks()
            super().__enter__()  # type: ignore[no-untyped-call]
            set_so_far.pop_all()
        return self

    def __exit__(self, *exc_info: object) -> None:
        super().__exit__(*exc_info)  # type: ignore[no-untyped-call]
        self._hooks.close()

    def _set_hooks(self) -> None:
        place_of = dict(_modules_with_layers(self._model))
        for module, (stack, layer) in place_of.items():
            if layer is not None and module is self._model.stacks[str(stack)].layers[layer].module:
                self._hook(module.register_forward_pre_hook, self._entering(stack, layer))
        for module in self._model.module.modules():
            place = place_of.get(module, (None, None))
            rule = self._rule_of(module, place)
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
            return self._attended(result, *args, **kwargs)
        if func is F.multi_head_attention_forward:
            return self._attended_inside(result, args, kwargs)
        if func in _ELEMENTWISE:
            before = args[0] if args else kwargs["input"]
            return relevance_through_activation(before, result) if before.requires_grad else result
        return result

    def unit(self, kind: str, place: tuple[str | None, int | None]) -> Tensor:
        """The unit of a place."""
        key = RelevanceLocation(*place, kind)
        if key not in self.units:
            self.units[key] = self._like.new_ones(()).requires_grad_(True)
        return self.units[key]

    def _hook(self, register: Callable[[Hook], RemovableHandle], hook: Hook) -> None:
        self._hooks.callback(register(hook).remove)

    def _entering(self, stack: str | None, layer: int | None) -> Hook:
        def hook(module: nn.Module, args: object) -> None:
            self._place = (stack, layer)

        return hook

    def _rule_of(self, module: nn.Module, place: tuple[str | None, int | None]) -> Hook | None:
        """What a module's output is exchanged for, by its kind."""
        if isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D":
            return lambda module, args, output: relevance_through_bias(
                output, module_bias(module), self.unit(BIAS, place)
            )
        if isinstance(module, nn.LayerNorm) or type(module).__name__.endswith(
            ("RMSNorm", "T5LayerNorm")
        ):
            kind = NORM_BIAS if place[0] is None else BIAS
            return lambda module, args, output: relevance_through_norm(
                module, args[0], output, self.unit(kind, place)
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
            for part in (
                part
                for layer in stack.layers
                for part in layer.feed_forwards
                if part.gate is not None
            ):
                if not isinstance(part.activation, nn.Module):
                    raise InputError(
                        f"lrp: the gate of {self._model.name} is a function that no rule reaches"
                    )
                self._hook(
                    part.activation.register_forward_hook,
                    lambda m, args, output: relevance_through_product(output),
                )
                if isinstance(part.up, ProjectionHalf):
                    whole, number = part.up.projection
                    self._hook(whole.register_forward_hook, _halving(number))
                else:
                    self._hook(
                        part.up.register_forward_hook,
                        lambda m, args, output: relevance_through_product(output),
                    )

    def _attended(
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
            "unit": self.unit(SOFTMAX, self._place),
        }
        return _attention_again(context, query, key, value, **options)

    def _attended_inside(
        self, result: HookArguments, args: HookArguments, kwargs: HookKeywords
    ) -> HookArguments:
        """What torch's function gives that projects, attends and projects again (WavLM)."""
        call, parts = read_multi_head(*args, **kwargs), _MULTI_HEAD.bind(*args, **kwargs).arguments
        unit, n_heads = self.unit(BIAS, self._place), parts["num_heads"]
        if parts.get("use_separate_proj_weight"):
            weights = [parts[f"{name}_proj_weight"] for name in "qkv"]
        else:
            weights = parts["in_proj_weight"].chunk(3)
        bias = parts["in_proj_bias"]
        biases = [None] * 3 if bias is None else bias.chunk(3)
        query, key, value = (
            relevance_through_bias(F.linear(parts[name][:, 0], weight, bias), bias, unit)
            .unflatten(-1, (n_heads, -1))
            .transpose(0, 1)
            for name, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True)
        )  # [T, 1, D] -> [H, T, d]
        options = {
            "mask": call.mask,
            "scale": call.scale,
            "causal": False,
            "unit": self.unit(SOFTMAX, self._place),
        }
        context = (
            _attention_again(call.weights() @ call.value, query, key, value, **options)
            .transpose(0, 1)
            .flatten(1)
        )
        out = F.linear(context, parts["out_proj_weight"], parts["out_proj_bias"])
        return (
            with_way_back(
                result[0], relevance_through_bias(out, parts["out_proj_bias"], unit)[:, None]
            ),
            *result[1:],
        )


def _attention_again(*states: Tensor, **options: Any) -> Tensor:
    """`relevance_through_attention`; its weights [H, Q, K] are computed again on the way back."""
    attended: Tensor = checkpoint(
        partial(relevance_through_attention, **options),
        *states,
        use_reentrant=False,
        preserve_rng_state=False,
    )
    return attended


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


def _halving(number: int) -> Hook:
    """Half of the relevance for one half of what a projection gives."""

    def hook(module: nn.Module, args: object, output: Tensor) -> Tensor:
        shares = torch.ones_like(output)
        shares.chunk(2, dim=-1)[number].fill_(0.5)
        return relevance_through_product(output, shares)

    return hook
