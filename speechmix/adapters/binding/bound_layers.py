"""Find the modules of a loaded model's layers by the paths in its family's table.

In: a `StackSpec` and a base model. Out: a `Stack` of `Layer`s, which hold attention blocks and
feed-forwards as modules. Nothing is looked up by its path after that: a table that names what is
not there fails here, when the model is loaded.

The parts of a layer as modules, by what they do: attention, convolution, feed-forward, and what
lies behind attention.

In: modules that a family's table names (bound_layers.py looks them up). Out: plain values that capture,
replay and the delta engine share; the weight of a projection, however a module keeps it.

Split a layer norm or RMS norm into its linear part and its scale per row.

With c the centred input (an RMS norm centres nothing) and s^2 its mean square:    N(x) = gain * c / s + bias.
Decompositions use it as it is, linear in what is added to a state whose s is known. The delta engine uses its exact change:
N(x + dx) - N(x) = gain * ( dc / s' + c (1/s' - 1/s) ), with s' of the changed input and no cancellation in the difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch
from torch import Tensor, nn

from ...errors import ModelError
from ...files.json_files import JsonObject
from ..transformers_types import Config, PretrainedModule

if TYPE_CHECKING:
    from ..families.specs import AttentionSpec, ConvolutionSpec, FeedForwardSpec, StackSpec


@dataclass(frozen=True)
class AttentionModules:
    """One attention block of a layer, as an `AttentionSpec` names its modules.

    `includes_output` is True if the output projection is inside the attention module (in BERT it
    follows it). `norm`, `query` and `branch_norm` are None where the table does not name them.
    `needs_eager` says that attention is read from the module's own softmax, `is_rerun` that only
    its function is known, so that layers run as a whole.
    """

    module: nn.Module
    value: nn.Module
    key: nn.Module
    output: nn.Module
    includes_output: bool
    norm: nn.Module | None = None
    query: nn.Module | None = None
    branch_norm: nn.Module | None = None
    needs_eager: bool = False
    is_rerun: bool = False


@dataclass(frozen=True)
class FeedForwardModules:
    """One feed-forward block of a layer, as a `FeedForwardSpec` names its modules."""

    norm: nn.Module
    up: nn.Module
    down: nn.Module
    activation: Callable[[Tensor], Tensor]
    gate: nn.Module | None = None
    branch_norm: nn.Module | None = None
    scale: float = 1.0

    def __call__(self, states: Tensor) -> Tensor:
        """Run the block on states [R, D], without its norms and its residual."""
        inner = self.activation((self.up if self.gate is None else self.gate)(states))
        result: Tensor = self.down(inner if self.gate is None else inner * self.up(states))
        return result


@dataclass(frozen=True)
class ConvolutionModules:
    """A convolution over positions, as a `ConvolutionSpec` names its modules.

    `left` and `right` count the positions before and after a row that its window holds.
    """

    norm: nn.Module
    expand: nn.Conv1d
    depthwise: nn.Conv1d
    depthwise_norm: nn.Module
    activation: nn.Module
    contract: nn.Conv1d
    causal: bool

    @property
    def left(self) -> int:
        if self.causal:
            return self._reach
        is_same = self.depthwise.padding == "same"  # torch's own padding: the larger half behind
        return self._reach // 2 if is_same else self._reach - self._reach // 2

    @property
    def right(self) -> int:
        return self._reach - self.left

    @property
    def _reach(self) -> int:
        return self.depthwise.dilation[0] * (self.depthwise.kernel_size[0] - 1)


@dataclass(frozen=True)
class LaterAttention:
    """An attention block behind the studied one, known well enough for a change of its queries to
    be carried through.

    `attention_index` counts the layer's attention blocks.
    """

    attention_index: int
    norm: nn.Module
    query: nn.Module
    output: nn.Module


@dataclass(frozen=True)
class PostAttentionModules:
    """What lies behind a layer's studied attention, where its table describes all of it: the way of
    a change.

    `norm` is the studied block's own, `convolution` lies between attention and feed-forwards, and
    `closing_norm` is behind the last residual sum. In a layer whose feed-forward runs in parallel
    to attention nothing lies behind it, and all fields are empty.
    """

    norm: nn.Module | None
    attentions: tuple[LaterAttention, ...]
    feed_forwards: tuple[FeedForwardModules, ...]
    convolution: ConvolutionModules | None = None
    closing_norm: nn.Module | None = None


@dataclass(frozen=True)
class Layer:
    """One layer of a stack: its module, its attention blocks and feed-forwards in the order they
    run.

    `studied_index` says which of `attentions` the stack studies; `parallel`, that the feed-forward
    runs in parallel to attention.
    """

    module: nn.Module
    attentions: tuple[AttentionModules, ...]
    feed_forwards: tuple[FeedForwardModules, ...]
    studied_index: int
    convolution: ConvolutionModules | None = None
    closing_norm: nn.Module | None = None
    parallel: bool = False

    @property
    def attention(self) -> AttentionModules:
        """The attention block that is studied."""
        return self.attentions[self.studied_index]

    @property
    def runs_whole(self) -> bool:
        """True if a changed attention context is replayed on all positions of the layer at once."""
        return self.convolution is not None or self.attention.is_rerun

    @property
    def post_attention(self) -> PostAttentionModules | None:
        """Return the modules behind the studied attention; None where the table does not describe
        them well enough.

        Blocks whose own output is normed (Gemma 3) are not: where all of it is taken away, a change
        says nothing.
        """
        norm, later = self.attention.norm, []
        if self.parallel:
            return PostAttentionModules(None, (), ())
        if norm is None or not self.feed_forwards:
            return None
        for index, attention in enumerate(
            self.attentions[self.studied_index + 1 :], start=self.studied_index + 1
        ):
            if attention.norm is None or attention.query is None:
                return None
            later.append(LaterAttention(index, attention.norm, attention.query, attention.output))
        branches = [attention.branch_norm for attention in self.attentions[self.studied_index :]]
        if any(branches) or any(feed_forward.branch_norm for feed_forward in self.feed_forwards):
            return None
        return PostAttentionModules(
            norm, tuple(later), self.feed_forwards, self.convolution, self.closing_norm
        )


class ProjectionHalf(nn.Module):
    """Half 0 or 1 of the output of a linear projection [in, 2 out], as a projection that shares its
    weights."""

    def __init__(self, full_projection: nn.Module, half_index: int):
        super().__init__()
        self._full_projection = (full_projection,)  # in a tuple: it is not registered as a part
        self._half_index = half_index

    @property
    def projection(self) -> tuple[nn.Module, int]:
        """The projection that this is a half of, and which half."""
        return self._full_projection[0], self._half_index

    @property
    def weight(self) -> Tensor:
        return projection_weight(self._full_projection[0]).chunk(2)[self._half_index]

    @property
    def bias(self) -> Tensor | None:
        bias = module_bias(self._full_projection[0])
        return None if bias is None else bias.chunk(2)[self._half_index]

    def forward(self, states: Tensor) -> Tensor:
        return nn.functional.linear(states, self.weight, self.bias)


def projection_weight(projection: nn.Module) -> Tensor:
    """Return the weight [out, in] of a linear projection, also of transformers' Conv1D (GPT-2),
    which stores it transposed.

    A convolution with a kernel of one position (Conformers) is a linear projection too.
    """
    weight = cast("Tensor", projection.weight)  # torch says Tensor | Module of every attribute
    if isinstance(projection, nn.Conv1d):
        return weight[..., 0]
    return weight.T if type(projection).__name__ == "Conv1D" else weight


def module_bias(module: nn.Module) -> Tensor | None:
    """Return the bias of a projection or norm; None where it has none."""
    return getattr(module, "bias", None)


class Norm:
    """A layer norm or RMS norm at states x [R, D].

    `bias` [D] is zero where the norm has none; `deviation` [R, 1] is s, the root of each state's
    (centred) mean square.
    """

    def __init__(self, module: nn.Module, states: Tensor):
        self._module, self._states = module, states
        self._is_layer_norm = isinstance(module, nn.LayerNorm)
        self._eps = norm_epsilon(module)
        self._gain = norm_gain(module, states)
        bias = module_bias(module)
        self.bias = torch.zeros_like(self._gain) if bias is None else bias
        self._centred = self._centre(states)
        self._square = self._centred.square().mean(dim=-1, keepdim=True) + self._eps
        self.deviation = self._square.sqrt()

    @cached_property
    def scale(self) -> Tensor:
        """1/s of each state, [R]; measured by running an RMS norm, whatever it adds to the mean
        square.

        Any other kind of norm is a ModelError.
        """
        if self._is_layer_norm:
            return 1 / self.deviation[:, 0]
        unscaled, normed = self.direction(self._states), self._module(self._states)
        scale = (normed * unscaled).sum(-1) / unscaled.square().sum(-1).clamp_min(
            torch.finfo(unscaled.dtype).tiny
        )
        if not torch.allclose(normed, scale[:, None] * unscaled, rtol=1e-3, atol=1e-4):
            raise ModelError(
                f"{type(self._module).__name__} is neither a layer norm nor an RMS norm: no "
                "decomposition behind it"
            )
        result: Tensor = scale
        return result

    def direction(self, vectors: Tensor) -> Tensor:
        """gain * dc: what vectors [..., D] add to a state becomes, up to each row's scale."""
        return self._centre(vectors) * self._gain

    def pull_back(self, readout_vectors: Tensor) -> Tensor:
        """Turn vectors [R, D] that read the norm's output into vectors that read its input:
        <pull_back(r), dx> = <r, scale * direction(dx)>.

        An RMS norm may round inside (transformers computes it in single precision): each
        coordinate's own factor N(x) / x is taken then, so that what is read of x is what is read of
        N(x) to the last digit.
        """
        weighted = readout_vectors * (self.scale[:, None] * self._gain)
        if self._is_layer_norm:
            return self._centre(weighted)
        nonzero = self._states != 0
        factors = self._module(self._states) / self._states.where(
            nonzero, torch.ones_like(self._states)
        )
        return torch.where(nonzero, readout_vectors * factors, weighted)

    def change(self, dx: Tensor) -> Tensor:
        """Return N(x + dx) - N(x) for changes dx [..., R, D]."""
        inverse, shift = self.scales(dx)
        return (self._centre(dx) * inverse + self._centred * shift) * self._gain

    def scales(self, dx: Tensor) -> tuple[Tensor, Tensor]:
        """1/s' and 1/s' - 1/s = -(s'^2 - s^2) / (s s' (s + s')), each with a last axis of 1."""
        dc = self._centre(dx)
        square_change = ((2 * self._centred + dc) * dc).mean(dim=-1, keepdim=True)  # s'^2 - s^2
        s = (self._square + square_change).clamp_min(self._eps).sqrt()
        return 1 / s, -square_change / (self.deviation * s * (self.deviation + s))

    def _centre(self, x: Tensor) -> Tensor:
        return x - x.mean(dim=-1, keepdim=True) if self._is_layer_norm else x


