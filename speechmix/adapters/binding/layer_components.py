"""The parts of a layer as modules, by what they do: attention, convolution, feed-forward, and what
lies behind attention.

In: modules that a family's table names (bound_layers.py looks them up). Out: plain values that capture,
replay and the delta engine share; the weight of a projection, however a module keeps it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn


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
