"""Gradient times attention (Chefer, Gur & Wolf 2021): relevance of each source for one logit.

With A^h the weights of an attention block, and f the logit that is read at position p:

    A_bar = mean over heads of max(0, A^h * df/dA^h)                                                       (5)
    R^tt <- R^tt + A_bar R^tt        R^te <- R^te + A_bar R^te        self-attention of the stack that reads (6, 7)
    R^ee <- R^ee + A_bar R^ee        self-attention of an encoder
    R^te <- R^te + (R_n^tt)' A_bar R_n^ee        cross-attention                                           (10)
    R_n = (R - I) / row sums of (R - I) + I                                                                (8, 9)

R^tt and R^ee start as the identity, R^te as zero; the answer is row p, without the identity that it
started from. Only that row is computed: every product is one of a vector and a matrix. df/dA^h_ij =
< g^h_i, v^h_j >, with g the gradient of the context that attention gives, so any attention that can
be read will do and none has to be run in another way.

In: a `GradientPass`. Out: maps of a single row [L, 1, W_s], as of the other gradient measures: that
of layer l starts the rules at l, so that l = 0 is the whole way from the input. "cross" is what
that layer alone takes from the encoder's output.

Propagate relevance through the layers of a model by Chefer's rules (equations in `chefer`).

In: weighted attention of every layer, and the position that is read. Out: the row of that position
in the relevances of what enters some layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from ...adapters.binding.bound_layers import projection_weight
from ...adapters.capture.forward_pass import Capture
from ...adapters.capture.layer_run import Block, first_output
from ...errors import InputError
from ...mixing.measures.gradient_pass import RetainedGraph, replaced_states
from ...mixing.measures.measure import mixing_between_layers
from ...mixing.measures.objectives import one_position_advice

if TYPE_CHECKING:
    from ...adapters.binding.bound_layers import AttentionModules, Stack
    from ...adapters.capture.attention_calls import AttentionCall
    from ...adapters.model import Model
    from ...mixing.measures.gradient_pass import GradientPass, SharedPasses
    from ...mixing.measures.measure import Units


# A_bar [Q, K] by stack and layer.
Weighted = Mapping[tuple[str, int], Tensor]


def propagate_relevance(
    model: Model,
    weighted: Weighted,
    position: int,
    stack: str,
    layers: Sequence[int],
) -> list[Tensor]:
    """Return row `position` of the relevances of what enters some layers of a stack, [K] each.

    `weighted` holds A_bar [Q, K] by stack and layer. `position` counts in the stack that reads: the
    decoder's where there is one. `stack` says whose rows are returned: "encoder", "decoder" or
    "cross".
    """
    output_stack = model.capabilities.output_stack
    self_attention = [
        weighted[output_stack, layer] for layer in range(len(model.stacks[output_stack]))
    ]
    start = torch.zeros_like(self_attention[0][0])
    start[position] = 1
    relevance_rows = [
        start
    ]  # row p of the product of (I + A_bar) of all layers behind, from the last layer down
    for layer in reversed(self_attention):
        relevance_rows.insert(0, relevance_rows[0] + relevance_rows[0] @ layer)
    if stack == output_stack:
        return [relevance_rows[layer] - start for layer in layers]
    encoder_rows = [
        row @ cross
        for row, cross in zip(
            _cross_attention_weights(self_attention, relevance_rows),
            _select_stack(weighted, "cross"),
            strict=True,
        )
    ]
    if stack == "cross":
        return [encoder_rows[layer] for layer in layers]
    return _propagate_through_encoder(
        torch.stack(encoder_rows).sum(dim=0), _select_stack(weighted, "encoder"), layers
    )


def _cross_attention_weights(
    self_attention: list[Tensor], relevance_rows: list[Tensor]
) -> list[Tensor]:
    """What weighs the rows of each layer's cross-attention, [U] each: row p of what lies behind it,
    times R_n^tt transposed."""
    identity = torch.eye(
        len(self_attention[0]), dtype=self_attention[0].dtype, device=self_attention[0].device
    )
    relevances, rows = identity, []
    for layer, row in zip(self_attention, relevance_rows[1:], strict=True):
        relevances = relevances + layer @ relevances
        relevance_change = relevances - identity
        rows.append(
            row
            @ (
                _divide_by_sums(relevance_change, relevance_change.sum(dim=-1, keepdim=True))
                + identity
            ).T
        )
    return rows


def _propagate_through_encoder(
    encoder_relevance: Tensor, weighted: list[Tensor], layers: Sequence[int]
) -> list[Tensor]:
    """Multiply the relevance [K] of the encoder's output by R_n^ee that starts at some of its
    layers, [K] each."""
    rows = []
    for first_layer in layers:
        sums = torch.ones_like(encoder_relevance)
        for layer in weighted[first_layer:]:
            sums = sums + layer @ sums
        shares = _divide_by_sums(encoder_relevance, sums - 1)
        row = shares
        for layer in reversed(weighted[first_layer:]):
            row = row + row @ layer
        rows.append(encoder_relevance + row - shares)
    return rows


def _divide_by_sums(values: Tensor, sums: Tensor) -> Tensor:
    """Values over sums; zero where a sum is: a row to which nothing was added stays the
    identity."""
    return torch.where(
        sums > 0, values / sums.where(sums > 0, torch.ones_like(sums)), torch.zeros_like(values)
    )


def _select_stack(weighted: Weighted, stack: str) -> list[Tensor]:
    return [values for (name, _), values in weighted.items() if name == stack]


# Bytes of attention weights in memory at once: those of one head of a Whisper's 1,500 frames.
_WEIGHTS_BYTES = 2**24

ForwardHook = Callable[[nn.Module, object, object], None]


def chefer(run: GradientPass, stack: str, units: Units) -> tuple[Tensor, dict[str, object]]:
    """Relevance of each source for one logit, by gradient times attention.

    Returns
    -------
    Tensor [L, 1, W_s], and a dict with nothing to note

    Raises
    ------
    InputError
        If the rules do not cover the model, or the objective is not read at one position.
    """
    check_chefer_covers(run.model)
    position = require_position(run)
    rows = propagate_relevance(
        run.model, run.compute_once(weighted_attention), position, stack, run.layers[stack]
    )
    return units.pool_sources(torch.stack(rows))[:, None], {}


def check_chefer_covers(model: Model) -> None:
    """Raise `InputError` if the rules do not cover a model."""
    if any(stack.spec.convolution for stack in model.stacks.values()):
        raise InputError(
            f"chefer: a layer of {model.name} mixes positions behind attention, by a convolution, "
            "for which there is no rule. "
            "Use gradient_input or integrated_gradients"
        )
    if any(stack.layers[0].attention.is_rerun for stack in model.stacks.values()):
        raise InputError(
            f"chefer: in {model.name} something lies between attention and its output projection, for "
            "which there is no rule. Use gradient_input or integrated_gradients"
        )
    if mixing_description := mixing_between_layers(model):
        raise InputError(
            f"chefer: {mixing_description}, for which there is no rule. Use gradient_input or "
            "integrated_gradients"
        )
    model.refuse_audio_tokens(
        f"chefer: in {model.name} sound enters the decoder among its tokens, for which there "
        "is no rule: an encoder's "
        "relevance reaches a decoder by cross-attention alone. Use gradient_input"
    )


def require_position(run: GradientPass) -> int:
    """Return the position whose state the objective is read from; an InputError if there is none."""
    details = run.objective.details
    position: int | None = details.get("position", details.get("row"))
    if position is None:
        raise InputError(
            "chefer reads one row of its relevances, so it explains what is read at one position; "
            f"the objective is {details['kind']!r} of {details.get('label', 'something else')!r}. "
            f"{one_position_advice(run.model)}"
        )
    return position


class _AttentionPass(NamedTuple):
    """Attention calls by stack and layer, and the graph of the outputs, of one forward pass."""

    calls: dict[tuple[str, int], AttentionCall]
    graph: RetainedGraph[tuple[str, int]]


def weighted_attention(run: GradientPass) -> Weighted:
    """Return A_bar [Q, K] by stack and layer: one forward pass for all objectives, one backward."""
    calls, graph = run.shared_passes.compute_once("chefer", _run_attention_pass)
    gradients_by_layer = graph.gradients(run.objective_index)
    run.check()
    _check_single_position(run.model, gradients_by_layer, require_position(run))
    attentions = _list_attentions(run.model.stacks)
    return {
        key: _weigh_attention(attention, calls[key], gradients_by_layer.pop(key))
        for key, attention in attentions
    }


def _run_attention_pass(passes: SharedPasses) -> _AttentionPass:
    stacks = passes.model.stacks
    calls: dict[tuple[str, int], AttentionCall] = {}
    outputs: dict[tuple[str, int], Tensor] = {}
    n_logits: list[int] = []

    def on_block(block: Block) -> None:
        calls[block.stack.name, block.layer] = block.call(block.modules.studied_index)

    def start(stack: str, layer: int, states: Tensor) -> Tensor:
        return states if states.requires_grad else states.detach().requires_grad_(True)

    with ExitStack() as hooks, torch.enable_grad():
        hooks.enter_context(
            replaced_states(passes.model, {name: [0] for name in stacks if name != "cross"}, start)
        )
        hooks.enter_context(Capture(list(stacks.values()), on_block))
        for key, attention in _list_attentions(stacks):
            hooks.callback(
                attention.module.register_forward_hook(_make_output_hook(outputs, key)).remove
            )
        hooks.callback(passes.model.module.register_forward_hook(_make_count_hook(n_logits)).remove)
        graph = RetainedGraph(passes.evaluate_inputs(), outputs)
    _check_positions(passes.model, n_logits, calls)
    return _AttentionPass(calls, graph)


def _weigh_attention(attention: AttentionModules, call: AttentionCall, gradient: Tensor) -> Tensor:
    """A_bar [Q, K], from the gradient [1, Q, D] of the attention module's output."""
    context_gradient = (
        gradient[0] @ projection_weight(attention.output)
        if attention.includes_output
        else gradient[0]
    )
    n_heads, n_sources, _ = call.value.shape
    head_gradients = context_gradient.unflatten(-1, (n_heads, -1)).transpose(0, 1)  # [H, Q, d]
    heads_per_batch = max(
        1, _WEIGHTS_BYTES // (len(context_gradient) * n_sources * context_gradient.element_size())
    )
    head_sum = context_gradient.new_zeros(len(context_gradient), n_sources)
    for first_head in range(0, n_heads, heads_per_batch):
        heads = slice(first_head, first_head + heads_per_batch)
        weight_relevances = head_gradients[heads] @ call.value[heads].transpose(1, 2)  # [h, Q, K]
        head_sum += (
            weight_relevances.mul_(call.select_heads(heads).weights()).clamp_min_(0).sum(dim=0)
        )
    return (head_sum / n_heads).detach()