def norm_gain(norm: nn.Module, reference: Tensor) -> Tensor:
    """Return what a layer norm or RMS norm multiplies by, [D], in the precision and on the device
    of `reference` [..., D].

    An RMS norm is run to read it, because Gemma stores weight - 1.
    """
    if isinstance(norm, nn.LayerNorm):
        return reference.new_ones(reference.shape[-1]) if norm.weight is None else norm.weight
    result: Tensor = norm(reference.new_ones(reference.shape[-1])) * (1 + norm_epsilon(norm)) ** 0.5
    return result


def norm_epsilon(norm: nn.Module) -> float:
    """Return what a norm adds to the mean square."""
    eps: float | None = getattr(norm, "eps", None)
    variance_epsilon: float = getattr(norm, "variance_epsilon", 0.0)
    return eps or variance_epsilon


class StackTable(Protocol):
    """The part of a `Family` that says where the stacks are."""

    @property
    def name(self) -> str: ...

    @property
    def stacks(self) -> Callable[[Config], tuple[StackSpec, ...]]: ...

    @property
    def heads(self) -> Callable[[Config, str], int]: ...


@dataclass(frozen=True)
class Stack:
    """A `StackSpec` bound to a loaded model.

    `holder` is the module that runs the layers: the encoder, the decoder, or the base model itself.
    `unknown_sum_reason` says why its residual sums are not known; it is empty if they are.
    """

    spec: StackSpec
    holder: nn.Module = field(repr=False)
    layers: tuple[Layer, ...] = field(repr=False)
    final_norm: nn.Module | None = field(repr=False)
    heads: int
    width: int
    unknown_sum_reason: str = ""

    @property
    def name(self) -> str:
        return self.spec.name

    def __len__(self) -> int:
        return len(self.layers)


