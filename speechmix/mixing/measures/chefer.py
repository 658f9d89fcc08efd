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
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from ...adapters.binding.layer_components import projection_weight
from ...adapters.capture.block import Block
from ...adapters.capture.forward_pass import Capture
from ...adapters.capture.layer_run import first_output
from ...errors import InputError
from .availability import mixing_between_layers
from .gradient_pass import RetainedGraph
from .objectives import one_position_advice
from .state_replacement import replaced_states

if TYPE_CHECKING:
    from ...adapters.binding.bound_layers import Stack
    from ...adapters.binding.layer_components import AttentionModules
    from ...adapters.capture.trace import AttentionCall
    from ...adapters.model import Model
    from .gradient_pass import GradientPass, SharedPasses
    from .unit_positions import Units

# Bytes of attention weights in memory at once: those of one head of a Whisper's 1,500 frames.
_WEIGHTS_BYTES = 2**24

ForwardHook = Callable[[nn.Module, object, object], None]
Weighted = Mapping[tuple[str, int], Tensor]


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
    position = position_read(run)
    rows = relevance(run.model, run.once(weighted_attention), position, stack, run.layers[stack])
    return units.pool_sources(torch.stack(rows))[:, None], {}


def check_chefer_covers(model: Model) -> None:
    """Raise `InputError` if the rules do not cover a model."""
    if any(stack.spec.convolution for stack in model.stacks.values()):
        raise InputError(
            f"chefer: a layer of {model.name} mixes positions behind attention, by a convolution, "
            "for which there is no rule. "
            "Use gradient_input or integrated_gradients"
        )
    if between := mixing_between_layers(model):
        raise InputError(
            f"chefer: {between}, for which there is no rule. Use gradient_input or "
            "integrated_gradients"
        )
    model.refuse_audio_tokens(
        f"chefer: in {model.name} sound enters the decoder among its tokens, for which there "
        "is no rule: an encoder's "
        "relevance reaches a decoder by cross-attention alone. Use gradient_input"
    )


