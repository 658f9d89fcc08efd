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

    Parameters
    ----------
    module, value, key, output : nn.Module
        The attention module and its projections.
    projects : bool
        True if the output projection is a part of the attention module (in BERT it follows it).
    norm, query, branch_norm : nn.Module, optional
        Where the table names them.
    needs_eager : bool
        Whether attention is read off its own softmax.
    """

    module: nn.Module
    value: nn.Module
    key: nn.Module
    output: nn.Module
    projects: bool
    norm: nn.Module | None = None
    query: nn.Module | None = None
    branch_norm: nn.Module | None = None
    needs_eager: bool = False


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
    """An attention block behind the studied one, known well enough for a change of its queries to
    be carried through.

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
class AfterAttention:
    """What lies behind a layer's studied attention, where its table describes all of it: the way of
    a change.

    Parameters
    ----------
    norm : nn.Module
        The studied block's own.
    attentions : tuple of LaterAttention
    feed_forwards : tuple of FeedForwardModules
    convolution : ConvolutionModules, optional
        Between them.
    closing_norm : nn.Module, optional
        Behind the last residual sum.

    In a layer whose feed-forward runs beside attention nothing lies behind it, and all of this is
    empty.
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

    Parameters
    ----------
    module : nn.Module
    attentions : tuple of AttentionModules
    feed_forwards : tuple of FeedForwardModules
    studied : int
        Which of `attentions` the stack studies.
    convolution : ConvolutionModules, optional
    closing_norm : nn.Module, optional
    parallel : bool
        True if the feed-forward runs beside attention.
    """

    module: nn.Module
    attentions: tuple[AttentionModules, ...]
    feed_forwards: tuple[FeedForwardModules, ...]
    studied: int
    convolution: ConvolutionModules | None = None
    closing_norm: nn.Module | None = None
    parallel: bool = False

    @property
    def attention(self) -> AttentionModules:
        """The attention block that is studied."""
        return self.attentions[self.studied]

    @property
    def rest(self) -> AfterAttention | None:
        """What lies behind the studied attention; None where the table does not describe it well
        enough.

        Blocks whose own output is normed (Gemma 3) are not: where all of it is taken away, a change
        says nothing.
        """
        norm, later = self.attention.norm, []
        if self.parallel:
            return AfterAttention(None, (), ())
        if norm is None or not self.feed_forwards:
            return None
        for number, attention in enumerate(
            self.attentions[self.studied + 1 :], start=self.studied + 1
        ):
            if attention.norm is None or attention.query is None:
                return None
            later.append(LaterAttention(number, attention.norm, attention.query, attention.output))
        branches = [attention.branch_norm for attention in self.attentions[self.studied :]]
        if any(branches) or any(part.branch_norm for part in self.feed_forwards):
            return None
        return AfterAttention(
            norm, tuple(later), self.feed_forwards, self.convolution, self.closing_norm
        )


class ProjectionHalf(nn.Module):
    """One half of what a projection gives, as a projection of its own: it has the other's weights
    and none itself.

    Parameters
    ----------
    both : nn.Module
        Linear projection [in, 2 out].
    number : {0, 1}
        Which half.
    """

    def __init__(self, both: nn.Module, number: int):
        super().__init__()
        self._both, self._number = (
            (both,),
            number,
        )  # in a tuple, so that it is not registered as a part

    @property
    def projection(self) -> tuple[nn.Module, int]:
        """The projection that this is a half of, and which."""
        return self._both[0], self._number

    @property
    def weight(self) -> Tensor:
        return weight_of(self._both[0]).chunk(2)[self._number]

    @property
    def bias(self) -> Tensor | None:
        bias = bias_of(self._both[0])
        return None if bias is None else bias.chunk(2)[self._number]

    def forward(self, states: Tensor) -> Tensor:
        return nn.functional.linear(states, self.weight, self.bias)


def weight_of(projection: nn.Module) -> Tensor:
    """Weight [out, in] of a linear projection; transformers' Conv1D (GPT-2) keeps it the other way
    round.

    A convolution with a kernel of one position (Conformers) is a linear projection too.
    """
    weight = cast("Tensor", projection.weight)  # torch says Tensor | Module of every attribute
    if isinstance(projection, nn.Conv1d):
        return weight[..., 0]
    return weight.T if type(projection).__name__ == "Conv1D" else weight


def bias_of(module: nn.Module) -> Tensor | None:
    """Bias of a projection or norm; None where it has none."""
    return getattr(module, "bias", None)
