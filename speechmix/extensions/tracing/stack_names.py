"""Name the stacks that were found: which list of layers is the encoder, which the decoder.

In: lists of layers with their descriptions. Out: `StackSpec`s by name, and sentences about them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ...adapters.families.specs import StackSpec
from .attention_search import find_attention_blocks
from .layer_description import LayerDescription
from .layer_lists import LayerList
from .mask_kinds import describe_masks
from .recording import Recording, TracedValue
from .value_graph import depends_on


@dataclass
class TracedStack:
    """A list of layers with the description that all of them share."""

    layer_list: LayerList
    description: LayerDescription
    spec: StackSpec

    def feeds(self, other: TracedStack) -> bool:
        """Return True if this stack's output enters another, through its states or its
        cross-attention."""
        output, layer = self.layer_list.layers[-1].output, other.layer_list.layers[0]
        readers = [
            layer.states,
            *(block.value_input for block in find_attention_blocks(layer, by_function=True)),
        ]
        return any(depends_on(value, output) for value in readers)


@dataclass
class StackNames:
    """Stacks by their names, their heads, and what is said of them.

    Encoders have no cross-attention and, if they are causal, read no tokens or are followed by a
    decoder.
    """

    stacks: dict[str, StackSpec] = field(default_factory=dict)
    heads: dict[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    unknowns: list[str] = field(default_factory=list)

    @classmethod
    def find(
        cls,
        traced_stacks: list[TracedStack],
        failed: list[LayerList],
        inputs: Mapping[str, Tensor],
        recording: Recording,
    ) -> StackNames:
        """Name stacks in the order they were traced.

        Parameters
        ----------
        failed : list of LayerList
            Lists with attention that were not understood: what reads their states is no encoder.
        """
        result, tokens = cls(), _find_tokens(inputs, recording)
        for index, stack in enumerate(traced_stacks):
            states = stack.layer_list.layers[0].states
            later = [x for x in traced_stacks[index + 1 :] if x.spec.causal and stack.feeds(x)]
            reads_tokens = not later and any(depends_on(states, value) for value in tokens)
            before = [x.path for x in failed if depends_on(states, x.layers[-1].output)]
            result._add(stack, reads_tokens=reads_tokens, unknown_source="".join(before[:1]))
        return result

    def _add(self, stack: TracedStack, *, reads_tokens: bool, unknown_source: str) -> None:
        spec, description = stack.spec, stack.description
        cross = description.cross_indices
        name = "decoder" if spec.causal and (cross or reads_tokens) else "encoder"
        problem = ""
        if cross and not spec.causal:
            problem = "cross-attention without a causal mask (a projector), no stack of the table"
        elif unknown_source and name == "encoder":
            problem = f"it reads the states of {unknown_source}, which was not understood"
        elif name in self.stacks:
            problem = f"a second {name}, after {self.stacks[name].layers}; a table has one"
        if problem:
            self.unknowns.append(f"{spec.layers}: {problem}")
            return
        self.stacks[name] = replace(spec, name=name)
        self.heads[name] = description.heads[0]
        if cross:
            self.stacks["cross"] = replace(spec, name="cross", block_index=cross[0], causal=False)
            self.heads["cross"] = description.heads[cross[0]]
        self.findings.append(_describe_stack(self.stacks[name], stack))

    def in_order(self) -> tuple[StackSpec, ...]:
        """Return the stacks in the order of tables."""
        return tuple(
            self.stacks[name] for name in ("encoder", "decoder", "cross") if name in self.stacks
        )


def _find_tokens(inputs: Mapping[str, Tensor], recording: Recording) -> list[TracedValue]:
    """The ids among the model's inputs."""
    ids = [x for name, x in inputs.items() if name.endswith("ids")]
    return [
        value
        for value in recording.values
        if value.operation == "input" and any(_is_equal(value.tensor, x) for x in ids)
    ]


def _is_equal(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


def _describe_stack(spec: StackSpec, stack: TracedStack) -> str:
    description = stack.description
    heads, key_heads = description.heads[0], description.key_heads[0]
    words = [
        f"{spec.name}: {len(stack.layer_list.layers)} layers in {spec.layers}",
        f"{spec.norm_order}-norm",
        f"final norm {spec.final_norm or 'none'}",
        describe_masks(stack.layer_list, is_causal=spec.causal),
    ]
    if key_heads and key_heads != heads:
        words.append(f"{heads} heads share {key_heads} heads of keys and values")
    if description.cross_indices:
        words.append(f"cross-attention in block {description.cross_indices[0]}")
    if spec.parallel:
        words.append("attention and feed-forward in parallel")
    if spec.convolution:
        words.append(f"convolution {spec.convolution.depthwise}")
    return ", ".join(words)
