"""A loaded model's layers, bound: the modules that a family's table names, looked up once.

In: a `StackPlan` and a base model. Out: a `Stack` of `Layer`s, which hold attention blocks and feed-forwards as modules.
Nothing is looked up by its path after that: a table that names what is not there fails here, when the model is loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, cast

from torch import Tensor, nn

from ..errors import ModelError

if TYPE_CHECKING:
    from .plans import AttentionPlan, ConvolutionPlan, FeedForwardPlan, StackPlan


@dataclass(frozen=True)
class AttentionModules:
    """One attention block of a layer, as an `AttentionPlan` names its modules.

    Parameters
    ----------
    module, value, key, output : nn.Module
        The attention module and its projections.
    projects : bool
        True if the output projection is a part of the attention module (in BERT it follows it).
    norm, query, branch_norm : nn.Module, optional
        Where the table names them.
    """

    module: nn.Module
    value: nn.Module
    key: nn.Module
    output: nn.Module
    projects: bool
    norm: nn.Module | None = None
    query: nn.Module | None = None
    branch_norm: nn.Module | None = None


@dataclass(frozen=True)
class FeedForwardModules:
    """One feed-forward block of a layer, as a `FeedForwardPlan` names its modules."""

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
        return self.down(inner if self.gate is None else inner * self.up(states))


@dataclass(frozen=True)
class ConvolutionModules:
    """A convolution over positions, as a `ConvolutionPlan` names its modules.

    Attributes
    ----------
    left, right : int
        Positions before and behind its own that a row's window holds.
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
        return self._reach if self.causal else self._reach - self._reach // 2

    @property
    def right(self) -> int:
        return self._reach - self.left

    @property
    def _reach(self) -> int:
        return self.depthwise.dilation[0] * (self.depthwise.kernel_size[0] - 1)


@dataclass(frozen=True)
class LaterAttention:
    """An attention block behind the studied one, known well enough for a change of its queries to be carried through.

    Parameters
    ----------
    number : int
        Which of the layer's attention blocks it is.
    norm, query, output : nn.Module
    """

    number: int
    norm: nn.Module
    query: nn.Module
    output: nn.Module


@dataclass(frozen=True)
class Rest:
    """What lies behind a layer's studied attention, where its table describes all of it: the way of a change.

    Parameters
    ----------
    norm : nn.Module
        The studied block's own.
    attentions : tuple of LaterAttention
    feed_forwards : tuple of FeedForwardModules
        One or more.
    convolution : ConvolutionModules, optional
        Between them.
    closing_norm : nn.Module, optional
        Behind the last residual sum.
    """

    norm: nn.Module
    attentions: tuple[LaterAttention, ...]
    feed_forwards: tuple[FeedForwardModules, ...]
    convolution: ConvolutionModules | None = None
    closing_norm: nn.Module | None = None


@dataclass(frozen=True)
class Layer:
    """One layer of a stack: its module, its attention blocks and feed-forwards in the order they run.

    Parameters
    ----------
    module : nn.Module
    attentions : tuple of AttentionModules
    feed_forwards : tuple of FeedForwardModules
    studied : int
        Which of `attentions` the stack studies.
    convolution : ConvolutionModules, optional
    closing_norm : nn.Module, optional
    """

    module: nn.Module
    attentions: tuple[AttentionModules, ...]
    feed_forwards: tuple[FeedForwardModules, ...]
    studied: int
    convolution: ConvolutionModules | None = None
    closing_norm: nn.Module | None = None

    @property
    def attention(self) -> AttentionModules:
        """The attention block that is studied."""
        return self.attentions[self.studied]

    @property
    def rest(self) -> Rest | None:
        """What lies behind the studied attention; None where the table does not describe it well enough.

        Blocks whose own output is normed (Gemma 3) are not: where all of it is taken away, a change says nothing.
        """
        norm, later = self.attention.norm, []
        if norm is None or not self.feed_forwards:
            return None
        for number, attention in enumerate(self.attentions[self.studied + 1 :], start=self.studied + 1):
            if attention.norm is None or attention.query is None:
                return None
            later.append(LaterAttention(number, attention.norm, attention.query, attention.output))
        branches = [attention.branch_norm for attention in self.attentions[self.studied :]]
        if any(branches) or any(part.branch_norm for part in self.feed_forwards):
            return None
        return Rest(norm, tuple(later), self.feed_forwards, self.convolution, self.closing_norm)