def _list_attentions(stacks: Mapping[str, Stack]) -> list[tuple[tuple[str, int], AttentionModules]]:
    return [
        ((name, index), layer.attention)
        for name, stack in stacks.items()
        for index, layer in enumerate(stack.layers)
    ]


def _make_output_hook(outputs: dict[tuple[str, int], Tensor], key: tuple[str, int]) -> ForwardHook:
    def hook(module: nn.Module, args: object, output: object) -> None:
        outputs[key] = first_output(output)

    return hook


def _make_count_hook(n_logits: list[int]) -> ForwardHook:
    def hook(module: nn.Module, args: object, output: object) -> None:
        logits = getattr(output, "logits", None)
        n_logits.extend([] if logits is None or logits.ndim != 3 else [logits.shape[1]])

    return hook


def _check_positions(
    model: Model, n_logits: list[int], calls: Mapping[tuple[str, int], AttentionCall]
) -> None:
    """Raise `InputError` if logits are not read one from each position of the stack that reads."""
    n_positions = calls[model.capabilities.output_stack, 0].query.shape[1]
    if n_logits and n_logits[-1] != n_positions:
        raise InputError(
            f"chefer: {model.name} gives {n_logits[-1]} logits for {n_positions} positions of its "
            "last layer, so no row of attention is that of a logit. Use gradient_input"
        )


def _check_single_position(
    model: Model, gradients_by_layer: Mapping[tuple[str, int], Tensor], position: int
) -> None:
    """Raise `InputError` if the number depends on other positions of the last layer's attention."""
    stack = model.capabilities.output_stack
    last_gradient = gradients_by_layer[stack, len(model.stacks[stack]) - 1]
    rows = last_gradient[0].any(dim=-1).nonzero().flatten().tolist()
    if set(rows) - {position}:
        raise InputError(
            f"chefer reads one row of its relevances, here that of position {position}; the head "
            f"of {model.name} reads {len(rows)} positions together (it takes a mean over them, or "
            "a convolution). Use gradient_input"
        )
