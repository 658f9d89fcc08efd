"""Decompose a logit by DecompX.

In: a view, and which logits. Out: the part [P, S] of each source and of what is outside them [P],
with the logits of the model itself. Tokens are carried one by one, words of a sound as a whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from ...adapters.binding.layer_components import projection_weight
from ...adapters.capture.attention_block import Block
from ...adapters.capture.forward_pass import Capture
from ...adapters.capture.head_steps import HeadStep, record_head_steps
from ...adapters.model import Model
from ...errors import InputError
from ...mixing.measures.token_objectives import Objective
from ...mixing.passes.item_view import View
from .decompx import (
    vectors_through_activation,
    vectors_through_layer,
    vectors_through_linear,
    vectors_through_norm,
)
from .logit_decomposition import source_membership
from .sums_of_logits import logit_weights


class DecompXTerms(NamedTuple):
    """Parts [P, S] of the sources, [P] of what is outside them, and logits [P]."""

    by_source: Tensor
    outside: Tensor
    logits: Tensor


def check_decompx_covers(model: Model) -> None:
    """Raise `InputError` if DecompX's rules do not cover a model."""
    stack = model.stacks.get("encoder")
    reason = None
    if stack is None or len(model.stacks) > 1:
        reason = "has a decoder: its rules are for encoders. Use alti_logit (pre-norm)"
    elif stack.spec.convolution or stack.spec.closing_norm:
        reason = (
            "has Conformer layers, for whose convolution it has no rule. Use speechmix.knock_out"
        )
    elif stack.spec.between:
        reason = (
            f"has {stack.spec.between}, which mixes positions between layers. Use "
            "speechmix.knock_out"
        )
    elif (
        stack.unknown_sum_reason
        or not stack.layers[0].feed_forwards
        or stack.layers[0].attention.norm is None
    ):
        reason = (
            "has a table that does not describe its norms and feed-forwards. Use "
            "speechmix.knock_out"
        )
    elif model.has_label_head and model.capabilities.label_pooling == "mean of all layers":
        reason = "has a head that reads a weighted sum of all layers. Use lrp"
    elif any(feed_forward.gate is not None for feed_forward in stack.layers[0].feed_forwards):
        reason = "has gated feed-forwards, for which it has no rule. Use speechmix.knock_out"
    if reason is not None:
        raise InputError(f"decompx: {model.name} {reason}")


def decompose_by_decompx(
    model: Model, view: View, inputs: Mapping[str, Tensor], objectives: Sequence[Objective]
) -> DecompXTerms:
    """Run a model with its head, and carry the vectors of its sources along."""
    stack = model.stacks["encoder"]
    carried_tensors: dict[str, Tensor] = {}

    def on_block(block: Block) -> None:
        if block.layer == 0:
            view.units(block)
            members = source_membership(view.sources("encoder"), block.n_sources).to(block.inputs)
            is_outside = 1 - members.sum(dim=-1, keepdim=True)  # what is in no source is one more
            sources = torch.cat([members, is_outside], dim=-1)
            if not model.hears:  # tokens are carried one by one
                carried_tensors["sources"], sources = (
                    sources,
                    torch.eye(block.n_sources).to(block.inputs),
                )
            carried_tensors["vectors"] = sources[:, :, None] * block.inputs[:, None]
        carried_tensors["vectors"] = vectors_through_layer(block, carried_tensors["vectors"])

    with record_head_steps(model, stack) as steps, Capture([stack], on_block):
        output = model.module(**inputs, return_dict=True)
    logits = torch.cat(
        [objective.function(output) for objective in objectives]
    )  # refuses positions that are not there
    contributions = torch.stack(
        [
            _carry_through_head(carried_tensors["vectors"], steps, objective)
            for objective in objectives
        ]
    )
    contributions = (
        contributions @ carried_tensors["sources"]
        if "sources" in carried_tensors
        else contributions
    )
    return DecompXTerms(contributions[:, :-1], contributions[:, -1], logits)


def _carry_through_head(vectors: Tensor, steps: Sequence[HeadStep], objective: Objective) -> Tensor:
    """Parts [S] of one logit (less the foil's), from vectors [T, S, D] of the last states.

    A head that reads several positions takes their mean in front of one of its steps.
    """
    details = objective.details
    position: int | None = details.get("position", details.get("row"))
    counts = {step.step_input.shape[1] for step in steps if step.step_input.ndim == 3}
    if position is not None and counts - {len(vectors)}:
        raise InputError(
            f"decompx: the head reads {max(counts)} positions, made of {len(vectors)} states of the "
            "last layer. Use measure='lrp'"
        )
    carried_vectors, previous_output = (
        vectors if position is None else vectors[position][None],
        None,
    )
    for step in steps:
        step_input, step_output = step.select_position(position)
        if previous_output is not None and previous_output.shape != step_input.shape:
            carried_vectors = _average_positions(carried_vectors, previous_output, step_input)
        elif previous_output is not None:
            carried_vectors = vectors_through_activation(
                carried_vectors, previous_output, step_input
            )
        is_norm = projection_weight(step.module).ndim == 1
        carried_vectors = (
            vectors_through_norm(carried_vectors, step.module, step_input)
            if is_norm
            else vectors_through_linear(carried_vectors, step.module)
        )
        previous_output = step_output
    tokens, weights = logit_weights(details)
    return carried_vectors[0][:, tokens] @ carried_vectors.new_tensor(weights)


def _average_positions(vectors: Tensor, states: Tensor, pooled: Tensor) -> Tensor:
    """Vectors [1, S, D] of a mean [1, D] of the states [T, D] that vectors [T, S, D] add up to.

    It is that of all positions, or of the first two (AST's tokens of its own).

    Raises
    ------
    InputError
        If it is the mean of other positions, or no mean.
    """
    for positions in (slice(None), slice(2)):
        mean = states[positions].mean(dim=0, keepdim=True)
        if mean.shape == pooled.shape and torch.allclose(mean, pooled, rtol=1e-4):
            return vectors[positions].mean(dim=0, keepdim=True)
    raise InputError(
        "decompx: the head reads no mean of the last states at all positions. Use measure='lrp', "
        "or remove words (speechmix.ablate_input, speechmix.shapley)"
    )
