"""Describe one traced layer: its attention blocks with their norms, what follows them, and the
order of norms.

In: a `TracedLayer`. Out: a `LayerDescription`, and sentences about what was not understood.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ...adapters.families.specs import AttentionSpec, ConvolutionSpec, FeedForwardSpec
from .attention_search import TracedAttention, find_attention_blocks
from .branch_search import (
    Branch,
    ResidualSum,
    describe_convolution,
    describe_feed_forward,
    find_input_norm,
    has_convolution,
    open_branch,
    trace_residual_sums,
)
from .layer_lists import NOT_DEFINED
from .recording import ModuleCall
from .traced_layer import TracedLayer, UntracedPartError


@dataclass
class LayerDescription:
    """What was found in one layer, in the words of a `StackSpec`.

    Parameters
    ----------
    blocks : tuple of AttentionSpec
    cross_indices : tuple of int
        Which of them read keys and values of another stack.
    heads, key_heads : tuple of int
        Of each block.
    norm_order : {"pre", "post"}
    feed_forwards, convolution, closing_norm, parallel
        As for `StackSpec`.
    notes : list of str
        What was not understood, or is not in the table.
    """

    blocks: tuple[AttentionSpec, ...]
    cross_indices: tuple[int, ...]
    heads: tuple[int, ...]
    key_heads: tuple[int, ...]
    norm_order: str = "pre"
    feed_forwards: tuple[FeedForwardSpec, ...] = ()
    convolution: ConvolutionSpec | None = None
    closing_norm: str | None = None
    parallel: bool = False
    notes: list[str] = field(default_factory=list)


def describe_layer(layer: TracedLayer) -> LayerDescription:
    """Describe a layer.

    Raises
    ------
    UntracedPartError
        If its attention or its residual stream was not understood; then there is no table.
    """
    try:
        attentions = find_attention_blocks(layer)
        sums = trace_residual_sums(layer)
        return _Describer(layer, attentions, sums).describe()
    except UntracedPartError as error:
        description = None if NOT_DEFINED in str(error) else _describe_by_function(layer, error)
        if description is None:
            raise
        return description


def _describe_by_function(
    layer: TracedLayer, problem: UntracedPartError
) -> LayerDescription | None:
    """Describe a layer with one attention block by attention's function alone; None if that was not
    found."""
    try:
        attentions = find_attention_blocks(layer, by_function=True)
    except UntracedPartError:
        return None
    if len(attentions) != 1 or attentions[0].reads_other_stack(layer):
        return None
    (attention,) = attentions
    return LayerDescription(
        (attention.spec,),
        (),
        (attention.heads,),
        (attention.key_heads,),
        notes=[f"{problem}; layers are run as a whole"],
    )


class _Describer:
    def __init__(
        self, layer: TracedLayer, attentions: list[TracedAttention], sums: list[ResidualSum]
    ):
        self.layer, self.attentions, self.sums = layer, attentions, sums
        self.notes: list[str] = []

    def describe(self) -> LayerDescription:
        placed = self._place_attentions()
        order = self._find_norm_order([sum_ for sum_, _ in placed])
        if order == "post":
            closing = None
        else:
            closing = self.sums[-1].norm
            if any(sum_.norm for sum_ in self.sums[:-1]):
                raise UntracedPartError(
                    "norms follow some residual sums of the layer, and attention's is not one of them"
                )
        blocks = tuple(
            self._add_norms(attention, sum_, branch, order)
            for attention, (sum_, branch) in zip(self.attentions, placed, strict=True)
        )
        cross = tuple(
            index
            for index, attention in enumerate(self.attentions)
            if attention.reads_other_stack(self.layer)
        )
        scales = dict.fromkeys(sum_.stream_scale for sum_ in self.sums if sum_.stream_scale != 1)
        self.notes += [
            f"the residual stream is multiplied by {scale:g} before something is added: a table cannot "
            "say that"
            for scale in scales
        ]
        feed_forwards, convolution = self._describe_rest(placed, order)
        return LayerDescription(
            blocks,
            cross,
            tuple(attention.heads for attention in self.attentions),
            tuple(attention.key_heads for attention in self.attentions),
            order,
            feed_forwards,
            convolution,
            self.layer.optional_path(closing),
            any(len(sum_.branches) > 1 for sum_ in self.sums),
            self.notes,
        )

    def _check_module(self, attention: TracedAttention) -> None:
        """Check that the attention module returns what its output projection makes, if it holds
        that."""
        spec = attention.spec
        module = self.layer.call.module.get_submodule(spec.module)
        calls = [call for call in self.layer.calls if call.module is module]
        if not spec.output.startswith(f"{spec.module}.") or not calls or not calls[-1].outputs:
            return
        result = self.layer.strip_to_module(calls[-1].outputs[0])
        if result is not self.layer.strip_to_module(attention.result):
            raise UntracedPartError(
                f"{spec.module} returns something else than the output of {spec.output}: "
                "it may add the residual itself"
            )

    def _place_attentions(self) -> list[tuple[ResidualSum, Branch]]:
        """The sum that each attention block is added in, and its branch."""
        placed = []
        for attention in self.attentions:
            self._check_module(attention)
            matches = [
                (sum_, branch)
                for sum_ in self.sums
                for branch in (open_branch(self.layer, value) for value in sum_.branches)
                if branch.core is self.layer.strip_to_module(attention.result)
            ]
            if len(matches) != 1:
                raise UntracedPartError(
                    f"the output of {attention.spec.output} is not added to the residual stream as it is"
                )
            placed.append(matches[0])
        return placed

    def _find_norm_order(self, sums: list[ResidualSum]) -> str:
        attention_has_norm = {sum_.norm is not None and sum_ is not self.sums[-1] for sum_ in sums}
        if self.sums[-1] in sums and self.sums[-1].norm is not None:
            attention_has_norm.add(True)
        if len(attention_has_norm) != 1:
            raise UntracedPartError(
                "some attention blocks of the layer are pre-norm, others post-norm"
            )
        return "post" if attention_has_norm.pop() else "pre"

    def _add_norms(
        self, attention: TracedAttention, sum_: ResidualSum, branch: Branch, order: str
    ) -> AttentionSpec:
        is_cross = attention.reads_other_stack(self.layer)
        # queries and keys may be read from states with positions added (rotary tables)
        states = attention.query_input if is_cross else attention.value_input
        norm = find_input_norm(self.layer, states, sum_.stream)
        if order == "post":
            if norm is not None:
                raise UntracedPartError("attention has a norm of its input and of its sum")
            norm = sum_.norm
        if branch.scale != 1:
            self.notes.append(
                f"what {attention.spec.output} gives is multiplied by {branch.scale:g} before it is added: "
                "a table cannot say that"
            )
        return replace(
            attention.spec,
            norm=self.layer.optional_path(norm),
            branch_norm=self.layer.optional_path(branch.norm),
        )

    def _describe_rest(
        self, placed: list[tuple[ResidualSum, Branch]], order: str
    ) -> tuple[tuple[FeedForwardSpec, ...], ConvolutionSpec | None]:
        """Feed-forwards and the convolution behind attention; none where one was not understood."""
        feed_forwards: list[FeedForwardSpec] = []
        convolutions: list[ConvolutionSpec] = []
        problems = list(self.notes)
        for sum_, branch in self._iterate_others(placed):
            try:
                if has_convolution(self.layer, branch, sum_.stream):
                    convolution, problem = describe_convolution(self.layer, branch, sum_.stream)
                    convolutions.append(convolution)
                    problems += [problem] * bool(problem)
                    if feed_forwards:
                        problems.append("a convolution follows a feed-forward")
                else:
                    norm: ModuleCall | None = sum_.norm if order == "post" else None
                    feed_forwards.append(
                        describe_feed_forward(self.layer, branch, sum_.stream, norm)
                    )
            except UntracedPartError as error:
                problems.append(str(error))
        if len(convolutions) > 1:
            problems.append("there are several convolutions")
        if problems:
            self.notes[:] = [f"{problem}; layers are replayed" for problem in problems]
            return (), convolutions[0] if len(convolutions) == 1 else None
        return tuple(feed_forwards), convolutions[0] if convolutions else None

    def _iterate_others(
        self, placed: list[tuple[ResidualSum, Branch]]
    ) -> Iterator[tuple[ResidualSum, Branch]]:
        """Branches without attention that begin no earlier than the first attention block."""
        attention_cores = {branch.core for _, branch in placed}
        first = min(self.sums.index(sum_) for sum_, _ in placed)
        last = max(self.sums.index(sum_) for sum_, _ in placed)
        for index, sum_ in enumerate(self.sums[first:], start=first):
            for value in sum_.branches:
                branch = open_branch(self.layer, value)
                if branch.core in attention_cores:
                    continue
                if index < last:
                    raise UntracedPartError("something is added between two attention blocks")
                yield sum_, branch
