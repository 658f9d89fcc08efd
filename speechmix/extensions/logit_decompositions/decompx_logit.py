"""Decompose a logit by DecompX.

In: a view, and which logits. Out: the part [P, S] of each source and of what is outside them [P],
with the logits of the model itself. Tokens are carried one by one, words of a sound as a whole.

Record the linear maps and norms that a model runs after its last layer.

In: a stack, and one run of the model. Out: `HeadStep`s. Between two of them lie functions of single
units alone (an activation, dropout that does nothing) and the choice of a position: whoever uses
them checks the result, for nothing here is looked up by name.

DecompX (Modarressi et al. 2023): decomposition of states by source through all layers.

    x^0_i = sum_s v^0_is      (v^0_is = x^0_i where position i is in source s, else 0)        x^l_i = sum_s v^l_is

    attention     v_is <- sum_h sum_j alpha^h_ij W^h v_js            weights as they are
    norm          v_is <- gain * (v_is - mean v_is) / deviation of the true x_i
    activation    v_is <- v_is * act(h_i) / h_i                      the slope from zero, unit by unit
    bias b        v_is <- v_is + b |< v_is, b >| / sum_t |< v_it, b >|

So vectors add up to the true state after every step, and behind the head to the logit. In: captured
blocks, one layer after the other. Out: vectors [T, S, D]; nothing of a layer is kept, so memory
does not grow with layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from ...adapters.binding.bound_layers import Norm, module_bias, projection_weight
from ...adapters.capture.forward_pass import Capture
from ...adapters.capture.layer_run import Block
from ...adapters.model import Model
from ...adapters.transformers_types import HookArguments
from ...errors import InputError, ModelError
from ...mixing.measures.token_objectives import Objective
from ...mixing.passes.item_view import View
from .logit_decomposition import source_membership
from .sums_of_logits import logit_weights

if TYPE_CHECKING:
    from ...adapters.binding.bound_layers import FeedForwardModules, Stack

_CHUNK_FLOATS = 2**23  # of the feed-forwards' inner vectors held at once
_VALUE_TOLERANCE = 1e-3  # of the largest value: rounding in half precision is less


def vectors_through_bias(vectors: Tensor, bias: Tensor | None) -> Tensor:
    """Share a bias [D] among vectors [..., S, D], by the absolute value of their dot product with
    it.

    Where all are orthogonal to it each gets the same.

    Examples
    --------
    >>> vectors_through_bias(torch.tensor([[3.0, 0.0], [-1.0, 5.0]]), torch.tensor([4.0, 0.0]))
    tensor([[6., 0.],
            [0., 5.]])
    """
    if bias is None:
        return vectors
    weights = (vectors @ bias).abs()
    weight_sums = weights.sum(dim=-1, keepdim=True)
    shares = torch.where(
        weight_sums > 0, weights / weight_sums.where(weight_sums > 0, 1), 1 / vectors.shape[-2]
    )
    return vectors + shares[..., None] * bias


def vectors_through_linear(vectors: Tensor, module: nn.Module) -> Tensor:
    """Carry vectors [..., S, D] through a linear projection."""
    return vectors_through_bias(vectors @ projection_weight(module).T, module_bias(module))


def vectors_through_norm(vectors: Tensor, module: nn.Module, states: Tensor) -> Tensor:
    """Carry vectors [R, S, D] through a norm of the true states [R, D] that they add up to."""
    norm = Norm(module, states)
    return vectors_through_bias(norm.scale[:, None, None] * norm.direction(vectors), norm.bias)


def vectors_through_activation(vectors: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """Carry vectors [..., S, F] through a function of single units, whose true values [..., F] are
    known on both sides."""
    slopes = after / before.where(before != 0, torch.ones_like(before))
    return vectors * slopes[..., None, :]


def vectors_through_layer(block: Block, vectors: Tensor) -> Tensor:
    """Carry the vectors [T, S, D] of the states that enter a layer through it: attention,
    feed-forwards, norms.

    Parameters
    ----------
    block : Block
        Of self-attention, in a stack of either norm order whose feed-forwards are described and
        have no gate.
    vectors : Tensor [T, S, D]

    Returns
    -------
    Tensor [T, S, D]

    Raises
    ------
    ModelError
        If the table of the stack names no norm of its attention.
    """
    pre, norm = block.stack.spec.norm_order == "pre", block.modules.attention.norm
    if norm is None:
        raise ModelError(
            f"the table of the {block.stack.name} names no norm of its attention, through which "
            "vectors must pass"
        )
    rows = torch.arange(block.n_targets, device=vectors.device)
    states = block.residual(rows)
    normed_vectors = vectors_through_norm(vectors, norm, states) if pre else vectors
    vectors = vectors_through_bias(
        vectors + _attend_vectors(block, normed_vectors), _attention_bias(block)
    )
    states = states + block.attention_output(rows)
    if not pre:
        vectors, states = vectors_through_norm(vectors, norm, states), norm(states)
    for feed_forward in block.modules.feed_forwards:
        size = max(
            1, _CHUNK_FLOATS // (vectors.shape[1] * projection_weight(feed_forward.up).shape[0])
        )
        chunks = zip(vectors.split(size), states.split(size), strict=True)
        chunk_results = [_pass_feed_forward(feed_forward, *chunk, pre=pre) for chunk in chunks]
        vectors, states = (torch.cat(halves) for halves in zip(*chunk_results, strict=True))
    return vectors


def _attend_vectors(block: Block, vectors: Tensor) -> Tensor:
    """What attention makes of the vectors [T, S, D] that it reads, without its output's bias.

    In the first layer each value holds one source, which takes the bias of the values; further up
    it is one of `_attention_bias`.
    """
    value = block.modules.attention.value
    values = (
        vectors_through_linear(vectors, value)
        if block.layer == 0
        else vectors @ projection_weight(value).T
    )  # [T, S, H d]
    _check_values(block, values)
    heads = (
        values.unflatten(-1, (len(block.values), -1)).permute(2, 0, 1, 3).flatten(2)
    )  # [H, T, S d]
    context = (block.attention() @ heads).unflatten(-1, (vectors.shape[1], -1))  # [H, T, S, d]
    attended: Tensor = (
        context.permute(1, 2, 0, 3).flatten(2) @ projection_weight(block.modules.attention.output).T
    )
    return attended


def _check_values(block: Block, values: Tensor) -> None:
    """Raise `ModelError` unless the parts [T, S, H d] of the values add up to what attention read.

    A model may scale its values behind their projection, and a table does not say so.
    """
    total = values.sum(dim=1)
    bias = module_bias(block.modules.attention.value)
    if bias is not None and block.layer > 0:
        total = total + bias
    difference = total - block.values.transpose(0, 1).flatten(1)
    if difference.abs().max() > _VALUE_TOLERANCE * block.values.abs().max():
        raise ModelError(
            f"layer {block.layer} of the {block.stack.name} changes its values behind their projection, "
            "which DecompX does not decompose: take another measure"
        )


def _attention_bias(block: Block) -> Tensor:
    """Bias behind attention, with that of the values above the first layer: weights sum to one, so
    a row sees it once."""
    bias = module_bias(block.modules.attention.value)
    if bias is None or block.layer == 0:
        return block.output_bias
    return block.output_bias + projection_weight(block.modules.attention.output) @ bias


def _pass_feed_forward(
    feed_forward: FeedForwardModules, vectors: Tensor, states: Tensor, *, pre: bool
) -> tuple[Tensor, Tensor]:
    """Vectors and states behind a feed-forward with its residual sum and its norm."""
    normed_vectors, normed_states = (
        (vectors_through_norm(vectors, feed_forward.norm, states), feed_forward.norm(states))
        if pre
        else (vectors, states)
    )
    inner = feed_forward.up(normed_states)
    activations = feed_forward.activation(inner)
    active_vectors = vectors_through_activation(
        vectors_through_linear(normed_vectors, feed_forward.up), inner, activations
    )
    vectors, states = (
        vectors + vectors_through_linear(active_vectors, feed_forward.down),
        states + feed_forward.down(activations),
    )
    return (
        (vectors, states)
        if pre
        else (vectors_through_norm(vectors, feed_forward.norm, states), feed_forward.norm(states))
    )


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