@dataclass(frozen=True)
class Stack:
    """A `StackPlan` bound to a loaded model.

    Parameters
    ----------
    plan : StackPlan
    holder : nn.Module
        What runs the layers: the encoder, the decoder, or the base model itself.
    layers : tuple of Layer
    final_norm : nn.Module, optional
    heads, width : int
    no_sum : str
        Why its residual sums are not known; empty if they are.
    """

    plan: StackPlan
    holder: nn.Module = field(repr=False)
    layers: tuple[Layer, ...] = field(repr=False)
    final_norm: nn.Module | None = field(repr=False)
    heads: int
    width: int
    no_sum: str = ""

    @property
    def name(self) -> str:
        return self.plan.name

    def __len__(self) -> int:
        return len(self.layers)


def bind(plan: StackPlan, base: nn.Module, heads: int) -> Stack | None:
    """Find a stack in a base model; None if the model has no such part (an encoder alone has no decoder).

    Raises
    ------
    ModelError
        If the table names what the model does not have.
    """
    if not hasattr(base, plan.layers.split(".")[0]):
        return None
    path, _, _ = plan.layers.rpartition(".")
    layers = tuple(bound_layer(module, plan) for module in layer_modules(plan, base))
    return Stack(
        plan,
        submodule(base, path, what=f"layers of the {plan.name}") if path else base,
        layers,
        submodule(base, plan.final_norm, what=f"final norm of the {plan.name}") if plan.final_norm else None,
        heads,
        width=weight_of(layers[0].attention.output).shape[0],
        no_sum="" if plan.blocks[plan.block].norm else "its table names no norm of the attention block",
    )


def layer_modules(plan: StackPlan, base: nn.Module) -> tuple[nn.Module, ...]:
    """The modules that are a stack's layers."""
    modules: Any = submodule(
        base, plan.layers, what=f"layers of the {plan.name}"
    )  # a list of modules, of whatever class
    return tuple(modules)


def bound_layer(module: nn.Module, plan: StackPlan) -> Layer:
    """Look up all that a table names inside one layer."""
    attentions, feed_forwards = f"attention of the {plan.name}", f"feed-forward of the {plan.name}"
    convolution, closing = plan.convolution, plan.closing_norm
    return Layer(
        module,
        tuple(
            AttentionModules(
                **_named(module, attention, what=attentions),
                projects=attention.output.startswith(f"{attention.module}."),
            )
            for attention in plan.blocks
        ),
        tuple(FeedForwardModules(**_named(module, part, what=feed_forwards)) for part in plan.feed_forwards),
        plan.block,
        ConvolutionModules(**_named(module, convolution, what=f"convolution of the {plan.name}")) if convolution else None,
        submodule(module, closing, what=f"closing norm of the {plan.name}") if closing else None,
    )


def _named(layer: nn.Module, plan: AttentionPlan | FeedForwardPlan | ConvolutionPlan, *, what: str) -> dict[str, Any]:
    """The modules of a plan by its own names for them, without those it has no path of, and what else it says."""
    told = {part.name: getattr(plan, part.name) for part in fields(plan)}
    return {
        name: submodule(layer, path, what=what) if isinstance(path, str) else path
        for name, path in told.items()
        if path is not None
    }


def submodule(root: nn.Module, path: str, *, what: str) -> nn.Module:
    """Follow a dotted path; the error names the step that is missing."""
    reached = root
    for step in path.split("."):
        if not hasattr(reached, step):
            raise ModelError(
                f"{what}: expected {path!r} inside {type(root).__name__}, but {type(reached).__name__} has no {step!r}. "
                "The family's table does not fit this model; see speechmix.register"
            )
        reached = getattr(reached, step)
    return reached


def weight_of(projection: nn.Module) -> Tensor:
    """Weight [out, in] of a linear projection; transformers' Conv1D (GPT-2) keeps it the other way round.

    A convolution with a kernel of one position (Conformers) is a linear projection too.
    """
    weight = cast("Tensor", projection.weight)  # torch says Tensor | Module of every attribute
    if isinstance(projection, nn.Conv1d):
        return weight[..., 0]
    return weight.T if type(projection).__name__ == "Conv1D" else weight


def bias_of(module: nn.Module) -> Tensor | None:
    """Bias of a projection or norm; None where it has none."""
    return getattr(module, "bias", None)
