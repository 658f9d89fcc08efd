"""Layer-wise relevance propagation with rules for attention, norms and activations, as gradient
times input.

The relevance of a state x for a number f is R = x * g, with g a gradient whose way back is changed
so that nothing is lost:

    linear map    z = W x + b           g_x = W' g_z                      the epsilon rule with epsilon = 0; b g_z is the bias's
    norm          y = gain c / s + b    s held as it is, b g_y is the bias's      (for an RMS norm the identity rule)
    activation    y = f(x)              g_x = g_y f(x) / x                        the identity rule
    product       y = a b               half of the gradient to each              the uniform rule: A V, q k', gate * up
    softmax       a = softmax(s)        its true gradient; (a - J s) g_a is the softmax's own        (Taylor, at s)

Achtibat et al. 2024 (AttnLRP); norms as in Ali et al. 2022; the form with gradients is that of
Arras et al. 2025. What is a bias's, or a softmax's own, is read off a *unit*: a number that is one
and that the bias is multiplied by. So relevance is counted on both ways, and f is the sum of what
reaches the states and the units. In: tensors of a forward pass. Out: tensors of the same values,
with other ways back.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ...adapters.binding.layer_components import module_bias
from ...adapters.binding.norms import norm_gain


def replace_gradient(value: Tensor, gradient_source: Tensor) -> Tensor:
    """The values of one tensor with the gradient of another."""
    return value.detach() + (gradient_source - gradient_source.detach())


def relevance_through_product(factor: Tensor, share: float | Tensor = 0.5) -> Tensor:
    """A factor of a product, which takes its share of the product's relevance.

    Examples
    --------
    >>> a, b = torch.tensor(3.0, requires_grad=True), torch.tensor(2.0, requires_grad=True)
    >>> (relevance_through_product(a) * relevance_through_product(b)).backward()
    >>> (a * a.grad).item(), (b * b.grad).item()
    (3.0, 3.0)
    """
    return replace_gradient(factor, factor * share)


def relevance_through_activation(argument: Tensor, result: Tensor) -> Tensor:
    """Output of a function of single units: its relevance goes to its argument as it is.

    Examples
    --------
    >>> x = torch.tensor([-1.0, 2.0], requires_grad=True)
    >>> relevance_through_activation(x, x.square()).sum().backward()
    >>> x.grad
    tensor([-1.,  2.])
    """
    slopes = result / argument.where(argument != 0, torch.ones_like(argument))
    return replace_gradient(result, argument * slopes.detach())


def relevance_through_bias(after: Tensor, bias: Tensor | None, unit: Tensor) -> Tensor:
    """Output of a linear map: its bias is one times a unit."""
    return after if bias is None else after + (unit - 1) * bias


def relevance_through_norm(
    module: nn.Module, before: Tensor, after: Tensor, unit: Tensor
) -> Tensor:
    """Output of a layer norm or RMS norm, its deviation held as it is.

    Examples
    --------
    >>> x, unit, norm = torch.tensor([[1.0, 2.0, 6.0]], requires_grad=True), torch.ones((), requires_grad=True), nn.LayerNorm(3)
    >>> nn.init.constant_(norm.bias, 0.5).shape
    torch.Size([3])
    >>> relevance_through_norm(norm, x, norm(x), unit)[0, 2].backward()
    >>> torch.allclose((x * x.grad).sum() + unit.grad, norm(x)[0, 2])
    True
    """
    if not isinstance(module, nn.LayerNorm):
        return relevance_through_activation(before, after)
    centred = before - before.mean(dim=-1, keepdim=True)
    deviation = (centred.square().mean(dim=-1, keepdim=True) + module.eps).sqrt().detach()
    linear = norm_gain(module, before) * centred / deviation
    return relevance_through_bias(replace_gradient(after, linear), module_bias(module), unit)


def relevance_through_attention(
    context: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None,
    scale: float,
    causal: bool,
    unit: Tensor,
) -> Tensor:
    """Output of attention: weights and values share its relevance; of the weights', queries and
    keys.

    Parameters
    ----------
    context : Tensor [B, H, Q, d]
        As it was computed.
    query, key, value : Tensor [B, H, Q or K, d]
    mask : Tensor, optional
        Broadcast to [B, H, Q, K]: bool, True takes part, or added to the scores. Relevance of what
        is added is the unit's.
    scale : float
    causal : bool
    unit : Tensor
        Of what is the softmax's own.

    Returns
    -------
    Tensor [B, H, Q, d]
    """
    products = (
        scale * relevance_through_product(query) @ relevance_through_product(key).transpose(-1, -2)
    )
    weights = _softmax(products, mask, causal=causal)
    products = products.detach()
    slope = weights.detach() * (products - (weights.detach() * products).sum(dim=-1, keepdim=True))
    weights = weights + (unit - 1) * (weights.detach() - slope)
    return replace_gradient(
        context, relevance_through_product(weights) @ relevance_through_product(value)
    )


def _softmax(products: Tensor, mask: Tensor | None, *, causal: bool) -> Tensor:
    """Softmax of masked scores; rows that see nothing are zeros."""
    scores = products
    if mask is not None:
        mask = mask.detach()
        scores = (
            scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
        )
    if causal:
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    blind = (scores == -torch.inf).all(dim=-1, keepdim=True)
    return scores.masked_fill(blind, 0).softmax(dim=-1).masked_fill(blind, 0)
