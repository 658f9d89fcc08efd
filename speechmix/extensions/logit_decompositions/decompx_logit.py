"""Decompose a logit by DecompX.

In: a view, and which logits. Out: the part [P, S] of each source and of what is outside them [P],
with the logits of the model itself. Tokens are carried one by one, words of a sound as a whole.

Record the linear maps and norms that a model runs after its last layer.

In: a stack, and one run of the model. Out: `HeadStep`s. Between two of them lie functions of single
units alone (an activation, dropout that does nothing) and the choice of a position: whoever uses
them checks the result, for nothing here is looked up by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from ...adapters.binding.layer_components import projection_weight
from ...adapters.capture.forward_pass import Capture
from ...adapters.capture.layer_run import Block
from ...adapters.model import Model
from ...adapters.transformers_types import HookArguments
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

if TYPE_CHECKING:
    from ...adapters.binding.bound_layers import Stack
    from ...adapters.model import Model


class HeadStep(NamedTuple):
    """A linear map or a norm, with what entered and left it: [1, T, D], or [1, D] where one
    position was chosen."""

    module: nn.Module
    step_input: Tensor
    step_output: Tensor

    def select_position(self, position: int | None) -> tuple[Tensor, Tensor]:
        """Input and output [1, D] at one position; [T, D] at all for None, [1, D] behind a mean."""
        step_input, step_output = (
            x if x.ndim == 2 else x[0] if position is None else x[:, position]
            for x in (self.step_input, self.step_output)
        )
        return step_input, step_output


@contextmanager
def record_head_steps(model: Model, stack: Stack) -> Iterator[list[HeadStep]]:
    """Record the steps behind a stack's last layer, while the model runs with its head."""
    steps: list[HeadStep] = []
    layer_parts = {submodule for layer in stack.layers for submodule in layer.module.modules()}

    def forget_steps(*_: object) -> None:
        steps.clear()

    def record_step(module: nn.Module, args: HookArguments, output: Tensor) -> None:
        steps.append(HeadStep(module, args[0], output))

    with ExitStack() as hooks:
        hooks.callback(stack.layers[-1].module.register_forward_hook(forget_steps).remove)
        for submodule in model.module.modules():
            is_step = (
                isinstance(submodule, nn.Linear | nn.LayerNorm) or submodule is stack.final_norm
            )
            if is_step and submodule not in layer_parts:
                hooks.callback(submodule.register_forward_hook(record_step).remove)
        yield steps


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
