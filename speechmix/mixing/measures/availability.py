"""Check that a measure is defined for a model."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from ...errors import InputError
from ..maps.measure_facts import MeasureFacts

if TYPE_CHECKING:
    from ...adapters.binding.bound_layers import Stack
    from ...adapters.model import Model


def check_defined(facts: MeasureFacts, stack: Stack) -> None:
    """Raise `InputError`, which names another measure, if this one is not defined for a stack; warn
    of what it misses."""
    if stack.name == "cross" and not facts.cross:
        raise InputError(
            f"{facts.name} is not defined for cross-attention: its targets are tokens and its "
            "sources are the encoder's, so "
            "the residual stream belongs to none of them. Ask for stacks=['encoder', 'decoder'], "
            "or use attention_norm "
            "or alti"
        )
    if facts.norms and stack.spec.norm_order != "post":
        raise InputError(
            f"{facts.name} is defined for post-norm stacks, where a layer norm follows the "
            "residual sum; this "
            f"{stack.name} is pre-norm. Use attention_norm_residual"
        )
    if facts.norms == 2 and len(stack.spec.blocks) > 1:
        raise InputError(
            f"{facts.name} is defined for encoder layers, attention and feed-forward; a layer of "
            f"this {stack.name} has "
            "cross-attention between them. Use attention_norm_residual_layernorm"
        )
    if stack.spec.between and facts.scope == "layer":
        warnings.warn(
            f"the {stack.name} of this model has {stack.spec.between}, which mixes positions "
            "between layers. A map of one "
            "layer is right; a rollout or a composed map leaves that mixing out",
            stacklevel=2,
        )


def mixing_between_layers(model: Model) -> str:
    """What mixes positions between a model's layers, as a sentence; empty if nothing does."""
    descriptions = [
        f"the {stack.name} of {model.name} has {stack.spec.between}"
        for stack in model.stacks.values()
        if stack.spec.between
    ]
    return (
        f"{'; '.join(descriptions)}, which mixes positions between layers" if descriptions else ""
    )
