"""DecompX (Modarressi et al. 2023): decomposition of states by source through all layers.

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

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ...adapters.binding.layer_components import Norm, module_bias, projection_weight
from ...errors import ModelError

if TYPE_CHECKING:
    from ...adapters.binding.layer_components import FeedForwardModules
    from ...adapters.capture.layer_run import Block

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
