"""carry_parts(): a logit taken apart by vectors that are carried through the whole model
(DecompX).

In: a view, and which logits. Out: the part [P, S] of each source and of what is outside them [P],
with the logits of the model itself. Tokens are carried one by one, words of a sound as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...adapters.binding.layer_components import weight_of
from ...adapters.capture.block import Block
from ...adapters.capture.forward_pass import Capture
from ...adapters.capture.head_steps import HeadStep, head_steps
from ...adapters.model import Model
from ...errors import InputError
from ..measures.decompx import (
    vectors_through_activation,
    vectors_through_layer,
    vectors_through_linear,
    vectors_through_norm,
)
from ..measures.sums_of_logits import read_at_once
from ..measures.token_objectives import Objective
from .logit_parts import members_of
from .view import View


class CarriedParts(NamedTuple):
    """Parts [P, S] of the sources, [P] of what is outside them, and logits [P]."""

    by_source: Tensor
    outside: Tensor
    logits: Tensor


def check_carried(model: Model) -> None:
    """Raise `InputError` if DecompX's rules do not cover a model."""
    stack = model.stacks.get("encoder")
    what = None
    if stack is None or len(model.stacks) > 1:
        what = "has a decoder: its rules are for encoders. Use alti_logit (pre-norm)"
    elif stack.spec.convolution or stack.spec.closing_norm:
        what = "has Conformer layers, for whose convolution it has no rule. Use speechmix.knock_out"
    elif stack.spec.between:
        what = (
            f"has {stack.spec.between}, which mixes positions between layers. Use "
            "speechmix.knock_out"
        )
    elif (
        stack.unknown_sum
        or not stack.layers[0].feed_forwards
        or stack.layers[0].attention.norm is None
    ):
        what = (
            "has a table that does not describe its norms and feed-forwards. Use "
            "speechmix.knock_out"
        )
    elif any(part.gate is not None for part in stack.layers[0].feed_forwards):
        what = "has gated feed-forwards, for which it has no rule. Use speechmix.knock_out"
    if what is not None:
        raise InputError(f"decompx: {model.name} {what}")


def carry_parts(
    model: Model, view: View, inputs: Mapping[str, Tensor], objectives: Sequence[Objective]
) -> CarriedParts:
    """Run a model with its head, and carry the vectors of its sources along."""
    stack = model.stacks["encoder"]
    carried: dict[str, Tensor] = {}

    def on_block(block: Block) -> None:
        if block.layer == 0:
            view.units(block)
            members = members_of(view.sources("encoder"), block.n_sources).to(block.inputs)
            alone = 1 - members.sum(dim=-1, keepdim=True)  # what is in no source is one more
            sources = torch.cat([members, alone], dim=-1)
            if not model.hears:  # tokens are carried one by one
                carried["sources"], sources = sources, torch.eye(block.n_sources).to(block.inputs)
            carried["vectors"] = sources[:, :, None] * block.inputs[:, None]
        carried["vectors"] = vectors_through_layer(block, carried["vectors"])

    with head_steps(model, stack) as steps, Capture([stack], on_block):
        output = model.module(**inputs, return_dict=True)
    logits = torch.cat(
        [objective.function(output) for objective in objectives]
    )  # refuses positions that are not there
    parts = torch.stack(
        [_through_head(carried["vectors"], steps, objective) for objective in objectives]
    )
    parts = parts @ carried["sources"] if "sources" in carried else parts
    return CarriedParts(parts[:, :-1], parts[:, -1], logits)


def _through_head(vectors: Tensor, steps: Sequence[HeadStep], objective: Objective) -> Tensor:
    """Parts [S] of one logit (less the foil's), from vectors [T, S, D] of the last states."""
    asked = objective.details
    position: int = asked["position"] if "position" in asked else asked["row"]
    carried, reached = vectors[position][None], None
    for step in steps:
        before, after = step.at(position)
        if reached is not None:
            carried = vectors_through_activation(carried, reached, before)
        is_norm = weight_of(step.module).ndim == 1
        carried = (
            vectors_through_norm(carried, step.module, before)
            if is_norm
            else vectors_through_linear(carried, step.module)
        )
        reached = after
    tokens, weights = read_at_once(asked)
    return carried[0][:, tokens] @ carried.new_tensor(weights)
