"""Which states of a sound the head of a classifier reads, as units of a map of words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..inputs.clips.clip import Clip

if TYPE_CHECKING:
    from .decision import Decision


def has_own_tokens(decision: Decision) -> bool:
    """Whether the head reads tokens of its own (AST), and not the mean of all frames."""
    model, item = decision.model, decision.item
    if not (model.has_label_head and isinstance(item, Clip)):
        return False
    return model.grid(len(item.audio(model.sample_rate))).first_position > 0


def is_mean_of_frames(decision: Decision) -> bool:
    """Whether the head reads the mean of all frames."""
    is_pooled = decision.model.has_label_head and not decision.deciding_rows
    return is_pooled and not has_own_tokens(decision)