def bind_stacks(family: StackTable, module: PretrainedModule, base: nn.Module) -> dict[str, Stack]:
    """Find all stacks of a family's table in a model.

    A table, perhaps borrowed from another architecture, that does not fit the config or the modules
    is a ModelError.
    """
    table_location = "the config"
    try:
        stacks = {}
        for spec in family.stacks(module.config):
            table_location = f"the {spec.name} (layers {spec.layers!r})"
            stack = bind_stack(spec, base, family.heads(module.config, spec.name))
            if stack is not None:
                stacks[spec.name] = stack
        return stacks
    except (AttributeError, KeyError, TypeError, IndexError, ValueError) as error:
        raise ModelError(
            f"{type(module).__name__}: the table of the family {family.name} does not fit {table_location}: "
            f"{error}. Correct its paths, "
            "see speechmix.register"
        ) from error


def bind_stack(spec: StackSpec, base: nn.Module, heads: int) -> Stack | None:
    """Find a stack in a base model; None if the model has no such stack (an encoder alone has no
    decoder).

    A table that names modules the model does not have is a ModelError.
    """
    if not hasattr(base, spec.layers.split(".")[0]):
        return None
    path, _, _ = spec.layers.rpartition(".")
    layers = tuple(bind_layer(module, spec) for module in layer_modules(spec, base))
    return Stack(
        spec,
        submodule(base, path, label=f"layers of the {spec.name}") if path else base,
        layers,
        submodule(base, spec.final_norm, label=f"final norm of the {spec.name}")
        if spec.final_norm
        else None,
        heads,
        width=projection_weight(layers[0].attention.output).shape[0],
        unknown_sum_reason=_explain_missing_sum(spec),
    )


