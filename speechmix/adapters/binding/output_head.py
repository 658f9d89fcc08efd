"""Output head of a model: the matrix from last-layer states to logits, and its norm.

In: a model with a language-model or CTC head. Out: its weight [V, D] and bias [V], for what reads a
logit off a state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor, nn

from ...errors import ModelError
from .bound_layers import module_bias

if TYPE_CHECKING:
    from ..model import Model


class OutputHead(NamedTuple):
    """Logits are weight [V, D] times the state, plus bias [V] where there is one."""

    weight: Tensor
    bias: Tensor | None


def head_projection(model: Model) -> nn.Module | None:
    """Return the module that computes logits; None where there is none."""
    projection = model.module.get_output_embeddings()
    return (
        getattr(model.module, "lm_head", None) if projection is None else projection
    )  # of a CTC model


def output_head(model: Model) -> OutputHead:
    """Return the linear head of a model, with the tensors it has at this moment: call within
    `Model.in_use`.

    A ModelError says that the logits are no linear function of the last states.
    """
    module, projection = model.module, head_projection(model)
    weight = getattr(projection, "weight", None)
    if (
        projection is None
        or not isinstance(weight, Tensor)
        or weight.ndim != 2
        or not weight.is_floating_point()
    ):
        raise ModelError(
            f"{model.name}: expected a linear language-model or CTC head, whose rows read logits "
            "off the last state; found "
            f"{type(projection).__name__} in a {type(module).__name__}"
        )
    logit_cap = getattr(model.text_config, "final_logit_softcapping", None)
    if logit_cap:
        raise ModelError(
            f"{model.name} caps its logits (final_logit_softcapping={logit_cap}): they are no sum of "
            "parts. Ask what is needed "
            "(speechmix.knock_out) or take a gradient (measures='gradient_input')"
        )
    bias = module_bias(projection)
    final_bias = getattr(module, "final_logits_bias", None)  # a buffer [1, V] of BART and its kin
    if isinstance(final_bias, Tensor):
        bias = final_bias[0] if bias is None else bias + final_bias[0]
    return OutputHead(weight, bias)