def position_read(run: GradientPass) -> int:
    """Position whose state the objective is read from.

    Raises
    ------
    InputError
        If there is none.
    """
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
    calls, graph = run.together.once("chefer", _run_attention_pass)
    gradient_of = graph.gradients(run.place)
    run.check()
    _check_read_alone(run.model, gradient_of, position_read(run))
    attentions = _attentions(run.model.stacks)
    return {
        key: _weighted(attention, calls[key], gradient_of.pop(key)) for key, attention in attentions
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
        for key, attention in _attentions(stacks):
            hooks.callback(attention.module.register_forward_hook(_keeping(outputs, key)).remove)
        hooks.callback(passes.model.module.register_forward_hook(_counting(n_logits)).remove)
        graph = RetainedGraph(passes.values_of_inputs(), outputs)
    _check_positions(passes.model, n_logits, calls)
    return _AttentionPass(calls, graph)


def relevance(
    model: Model,
    weighted: Weighted,
    position: int,
    stack: str,
    layers: Sequence[int],
) -> list[Tensor]:
    """Row `position` of the relevances of what enters some layers of a stack, [K] each.

    Parameters
    ----------
    model : Model
    weighted : mapping of (stack, layer) to Tensor [Q, K]
        A_bar.
    position : int
        In the stack that reads: the decoder's where there is one.
    stack : str
        Whose rows are asked for: "encoder", "decoder" or "cross".
    layers : sequence of int
    """
    reading = model.capabilities.output_stack
    own = [weighted[reading, layer] for layer in range(len(model.stacks[reading]))]
    start = torch.zeros_like(own[0][0])
    start[position] = 1
    behind = [
        start
    ]  # row p of the product of (I + A_bar) of all layers behind, from the last layer down
    for layer in reversed(own):
        behind.insert(0, behind[0] + behind[0] @ layer)
    if stack == reading:
        return [behind[layer] - start for layer in layers]
    heard = [
        row @ cross
        for row, cross in zip(_normed_rows(own, behind), _of_stack(weighted, "cross"), strict=True)
    ]
    if stack == "cross":
        return [heard[layer] for layer in layers]
    return _through_encoder(torch.stack(heard).sum(dim=0), _of_stack(weighted, "encoder"), layers)


def _normed_rows(own: list[Tensor], behind: list[Tensor]) -> list[Tensor]:
    """What weighs the rows of each layer's cross-attention, [U] each: row p of what lies behind it,
    times R_n^tt transposed."""
    identity = torch.eye(len(own[0]), dtype=own[0].dtype, device=own[0].device)
    relevances, rows = identity, []
    for layer, row in zip(own, behind[1:], strict=True):
        relevances = relevances + layer @ relevances
        added = relevances - identity
        rows.append(row @ (_divide_by_sums(added, added.sum(dim=-1, keepdim=True)) + identity).T)
    return rows


def _through_encoder(heard: Tensor, weighted: list[Tensor], layers: Sequence[int]) -> list[Tensor]:
    """What is heard [K], times R_n^ee that starts at some of the encoder's layers, [K] each."""
    rows = []
    for first in layers:
        sums = torch.ones_like(heard)
        for layer in weighted[first:]:
            sums = sums + layer @ sums
        shares = _divide_by_sums(heard, sums - 1)
        row = shares
        for layer in reversed(weighted[first:]):
            row = row + row @ layer
        rows.append(heard + row - shares)
    return rows


def _divide_by_sums(values: Tensor, sums: Tensor) -> Tensor:
    """Values over sums; zero where a sum is: a row to which nothing was added stays the
    identity."""
    return torch.where(
        sums > 0, values / sums.where(sums > 0, torch.ones_like(sums)), torch.zeros_like(values)
    )


def _weighted(attention: AttentionModules, call: AttentionCall, gradient: Tensor) -> Tensor:
    """A_bar [Q, K], of the gradient [1, Q, D] of what the attention module gives."""
    of_context = (
        gradient[0] @ projection_weight(attention.output)
        if attention.includes_output
        else gradient[0]
    )
    n_heads, n_sources, _ = call.value.shape
    by_head = of_context.unflatten(-1, (n_heads, -1)).transpose(0, 1)  # [H, Q, d]
    at_once = max(1, _WEIGHTS_BYTES // (len(of_context) * n_sources * of_context.element_size()))
    summed = of_context.new_zeros(len(of_context), n_sources)
    for first in range(0, n_heads, at_once):
        heads = slice(first, first + at_once)
        of_weights = by_head[heads] @ call.value[heads].transpose(1, 2)  # [h, Q, K]
        summed += of_weights.mul_(call.select_heads(heads).weights()).clamp_min_(0).sum(dim=0)
    return (summed / n_heads).detach()


def _of_stack(weighted: Weighted, stack: str) -> list[Tensor]:
    return [values for (name, _), values in weighted.items() if name == stack]


def _attentions(stacks: Mapping[str, Stack]) -> list[tuple[tuple[str, int], AttentionModules]]:
    return [
        ((name, index), layer.attention)
        for name, stack in stacks.items()
        for index, layer in enumerate(stack.layers)
    ]


def _keeping(outputs: dict[tuple[str, int], Tensor], key: tuple[str, int]) -> ForwardHook:
    def hook(module: nn.Module, args: object, output: object) -> None:
        outputs[key] = first_output(output)

    return hook


def _counting(n_logits: list[int]) -> ForwardHook:
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


def _check_read_alone(
    model: Model, gradient_of: Mapping[tuple[str, int], Tensor], position: int
) -> None:
    """Raise `InputError` if the number depends on other positions of the last layer's attention."""
    stack = model.capabilities.output_stack
    last_gradient = gradient_of[stack, len(model.stacks[stack]) - 1]
    rows = last_gradient[0].any(dim=-1).nonzero().flatten().tolist()
    if set(rows) - {position}:
        raise InputError(
            f"chefer reads one row of its relevances, here that of position {position}; the head "
            f"of {model.name} reads {len(rows)} positions together (it takes a mean over them, or "
            "a convolution). Use gradient_input"
        )