def _explain_missing_sum(spec: StackSpec) -> str:
    """Say why the table alone shows that the residual sum is not known; empty if it does not."""
    attention = spec.blocks[spec.block_index]
    if spec.parallel:
        return (
            "attention and feed-forward run side by side, so the layer has no sum of residual "
            "and attention alone"
        )
    return (
        ""
        if attention.norm or attention.branch_norm
        else "its table names no norm of the attention block"
    )


def layer_modules(spec: StackSpec, base: nn.Module) -> tuple[nn.Module, ...]:
    """Return the modules that are a stack's layers."""
    # A list of modules, of whatever class.
    modules: Any = submodule(base, spec.layers, label=f"layers of the {spec.name}")
    return tuple(modules)


def bind_layer(module: nn.Module, spec: StackSpec) -> Layer:
    """Look up all that a table names inside one layer."""
    attention_label, feed_forward_label = (
        f"attention of the {spec.name}",
        f"feed-forward of the {spec.name}",
    )
    convolution, closing_norm_path = spec.convolution, spec.closing_norm
    return Layer(
        module,
        tuple(
            AttentionModules(
                **_look_up_modules(module, attention, label=attention_label),
                includes_output=attention.output.startswith(f"{attention.module}."),
            )
            for attention in spec.blocks
        ),
        tuple(
            FeedForwardModules(**_look_up_modules(module, feed_forward, label=feed_forward_label))
            for feed_forward in spec.feed_forwards
        ),
        spec.block_index,
        ConvolutionModules(
            **_look_up_modules(module, convolution, label=f"convolution of the {spec.name}")
        )
        if convolution
        else None,
        submodule(module, closing_norm_path, label=f"closing norm of the {spec.name}")
        if closing_norm_path
        else None,
        spec.parallel,
    )


def _look_up_modules(
    layer: nn.Module, spec: AttentionSpec | FeedForwardSpec | ConvolutionSpec, *, label: str
) -> JsonObject:
    """Look up the modules that a spec has paths of; its other values stay as they are."""
    spec_values = {spec_field.name: getattr(spec, spec_field.name) for spec_field in fields(spec)}
    return {
        name: submodule(layer, path or spec_values["module"], label=label)
        if isinstance(path, str)
        else path
        for name, path in spec_values.items()
        if path is not None
    }


def submodule(root: nn.Module, path: str, *, label: str) -> nn.Module:
    """Follow a dotted path; the error names the step that is missing. ``path:0`` and ``path:1`` are
    halves of a projection."""
    path, _, half = path.partition(":")
    module = root
    for step in path.split("."):
        if not hasattr(module, step):
            raise ModelError(
                f"{label}: expected {path!r} inside {type(root).__name__}, but "
                f"{type(module).__name__} has no {step!r}. "
                "The family's table does not fit this model; see speechmix.register"
            )
        module = getattr(module, step)
    return ProjectionHalf(module, int(half)) if half else module
